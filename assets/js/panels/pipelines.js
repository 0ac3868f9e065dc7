import { get, loadAll, nextPage } from "../api.js";
import { subscribe } from "../live.js";
import { bulk, cancelRuns, retryAll } from "../parts/bulk.js";
import { withOlder } from "../parts/lists.js";
import { startOf } from "../parts/numbers.js";
import { col, table } from "../parts/table.js";
import { ago, exact, span } from "../parts/time.js";
import { badge, external, issueName, muted, ranges, twoLines } from "../parts/ui.js";
import { ACTIVE_STATUSES, FAILED_STATUSES, KINDS, RUNNERS, displayText, isActive, isRetryable, labelOf, money, statusOf } from "../parts/words.js";
import { h } from "../dom.js";
import { asideUrl } from "../router.js";

export const about = "All runs, newest first. Planning and implementation of an issue share a row.";
export const watch = ["job"];
export const params = ["q", "status", "kind", "team", "shadow", "range", "from", "to"];

const PAGE = 100;
/** @type {Record<string, string>} */
const STATUSES = { active: ACTIVE_STATUSES, failed: FAILED_STATUSES, ended: `completed,${FAILED_STATUSES}` };

/** Loaded runs of the current filter, by id, and the path of older ones. */
let loaded = { path: "", runs: /** @type {Map<string, any>} */ (new Map()), next: /** @type {string | null} */ (null) };

subscribe(({ type, data }) => {
	if (type === "job" && loaded.runs.has(data?.id)) loaded.runs.set(data.id, { ...loaded.runs.get(data.id), ...data });
});

/** Whether only ended runs are listed. Their times are those of the end, as in all numbers. @param {URLSearchParams} query */
const isOfEnded = (query) => ![null, "", "active", ...ACTIVE_STATUSES.split(",")].includes(query.get("status"));

/** Path of the first page. @param {URLSearchParams} query */
function pathOf(query) {
	const filter = new URLSearchParams({ limit: String(PAGE) });
	const set = (name, value) => { if (value) filter.set(name, value); };
	for (const name of ["q", "kind", "team", "shadow"]) set(name, query.get(name));
	const status = query.get("status");
	set("status", STATUSES[status ?? ""] ?? status);
	if (status === "failed") filter.set("cancelled", "false");
	set(isOfEnded(query) ? "endedFrom" : "from", startOf(query.get("range")) ?? query.get("from"));
	set(isOfEnded(query) ? "endedTo" : "to", query.get("to"));
	return `/api/log?${filter}`;
}

/** Number of the latest call of `load`. An earlier one that ends later changes nothing. */
let calls = 0;

export async function load(_, query) {
	const [path, call] = [pathOf(query), calls += 1];
	const { main: page, mappings, failed } = await loadAll(path, { mappings: "/api/mappings" });
	if (call !== calls) return { mappings, failed };
	const next = nextPage(page);
	const runs = withOlder(page, path === loaded.path && next ? [...loaded.runs.values()] : [], "id");
	// Runs that have ended since are not active any more.
	const listed = new URLSearchParams(path).get("status");
	const isListed = ({ status }) => isOfEnded(query) || !listed || listed.includes(status);
	loaded = { path, runs: new Map(runs.filter(isListed).map((job) => [job.id, job])), next: runs.length > page.length ? loaded.next : next };
	return { mappings, failed };
}

async function more(ctx) {
	const { next } = loaded;
	const page = await get(next);
	// The filter was changed.
	if (loaded.next !== next) return;
	for (const job of page) loaded.runs.set(job.id, job);
	loaded.next = nextPage(page);
	ctx.redraw();
}

/** Rows: one per group of runs, with the newest run; with a filter by status, one per run. A shadow run has its own. @param {boolean} isFiltered */
function groups(isFiltered) {
	const newest = [...loaded.runs.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
	return [...Map.groupBy(newest, (job) => (isFiltered || job.shadow ? job.id : job.groupId))].map(([key, [job]]) => ({ ...job, key }));
}

/** Kind of a run; for a run with planning, the status of both phases. */
const phases = ({ planningStatus, implementationStatus, kind }) => (planningStatus
	? twoLines(`Planning ${displayText(planningStatus).toLowerCase()}`, implementationStatus && `Implementation ${displayText(implementationStatus).toLowerCase()}`)
	: labelOf(KINDS, kind));

const runnerOf = (job) => `${labelOf(RUNNERS, job.runner)}${job.shadow ? ", shadow" : ""}`;

export const actions = (_, { query }) => ranges("/admin/pipelines", query.get("range"), [["", "All"]]);

export function view({ mappings }, ctx) {
	const { query } = ctx;
	const [from, to] = [query.get("from"), query.get("to")];
	return [
		(from || query.has("shadow")) && h("p.slots", h("span", isOfEnded(query) ? "Ended runs" : "Runs", from && [" from ", h("b", exact(from))], to && [" to ", h("b", exact(to))], query.has("shadow") && ", without shadow runs", "."), h("a", { href: "/admin/pipelines" }, "Show all runs")),
		table({
			id: "pipelines", label: "runs", rows: groups(query.has("status")), key: (row) => row.key, filter: true, param: "status", href: (row) => asideUrl("job", row.id),
			remote: {
				chips: [["Failed", "failed"], ["Active", "active"], ["Completed", "completed"], ["Cancelled", "cancelled"], ["Ended", "ended"]],
				selects: [["All kinds", "kind", Object.entries(KINDS)], ["All projects", "team", Object.keys(mappings ?? {}).map((team) => [team, team])]],
				isFiltered: params.some((name) => query.has(name)), more: loaded.next ? () => more(ctx) : null, load: ctx.reload,
			},
			columns: [
				col("Issue", "", null, issueName),
				col("Status", "m keep", statusOf, (row) => twoLines(badge(statusOf(row)), row.dispatchNumber > 1 && `Attempt ${row.attempt ?? row.dispatchNumber}`)),
				col("Kind", "m md", (row) => (row.planningStatus ? `Planning ${row.planningStatus} ${row.implementationStatus ?? ""}` : labelOf(KINDS, row.kind)), phases),
				col("Repository", "m md", (row) => `${row.repo} ${row.teamKey}`, (row) => twoLines(row.repo, row.teamKey)),
				col("Runner", "s md", runnerOf, (row) => twoLines(runnerOf(row), row.sessionImage)),
				col("PR", "xs sm", (row) => row.prNumber, (row) => (row.prUrl ? external(row.prUrl, `#${row.prNumber}`) : muted("–"))),
				col("Cost", "xs md right", (row) => row.usage?.costUsd, (row) => money(row.usage?.costUsd)),
				col("Time", "s right keep", (row) => row.reservedAt, (row) => twoLines(isActive(row) ? span(row.reservedAt) : span(row.startedAt ?? row.reservedAt, row.finishedAt), ago(row.reservedAt))),
			],
			bulk: [bulk("Retry", isRetryable, retryAll, ctx.reload), cancelRuns(ctx.reload)],
			empty: ["No runs yet", "Flag an issue. Its run appears here as soon as it is dispatched."],
		}),
	];
}
