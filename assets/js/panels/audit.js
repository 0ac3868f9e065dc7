import { download, get } from "../api.js";
import { h, island, render } from "../dom.js";
import { withOlder } from "../parts/lists.js";
import { plain } from "../parts/mapping.js";
import { col, issueColumn, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { button, choices, clamp, linkButton, notice, optionsOf, twoLines } from "../parts/ui.js";
import { ACTIONS, actionText, actorText, count, displayText } from "../parts/words.js";
import { asideUrl, navigate, withQuery } from "../router.js";
import { clearDedup } from "./blockers.js";

export const about = "Who changed what, and recently dispatched issues.";
export const watch = ["job"];

const FILTERS = ["actor", "action", "q", "from", "to"];
export const params = ["tab", ...FILTERS];
const PAGE = 200;

/** Loaded entries that match the filters, newest first, and whether the oldest is among them. @type {{filters: string, entries: any[], isEnd: boolean}} */
let loaded = { filters: "", entries: [], isEnd: false };

/** Filters as the API expects them. Days are those of this browser, the last one included. @param {URLSearchParams} query */
function filtersOf(query) {
	const filters = new URLSearchParams();
	for (const name of FILTERS) {
		const value = query.get(name);
		const day = name === "from" || name === "to" ? new Date(`${value}T00:00`) : null;
		if (day) day.setDate(day.getDate() + (name === "to" ? 1 : 0));
		if (value && (!day || +day)) filters.set(name, day?.toISOString() ?? value);
	}
	return filters.toString();
}

const pageOf = (filters, before = "") => get(`/api/audit?limit=${PAGE}&${filters}${before && `&before=${before}`}`);

export async function load(_, query) {
	if (query.get("tab") === "dedup") return { dedup: await get("/api/dedup") };
	const filters = filtersOf(query);
	const page = await pageOf(filters);
	const entries = withOlder(page, loaded.filters === filters ? loaded.entries : [], "seq");
	loaded = { filters, entries, isEnd: entries.length > page.length ? loaded.isEnd : page.length < PAGE };
	return { shown: loaded };
}

export const view = ({ dedup, shown }, ctx) => [
	choices("tabs", "Audit log", "/admin/audit", "tab", ctx.query.get("tab"), [["", "Audit log"], ["dedup", "Dedup entries"]]),
	dedup ? dedupTable(dedup, ctx) : log(shown, ctx),
];

const actorOf = ({ actor }) => displayText(actorText(actor));

/** @param {typeof loaded} shown @param {import("../shell.js").Context} ctx */
function log(shown, ctx) {
	const { filters, entries } = shown;
	const more = async () => {
		const page = await pageOf(filters, String(entries.at(-1).seq));
		entries.push(...page);
		shown.isEnd = page.length < PAGE;
		ctx.redraw();
	};
	return [
		filterForm(ctx.query),
		h("div.actions.filters",
			button("Export CSV", () => download(`/api/audit/export?format=csv&${filters}`, "audit.csv"), "small"),
			button("Export JSON Lines", () => download(`/api/audit/export?format=jsonl&${filters}`, "audit.jsonl"), "small"),
			island("verify", null, verification)),
		table({
			id: "audit", label: "audit entries", rows: entries, key: (row) => String(row.seq),
			columns: [
				col("Action", "", (row) => actionText(row.action), (row) => twoLines(actionText(row.action), row.target)),
				col("Detail", "xl md", "detail", (row) => clamp(plain(row.detail))),
				col("By", "l sm", actorOf, (row) => clamp(actorOf(row))),
				col("When", "s right", "at", (row) => ago(row.at)),
			],
			empty: filters ? ["No entries match", "Change or clear the filters."] : ["No audit entries yet", "Every change is recorded here."],
		}),
		!shown.isEnd && button("Older entries", more),
	];
}

/** Filters of the log. Their values are in the URL. @param {URLSearchParams} query */
function filterForm(query) {
	const apply = (event) => {
		event.preventDefault();
		const values = new FormData(event.currentTarget.closest("form"));
		navigate(location.pathname + withQuery(Object.fromEntries(FILTERS.map((name) => [name, String(values.get(name) ?? "").trim() || null]))), { replace: true });
	};
	const field = (name, label, props) => h("label", label, h("input", { name, value: query.get(name) ?? "", onchange: apply, spellcheck: "false", ...props }));
	return h("form.filters", { onsubmit: apply, role: "search", "aria-label": "Audit log", key: FILTERS.map((name) => query.get(name)).join("\n") },
		h("label", "Action", h("select", { name: "action", onchange: apply }, optionsOf([["", "All"], ...ACTIONS.map((action) => [action, actionText(action)])], query.get("action") ?? ""))),
		field("actor", "By", { type: "search", placeholder: "10.0.0.1" }), field("q", "Text", { type: "search", placeholder: "SHOP" }),
		field("from", "From", { type: "date" }), field("to", "Until", { type: "date" }),
		FILTERS.some((name) => query.get(name)) && linkButton("/admin/audit", "Clear"));
}

/** Button that verifies the log, with the result beside it. @param {HTMLElement} el */
function verification(el) {
	/** @type {any} */
	let result = null;
	const draw = () => render(el, button("Verify", verify, "small"), result && h("div", { role: "status" }, result.ok
		? notice("ok", h("b", "The log is complete and unchanged: "), `${count(result.entries, "entry", "entries")}. `, result.head && ["Hash: ", h("code", result.head)])
		: notice("bad", h("b", "The log was changed. "), `Entry ${result.brokenAt ?? "–"} is missing or differs from what was recorded.`)));
	const verify = async () => {
		result = await get("/api/audit/verify");
		draw();
	};
	draw();
	return () => {};
}

const dedupTable = (dedup, ctx) => table({
	id: "dedup", label: "dedup entries", rows: dedup, key: (row) => row.issueId, filter: true, href: (row) => asideUrl("issue", row.issueIdentifier),
	columns: [
		issueColumn,
		col("Dispatched", "s sm right", "dispatchedAt", (row) => ago(row.dispatchedAt)),
		col("Expires", "s right", "expiresAt", (row) => (row.expiresAt ? ago(row.expiresAt) : "never")),
	],
	actions: (row) => clearDedup(row, ctx),
	empty: ["No dedup entries", "An entry is added when an issue is dispatched."],
});
