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

/** @param {HTMLElement} el @param {Spec} spec */
function mount(el, spec) {
	const view = new TableView(el, spec);
	return (next) => view.update(next);
}

/** State of one table in the page. */
class TableView {
	/** @param {HTMLElement} el @param {Spec} spec */
	constructor(el, spec) {
		this.el = el;
		this.spec = spec;
		const settings = SETTINGS.get(spec.id) ?? { query: "", chip: "", by: -1, down: false };
		SETTINGS.set(spec.id, settings);
		this.settings = settings;
		/** Number of rows of each chip. @type {number[]} */
		this.counts = [];
		/** Rows that match the filter, sorted. @type {any[]} */
		this.shown = [];
		/** Text of each row that the filter searches. @type {WeakMap<object, string>} */
		this.texts = new WeakMap();
		/** First rendered row. */
		this.from = 0;
		/** Row after the last rendered one. */
		this.until = 0;
		/** Height of a row in pixels; 0 if not measured. */
		this.height = 0;
		addEventListener("scroll", this.scrolled, { passive: true });
		addEventListener("resize", this.resized, { passive: true });
		this.update(spec);
		// The height of a row is known after the first drawing.
		if (this.isLong()) this.draw();
	}

	/** @param {Spec} spec */
	update(spec) {
		this.spec = spec;
		this.counts = (spec.chips ?? []).map(([, test]) => spec.rows.filter(test).length);
		this.refresh();
	}

	refresh() {
		this.applyFilter();
		this.draw();
	}

	textOf(row) {
		let text = this.texts.get(row);
		if (text === undefined) {
			text = this.spec.columns.map((column) => column.by?.(row) ?? "").join(" ").toLowerCase();
			this.texts.set(row, text);
		}
		return text;
	}

	applyFilter() {
		const { spec, settings } = this;
		const words = settings.query.toLowerCase().split(/\s+/).filter(Boolean);
		const [, test] = spec.chips?.find(([name]) => name === settings.chip) ?? [];
		this.shown = spec.rows.filter((row) => (!test || test(row)) && words.every((word) => this.textOf(row).includes(word)));
		const { by } = spec.columns[settings.by] ?? {};
		if (!by) return;
		const keyed = this.shown.map((row) => ({ row, by: by(row) }));
		keyed.sort((a, b) => compare(a.by, b.by) * (settings.down ? -1 : 1));
		this.shown = keyed.map((one) => one.row);
	}

	isLong() {
		return this.shown.length > MAX_UNVIRTUALIZED_ROWS;
	}

	visibleRange() {
		const body = this.el.querySelector("tbody");
		// All rows have the same height, so one is measured.
		if (!body) return [0, 1];
		this.height ||= $(body, "tr[aria-rowindex]")?.offsetHeight || 48;
		const top = -body.getBoundingClientRect().top;
		const first = Math.max(0, Math.floor(top / this.height) - OVERSCAN);
		const last = Math.ceil((top + innerHeight) / this.height) + OVERSCAN;
		return [Math.min(first, this.shown.length), Math.min(this.shown.length, last)];
	}

	draw() {
		const { spec, shown } = this;
		[this.from, this.until] = this.isLong() ? this.visibleRange() : [0, shown.length];
		const hasNoMatch = !shown.length && spec.rows.length > 0;
		render(this.el, this.bar(),
			spec.rows.length ? this.grid() : empty(...spec.empty),
			hasNoMatch && empty("No matches", "Change or clear the filter.",
				h("button", { class: "button", onclick: this.clear }, "Clear the filter")));
	}

	grid() {
		const { spec, shown, from, until } = this;
		const actions = spec.actions && h("th", { class: "c-actions" }, h("span", { class: "sr" }, "Actions"));
		const rows = shown.slice(from, until).map((row, at) => this.line(row, from + at));
		return h("table", { class: "table", "aria-label": spec.label, "aria-rowcount": shown.length + 1 },
			h("thead", {}, h("tr", {}, spec.columns.map((column, at) => this.head(column, at)), actions)),
			h("tbody", { onkeydown: this.keys }, this.gap("above", from), rows, this.gap("below", shown.length - until)));
	}

