// Table with sorting and filters. A long table renders only the visible rows. All rows have the same height, so that
// updates do not move them.

import { $, h, island, render } from "../dom.js";
import { icon } from "./icons.js";
import { empty } from "./ui.js";

/** @typedef {{label: string, look: string, by: ((row: any) => any) | null, cell: (row: any) => any}} Column */
/**
 * Definition of a table. Sorting and filter are remembered by `id`. `chips` are predefined filters. `href` is the
 * link of a row. `empty` is the title, the text and the action shown without rows.
 * @typedef {{id: string, label: string, rows: any[], key: (row: any) => string, columns: Column[], filter?: boolean, chips?: [string, (row: any) => boolean][], href?: (row: any) => string, actions?: (row: any) => any, empty: [string, any, any?]}} Spec
 */

/**
 * Defines a column. `look` is a width (xs, s, m, l, xl; default: the remaining width), `sm` or `md` to hide the column
 * on narrower screens, and `right`. `by` is the value to sort and filter by: a field name or a function; null for
 * none.
 * @param {string} label @param {string} look @param {string | ((row: any) => any) | null} by @param {(row: any) => any} [cell]
 * @returns {Column}
 */
export function col(label, look, by, cell) {
	const value = typeof by === "string" ? (row) => row[by] : by;
	return { label, look, by: value, cell: cell ?? ((row) => value?.(row) ?? "–") };
}

/** Longer tables render only the visible rows. */
const MAX_UNVIRTUALIZED_ROWS = 40;
/** Rows rendered above and below the visible ones. */
const OVERSCAN = 8;

/** @type {Map<string, {query: string, chip: string, by: number, down: boolean}>} */
const SETTINGS = new Map();

/** @param {Spec} spec */
export const table = (spec) => island("table-part", spec, mount);

