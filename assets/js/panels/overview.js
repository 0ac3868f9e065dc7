import { get, loadAll, post, remove } from "../api.js";
import { h } from "../dom.js";
import { barChart } from "../parts/chart.js";
import { ask } from "../parts/dialog.js";
import { pollNow, pollTimes } from "../parts/poll.js";
import { ago, span, until } from "../parts/time.js";
import { badge, button, connections, empty, meter, muted, notice, ranges, rows, section, tile, toast, twoLines } from "../parts/ui.js";
import { ACTIVE_STATUSES, CONNECTIONS, FAILED_STATUSES, KINDS, REASONS, costText, count, displayText, failedOf, hasFailed, isActive, labelOf, money } from "../parts/words.js";
import { asideUrl, panelUrl } from "../router.js";

export const watch = ["job", "decision", "poll", "outbox"];
export const params = ["range"];

const MAX_ROWS = 6;
/** Services with more runs need no check-list. */
const NEW_SERVICE_RUNS = 20;
const FAILED_WORDS = FAILED_STATUSES.split(",");

/** @type {Record<string, string>} */
const RANGE_TEXTS = { "24h": "24 hours", "7d": "7 days", "30d": "30 days" };
const rangeOf = (query) => (RANGE_TEXTS[query.get("range") ?? ""] ? query.get("range") : "24h");

export async function load(_, query) {
	const log = (filter) => `/api/log?limit=${MAX_ROWS}&status=${filter}`;
	const data = await loadAll(`/api/summary?window=${rangeOf(query)}`, {
		running: log(ACTIVE_STATUSES), bad: `${log(FAILED_STATUSES)}&cancelled=false`, blockers: `/api/blockers?all=true&limit=${MAX_ROWS}`, config: "/api/admin/config-status", outbox: "/api/outbox",
		health: "/", poll: "/api/poll", mappings: "/api/mappings", recent: `/api/log?limit=${NEW_SERVICE_RUNS}`,
	});
	const isNew = data.mappings && data.recent && data.recent.length < NEW_SERVICE_RUNS;
	return { ...data, setup: isNew ? await setupOf(data) : null };
}

export const actions = ({ poll }, { query }) => [h("span", { class: "poll-times" }, pollTimes(poll)), button("Poll now", pollNow, { icon: "refresh" }), ranges(panelUrl("overview"), rangeOf(query))];

export function view({ main: summary, running, bad, blockers, config, outbox, health, setup, failed }, ctx) {
	const range = rangeOf(ctx.query);
	const { waiting, ended } = summary;
	const failures = failedOf(summary);
	const judged = ended.completed + failures;
	const all = judged + ended.cancelled;
	const list = (status) => `${panelUrl("pipelines")}?status=${status}&range=${range}`;
	const checks = config?.checks ?? [];
	const troubled = checks.filter((one) => ["error", "limited"].includes(one.status));
	return [
		failed.map((text) => notice("warn", text)),
		health?.status === "degraded" && health.reasons?.length && notice("bad", h("b", {}, "The service is degraded: "), health.reasons.join(", ")),
		setup && checklist(setup),
		h("div", { class: "tiles" },
			tile("Failed", failures.toLocaleString("en"), failures ? FAILED_WORDS.filter((word) => ended[word]).map((word) => `${ended[word]} ${displayText(word).toLowerCase()}`).join(", ") : `No run failed in ${RANGE_TEXTS[range]}`, failures ? "bad" : "", list("failed")),
			tile("Waiting", waiting.total.toLocaleString("en"), waiting.total ? reasons(waiting.byReason) : "No waiting issues", waiting.total ? "warn" : "", panelUrl("blockers")),
			tile("Running", summary.running.toLocaleString("en"), summary.running ? "Active now" : "No active runs", summary.running ? "run" : "", `${panelUrl("pipelines")}?status=active`),
			tile("Success rate", judged ? `${Math.round((ended.completed / judged) * 100)}%` : "–", judged ? `${ended.completed.toLocaleString("en")} of ${count(judged, "ended run")}` : "No run ended", "", list("completed")),
			tile("Cost", all || summary.costUsd ? costText(summary.costUsd) : "–", all ? `${count(all, "run")} ended in ${RANGE_TEXTS[range]}` : "No run ended", "", `${panelUrl("pipelines")}?range=${range}`),
			tile("Connections", config ? troubled.length || "OK" : "–", troubled.map((one) => labelOf(CONNECTIONS, one.name)).join(", ") || "All connections work", troubled.length ? "bad" : "ok", panelUrl("settings"))),
		outbox && updates(outbox, ctx),
		h("div", { class: "columns" },
			section(range === "24h" ? "Runs per hour" : "Runs per day", {}, barChart({
				label: `Ended runs, last ${RANGE_TEXTS[range]}`, series: summary.series, parts: [{ key: "completed", label: "Completed", tone: "ok" }, { key: "failed", label: "Failed", tone: "bad" }],
				href: (row, end) => `${panelUrl("pipelines")}?from=${encodeURIComponent(row.at)}&to=${encodeURIComponent(end)}`,
			})),
			section(range === "24h" ? "Cost per hour" : "Cost per day", {}, barChart({
				label: `Cost, last ${RANGE_TEXTS[range]}`, series: summary.series, parts: [{ key: "costUsd", label: "Cost", tone: "mark" }], format: money,
				href: (row, end) => `${panelUrl("pipelines")}?from=${encodeURIComponent(row.at)}&to=${encodeURIComponent(end)}`,
			}))),
		h("div", { class: "columns" },
			part("Last failed runs", (bad ?? []).filter(hasFailed), list("failed"), null, ["No failed runs", "No run has failed."], (job) => runLine(job, ago(job.finishedAt), job.failureReason)),
			part("Waiting issues", (blockers?.blockers ?? []).slice(0, MAX_ROWS), panelUrl("blockers"), waiting.total, ["No waiting issues", "All flagged issues are running or done."], (one) =>
				line(one.issueId, asideUrl("issue", one.issueIdentifier), one, one.message, badge(one.reason, labelOf(REASONS, one.reason)), ago(one.since))),
			part("Running now", (running ?? []).filter(isActive), `${panelUrl("pipelines")}?status=active`, summary.running, ["No active runs", "Runs appear here as soon as an issue is dispatched."], (job) => runLine(job, span(job.reservedAt))),
			section("Connections", {}, connections(checks), (config?.quota ?? []).map(quota))),
	];
}

