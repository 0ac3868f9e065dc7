import { get, loadAll, post, remove } from "../api.js";
import { h } from "../dom.js";
import { ask } from "../parts/dialog.js";
import { rangeOf, runsUrl, startOf, summaryCharts, summaryTiles } from "../parts/numbers.js";
import { pollActions } from "../parts/poll.js";
import { ago, span, until } from "../parts/time.js";
import { badge, button, connections, empty, issueLine, jobLine, linkButton, meter, muted, notice, ranges, rows, section, tile, toast, twoLines } from "../parts/ui.js";
import { ACTIVE_STATUSES, CONNECTIONS, FAILED_STATUSES, REASONS, count, hasFailed, isActive, labelOf, number } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const watch = ["job", "decision", "poll", "outbox"];
export const params = ["range"];

const MAX_ROWS = 6;
/** Services with more runs need no check-list. */
const NEW_SERVICE_RUNS = 20;
const rangeFrom = (query) => rangeOf(query, "24h");

export async function load(_, query) {
	const log = (filter) => `/api/log?limit=${MAX_ROWS}&status=${filter}`;
	const data = await loadAll(`/api/summary?window=${rangeFrom(query)}`, {
		running: log(ACTIVE_STATUSES), bad: `${log(FAILED_STATUSES)}&cancelled=false&shadow=false&endedFrom=${startOf(rangeFrom(query))}`, blockers: `/api/blockers?all=true&limit=${MAX_ROWS}`, config: "/api/admin/config-status", outbox: "/api/outbox",
		health: "/", poll: "/api/poll", mappings: "/api/mappings", recent: `/api/log?limit=${NEW_SERVICE_RUNS}`,
	});
	const isNew = data.mappings && data.recent && data.recent.length < NEW_SERVICE_RUNS;
	return { ...data, setup: isNew ? await setupOf(data) : null };
}

export const actions = ({ poll }, { query }) => [pollActions(poll), ranges("/admin/overview", rangeFrom(query))];

export function view({ main: summary, running, bad, blockers, config, outbox, health, setup }, ctx) {
	const filter = { range: rangeFrom(ctx.query) };
	const { waiting } = summary;
	const checks = config?.checks ?? [];
	const troubled = checks.filter((one) => ["error", "limited"].includes(one.status));
	return [
		health?.status === "degraded" && health.reasons?.length && notice("bad", h("b", "The service is degraded: "), health.reasons.join(", ")),
		setup && checklist(setup),
		h("div.tiles",
			summaryTiles(summary, filter),
			tile("Connections", config ? troubled.length || "OK" : "–", troubled.map((one) => labelOf(CONNECTIONS, one.name)).join(", ") || "All connections work", troubled.length ? "bad" : "ok", "/admin/connections")),
		outbox && updates(outbox, ctx),
		h("div.columns", summaryCharts(summary, filter)),
		h("div.columns",
			part("Last failed runs", (bad ?? []).filter(hasFailed), runsUrl({ ...filter, status: "failed" }), null, ["No run failed in this range", ""], (job) => jobLine(job, ago(job.finishedAt), job.failureReason)),
			part("Waiting issues", (blockers?.blockers ?? []).slice(0, MAX_ROWS), "/admin/blockers", waiting.total, ["No waiting issues", "All flagged issues are running or done."], (one) =>
				issueLine(one.issueId, asideUrl("issue", one.issueIdentifier), one, one.message, badge(one.reason, labelOf(REASONS, one.reason)), ago(one.since))),
			part("Running now", (running ?? []).filter(isActive), runsUrl({ status: "active" }), summary.running, ["No active runs", "Runs appear here as soon as an issue is dispatched."], (job) => jobLine(job, span(job.reservedAt))),
			section("Connections", {}, connections(checks), (config?.quota ?? []).map(quota))),
	];
}

/** Section with the first rows of a list and a link to the whole list. @param {number | null} total Null if it is unknown. */
const part = (title, some, href, total, [emptyTitle, emptyText], row) => section(title, { actions: (total === null ? some.length === MAX_ROWS : total > some.length) && h("a", { href, "aria-label": `All: ${title.toLowerCase()}` }, total === null ? "All" : `All ${number(total)}`) },
	some.length ? rows(some, row) : empty(emptyTitle, emptyText));

