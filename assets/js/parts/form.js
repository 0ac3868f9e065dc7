// Form fields. Their values are kept in an object, so that nothing is lost when a form is rendered again.

import { h } from "../dom.js";
import { combobox } from "./combobox.js";
import { choiceCard, optionsOf } from "./ui.js";

/**
 * `choices` is the path of the choices of a combobox, null if there are none; `named` shows their labels instead of
 * their values. `preset` is the value in force if the field is blank.
 * @typedef {{name: string, label: string, hint?: any, type?: "text" | "number" | "password" | "checkbox" | "area" | "select" | "cards" | "combobox", options?: [string, string, any?][], choices?: string | null, named?: boolean, preset?: any, placeholder?: string, required?: boolean, disabled?: boolean}} Field
 */

let forms = 0;

/**
 * Returns a function that renders a field bound to `values`, with an optional error below it.
 * @param {Record<string, any>} values @param {() => void} [changed]
 */
export function fields(values, changed = () => {}) {
	const form = `f${(forms += 1)}`;
	/** @param {Field} field @param {string} [error] */
	return (field, error) => {
		const { name, label, hint, type = "text", options = [], placeholder = field.preset, required } = field;
		const id = `${form}-${name}`;
		const set = (value) => {
			values[name] = value;
			changed();
		};
		const about = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || null;
		const common = {
			id, name, disabled: field.disabled, "aria-describedby": about, "aria-invalid": error ? "true" : null, "aria-required": required ? "true" : null,
			oninput: (event) => set(type === "checkbox" ? event.target.checked : event.target.value),
		};
		const value = values[name] ?? "";
		const notes = [hint && h("p.hint", { id: `${id}-hint` }, hint), error && h("p.error", { id: `${id}-error` }, error)];
		if (type === "cards") {
			const card = (/** @type {any} */ [option, text, description]) =>
				choiceCard({ name: id, value: option, checked: value === option, onchange: () => set(option) }, h("strong", text), description && h("span", description));
			return h("fieldset.field", { key: name, "aria-describedby": about }, h("legend", label), h("div.cards", options.map(card)), notes);
		}
		if (type === "checkbox") {
			return h("div.field.check", { key: name }, h("label", { for: id }, h("input", { ...common, type, checked: Boolean(value) }), label), notes);
		}
		const control = type === "area"
			? h("textarea", { ...common, rows: 4, placeholder, spellcheck: "false", value })
			: type === "select"
				? h("select", { ...common, value }, optionsOf(options, value))
				: type === "combobox" ? combobox({ attrs: { ...common, oninput: null, placeholder }, label, choices: field.choices ?? null, named: field.named, value, set })
				: h("input", { ...common, type: type === "number" ? "text" : type, inputmode: type === "number" ? "numeric" : null, placeholder, value,
					autocomplete: type === "password" ? "off" : null, spellcheck: "false" });
		return h("div.field", { key: name },
			h("label", { for: id }, label, !required && type !== "select" && h("span.optional", "optional")), control, notes);
	};
}

/** Parses the number in a field. Invalid text is returned unchanged, so that the service reports the error. */
export function parseNumber(text) {
	const trimmed = String(text ?? "").trim();
	if (trimmed === "") return null;
	return /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}

/** Focuses a field, or the first with an error if no name is given. @param {ParentNode} el @param {string} [name] */
export function focusField(el, name) {
	const found = /** @type {any} */ (el.querySelector(name ? `[name="${name}"], [name$="-${name}"]:checked` : "[aria-invalid=true], fieldset:has(> .error) input:checked, .error"));
	found?.scrollIntoView({ block: "center" });
	found?.focus();
}
