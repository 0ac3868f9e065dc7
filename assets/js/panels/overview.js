import { loadAll, post } from "../api.js";
import { h } from "../dom.js";
import { runChart } from "../parts/chart.js";
import { deleteButton } from "../parts/dialog.js";
import { totalCost } from "../parts/job.js";
import { ago, span } from "../parts/time.js";
import { badge, button, connections, empty, meter, muted, newProject, notice, rows, section, tile, toast, twoLines } from "../parts/ui.js";
import { CONNECTIONS, KINDS, REASONS, costText, count, hasFailed, isActive, labelOf } from "../parts/words.js";
import { asideUrl, panelUrl } from "../router.js";
import { pollNow } from "../parts/poll.js";

export const watch = ["job", "decision", "poll", "outbox"];

const DAY = 86_400_000;
const MAX_ROWS = 6;

export const load = () => loadAll("/api/log", {
	blockers: "/api/blockers?all=true", config: "/api/admin/config-status", outbox: "/api/outbox", health: "/", mappings: "/api/mappings",
});

export const actions = ({ health }) => [health?.lastPollAt && muted("Polled ", ago(health.lastPollAt)), button("Poll now", pollNow, { icon: "refresh" })];

export function view({ main: log, blockers, config, outbox, health, mappings, failed }, ctx) {
	const today = log.filter((job) => Date.now() - Date.parse(job.reservedAt) < DAY);
	const running = log.filter(isActive);
	const bad = today.filter(hasFailed);
	const waiting = blockers?.blockers ?? [];
	const checks = config?.checks ?? [];
	const troubled = checks.filter((one) => ["error", "limited"].includes(one.status));
	const { pending = [], dead = [] } = outbox ?? {};
	const teams = new Set(running.map((job) => job.teamKey)).size;
	return [
		failed.map((text) => notice("warn", text)),
		health?.status === "degraded" && notice("bad", h("b", {}, "The service is degraded: "), health.reasons?.join(", ")),
		mappings && !Object.keys(mappings).length && empty("Connect your first project", "A project connects tickets to the repository in which pull requests are opened.", newProject()),
		h("div", { class: "tiles" },
			tile("Running", running.length, teams ? `in ${count(teams, "project")}` : "No active runs", teams ? "run" : "", panelUrl("pipelines")),
			tile("Waiting", blockers ? waiting.length : "–", waiting.length ? reasons(blockers.totals.byReason) : "No waiting issues", waiting.length ? "warn" : "", panelUrl("blockers")),
			tile("Failed in 24 h", bad.length, today.length ? `of ${count(today.length, "run")}, ${costText(totalCost(today))}` : "No runs yet", bad.length ? "bad" : "", panelUrl("pipelines")),
			tile("Connections", config ? troubled.length || "OK" : "–", troubled.map((one) => labelOf(CONNECTIONS, one.name)).join(", ") || "All connections work", troubled.length ? "bad" : "ok", panelUrl("settings"))),
		dead.length + pending.length > 0 && section("Pending updates", { note: `${pending.length} queued, ${dead.length} failed`, key: "deliveries" }, rows([...dead, ...pending].slice(0, 50), (entry) => outboxEntry(entry, dead.includes(entry), ctx))),
		section("Runs of the last 24 hours", {}, runChart(today)),
		h("div", { class: "columns" },
			part("Running now", running, "pipelines", "No active runs", "Runs appear here as soon as an issue is dispatched.", (job) => runLine(job, span(job.reservedAt))),
			part("Waiting issues", waiting, "blockers", "No waiting issues", "All flagged issues are running or done.", (one) =>
				line(one.issueId, asideUrl("issue", one.issueIdentifier), one, one.message, badge(one.reason, labelOf(REASONS, one.reason)), ago(one.since))),
			part("Failed in the last 24 hours", bad, "pipelines", "No failed runs", "No run failed in the last 24 hours.", (job) => runLine(job, ago(job.finishedAt), job.failureReason)),
			section("Connections", {}, connections(checks), (config?.quota ?? []).map(quota))),
	];
}

const reasons = (byReason) => Object.entries(byReason).map(([reason, n]) => `${n} ${labelOf(REASONS, reason).toLowerCase()}`).join(", ");

/** Section with the first rows of a list and a link to the whole list. */
const part = (title, all, panel, emptyTitle, emptyText, row) => section(title, { actions: all.length > MAX_ROWS && h("a", { href: panelUrl(panel) }, `All ${all.length}`) },
	all.length ? rows(all.slice(0, MAX_ROWS), row) : empty(emptyTitle, emptyText));

const line = (key, href, issue, sub, mark, time) =>
	h("li", { key }, h("a", { class: "row-link grow", href }, twoLines([h("span", { class: "key" }, issue.issueIdentifier), " ", issue.issueTitle], sub)), mark, h("span", { class: "muted num" }, time));

const runLine = (job, time, sub) => line(job.id, asideUrl("job", job.id), job, sub ?? `${labelOf(KINDS, job.kind)} in ${job.repo}`, badge(job.status), time);

const quota = ({ account, limit, remaining, resetAt }) => limit !== null && remaining !== null && h("div", { class: "quota", key: account },
	account, meter(limit - remaining, limit, `${remaining} of ${limit} requests left`), h("span", { class: "muted num" }, `${remaining.toLocaleString("en")} left`), resetAt && muted(ago(resetAt)));

function outboxEntry(entry, isDead, ctx) {
	const retry = async () => {
		await post(`/api/outbox/${entry.id}/retry`);
		toast("Retrying now.");
		await ctx.reload();
	};
	return h("li", { key: entry.id }, twoLines([entry.name, " ", h("code", {}, entry.lane)], entry.lastError, "grow"), muted(count(entry.attempts, "attempt")),
		isDead && [button("Retry", retry, { kind: "small", title: `Retry ${entry.name}` }), deleteButton("Drop", entry.name, {
			title: "Drop this update?", text: `“${entry.name}” for ${entry.lane} will not be sent. Nothing changes at the vendor.`,
			path: `/api/outbox/${entry.id}`, done: "Dropped the update.", after: ctx.reload,
		})]);
}
