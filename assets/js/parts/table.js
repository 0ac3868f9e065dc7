// A table that sorts, filters and, when it is long, holds only the rows in sight. All rows are of one
// height, so that nothing moves when they change.

import { $, h, island, render } from "../dom.js";
import { icon } from "./icons.js";
import { empty } from "./ui.js";

/** @typedef {{label: string, look: string, by: ((row: any) => any) | null, cell: (row: any) => any}} Column */
/**
 * What a table shows. `id` names it: its sort and filter are kept under it. `chips` are ready-made
 * filters, `href` is where a row leads; `empty` has a title, a text and what to do next.
 * @typedef {{id: string, label: string, rows: any[], key: (row: any) => string, columns: Column[], filter?: boolean, chips?: [string, (row: any) => boolean][], href?: (row: any) => string, actions?: (row: any) => any, empty: [string, any, any?]}} Spec
 */

/**
 * A column. Looks: a width (xs, s, m, l, xl; without one it takes what is left), `sm` or `md` to leave
 * it out below that width, `right`. `by` is what it sorts and is filtered by, a field's name or a
 * function; null for neither.
 * @param {string} label @param {string} look @param {string | ((row: any) => any) | null} by @param {(row: any) => any} [cell]
 * @returns {Column}
 */
export function col(label, look, by, cell) {
	const value = typeof by === "string" ? (row) => row[by] : by;
	return { label, look, by: value, cell: cell ?? ((row) => value?.(row) ?? "–") };
}

/** Longer tables hold only the rows in sight. */
const ALL_AT_ONCE = 40;
const SPARE = 8;

/** @type {Map<string, {query: string, chip: string, by: number, down: boolean}>} */
const KEPT = new Map();

/** @param {Spec} spec */
export const table = (spec) => island("table-part", spec, mount);

/** @param {HTMLElement} el @param {Spec} first */
function mount(el, first) {
	let spec = first;
	/** @type {number[]} */
	let counts = [];
	const kept = KEPT.get(spec.id) ?? { query: "", chip: "", by: -1, down: false };
	KEPT.set(spec.id, kept);
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

	const take = (next) => {
		spec = next;
		counts = (spec.chips ?? []).map(([, test]) => spec.rows.filter(test).length);
	};

	const choose = () => {
		const words = kept.query.toLowerCase().split(/\s+/).filter(Boolean);
		const [, test] = spec.chips?.find(([name]) => name === kept.chip) ?? [];
		shown = spec.rows.filter((row) => (!test || test(row)) && words.every((word) => textOf(row).includes(word)));
		const { by } = spec.columns[kept.by] ?? {};
		if (!by) return;
		const keyed = shown.map((row) => ({ row, by: by(row) }));
		keyed.sort((a, b) => compare(a.by, b.by) * (kept.down ? -1 : 1));
		shown = keyed.map((one) => one.row);
	};

	const look = () => {
		const body = el.querySelector("tbody");
		// One row tells how high a row is.
		if (!body) return [0, 1];
		height ||= $(body, "tr[aria-rowindex]")?.offsetHeight || 48;
		const top = -body.getBoundingClientRect().top;
		const first = Math.max(0, Math.floor(top / height) - SPARE);
		return [Math.min(first, shown.length), Math.min(shown.length, Math.ceil((top + innerHeight) / height) + SPARE)];
	};

	const draw = () => {
		const long = shown.length > ALL_AT_ONCE;
		[from, until] = long ? look() : [0, shown.length];
		const gap = (key, rows) =>
			rows > 0 && h("tr", { class: "gap", key, "aria-hidden": "true", style: { height: `${rows * height}px` } }, h("td"));
		render(el, bar(), shown.length || spec.rows.length
			? h("table", { class: "table", "aria-label": spec.label, "aria-rowcount": shown.length + 1 },
				h("thead", {}, h("tr", {}, spec.columns.map(head), spec.actions && h("th", { class: "c-actions" }, h("span", { class: "sr" }, "Actions")))),
				h("tbody", { onkeydown: keys },
					gap("above", from), shown.slice(from, until).map((row, at) => line(row, from + at)), gap("below", shown.length - until)))
			: empty(...spec.empty),
			!shown.length && spec.rows.length > 0 && empty("Nothing matches", "Try fewer letters or another filter.",
				h("button", { class: "button", onclick: clear }, "Clear the filter")));
	};

	const again = () => {
		choose();
		draw();
	};
	const clear = () => {
		[kept.query, kept.chip] = ["", ""];
		const box = el.querySelector("input");
		if (box) box.value = "";
		again();
		box?.focus();
	};

	const bar = () => {
		const typed = (event) => {
			kept.query = event.target.value;
			again();
		};
		const pick = (name) => () => {
			kept.chip = kept.chip === name ? "" : name;
			again();
		};
		if (!spec.rows.length || (!spec.filter && !spec.chips)) return null;
		return h("div", { class: "table-bar" },
			spec.filter && h("label", { class: "search" }, icon("search"), h("span", { class: "sr" }, `Filter ${spec.label}`),
				h("input", { type: "search", placeholder: "Filter", value: kept.query, oninput: typed, spellcheck: "false", autocomplete: "off", "data-filter": "" })),
			spec.chips && h("div", { class: "chips", role: "group", "aria-label": "Filters" }, spec.chips.map(([name], at) =>
				h("button", { class: "chip", "aria-pressed": String(kept.chip === name), onclick: pick(name) }, name, h("span", { class: "num" }, counts[at])))),
			h("span", { class: "note num", role: "status" }, shown.length === spec.rows.length ? String(shown.length) : `${shown.length} of ${spec.rows.length}`));
	};

	const head = (column, at) => {
		const sorted = kept.by === at ? (kept.down ? "descending" : "ascending") : null;
		const sort = () => {
			if (sorted === "descending") kept.by = -1;
			else [kept.by, kept.down] = [at, sorted === "ascending"];
			again();
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
		if (shown.length <= ALL_AT_ONCE) return;
		const [first, last] = look();
		if (Math.abs(first - from) > SPARE / 3 || Math.abs(last - until) > SPARE / 3) draw();
	};
	addEventListener("scroll", scrolled, { passive: true });
	const resized = () => {
		height = 0;
		scrolled();
	};
	addEventListener("resize", resized, { passive: true });
	take(first);
	again();
	if (shown.length > ALL_AT_ONCE) draw();
	return (next) => {
		take(next);
		again();
	};
}

function compare(a, b) {
	if (a === b) return 0;
	if (a === null || a === undefined) return 1;
	if (b === null || b === undefined) return -1;
	return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a < b ? -1 : 1;
}
