// Results of runs over time: what was merged, how fast, at what cost, and why runs failed or waited.

import { download, get, saveAs } from "../api.js";
import { h } from "../dom.js";
import { runsUrl } from "../parts/numbers.js";
import { duration } from "../parts/time.js";
import { button, empty, section } from "../parts/ui.js";
import { KINDS, REASONS, TIMEOUTS, count, displayText, labelOf, money, number, percent } from "../parts/words.js";
import { navigate, withQuery } from "../router.js";

export const about = "What came of the runs, by the day on which they ended.";
export const watch = [];
export const params = ["range", "from", "to", "by"];

const RANGES = { "7d": "7 d", "30d": "30 d", "90d": "90 d" };
const GROUPS = { team: "Project", agent: "Agent", model: "Model", kind: "Kind", label: "Label" };
const DAY = 86_400_000;

/** Range and grouping of a query. @param {URLSearchParams} query */
function choiceOf(query) {
	const [from, to] = ["from", "to"].map((name) => query.get(name) ?? "");
	const by = query.get("by") ?? "";
	const isCustom = /^\d{4}-\d\d-\d\d$/.test(from) && /^\d{4}-\d\d-\d\d$/.test(to);
	const named = query.get("range") ?? "";
	return { by: Object.hasOwn(GROUPS, by) ? by : "team", range: isCustom ? "custom" : Object.hasOwn(RANGES, named) ? named : "30d", from, to };
}

export async function load(_, query) {
	const choice = choiceOf(query);
	const until = choice.range === "custom" ? Date.parse(choice.to) + DAY : Date.now();
	const from = choice.range === "custom" ? Date.parse(choice.from) : (Math.floor(until / DAY) - Number.parseInt(choice.range, 10) + 1) * DAY;
	const time = (ms) => new Date(ms).toISOString();
	return { ...choice, board: await get(`/api/scoreboard?${new URLSearchParams({ by: choice.by, from: time(from), to: time(until) })}`) };
}

const url = (changes) => "/admin/scoreboard" + withQuery(changes);

export function actions({ board, by }) {
	const name = `scoreboard-${by}-${board.from.slice(0, 10)}-${board.to.slice(0, 10)}`;
	const query = new URLSearchParams({ by, from: board.from, to: board.to });
	return [
		button("Download CSV", () => download(`/api/scoreboard/export?${query}`, `${name}.csv`), "ghost"),
		button("Download JSON", () => saveAs(`${name}.json`, JSON.stringify(board, null, 2)), "ghost"),
	];
}

const hours = (value) => duration(value * 3_600_000);
/** Column with a median, and the 95th percentile below it. @param {string} label @param {string} field @param {string} what */
const timeColumn = (label, field, what) => ({
	label,
	show: (row) => (row[field] ? [hours(row[field].p50), h("span.sub", `p95 ${hours(row[field].p95)}`)] : "–"),
	explain: (row) => (row[field] ? `Time from the trigger until ${what}: half within ${hours(row[field].p50)}, 95% within ${hours(row[field].p95)}.` : `No pull request was ${what.split(" ").pop()}.`),
});

/** Column of one field. @param {string} label @param {string} field @param {(row: any) => string} explain */
const column = (label, field, explain, format = number, list = "") => ({ label, show: (row) => format(row[field]), explain, list });

/** Columns: shown value, its explanation, and the list of what is counted. @type {any[]} */
const COLUMNS = [
	column("Runs", "runs", (row) => `${count(row.runs, "run")} ended in this range.`, number, "pipelines"),
	column("Pull requests", "pullRequests", (row) => `${count(row.pullRequests, "pull request")}: ${row.merged} merged, ${row.closed} closed, ${row.open} open.`, number, "pulls"),
	column("Merged", "mergedShare", (row) => (row.mergedShare === null ? "No pull request was merged, closed or open for 7 days." : `${row.merged} merged, as a share of those merged, closed, or open for 7 days.`), percent),
	column("Review rounds", "reviewRounds", () => "Average number of rounds of review per pull request."),
	timeColumn("To pull request", "hoursToPullRequest", "a pull request was opened"),
	timeColumn("To merge", "hoursToMerge", "a pull request was merged"),
	column("Cost", "costUsd", (row) => (row.costUsd === null ? "No run reported its cost." : "Sum of the costs that the runs reported."), money),
	column("Per merge", "costPerMergedUsd", () => "Cost of all runs, divided by the number of merged pull requests.", money),
	column("Commits after", "humanCommitsAfter", () => "Average number of commits by people on a pull request, after the first commit of a run."),
];

