// Text field with choices of the service. Any text is accepted, because the vendor may not list everything.

import { get } from "../api.js";
import { $, h, island, render } from "../dom.js";

/** @typedef {{choices: {value: string, label: string, note?: string}[], error: string | null, note?: string | null}} Choices */
/**
 * `choices` is the path of the choices, null without them; `named` shows the label of the chosen value instead of the
 * value, which nobody can read.
 * @typedef {{attrs: Record<string, any>, label: string, choices: string | null, named?: boolean, value: string, set: (value: string) => void}} Props
 */

const MAX_AGE = 60_000;
const MAX_SHOWN = 60;

/** @type {Map<string, {at: number, choices: Promise<Choices>}>} */
const CACHE = new Map();

/** Loads choices. Those of the last minute are used again. @param {string} path @returns {Promise<Choices>} */
function loadChoices(path) {
	const known = CACHE.get(path);
	if (known && Date.now() - known.at < MAX_AGE) return known.choices;
	const choices = get(path).then(toChoices, (error) => {
		CACHE.delete(path);
		return { choices: [], error: error.message };
	});
	CACHE.set(path, { at: Date.now(), choices });
	return choices;
}

/** The fields of Jira are a plain list of names and ids; the options of a field one of values. */
const toChoices = (content) => Array.isArray(content)
	? { choices: content.map(({ id, name, value }) => (name ? { value: id, label: name } : { value, label: value })), error: null }
	: content;

/** @param {Props} props */
export const combobox = (props) => island("combobox", props, mount);

/** @param {HTMLElement} el @param {Props} props */
function mount(el, props) {
	const NONE = /** @type {Choices} */ ({ choices: [], error: null });
	let [loaded, path] = [NONE, /** @type {string | null} */ (null)];
	let [isOpen, isFiltering, active] = [false, false, -1];
	const list = `${props.attrs.id}-list`;
	const textOf = (value) => (props.named && loaded.choices.find((one) => one.value === value)?.label) || value;
	const input = () => /** @type {HTMLInputElement} */ ($(el, "input"));

	/** Loads the choices once they are needed, because each list is a request to the vendor. */
	const load = async () => {
		const mine = props.choices;
		if (path === mine) return;
		path = mine;
		const choices = mine ? await loadChoices(mine) : NONE;
		if (path !== mine) return;
		loaded = choices;
		draw();
	};
	const shown = () => {
		const words = isFiltering ? input().value.toLowerCase().trim() : "";
		const found = isOpen ? loaded.choices.filter((one) => `${one.value} ${one.label}`.toLowerCase().includes(words)).slice(0, MAX_SHOWN) : [];
		// What was typed in full needs no list over the rest of the form.
		return isFiltering && found.length === 1 && found[0].value.toLowerCase() === words ? [] : found;
	};
	const toggle = (open) => {
		[isOpen, active] = [open, -1];
		isFiltering &&= open;
		draw();
	};
	const choose = (choice) => {
		props.set(choice.value);
		input().value = textOf(choice.value);
		toggle(false);
	};
	const typed = () => {
		const text = input().value;
		props.set((props.named && loaded.choices.find((one) => one.label === text.trim())?.value) || text);
		isFiltering = true;
		toggle(true);
	};
	const press = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		const wasOpen = shown().length > 0;
		if (step) {
			isOpen = true;
			const count = shown().length;
			active = count ? (active < 0 && step < 0 ? count - 1 : (active + step + count) % count) : -1;
			draw();
			$(el, "[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
		} else if (event.key === "Enter" && shown()[active]) choose(shown()[active]);
		else if (event.key === "Escape" && wasOpen) toggle(false);
		else return;
		event.preventDefault();
	};
	const option = (choice, at) => {
		const [text, more] = props.named ? [choice.label, choice.value] : [choice.value, choice.label];
		const sub = [more !== text && more, choice.note].filter(Boolean).join(" · ");
		return h("li", {
			role: "option", id: `${list}-${at}`, key: choice.value, "aria-selected": String(at === active),
			onpointerdown: (event) => event.preventDefault(), onclick: () => choose(choice),
		}, h("span", text), sub && h("span.sub", sub));
	};
	const draw = () => {
		const choices = shown();
		render(el,
			h("input", {
				...props.attrs, value: textOf(props.value), role: "combobox", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list",
				"aria-expanded": String(choices.length > 0), "aria-controls": choices.length ? list : null, "aria-activedescendant": choices[active] ? `${list}-${active}` : null,
				oninput: typed, onkeydown: press, onfocus: load, onclick: () => toggle(!isOpen), onblur: () => toggle(false),
			}),
			choices.length > 0 && h("ul", { role: "listbox", id: list, "aria-label": props.label }, choices.map(option)),
			(loaded.error ?? loaded.note) && h("p.hint.warn-text", { role: "status" }, loaded.error ?? loaded.note));
	};
	const update = (next) => {
		props = next;
		if (path !== props.choices) [path, loaded] = [null, NONE];
		if (props.named && props.value) load();
		draw();
	};
	update(props);
	return update;
}