const quota = ({ account, limit, remaining, resetAt }) => limit !== null && remaining !== null && h("div.quota", { key: account },
	account, meter(limit - remaining, limit, `${remaining} of ${limit} left`), h("span.muted.num", `${number(remaining)} left`), resetAt && muted(ago(resetAt)));

/** Steps from an empty service to the first pull request, and whether each is done. @param {Record<string, any>} data @returns {Promise<[string, boolean, any][] | null>} Null if all are done. */
async function setupOf({ config, mappings, recent }) {
	const [pulls, templates] = await Promise.all([get("/api/pulls").catch(() => null), get("/api/admin/template-status").catch(() => [])]);
	const works = (name) => config?.checks.some((one) => one.name === name && ["ok", "limited"].includes(one.status));
	const projects = Object.values(mappings);
	const needsNoWorkflow = projects.some((one) => one.executionMode !== "ci-workflow");
	/** @type {[string, boolean, any][]} */
	const steps = [
		["Connect a ticketing system and GitHub", (works("ticketing-a") || works("ticketing-b")) && works("repo-host"), linkButton("/admin/connections", "Connections")],
		["Create the first project", projects.length > 0, linkButton("/admin/projects/new", "New project")],
		["Add the workflow to its repository", needsNoWorkflow || templates.some((one) => one.implementation === "current"), projects.length > 0 && linkButton("/admin/projects", "Sync workflows")],
		["Start the first run: label an issue", recent.length > 0, projects.length > 0 && linkButton("/admin/issues", "Issues")],
		["Get the first pull request", Boolean(pulls?.pulls.length), recent.length > 0 && linkButton("/admin/pipelines", "Pipelines")],
	];
	return steps.every(([, done]) => done) ? null : steps;
}

const checklist = (steps) => section("Set up", { note: `${steps.filter(([, done]) => done).length} of ${steps.length} done`, key: "setup" },
	h("ol.rows.checklist", steps.map(([text, done, action], at) => h("li", { class: done ? "done" : "" },
		h("span.check-mark", { "aria-hidden": "true" }, done ? "✓" : at + 1), h("span.grow", text, h("span.sr", done ? " (done)" : " (open)")), !done && action))));

/** Pending updates of tickets and pull requests, by issue; failed ones first. */
function updates({ pending, dead }, ctx) {
	if (!dead.length && !pending.length) return null;
	const groups = Map.groupBy(pending, (entry) => `${subjectOf(entry)} ${entry.waitsFor ?? ""} ${entry.waitsUntil ?? ""}`);
	const shown = [...dead.map((entry) => [`dead ${entry.id}`, [entry]]), ...groups];
	return section("Pending updates", { note: `${pending.length} queued, ${dead.length} failed`, key: "updates" },
		rows(shown.slice(0, MAX_UPDATES), ([key, entries]) => updateLine(key, entries, dead.includes(entries[0]), ctx)),
		shown.length > MAX_UPDATES && h("p.note", `and ${number(shown.length - MAX_UPDATES)} more`));
}

const MAX_UPDATES = 50;
const subjectOf = (entry) => entry.issueIdentifier ?? "Service";
const textOf = (entry) => entry.description ?? entry.name;

function updateLine(key, entries, isDead, ctx) {
	const [entry] = entries;
	const subject = subjectOf(entry);
	const texts = [...new Set(entries.map(textOf))].join(", ");
	const retry = async () => {
		await post(`/api/outbox/${entry.id}/retry`);
		toast("Retrying now.");
		await ctx.reload();
	};
	const drop = async () => {
		if (!await ask({ title: "Drop this update?", text: `“${texts}” for ${subject} will not be sent. Nothing changes at the vendor.`, action: "Drop the update" })) return;
		await remove(`/api/outbox/${entry.id}`);
		toast("Dropped the update.");
		await ctx.reload();
	};
	return h("li", { key },
		twoLines([entry.issueIdentifier ? h("a", { href: asideUrl("issue", subject) }, subject) : subject, `: ${texts}`,
			entry.waitsFor && [", waiting for ", entry.waitsFor, entry.waitsUntil && [" until ", until(entry.waitsUntil)]]], entry.lastError, "grow"),
		entries.length > 1 ? muted(count(entries.length, "update")) : entry.attempts > 0 && muted(count(entry.attempts, "attempt")),
		isDead && [button("Retry", retry, "small", `Retry ${texts} for ${subject}`), button("Drop", drop, "small danger", `Drop ${texts} for ${subject}`)]);
}
