// Edit dialog of a project.

import { get, patch, projectPath } from "../api.js";
import { $, h } from "../dom.js";
import { refresh } from "../shell.js";
import { open } from "./dialog.js";
import { fields } from "./form.js";
import { FIELDS, changesOf, fieldOfError, toValues } from "./mapping.js";
import { busy, empty, loading, messageOf, toast } from "./ui.js";
import { SYSTEMS, labelOf } from "./words.js";

const SECTIONS = /** @type {const} */ ([["capacity", "Capacity and run caps"], ["repository", "Repository"], ["source", "Tickets"], ["runner", "Runner"], ["provider", "Model provider"], ["secrets", "Environment"]]);

export function openAside(team, onClose) {
	const dialog = open({ title: `Edit ${team}`, kind: "wide", onClose });
	dialog.show(loading());
	get("/api/mappings").then((mappings) => {
		if (mappings[team]) edit(dialog, mappings[team]);
		else dialog.show(empty("Project not found", `${team} is not mapped to a repository.`));
	}, (error) => dialog.show(empty("Could not load the project", messageOf(error))));
	return dialog;
}

/** @param {ReturnType<typeof open>} dialog */
function edit(dialog, mapping) {
	const values = toValues(mapping);
	let error = { field: "", text: "" };
	const field = fields(values, () => draw());
	const save = (event) => {
		event.preventDefault();
		busy(async () => {
			try {
				const changes = changesOf(mapping, values);
				const saved = Object.keys(changes).length ? await patch(projectPath(mapping.teamKey), changes) : {};
				toast([`Saved ${mapping.teamKey}.`, ...(saved.warnings ?? []).map((one) => one.message)].join(" "));
				dialog.close();
				await refresh();
			} catch (thrown) {
				const text = messageOf(thrown);
				error = { field: fieldOfError(text, values).field, text };
				draw();
				const at = $(dialog.el, "[aria-invalid=true], .error");
				at?.scrollIntoView({ block: "center" });
				at?.focus();
			}
		});
	};
	const draw = () => {
		let isShownAtField = false;
		const renderField = (about) => {
			const mine = error.field === about.name && error.text;
			if (mine) isShownAtField = true;
			return field(about.name === "teamKey" ? { ...about, disabled: true, hint: `${labelOf(SYSTEMS, values.ticketingProvider)}. The key of a project cannot be changed.` } : about, mine || undefined);
		};
		const parts = SECTIONS.map(([part, title]) => h("fieldset", { class: "form-part", key: part }, h("legend", {}, title), h("div", { class: "form-grid" }, FIELDS[part](values).map(renderField))));
		dialog.show(h("form", { id: "edit-form", onsubmit: save, novalidate: true }, error.text && !isShownAtField && h("p", { class: "error", role: "alert" }, error.text), parts), [
			h("button", { class: "button", onclick: () => dialog.close() }, "Cancel"),
			h("button", { type: "submit", form: "edit-form", class: "button primary" }, "Save"),
		]);
	};
	draw();
	$(dialog.el, "input[name=maxInProgressAiIssues]")?.focus();
}
