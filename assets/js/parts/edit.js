// Edit dialog of a project. Sends only what was changed, and only if nobody else changed the same in the meantime.

import { ApiError, etagOf, get, patch, projectPath } from "../api.js";
import { $, h } from "../dom.js";
import { guardUnsaved } from "../router.js";
import { refresh } from "../shell.js";
import { confirm, open } from "./dialog.js";
import { loadDraft, saveDraft } from "./draft.js";
import { fields, focusField } from "./form.js";
import { FIELDS, SECTIONS, changesOf, check, differences, plain, textOf, toValues } from "./mapping.js";
import { busy, button, choiceCard, empty, loading, messageOf, notice, submitButton, toast } from "./ui.js";
import { SYSTEMS, labelOf } from "./words.js";

/** The system is fixed, and what is changed most often comes first. */
const PARTS = [...SECTIONS.filter(([part]) => part === "capacity"), ...SECTIONS.filter(([part]) => !["capacity", "system"].includes(part))];

export function openAside(team, onClose) {
	/** @type {Editor | null} */
	let editor = null;
	const dialog = open({
		title: `Edit ${team}`, kind: "wide", mayClose: () => editor?.mayClose() ?? true,
		onClose: () => {
			editor?.closed();
			onClose();
		},
	});
	dialog.show(loading());
	get(projectPath(team)).then((mapping) => {
		if (dialog.el.isConnected) editor = new Editor(dialog, mapping);
	}, (error) => dialog.show(error.status === 404 ? empty("Project not found", `${team} is not mapped to a repository.`) : empty("Could not load the project", messageOf(error))));
	return dialog;
}

/** Form of one project. Unsaved changes are kept as a draft until they are saved or discarded. */
class Editor {
	/** @param {ReturnType<typeof open>} dialog @param {any} mapping */
	constructor(dialog, mapping) {
		this.dialog = dialog;
		this.team = mapping.teamKey;
		this.draft = `edit.${this.team}`;
		/** Project as last read from the service. */
		this.base = mapping;
		this.values = toValues(mapping);
		/** Fields that somebody else has changed as well, with their saved values. @type {{name: string, mine: any, theirs: any, chosen: boolean}[]} */
		this.conflicts = [];
		/** @type {Record<string, string>} */
		this.problems = {};
		this.failure = "";
		this.isRestored = false;
		this.field = fields(this.values, () => this.changed());
		this.restore();
		this.release = guardUnsaved(() => this.isDirty());
		this.draw();
		focusField(dialog.el, "maxInProgressAiIssues");
	}

	isDirty = () => differences(toValues(this.base), this.values).length > 0;

	restore() {
		const kept = loadDraft(this.draft);
		if (!kept) return;
		const current = this.base;
		this.base = kept.base;
		Object.assign(this.values, kept.values);
		this.rebase(current);
		this.isRestored = true;
	}

	/** Puts the changes of this form on top of the current project. @param {any} current */
	rebase(current) {
		const [before, now] = [toValues(this.base), toValues(current)];
		const [mine, theirs] = [differences(before, this.values), differences(before, now)];
		this.conflicts = mine.filter((name) => theirs.includes(name) && now[name] !== this.values[name])
			.map((name) => ({ name, mine: this.values[name], theirs: now[name], chosen: false }));
		const changes = Object.fromEntries(mine.map((name) => [name, this.values[name]]));
		Object.assign(this.values, now, changes);
		this.base = current;
	}

	changed() {
		saveDraft(this.draft, this.isDirty() ? { base: this.base, values: this.values } : null);
		this.draw();
	}

	/** Forgets the changes, so that the dialog can close. */
	discard() {
		Object.assign(this.values, toValues(this.base));
		saveDraft(this.draft, null);
	}

	mayClose() {
		if (!this.isDirty()) return true;
		confirm({ title: `Discard the changes to ${this.team}?`, text: "They have not been saved.", action: "Discard", cancel: "Keep editing", run: async () => {
			this.discard();
			this.dialog.close();
		} });
		return false;
	}