/** @param {HTMLElement} el @param {Spec} first */
function mount(el, first) {
	let spec = first;
	/** @type {number[]} */
	let counts = [];
	const settings = SETTINGS.get(spec.id) ?? { query: "", chip: "", by: -1, down: false };
	SETTINGS.set(spec.id, settings);
	/** @type {any[]} */
	let shown = [];
	/** @type {WeakMap<object, string>} */
	const texts = new WeakMap();
	let [from, until, height] = [0, 0, 0];

	const textOf = (row) => {
		let text = texts.get(row);
		if (text === undefined) {
			text = spec.columns.map((column) => column.by?.(row) ?? "").join(" ").toLowerCase();
			texts.set(row, text);
		}
		return text;
	};

	const setSpec = (next) => {
		spec = next;
		counts = (spec.chips ?? []).map(([, test]) => spec.rows.filter(test).length);
	};

	const applyFilter = () => {
		const words = settings.query.toLowerCase().split(/\s+/).filter(Boolean);
		const [, test] = spec.chips?.find(([name]) => name === settings.chip) ?? [];
		shown = spec.rows.filter((row) => (!test || test(row)) && words.every((word) => textOf(row).includes(word)));
		const { by } = spec.columns[settings.by] ?? {};
		if (!by) return;
		const keyed = shown.map((row) => ({ row, by: by(row) }));
		keyed.sort((a, b) => compare(a.by, b.by) * (settings.down ? -1 : 1));
		shown = keyed.map((one) => one.row);
	};

	const visibleRange = () => {
		const body = el.querySelector("tbody");
		// All rows have the same height, so one is measured.
		if (!body) return [0, 1];
		height ||= $(body, "tr[aria-rowindex]")?.offsetHeight || 48;
		const top = -body.getBoundingClientRect().top;
		const first = Math.max(0, Math.floor(top / height) - OVERSCAN);
		return [Math.min(first, shown.length), Math.min(shown.length, Math.ceil((top + innerHeight) / height) + OVERSCAN)];
	};

	const draw = () => {
		const long = shown.length > MAX_UNVIRTUALIZED_ROWS;
		[from, until] = long ? visibleRange() : [0, shown.length];
		const gap = (key, rows) =>
			rows > 0 && h("tr", { class: "gap", key, "aria-hidden": "true", style: { height: `${rows * height}px` } }, h("td"));
		render(el, bar(), shown.length || spec.rows.length
			? h("table", { class: "table", "aria-label": spec.label, "aria-rowcount": shown.length + 1 },
				h("thead", {}, h("tr", {}, spec.columns.map(head), spec.actions && h("th", { class: "c-actions" }, h("span", { class: "sr" }, "Actions")))),
				h("tbody", { onkeydown: keys },
					gap("above", from), shown.slice(from, until).map((row, at) => line(row, from + at)), gap("below", shown.length - until)))
			: empty(...spec.empty),
			!shown.length && spec.rows.length > 0 && empty("No matches", "Change or clear the filter.",
				h("button", { class: "button", onclick: clear }, "Clear the filter")));
	};

	const refresh = () => {
		applyFilter();
		draw();
	};
	const clear = () => {
		[settings.query, settings.chip] = ["", ""];
		const box = el.querySelector("input");
		if (box) box.value = "";
		refresh();
		box?.focus();
	};

	const bar = () => {
		const typed = (event) => {
			settings.query = event.target.value;
			refresh();
		};
		const pick = (name) => () => {
			settings.chip = settings.chip === name ? "" : name;
			refresh();
		};
		if (!spec.rows.length || (!spec.filter && !spec.chips)) return null;
		return h("div", { class: "table-bar" },
			spec.filter && h("label", { class: "search" }, icon("search"), h("span", { class: "sr" }, `Filter ${spec.label}`),
				h("input", { type: "search", placeholder: "Filter", value: settings.query, oninput: typed, spellcheck: "false", autocomplete: "off", "data-filter": "" })),
			spec.chips && h("div", { class: "chips", role: "group", "aria-label": "Filters" }, spec.chips.map(([name], at) =>
				h("button", { class: "chip", "aria-pressed": String(settings.chip === name), onclick: pick(name) }, name, h("span", { class: "num" }, counts[at])))),
			h("span", { class: "note num", role: "status" }, shown.length === spec.rows.length ? String(shown.length) : `${shown.length} of ${spec.rows.length}`));
	};

	const head = (column, at) => {
		const sorted = settings.by === at ? (settings.down ? "descending" : "ascending") : null;
		const sort = () => {
			if (sorted === "descending") settings.by = -1;
			else [settings.by, settings.down] = [at, sorted === "ascending"];
			refresh();
		};
		return h("th", { class: column.look, scope: "col", "aria-sort": sorted },
			column.by ? h("button", { class: "sort", onclick: sort }, column.label) : column.label);
	};

	const line = (row, index) =>
		h("tr", { key: spec.key(row), "aria-rowindex": index + 2, class: spec.href ? "leads" : "" },
			spec.columns.map((column, at) => {
				const content = column.cell(row);
				return h("td", { class: column.look },
					at === 0 && spec.href ? h("a", { class: "row-link", href: spec.href(row) }, content) : h("div", { class: "cell" }, content));
			}),
			spec.actions && h("td", { class: "c-actions" }, h("div", { class: "row-actions" }, spec.actions(row))));

	const keys = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
		const row = event.target.closest("tr");
		if (!step || !row) return;
		event.preventDefault();
		const next = /** @type {HTMLElement | null} */ (el.querySelector(`tr[aria-rowindex="${Number(row.ariaRowIndex ?? row.getAttribute("aria-rowindex")) + step}"] :is(a,button)`));
		next?.focus();
	};

	const scrolled = () => {
		if (!el.isConnected) {
			removeEventListener("scroll", scrolled);
			removeEventListener("resize", resized);
			return;
		}
		if (shown.length <= MAX_UNVIRTUALIZED_ROWS) return;
		const [first, last] = visibleRange();
		if (Math.abs(first - from) > OVERSCAN / 3 || Math.abs(last - until) > OVERSCAN / 3) draw();
	};
	addEventListener("scroll", scrolled, { passive: true });
	const resized = () => {
		height = 0;
		scrolled();
	};
	addEventListener("resize", resized, { passive: true });
	setSpec(first);
	refresh();
	if (shown.length > MAX_UNVIRTUALIZED_ROWS) draw();
	return (next) => {
		setSpec(next);
		refresh();
	};
}

function compare(a, b) {
	if (a === b) return 0;
	if (a === null || a === undefined) return 1;
	if (b === null || b === undefined) return -1;
	return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a < b ? -1 : 1;
}
