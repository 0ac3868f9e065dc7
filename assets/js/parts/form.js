// Fields of forms. What was typed lives in an object, so that nothing is lost when a form is drawn
// again.

import { h } from "../dom.js";

/** @typedef {{name: string, label: string, hint?: any, type?: "text" | "number" | "password" | "checkbox" | "area" | "select" | "cards", options?: [string, string, any?][], placeholder?: string, required?: boolean, disabled?: boolean}} Field */

let forms = 0;

/**
 * Draws fields over `values`, and the error beside the field that it is about.
 * @param {Record<string, any>} values @param {() => void} changed
 */
export function fields(values, changed) {
	const form = `f${(forms += 1)}`;
	/** @param {Field} field @param {string} [error] */
	return (field, error) => {
		const { name, label, hint, type = "text", options = [], placeholder, required } = field;
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
		const said = [hint && h("p", { class: "hint", id: `${id}-hint` }, hint), error && h("p", { class: "error", id: `${id}-error`, role: "alert" }, error)];
		if (type === "cards") {
			const card = (/** @type {any} */ [option, text, meaning]) =>
				h("label", { class: "card-choice" },
					h("input", { type: "radio", name: id, value: option, checked: value === option, onchange: () => set(option) }),
					h("span", { class: "card-text" }, h("strong", {}, text), meaning && h("span", {}, meaning)));
			return h("fieldset", { class: "field", key: name, "aria-describedby": about }, h("legend", {}, label), h("div", { class: "cards" }, options.map(card)), said);
		}
		if (type === "checkbox") {
			return h("div", { class: "field check", key: name }, h("label", { for: id }, h("input", { ...common, type, checked: Boolean(value) }), label), said);
		}
		const control = type === "area"
			? h("textarea", { ...common, rows: 4, placeholder, spellcheck: "false", value })
			: type === "select"
				? choice(h("select", common, options.map(([option, text]) => h("option", { value: option }, text))), value)
				: h("input", { ...common, type: type === "number" ? "text" : type, inputmode: type === "number" ? "numeric" : null, placeholder, value,
					autocomplete: type === "password" ? "off" : null, spellcheck: "false" });
		return h("div", { class: "field", key: name },
			h("label", { for: id }, label, !required && type !== "select" && h("span", { class: "optional" }, "optional")), control, said);
	};
}

/** @param {HTMLSelectElement} select @param {string} value */
function choice(select, value) {
	select.value = value;
	return select;
}

/** A number out of a field; what is none is sent as it is, so that the service says what is wrong. */
export function number(text) {
	const trimmed = String(text ?? "").trim();
	if (trimmed === "") return null;
	return /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}
