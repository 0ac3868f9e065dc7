// Text field with choices of the service. Any text is accepted, because the vendor may not list everything.

import { get } from "../api.js";
import { $, h, island, render } from "../dom.js";

/** @typedef {{value: string, label: string, note?: string}} Choice */
/** @typedef {{choices: Choice[], error: string | null, loaded?: boolean}} Choices */
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
export function loadChoices(path) {
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
	? { choices: content.map(({ id, name, value }) => (name ? { value: id, label: name, note: id } : { value, label: value })), error: null }
	: content;

/** @param {Props} props */
export const combobox = (props) => island("combobox", props, mount);

/** @param {HTMLElement} el @param {Props} props */
function mount(el, props) {
	/** @type {Choices} */
	let loaded = { choices: [], error: null };
	let path = /** @type {string | null} */ (null);
	let [isOpen, isFiltering, active] = [false, false, -1];
	const list = `${props.attrs.id}-list`;
	const textOf = (value) => (props.named && loaded.choices.find((one) => one.value === value)?.label) || value;
	const input = () => /** @type {HTMLInputElement} */ ($(el, "input"));

	const shown = () => {
		const words = isFiltering ? input().value.toLowerCase().trim() : "";
		return loaded.choices.filter((one) => `${one.value} ${one.label} ${one.note ?? ""}`.toLowerCase().includes(words)).slice(0, MAX_SHOWN);
	};
	const toggle = (open) => {
		[isOpen, active] = [open && loaded.choices.length > 0, -1];
		if (!open) isFiltering = false;
		draw();
	};
	const choose = (choice) => {
		props.set(choice.value);
		input().value = textOf(choice.value);
		toggle(false);
	};
	const typed = () => {
		const text = input().value;
		const named = props.named && loaded.choices.find((one) => one.label === text.trim());
		props.set(named ? named.value : text);
		isFiltering = true;
		toggle(true);
	};
	const press = (event) => {
		const choices = shown();
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (step && loaded.choices.length) {
			if (!isOpen) toggle(true);
			active = (active + step + choices.length + (active < 0 && step < 0 ? 1 : 0)) % Math.max(1, choices.length);
			draw();
			$(el, "[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
		} else if (isOpen && event.key === "Enter" && choices[active]) choose(choices[active]);
		else if (isOpen && event.key === "Escape") toggle(false);
		else return;
		event.preventDefault();
		event.stopPropagation();
	};
	const option = (choice, at) => h("li", {
		role: "option", id: `${list}-${at}`, key: choice.value, "aria-selected": String(at === active),
		onpointerdown: (event) => event.preventDefault(), onclick: () => choose(choice),
	}, h("span", {}, props.named ? choice.label : choice.value), (props.named || choice.label !== choice.value || choice.note) && h("span", { class: "sub" }, [!props.named && choice.label !== choice.value && choice.label, choice.note].filter(Boolean).join(" · ")));

	const draw = () => {
		const choices = isOpen ? shown() : [];
		render(el,
			h("input", {
				...props.attrs, value: textOf(props.value), role: "combobox", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list",
				"aria-expanded": String(choices.length > 0), "aria-controls": choices.length ? list : null, "aria-activedescendant": choices[active] ? `${list}-${active}` : null,
				oninput: typed, onkeydown: press, onclick: () => toggle(!isOpen), onblur: () => toggle(false),
			}),
			choices.length > 0 && h("ul", { role: "listbox", id: list, "aria-label": props.label }, choices.map(option)),
			loaded.error && h("p", { class: "hint warn-text", role: "status" }, `The choices could not be listed: ${loaded.error}`));
	};
	const update = (next) => {
		props = next;
		if (path !== props.choices) {
			[path, loaded] = [props.choices, { choices: [], error: null }];
			const mine = path;
			if (mine) loadChoices(mine).then((choices) => {
				if (mine !== path) return;
				loaded = choices;
				draw();
			});
		}
		draw();
	};
	update(props);
	return update;
}
