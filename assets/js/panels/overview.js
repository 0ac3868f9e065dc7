import { gather, post } from "../api.js";
import { h } from "../dom.js";
import { runChart } from "../parts/chart.js";
import { deleteButton } from "../parts/dialog.js";
import { costOf } from "../parts/job.js";
import { ago, span } from "../parts/time.js";
import { badge, button, connections, dim, empty, meter, newProject, notice, rows, section, tile, toast, two } from "../parts/ui.js";
import { CONNECTIONS, KINDS, REASONS, count, hasFailed, isActive, name, sumOf } from "../parts/words.js";
import { aside, to } from "../router.js";
import { pollNow } from "./issues.js";

export const watch = ["job", "decision", "poll", "outbox"];

const DAY = 86_400_000;
const SHOWN = 6;

export const load = () => gather("/api/log", {
	blockers: "/api/blockers?all=true", config: "/api/admin/config-status", outbox: "/api/outbox", health: "/", mappings: "/api/mappings",
});

export const actions = ({ health }) => [health?.lastPollAt && dim("Polled ", ago(health.lastPollAt)), button("Poll now", pollNow, { icon: "refresh" })];

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
		mappings && !Object.keys(mappings).length && empty("Connect your first project", "A project says which tickets become pull requests of which repository.", newProject()),
		h("div", { class: "tiles" },
			tile("Running", running.length, teams ? `in ${count(teams, "project")}` : "Nothing runs", teams ? "run" : "", to("pipelines")),
			tile("Waiting", blockers ? waiting.length : "–", waiting.length ? reasons(blockers.totals.byReason) : "No issue waits", waiting.length ? "warn" : "", to("blockers")),
			tile("Failed in 24 h", bad.length, today.length ? `of ${count(today.length, "run")}, ${sumOf(costOf(today))}` : "No runs yet", bad.length ? "bad" : "", to("pipelines")),
			tile("Connections", config ? troubled.length || "OK" : "–", troubled.map((one) => name(CONNECTIONS, one.name)).join(", ") || "Nothing is limited or down", troubled.length ? "bad" : "ok", to("settings"))),
		dead.length + pending.length > 0 && section("Deliveries", { note: `${pending.length} under way, ${dead.length} given up`, key: "deliveries" }, rows([...dead, ...pending].slice(0, 50), (one) => errand(one, dead.includes(one), ctx))),
		section("Runs of the last 24 hours", {}, runChart(today)),
		h("div", { class: "columns" },
			part("Running now", running, "pipelines", "Nothing runs", "Runs appear here as soon as an issue is dispatched.", (job) => runLine(job, span(job.reservedAt))),
			part("Waiting, and why", waiting, "blockers", "No issue waits", "Every flagged issue runs or is done.", (one) =>
				line(one.issueId, aside("issue", one.issueIdentifier), one, one.message, badge(one.reason, name(REASONS, one.reason)), ago(one.since))),
			part("Failed in 24 hours", bad, "pipelines", "Nothing failed", "No run of the last 24 hours failed.", (job) => runLine(job, ago(job.finishedAt), job.failureReason)),
			section("Connections", {}, connections(checks), (config?.quota ?? []).map(quota))),
	];
}

const reasons = (byReason) => Object.entries(byReason).map(([reason, n]) => `${n} ${name(REASONS, reason).toLowerCase()}`).join(", ");

/** The first few of a list, and the way to all of them. */
const part = (title, all, panel, nothing, why, one) => section(title, { actions: all.length > SHOWN && h("a", { href: to(panel) }, `All ${all.length}`) },
	all.length ? rows(all.slice(0, SHOWN), one) : empty(nothing, why));

const line = (key, href, issue, sub, mark, time) =>
	h("li", { key }, h("a", { class: "row-link grow", href }, two([h("span", { class: "key" }, issue.issueIdentifier), " ", issue.issueTitle], sub)), mark, h("span", { class: "muted num" }, time));

const runLine = (job, time, sub) => line(job.id, aside("job", job.id), job, sub ?? `${name(KINDS, job.kind)} in ${job.repo}`, badge(job.status), time);

const quota = (one) => one.limit !== null && one.remaining !== null && h("div", { class: "quota", key: one.account },
	one.account, meter(one.limit - one.remaining, one.limit, `${one.remaining} of ${one.limit} requests left`), h("span", { class: "muted num" }, `${one.remaining.toLocaleString("en")} left`), one.resetAt && dim(ago(one.resetAt)));

function errand(one, isDead, ctx) {
	const retry = async () => {
		await post(`/api/outbox/${one.id}/retry`);
		toast("It is tried again now.");
		await ctx.reload();
	};
	return h("li", { key: one.id }, two([one.name, " ", h("code", {}, one.lane)], one.lastError, "grow"), dim(count(one.attempts, "try", "tries")),
		isDead && [button("Retry", retry, { kind: "small", title: `Retry ${one.name}` }), deleteButton("Drop", one.name, {
			title: "Drop this delivery?", text: `“${one.name}” for ${one.lane} is never delivered. What it would have changed outside stays as it is.`,
			path: `/api/outbox/${one.id}`, done: "It is dropped.", after: ctx.reload,
		})]);
}