	gap(key, rows) {
		const style = { height: `${rows * this.height}px` };
		return rows > 0 && h("tr", { class: "gap", key, "aria-hidden": "true", style }, h("td"));
	}

	bar() {
		const { spec, shown } = this;
		if (!spec.rows.length || (!spec.filter && !spec.chips)) return null;
		const count = shown.length === spec.rows.length ? String(shown.length) : `${shown.length} of ${spec.rows.length}`;
		return h("div", { class: "table-bar" }, spec.filter && this.searchBox(), spec.chips && this.chips(),
			h("span", { class: "note num", role: "status" }, count));
	}

	searchBox() {
		return h("label", { class: "search" }, icon("search"), h("span", { class: "sr" }, `Filter ${this.spec.label}`),
			h("input", {
				type: "search", placeholder: "Filter", value: this.settings.query, oninput: this.typed,
				spellcheck: "false", autocomplete: "off", "data-filter": "",
			}));
	}

	chips() {
		const { settings } = this;
		const pick = (name) => () => {
			settings.chip = settings.chip === name ? "" : name;
			this.refresh();
		};
		/** @param {[string, any]} chip @param {number} at */
		const chip = ([name], at) =>
			h("button", { class: "chip", "aria-pressed": String(settings.chip === name), onclick: pick(name) }, name,
				h("span", { class: "num" }, this.counts[at]));
		return h("div", { class: "chips", role: "group", "aria-label": "Filters" }, (this.spec.chips ?? []).map(chip));
	}

	head(column, at) {
		const { settings } = this;
		const sorted = settings.by === at ? (settings.down ? "descending" : "ascending") : null;
		const sort = () => {
			if (sorted === "descending") settings.by = -1;
			else [settings.by, settings.down] = [at, sorted === "ascending"];
			this.refresh();
		};
		return h("th", { class: column.look, scope: "col", "aria-sort": sorted },
			column.by ? h("button", { class: "sort", onclick: sort }, column.label) : column.label);
	}

	line(row, index) {
		const { spec } = this;
		const cell = (column, at) => {
			const content = column.cell(row);
			const href = at === 0 && spec.href?.(row);
			return h("td", { class: column.look },
				href ? h("a", { class: "row-link", href }, content) : h("div", { class: "cell" }, content));
		};
		return h("tr", { key: spec.key(row), "aria-rowindex": index + 2, class: spec.href ? "leads" : "" },
			spec.columns.map(cell),
			spec.actions && h("td", { class: "c-actions" }, h("div", { class: "row-actions" }, spec.actions(row))));
	}

	typed = (event) => {
		this.settings.query = event.target.value;
		this.refresh();
	};

	clear = () => {
		[this.settings.query, this.settings.chip] = ["", ""];
		const box = this.el.querySelector("input");
		if (box) box.value = "";
		this.refresh();
		box?.focus();
	};

	keys = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
		const row = event.target.closest("tr");
		if (!step || !row) return;
		event.preventDefault();
		const index = Number(row.ariaRowIndex ?? row.getAttribute("aria-rowindex")) + step;
		$(this.el, `tr[aria-rowindex="${index}"] :is(a,button)`)?.focus();
	};

	scrolled = () => {
		if (!this.el.isConnected) {
			removeEventListener("scroll", this.scrolled);
			removeEventListener("resize", this.resized);
			return;
		}
		if (!this.isLong()) return;
		const [first, last] = this.visibleRange();
		const hasMoved = (before, now) => Math.abs(now - before) > OVERSCAN / 3;
		if (hasMoved(this.from, first) || hasMoved(this.until, last)) this.draw();
	};

	resized = () => {
		this.height = 0;
		this.scrolled();
	};
}

function compare(a, b) {
	if (a === b) return 0;
	if (a === null || a === undefined) return 1;
	if (b === null || b === undefined) return -1;
	return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a < b ? -1 : 1;
}
