// A project's settings, the run caps among them.

import { get, ofProject, patch } from "../api.js";
import { $, h } from "../dom.js";
import { refresh } from "../shell.js";
import { open } from "./dialog.js";
import { fields } from "./form.js";
import { FIELDS, changesOf, placeOf, toValues } from "./mapping.js";
import { busy, empty, loading, messageOf, toast } from "./ui.js";
import { SYSTEMS, name } from "./words.js";

const PARTS = /** @type {const} */ ([["capacity", "Capacity and run caps"], ["repository", "Repository"], ["source", "Tickets"], ["runner", "Runner"], ["provider", "Model provider"], ["secrets", "Environment"]]);

export function openAside(team, onClose) {
	const dialog = open({ title: `Edit ${team}`, kind: "wide", onClose });
	dialog.show(loading());
	get("/api/mappings").then((mappings) => {
		if (mappings[team]) edit(dialog, mappings[team]);
		else dialog.show(empty("There is no such project", `${team} is not mapped to a repository.`));
	}, (error) => dialog.show(empty("The project could not be loaded", messageOf(error))));
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
				const saved = Object.keys(changes).length ? await patch(ofProject(mapping.teamKey), changes) : {};
				toast([`${mapping.teamKey} is saved.`, ...(saved.warnings ?? []).map((one) => one.message)].join(" "));
				dialog.close();
				await refresh();
			} catch (thrown) {
				const text = messageOf(thrown);
				error = { field: placeOf(text, values).field, text };
				draw();
				const at = $(dialog.el, "[aria-invalid=true], .error");
				at?.scrollIntoView({ block: "center" });
				at?.focus();
			}
		});
	};
	const draw = () => {
		let placed = false;
		const one = (about) => {
			const mine = error.field === about.name && error.text;
			if (mine) placed = true;
			return field(about.name === "teamKey" ? { ...about, disabled: true, hint: `${name(SYSTEMS, values.ticketingProvider)}. The key of a project cannot change.` } : about, mine || undefined);
		};
		const parts = PARTS.map(([part, title]) => h("fieldset", { class: "form-part", key: part }, h("legend", {}, title), h("div", { class: "form-grid" }, FIELDS[part](values).map(one))));
		dialog.show(h("form", { id: "edit-form", onsubmit: save, novalidate: true }, error.text && !placed && h("p", { class: "error", role: "alert" }, error.text), parts), [
			h("button", { class: "button", onclick: () => dialog.close() }, "Cancel"),
			h("button", { type: "submit", form: "edit-form", class: "button primary" }, "Save"),
		]);
	};
	draw();
	$(dialog.el, "input[name=maxInProgressAiIssues]")?.focus();
}
