// Table with sorting, filters and selection. A long table renders only the visible rows. All rows have the same height,
// so that updates do not move them. Filter, chip and order are in the URL.

import { $, h, island, render } from "../dom.js";
import { currentRoute, setQuery } from "../router.js";
import { button, empty, issueName, issueText, optionsOf, searchBox } from "./ui.js";
import { viewsMenu } from "./views.js";
import { number } from "./words.js";

/** @typedef {{label: string, look: string, by: ((row: any) => any) | null, cell: (row: any) => any}} Column */
/** Action on the selected rows to which it applies. `run` returns false if the user did not confirm it. @typedef {{label: string, applies: (row: any) => boolean, run: (rows: any[]) => Promise<boolean>, danger?: boolean}} BulkAction */
/**
 * Filters that the service applies: `chips` are names, values and counts; `selects` are names, query parameters and
 * options. `more` loads the next page, and `load` is called after the filter in the URL has changed.
 * @typedef {{chips: [string, string, number?][], selects: [string, string, [string, string][]][], isFiltered: boolean, more: (() => Promise<any>) | null, load: () => any}} Remote
 */
/**
 * Definition of a table. `chips` are predefined filters, by the query parameter `param` (default `show`). `href` is the
 * link of a row. `empty` is the title, the text and the action shown without rows.
 * @typedef {{id: string, label: string, rows: any[], key: (row: any) => string, columns: Column[], filter?: boolean, param?: string, chips?: [string, (row: any) => boolean][], remote?: Remote, href?: (row: any) => string, actions?: (row: any) => any, bulk?: BulkAction[], empty: [string, any, any?]}} Spec
 */

/**
 * Defines a column. `look` is a width (xs, s, m, n, l, xl; default: the remaining width), `sm`, `md` or `lg` to hide the
 * column on narrower screens, `right`, or `keep` to show it even if all rows have the same value. `by` is the value to sort and
 * filter by: a field name or a function; null for none.
 * @param {string} label @param {string} look @param {string | ((row: any) => any) | null} by @param {(row: any) => any} [cell]
 * @returns {Column}
 */
export function col(label, look, by, cell) {
	const value = typeof by === "string" ? (row) => row[by] : by;
	return { label, look, by: value, cell: cell ?? ((row) => value?.(row) ?? "–") };
}

/** Column of the issue that a row is about. */
export const issueColumn = col("Issue", "", issueText, issueName);

/** Longer tables render only the visible rows. */
const MAX_UNVIRTUALIZED_ROWS = 40;
/** Rows rendered above and below the visible ones. */
const OVERSCAN = 8;

/** Time without a keystroke after which the service filters, in milliseconds. */
const TYPING_PAUSE = 250;