export function view({ board, by, range, from, to }) {
	const chip = (on, href, text) => h("a.chip", { href, "aria-current": on ? "true" : null }, text);
	const pick = (event) => {
		const form = event.target.form;
		if (form.from.value && form.to.value) navigate(url({ range: null, from: form.from.value, to: form.to.value }));
	};
	const day = (time, back = 0) => new Date(Date.parse(time) - back).toISOString().slice(0, 10);
	const rowsBy = [...board.rows].sort((a, b) => b.runs - a.runs);
	return [
		h("div.table-bar",
			h("nav.chips", { "aria-label": "Range" }, Object.entries(RANGES).map(([name, text]) => chip(range === name, url({ range: name, from: null, to: null }), text))),
			h("form.dates",
				h("label", "From ", h("input", { type: "date", name: "from", value: from || day(board.from), onchange: pick })), h("label", "to ", h("input", { type: "date", name: "to", value: to || day(board.to, 1), onchange: pick }))),
			h("nav.chips", { "aria-label": "Group by" }, Object.entries(GROUPS).map(([name, text]) => chip(by === name, url({ by: name }), text)))),
		board.rows.length ? h("table.plain.board", { "aria-label": `Scoreboard by ${GROUPS[by].toLowerCase()}` },
			h("thead", h("tr", [GROUPS[by], ...COLUMNS.map(({ label }) => label)].map((label) => h("th", { scope: "col" }, label)))),
			h("tbody", rowsBy.map((row) => line(row, nameOf(by, row.key), by, board))),
			h("tfoot", line(board.total, "Total", "", board)))
			: empty("No runs in this range", "Choose a longer range, or flag an issue. A run is counted when it ends."),
		h("div.columns",
			reasons("Failures by reason", board.total.failuresByReason, (reason) => TIMEOUTS[reason.toLowerCase()] ?? displayText(reason.toLowerCase()), "No run failed.", listUrl("pipelines", board, { status: "failed" })),
			reasons("Waits by reason", board.total.waitsByReason, (reason) => labelOf(REASONS, reason), "No issue waited.", null)),
	];
}

const nameOf = (by, key) => (by === "kind" ? labelOf(KINDS, key) : key || "Unknown");

/** List of what a number counts. */
const listUrl = (panel, { from, to }, filter) => (panel === "pipelines" ? runsUrl({ status: "ended", from, to, ...filter }) : `/admin/${panel}?${new URLSearchParams({ from, to, ...filter })}`);

function line(row, name, by, board) {
	const isListed = ["", "team", "kind"].includes(by);
	return h("tr", { key: name }, h("th", { scope: "row" }, name), COLUMNS.map(({ label, show, explain, list }) => {
		const text = explain(row);
		const about = { class: "tip", "data-tip": text, "aria-label": `${label}: ${text}` };
		const isLink = list && isListed && row.runs > 0 && (list === "pipelines" || by !== "kind");
		return h("td.num", { "data-label": label }, isLink ? h("a", { ...about, href: listUrl(list, board, by ? { [by]: row.key } : {}) }, show(row)) : h("button", about, show(row)));
	}));
}

/** Reasons with their counts, the most frequent first. */
function reasons(title, counts = {}, nameOf, none, href) {
	const all = Object.entries(counts).sort(([, a], [, b]) => b - a);
	const most = Math.max(1, ...all.map(([, n]) => n));
	return section(title, { actions: href && all.length > 0 && h("a", { href }, "Show the list") }, all.length ? h("ul.reasons", all.map(([reason, n]) =>
		h("li", { key: reason }, h("span", nameOf(reason)), h("span.reason-bar", { "aria-hidden": "true" }, h("i", { style: { width: `${(n / most) * 100}%` } })), h("b.num", number(n))))) : h("p.muted", none));
}
