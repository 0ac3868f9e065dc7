import { get, loadAll, nextPage } from "../api.js";
import { subscribe } from "../live.js";
import { cancelRuns, retryRuns } from "../parts/bulk.js";
import { totalCost } from "../parts/job.js";
import { col, table } from "../parts/table.js";
import { ago, exact, span } from "../parts/time.js";
import { RANGES, badge, external, issueName, issueText, muted, ranges, twoLines } from "../parts/ui.js";
import { ACTIVE_STATUSES, FAILED_STATUSES, KINDS, RUNNERS, displayText, isActive, labelOf, money } from "../parts/words.js";
import { h } from "../dom.js";
import { asideUrl, panelUrl } from "../router.js";

export const about = "All runs, newest first. Planning and implementation of an issue share a row.";
export const watch = ["job"];
export const params = ["q", "status", "kind", "team", "range", "from", "to"];

const PAGE = 100;
const HOUR = 3_600_000;
/** Size and number of the hours or UTC days of each range, as the service counts them. @type {Record<string, [number, number]>} */
const WINDOWS = { "24h": [HOUR, 24], "7d": [24 * HOUR, 7], "30d": [24 * HOUR, 30] };
/** @type {Record<string, string>} */
const STATUSES = { active: ACTIVE_STATUSES, failed: FAILED_STATUSES };

/** Loaded runs of the current filter, by id, and the path of older ones. */
let loaded = { path: "", runs: /** @type {Map<string, any>} */ (new Map()), next: /** @type {string | null} */ (null) };

subscribe(({ type, data }) => {
	if (type === "job" && loaded.runs.has(data?.id)) loaded.runs.set(data.id, { ...loaded.runs.get(data.id), ...data });
});

/** Path of the first page. @param {URLSearchParams} query */
function pathOf(query) {
	const filter = new URLSearchParams({ limit: String(PAGE) });
	for (const name of ["q", "kind", "team", "from", "to"]) if (query.get(name)) filter.set(name, query.get(name) ?? "");
	const status = query.get("status");
	if (status) filter.set("status", STATUSES[status] ?? status);
	if (status === "failed") filter.set("cancelled", "false");
	const window = WINDOWS[query.get("range") ?? ""];
	if (window) filter.set("from", new Date((Math.floor(Date.now() / window[0]) - window[1] + 1) * window[0]).toISOString());
	return `/api/log?${filter}`;
}

export async function load(_, query) {
	const path = pathOf(query);
	const { main: page, mappings } = await loadAll(path, { mappings: "/api/mappings" });
	const next = nextPage(page);
	const oldest = page.at(-1)?.id ?? "";
	const older = path === loaded.path && next ? [...loaded.runs].filter(([id]) => id < oldest) : [];
	loaded = { path, runs: new Map([...page.map((job) => [job.id, job]), ...older]), next: older.length ? loaded.next : next };
	return { mappings };
}

async function more(ctx) {
	const page = await get(loaded.next);
	for (const job of page) loaded.runs.set(job.id, job);
	loaded.next = nextPage(page);
	ctx.redraw();
}

/** Rows: one per group of runs, with the newest run. */
function groups() {
	/** @type {Map<string, any>} */
	const groups = new Map();
	for (const [, job] of [...loaded.runs].sort(([a], [b]) => (a < b ? 1 : -1))) {
		const group = groups.get(job.groupId);
		if (group) group.jobs.push(job);
		else groups.set(job.groupId, { ...job, jobs: [job] });
	}
	return [...groups.values()];
}

/** Kind of a run; for a run with planning, the status of both phases. */
const phases = ({ planningStatus, implementationStatus, kind }) => (planningStatus
	? twoLines(`Planning ${displayText(planningStatus).toLowerCase()}`, implementationStatus && `Implementation ${displayText(implementationStatus).toLowerCase()}`)
	: labelOf(KINDS, kind));
const cost = (usd) => (usd === null ? muted("–") : money(usd));
const statusOf = (job) => (job.conclusion === "cancelled" ? "cancelled" : job.status);

export const actions = (_, { query }) => ranges(panelUrl("pipelines"), query.get("range") ?? "", [...RANGES, ["", "All"]]);

export function view({ mappings }, ctx) {
	const { query } = ctx;
	const [from, to] = [query.get("from"), query.get("to")];
	return [
		from && h("p", { class: "slots" }, h("span", {}, "Runs from ", h("b", {}, exact(from)), to && [" to ", h("b", {}, exact(to))], "."), h("a", { href: panelUrl("pipelines") }, "Show all runs")),
		table({
			id: "pipelines", label: "runs", rows: groups(), key: (row) => row.groupId, filter: true, param: "status", href: (row) => asideUrl("job", row.id),
			remote: {
				chips: [["Failed", "failed"], ["Active", "active"], ["Completed", "completed"], ["Cancelled", "cancelled"]],
				selects: [["All kinds", "kind", Object.entries(KINDS)], ["All projects", "team", Object.keys(mappings ?? {}).map((team) => [team, team])]],
				isFiltered: params.some((name) => query.has(name)), more: loaded.next ? () => more(ctx) : null, load: ctx.reload,
			},
			columns: [
				col("Issue", "", (row) => `${issueText(row)} ${row.branch ?? ""}`, issueName),
				col("Status", "m keep", statusOf, (row) => twoLines(badge(statusOf(row)), row.dispatchNumber > 1 && `Attempt ${row.attempt ?? row.dispatchNumber}`)),
				col("Kind", "m md", (row) => (row.planningStatus ? `Planning ${row.planningStatus} ${row.implementationStatus ?? ""}` : labelOf(KINDS, row.kind)), phases),
				col("Repository", "s sm", (row) => `${row.repo} ${row.teamKey}`, (row) => twoLines(row.repo, row.teamKey)),
				col("Runner", "s md", (row) => `${labelOf(RUNNERS, row.runner)}${row.shadow ? ", shadow" : ""} ${row.sessionImage ?? ""}`, (row) => twoLines(`${labelOf(RUNNERS, row.runner)}${row.shadow ? ", shadow" : ""}`, row.sessionImage)),
				col("PR", "xs sm", (row) => row.prNumber, (row) => (row.prUrl ? external(row.prUrl, `#${row.prNumber}`) : muted("–"))),
				col("Cost", "xs md right", (row) => totalCost(row.jobs), (row) => cost(totalCost(row.jobs))),
				col("Time", "s right keep", (row) => row.reservedAt, (row) => twoLines(isActive(row) ? span(row.reservedAt) : span(row.startedAt ?? row.reservedAt, row.finishedAt), ago(row.reservedAt))),
			],
			bulk: [retryRuns(ctx.reload), cancelRuns(ctx.reload)],
			empty: ["No runs yet", "Flag an issue. Its run appears here as soon as it is dispatched."],
		}),
	];
}