/** Value in the URL. */
export const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-");

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
		this.settings = { query: "", chip: "", by: -1, down: false };
		/** Shown columns, and those whose value is the same in all rows. @type {Column[]} */
		this.columns = [];
		/** @type {Column[]} */
		this.same = [];
		/** Keys of the selected rows. @type {Set<string>} */
		this.selected = new Set();
		/** @type {ReturnType<typeof setTimeout> | undefined} */
		this.typing = undefined;
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
		this.splitColumns();
		if (spec.filter) this.readUrl();
		if (spec.bulk && this.selected.size) {
			const keys = new Set(spec.rows.map(spec.key));
			for (const key of this.selected) if (!keys.has(key)) this.selected.delete(key);
		}
		this.refresh();
	}

	splitColumns() {
		const { rows, columns } = this.spec;
		const isSame = ({ by, look, cell }, at) => {
			if (!at || !by || rows.length < 3 || look.split(" ").includes("keep")) return false;
			const first = by(rows[0]) ?? "";
			const textOf = (row) => h("i", cell(row)).textContent;
			return rows.every((row) => (by(row) ?? "") === first) && rows.slice(1, 9).every((row) => textOf(row) === textOf(rows[0]));
		};
		this.same = columns.filter(isSame);
		this.columns = columns.filter((column) => !this.same.includes(column));
	}

	/** Name of the query parameter of the chips. */
	get param() {
		return this.spec.param ?? "show";
	}

	readUrl() {
		const { query } = currentRoute();
		const sort = query.get("sort") ?? "";
		const chip = query.get(this.param) ?? "";
		Object.assign(this.settings, {
			query: this.typing ? this.settings.query : query.get("q") ?? "",
			chip: this.spec.remote ? chip : this.spec.chips?.find(([name]) => slug(name) === chip)?.[0] ?? "",
			by: this.spec.columns.findIndex((column) => column.by && slug(column.label) === sort.replace(/^-/, "")),
			down: sort.startsWith("-"),
		});
	}

	/** Applies changed settings and stores them in the URL. */
	change(changes, pause = 0) {
		const { settings, spec } = this;
		Object.assign(settings, changes);
		const { query, chip, by, down } = settings;
		if (spec.filter) setQuery({ q: query, [this.param]: spec.remote ? chip : slug(chip), sort: by < 0 ? null : (down ? "-" : "") + slug(spec.columns[by].label) });
		this.refresh();
		if (!spec.remote) return;
		clearTimeout(this.typing);
		this.typing = setTimeout(() => {
			this.typing = undefined;
			this.spec.remote?.load();
		}, pause);
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
		if (spec.remote) {
			this.shown = spec.rows;
			return;
		}
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
		const { spec, shown, settings: { query, chip } } = this;
		[this.from, this.until] = this.isLong() ? this.visibleRange() : [0, shown.length];
		const hasNoMatch = !shown.length && (spec.remote ? query || chip || spec.remote.isFiltered : spec.rows.length > 0);
		const more = spec.remote?.more;
		render(this.el, this.bar(), this.sameValues(),
			hasNoMatch ? empty("No matches", "Change or clear the filter.", button("Clear the filter", this.clear))
				: spec.rows.length ? this.grid() : empty(...spec.empty),
			more && button("Load more", more, "more"), this.bulkBar());
	}

	sameValues() {
		const texts = this.same.map((column) => [column.label, h("span", column.cell(this.spec.rows[0])).textContent]).filter(([, text]) => text && text !== "–");
		return texts.length > 0 && h("p.note.same", "All rows: ", texts.map(([label, text], at) => [at > 0 && ", ", label ? `${label.toLowerCase()} ` : "", h("b", text)]));
	}

	grid() {
		const { spec, shown, from, until, columns } = this;
		const actions = spec.actions && h("th.c-actions", { role: "columnheader" }, h("span.sr", "Actions"));
		const rows = shown.slice(from, until).map((row, at) => this.line(row, from + at));
		const isAll = shown.length > 0 && shown.every((row) => this.selected.has(spec.key(row)));
		return h("table.table", { role: "table", "aria-label": spec.label, "aria-rowcount": shown.length + 1 },
			h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, spec.bulk && h("th.c-select", { role: "columnheader" }, h("input", { type: "checkbox", "aria-label": "Select all", checked: isAll, onchange: () => this.select(isAll ? [] : shown) })),
				columns.map((column) => this.head(column, spec.columns.indexOf(column))), actions)),
			h("tbody", { role: "rowgroup", onkeydown: this.keys }, this.gap("above", from), rows, this.gap("below", shown.length - until)));
	}

	/** Selects exactly these rows. @param {any[]} rows */
	select(rows) {
		this.selected = new Set(rows.map(this.spec.key));
		this.draw();
	}

	bulkBar() {
		const { spec, selected } = this;
		if (!spec.bulk || !selected.size) return null;
		const rows = spec.rows.filter((row) => selected.has(spec.key(row)));
		const action = (/** @type {BulkAction} */ { label, applies, run, danger }) => {
			const mine = rows.filter(applies);
			const go = async () => {
				if (await run(mine) !== false) this.select([]);
			};
			return mine.length > 0 && button([label, " ", h("span.num", mine.length)], go, danger ? "small danger" : "small");
		};
		return h("div.bulk", { role: "region", "aria-label": "Selection" }, h("b.num", { role: "status" }, `${selected.size} selected`), spec.bulk.map(action),
			button("Clear selection", () => this.select([]), "small ghost"));
	}

	gap(key, rows) {
		const style = { height: `${rows * this.height}px` };
		return rows > 0 && h("tr.gap", { key, "aria-hidden": "true", style }, h("td"));
	}

	bar() {
		const { spec, shown, settings } = this;
		const isFiltered = settings.query || settings.chip || spec.remote?.isFiltered;
		if ((!spec.rows.length && !isFiltered) || (!spec.filter && !spec.chips)) return null;
		const count = spec.remote ? `${number(shown.length)}${spec.remote.more ? " loaded" : ""}` : shown.length === spec.rows.length ? number(shown.length) : `${number(shown.length)} of ${number(spec.rows.length)}`;
		return h("div.table-bar", spec.filter && searchBox(`Filter ${spec.label}`, "Filter", { value: settings.query, oninput: this.typed }), this.chips(), spec.remote?.selects.map(this.filterBox), this.sortBox(),
			h("span.note.num", { role: "status" }, count), spec.filter && viewsMenu());
	}

	chips() {
		const { spec: { chips, remote }, settings } = this;
		if (!chips && !remote) return null;
		/** @type {[string, string, number | undefined][]} */
		const all = remote ? remote.chips.map(([name, value, count]) => [name, value, count]) : (chips ?? []).map(([name], at) => [name, name, this.counts[at]]);
		const chip = ([name, value, count]) =>
			h("button.chip", { "aria-pressed": String(settings.chip === value), onclick: () => this.change({ chip: settings.chip === value ? "" : value }) }, name,
				count !== undefined && h("span.num", number(count)));
		return h("div.chips", { role: "group", "aria-label": "Filters" }, all.map(chip));
	}

	/** Filter by one of several values. */
	filterBox = (/** @type {[string, string, [string, string][]]} */ [label, param, options]) => {
		const now = currentRoute().query.get(param) ?? "";
		const change = ({ target }) => {
			setQuery({ [param]: target.value });
			this.spec.remote?.load();
		};
		return h("select.filter-box", { "aria-label": label, onchange: change }, optionsOf([["", label], ...options], now));
	};

	/** Order of the cards of a narrow screen, which have no column headers. */
	sortBox() {
		const { settings, spec } = this;
		if (spec.remote) return null;
		const change = ({ target }) => {
			const at = Number(target.value);
			this.change({ by: Math.abs(at) - 1, down: at < 0 });
		};
		const now = settings.by < 0 ? 0 : (settings.by + 1) * (settings.down ? -1 : 1);
		const orders = spec.columns.flatMap(({ by, label }, at) => (by ? [[String(at + 1), `${label} ↑`], [String(-at - 1), `${label} ↓`]] : []));
		return h("select.sort-box", { "aria-label": "Order", onchange: change }, optionsOf([["0", "Default order"], ...orders], String(now)));
	}

	head(column, at) {
		const { settings } = this;
		const sorted = settings.by === at ? (settings.down ? "descending" : "ascending") : null;
		const sort = () => this.change(sorted === "descending" ? { by: -1 } : { by: at, down: sorted === "ascending" });
		return h("th", { class: column.look, scope: "col", role: "columnheader", "aria-sort": sorted },
			column.by && !this.spec.remote ? h("button.sort", { onclick: sort }, column.label) : column.label);
	}

	line(row, index) {
		const { spec } = this;
		const key = spec.key(row);
		const cell = (column, at) => {
			const content = column.cell(row);
			const href = at === 0 && spec.href?.(row);
			return h("td", { class: column.look, role: "cell", "data-label": column.label },
				href ? h("a.row-link", { href }, content) : h("div.cell", content));
		};
		const toggle = ({ target }) => {
			if (target.checked) this.selected.add(key);
			else this.selected.delete(key);
			this.draw();
		};
		return h("tr", { key, role: "row", "aria-rowindex": index + 2, class: spec.href ? "leads" : "" },
			spec.bulk && h("td.c-select", { role: "cell" }, h("input", { type: "checkbox", "aria-label": `Select ${row.issueIdentifier ?? row.identifier ?? key}`, checked: this.selected.has(key), onchange: toggle })),
			this.columns.map(cell),
			spec.actions && h("td.c-actions", { role: "cell" }, h("div.row-actions", spec.actions(row))));
	}

	typed = (event) => this.change({ query: event.target.value }, TYPING_PAUSE);

	clear = () => {
		const box = this.el.querySelector("input");
		if (box) box.value = "";
		if (this.spec.remote) setQuery(Object.fromEntries([...currentRoute().query.keys()].map((name) => [name, null])));
		this.change({ query: "", chip: "" });
		box?.focus();
	};

	keys = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
		const row = event.target.closest("tr");
		if (event.key === "x" && this.spec.bulk) return $(row, "input[type=checkbox]").click();
		if (!step || !row) return;
		event.preventDefault();
		const index = Number(row.ariaRowIndex ?? row.getAttribute("aria-rowindex")) + step;
		const next = $(this.el, `tr[aria-rowindex="${index}"]`);
		($(next ?? this.el, "a, button") ?? $(next ?? this.el, "input"))?.focus();
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