const reasons = (byReason) => Object.entries(byReason).map(([reason, n]) => `${n} ${labelOf(REASONS, reason).toLowerCase()}`).join(", ");

/** Section with the first rows of a list and a link to the whole list. @param {number | null} total Null if it is unknown. */
const part = (title, some, href, total, [emptyTitle, emptyText], row) => section(title, { actions: (total === null ? some.length === MAX_ROWS : total > some.length) && h("a", { href, "aria-label": `All: ${title.toLowerCase()}` }, total === null ? "All" : `All ${total.toLocaleString("en")}`) },
	some.length ? rows(some, row) : empty(emptyTitle, emptyText));

const line = (key, href, issue, sub, mark, time) =>
	h("li", { key }, h("a", { class: "row-link grow", href }, twoLines([h("span", { class: "key" }, issue.issueIdentifier), " ", issue.issueTitle], sub)), mark, h("span", { class: "muted num" }, time));

const runLine = (job, time, sub) => line(job.id, asideUrl("job", job.id), job, sub ?? `${labelOf(KINDS, job.kind)} in ${job.repo}`, badge(job.status), time);

const quota = ({ account, limit, remaining, resetAt }) => limit !== null && remaining !== null && h("div", { class: "quota", key: account },
	account, meter(limit - remaining, limit, `${remaining} of ${limit} requests left`), h("span", { class: "muted num" }, `${remaining.toLocaleString("en")} left`), resetAt && muted(ago(resetAt)));

/** Steps from an empty service to the first pull request, and whether each is done. @param {Record<string, any>} data @returns {Promise<[string, boolean, any][] | null>} Null if all are done. */
async function setupOf({ config, mappings, recent }) {
	const [pulls, templates] = await Promise.all([get("/api/pulls").catch(() => null), get("/api/admin/template-status").catch(() => [])]);
	const works = (name) => config?.checks.some((one) => one.name === name && ["ok", "limited"].includes(one.status));
	const projects = Object.values(mappings);
	const needsNoWorkflow = projects.some((one) => one.executionMode !== "ci-workflow");
	const link = (href, text) => h("a", { class: "button small", href }, text);
	/** @type {[string, boolean, any][]} */
	const steps = [
		["Connect a ticketing system and GitHub", (works("ticketing-a") || works("ticketing-b")) && works("repo-host"), link(panelUrl("settings"), "Connections")],
		["Create the first project", projects.length > 0, link(panelUrl("projects/new"), "New project")],
		["Add the workflow to its repository", needsNoWorkflow || templates.some((one) => one.implementation === "current"), projects.length > 0 && link(panelUrl("projects"), "Sync workflows")],
		["Start the first run: label an issue", recent.length > 0, projects.length > 0 && link(panelUrl("issues"), "Issues")],
		["Get the first pull request", Boolean(pulls?.pulls.length), recent.length > 0 && link(panelUrl("pipelines"), "Pipelines")],
	];
	return steps.every(([, done]) => done) ? null : steps;
}

const checklist = (steps) => section("Set up", { note: `${steps.filter(([, done]) => done).length} of ${steps.length} done`, key: "setup" },
	h("ol", { class: "rows checklist" }, steps.map(([text, done, action], at) => h("li", { class: done ? "done" : "" },
		h("span", { class: "check-mark", "aria-hidden": "true" }, done ? "✓" : at + 1), h("span", { class: "grow" }, text, h("span", { class: "sr" }, done ? " (done)" : " (open)")), !done && action))));

/** Pending updates of tickets and pull requests, by issue; failed ones first. */
function updates({ pending, dead }, ctx) {
	if (!dead.length && !pending.length) return null;
	/** @type {Map<string, any[]>} */
	const groups = new Map();
	for (const entry of pending) {
		const key = `${subjectOf(entry)} ${entry.waitsFor ?? ""} ${entry.waitsUntil ?? ""}`;
		groups.set(key, [...(groups.get(key) ?? []), entry]);
	}
	const shown = [...dead.slice(0, MAX_UPDATES).map((entry) => [`dead ${entry.id}`, [entry]]), ...groups];
	return section("Pending updates", { note: `${pending.length} queued, ${dead.length} failed`, key: "updates" },
		rows(shown.slice(0, MAX_UPDATES), ([key, entries]) => updateLine(key, entries, dead.includes(entries[0]), ctx)));
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
		isDead && [button("Retry", retry, { kind: "small", title: `Retry ${texts} for ${subject}` }), button("Drop", drop, { kind: "small danger", title: `Drop ${texts} for ${subject}` })]);
}