	closed() {
		this.release();
		if (this.isDirty()) toast(`Your changes to ${this.team} are kept in this tab, not saved.`);
	}

	save = () => {
		busy(async () => {
			const open = this.conflicts.find((one) => !one.chosen);
			if (open) return this.fail({}, "Choose which values to keep.");
			try {
				// A problem that the stored project has already does not prevent other changes.
				const changed = differences(toValues(this.base), this.values);
				const problems = Object.fromEntries(Object.entries((await check(this.values)).problems).filter(([name]) => changed.includes(name)));
				if (Object.keys(problems).length) return this.fail(problems);
				await this.send();
			} catch (error) {
				this.fail({}, plain(messageOf(error)));
			}
		});
	};

	/** Sends the changes. If only other fields were changed in the meantime, it sends them once more. */
	async send(isRepeated = false) {
		const changes = changesOf(this.base, this.values);
		try {
			const saved = Object.keys(changes).length ? await patch(projectPath(this.team), changes, etagOf(this.base)) : {};
			this.base = { ...this.base, ...saved };
			this.discard();
			toast([`Saved ${this.team}.`, ...(saved.warnings ?? []).map((one) => plain(one.message))].join(" "));
			this.dialog.close();
			await refresh();
		} catch (error) {
			if (!(error instanceof ApiError) || error.status !== 412) throw error;
			this.rebase(error.body.mapping);
			if (!this.conflicts.length) {
				// A proxy may change ETags, so that no version is ever current.
				if (isRepeated) throw error;
				return this.send(true);
			}
			this.changed();
			$(this.dialog.el, ".conflicts input").focus();
		}
	}

	/** Shows problems, and focuses the first. @param {Record<string, string>} problems @param {string} [failure] */
	fail(problems, failure = "") {
		[this.problems, this.failure] = [problems, failure];
		this.draw();
		focusField(this.dialog.el);
	}

	fieldOf(name) {
		return Object.values(FIELDS).flatMap((fields) => fields(this.values)).find((one) => one.name === name) ?? { name, label: name };
	}

	/** Both values of every field that was changed twice, side by side. */
	conflictPart() {
		if (!this.conflicts.length) return null;
		const part = (one) => {
			const field = this.fieldOf(one.name);
			const choice = (title, value) => choiceCard({
				name: `conflict-${one.name}`, checked: one.chosen && this.values[one.name] === value, onchange: () => {
					one.chosen = true;
					this.values[one.name] = value;
					this.changed();
				},
			}, h("span", title), h("b", textOf(field, { ...this.values, [one.name]: value })));
			return h("fieldset.field", { key: `conflict-${one.name}` }, h("legend", field.label), h("div.cards", choice("Your value", one.mine), choice("Saved in the meantime", one.theirs)));
		};
		return h("div.conflicts", { key: "conflicts" },
			notice("warn", h("b", "Somebody else changed this project in the meantime."), " Choose which values to keep, then save again."), this.conflicts.map(part));
	}

	draw() {
		const renderField = (about) => this.field(about.name === "teamKey"
			? { ...about, type: "text", disabled: true, hint: `${labelOf(SYSTEMS, this.values.ticketingProvider)}. The key of a project cannot be changed.` } : about, this.problems[about.name]);
		const parts = PARTS.map(([part, title]) => h("fieldset.form-part", { key: part }, h("legend", title), h("div.form-grid", FIELDS[part](this.values).map(renderField))));
		this.dialog.show(h("form", { id: "edit-form", onsubmit: this.save, novalidate: true },
			this.failure && h("p.error", { role: "alert", tabindex: "-1", key: "failure" }, this.failure),
			this.isRestored && h("div", { key: "restored" }, notice("run", "Your unsaved changes are back.")),
			this.conflictPart(), parts), [
			button("Cancel", () => this.mayClose() && this.dialog.close()),
			submitButton("Save", "edit-form"),
		]);
	}
}
