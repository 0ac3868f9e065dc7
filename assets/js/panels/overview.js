// @ts-check
import { gather, post, remove } from "../api.js";
import { h } from "../dom.js";
import { runChart } from "../parts/chart.js";
import { confirm, menu } from "../parts/dialog.js";
import { ago, span } from "../parts/time.js";
import { badge, button, empty, meter, notice, section, tile, toast } from "../parts/ui.js";
import { CONNECTIONS, KINDS, REASONS, count, hasFailed, isActive, money, name } from "../parts/words.js";
import { aside, to } from "../router.js";

export const title = "Overview";
export const watch = ["job", "decision", "poll", "outbox"];

const DAY = 86_400_000;

export const load = () => gather("/api/log", {
  blockers: "/api/blockers?all=true", config: "/api/admin/config-status", outbox: "/api/outbox", health: "/", mappings: "/api/mappings",
});

/** @param {any} data */
export const actions = ({ health }) => [
  health?.lastPollAt && h("span", { class: "muted" }, "Polled ", ago(health.lastPollAt)),
  button("Poll now", async () => {
    await post("/api/poll");
    toast("The ticketing systems are asked now.");
  }, { icon: "refresh" }),
];

/** @param {any} data @param {import("../shell.js").Context} ctx */
export function view({ main: log, blockers, config, outbox, health, mappings, failed }, ctx) {
  const today = log.filter((/** @type {any} */ job) => Date.now() - Date.parse(job.reservedAt) < DAY);
  const running = log.filter(isActive);
  const bad = today.filter(hasFailed);
  const waiting = blockers?.blockers ?? [];
  const checks = config?.checks ?? [];
  const troubled = checks.filter((/** @type {any} */ one) => one.status === "error" || one.status === "limited");
  const dead = outbox?.dead ?? [];
  const cost = today.reduce((/** @type {number} */ sum, /** @type {any} */ job) => sum + (job.usage?.costUsd ?? 0), 0);
  const isNew = mappings && !Object.keys(mappings).length;
  return [
    failed.map((/** @type {string} */ text) => notice("warn", text)),
    health?.status === "degraded" && notice("bad", h("strong", {}, "The service is degraded. "), health.reasons?.join(", ")),
    isNew && empty("Connect your first project", "A project says which tickets become pull requests of which repository.", h("a", { class: "button primary", href: to("projects/new") }, "New project")),
    h("div", { class: "tiles" },
      tile("Running", running.length, running.length ? `${count(new Set(running.map((/** @type {any} */ job) => job.teamKey)).size, "project")}` : "Nothing runs", running.length ? "run" : "", to("pipelines")),
      tile("Waiting", blockers ? waiting.length : "–", waiting.length ? reasons(blockers.totals.byReason) : "No issue waits", waiting.length ? "warn" : "", to("blockers")),
      tile("Failed in 24 h", bad.length, today.length ? `of ${count(today.length, "run")}, ${money(cost)}` : "No runs yet", bad.length ? "bad" : "", to("pipelines")),
      tile("Connections", config ? (troubled.length ? troubled.length : "OK") : "–", troubled.length ? troubled.map((/** @type {any} */ one) => name(CONNECTIONS, one.name)).join(", ") : "Nothing is limited or down", troubled.length ? "bad" : "ok", to("settings"))),
    section("Runs of the last 24 hours", {}, runChart(today)),
    h("div", { class: "columns" },
      section("Running now", {}, list(running, "Nothing runs", "Runs appear here as soon as an issue is dispatched.", (job) => runLine(job, span(job.reservedAt)))),
      section("Waiting, and why", { actions: waiting.length > 6 && h("a", { href: to("blockers") }, `All ${waiting.length}`) },
        list(waiting.slice(0, 6), "No issue waits", "Every flagged issue runs or is done.", (one) =>
          line(one.issueId, aside("issue", one.issueIdentifier), one.issueIdentifier, one.issueTitle, badge(one.reason, name(REASONS, one.reason)), ago(one.since), one.message))),
      section("Failed in 24 hours", { actions: bad.length > 6 && h("a", { href: to("pipelines") }, `All ${bad.length}`) },
        list(bad.slice(0, 6), "Nothing failed", "No run of the last 24 hours failed.", (job) => runLine(job, ago(job.finishedAt), job.failureReason))),
      section("Connections", {}, list(checks, "No answer yet", "The connections could not be read.", (one) =>
        h("li", { key: one.name, class: "line" }, h("span", { class: "two-lines" }, h("span", { class: "title" }, name(CONNECTIONS, one.name)), h("span", { class: "sub", title: one.detail }, one.detail)), badge(one.status))),
        (config?.quota ?? []).map(quota))),
    (outbox?.pending.length || dead.length) ? section("Deliveries", { note: `${outbox.pending.length} under way, ${dead.length} given up`, key: "deliveries" },
      dead.length ? h("ul", { class: "plain rows" }, dead.map((/** @type {any} */ one) => errand(one, ctx))) : h("p", { class: "muted" }, "What is owed to the ticketing systems, GitHub and chat is on its way.")) : null,
  ];
}

/** @param {Record<string, number>} byReason */
const reasons = (byReason) => Object.entries(byReason).map(([reason, n]) => `${n} ${name(REASONS, reason).toLowerCase()}`).join(", ");

/** @param {any[]} rows @param {string} title @param {string} text @param {(row: any) => any} one */
const list = (rows, title, text, one) => (rows.length ? h("ul", { class: "plain lines" }, rows.map(one)) : empty(title, text));

/** @param {string} key @param {string} href @param {string} id @param {string} text @param {any} mark @param {any} time @param {string} [sub] */
const line = (key, href, id, text, mark, time, sub) =>
  h("li", { key, class: "line" }, h("a", { class: "row-link two-lines", href }, h("span", { class: "title" }, h("span", { class: "key" }, id), " ", text), sub && h("span", { class: "sub", title: sub }, sub)), mark, h("span", { class: "muted num" }, time));

/** @param {any} job @param {any} time @param {string} [sub] */
const runLine = (job, time, sub) => line(job.id, aside("job", job.id), job.issueIdentifier, job.issueTitle, badge(job.status), time, sub ?? `${name(KINDS, job.kind)} in ${job.repo}`);

/** @param {any} one */
function quota(one) {
  if (one.limit === null || one.remaining === null) return null;
  const used = one.limit - one.remaining;
  return h("div", { class: "quota", key: one.account }, h("span", {}, one.account), meter(used, one.limit, `${one.remaining} of ${one.limit} requests left`), h("span", { class: "muted num" }, `${one.remaining.toLocaleString("en")} left`), one.resetAt && h("span", { class: "muted" }, ago(one.resetAt)));
}

/** @param {any} one @param {import("../shell.js").Context} ctx */
function errand(one, ctx) {
  const retry = async () => {
    await post(`/api/outbox/${one.id}/retry`);
    toast("It is tried again now.");
    await ctx.reload();
  };
  const drop = () => confirm({
    title: "Drop this delivery?", text: `“${one.name}” for ${one.lane} is never delivered. What it would have changed outside stays as it is.`, action: "Drop it",
    run: async () => {
      await remove(`/api/outbox/${one.id}`);
      await ctx.reload();
    },
  });
  return h("li", { key: one.id }, h("span", { class: "two-lines" }, h("span", { class: "title" }, one.name, " ", h("code", {}, one.lane)), h("span", { class: "sub", title: one.lastError ?? "" }, one.lastError ?? "")),
    h("span", { class: "muted" }, count(one.attempts, "try", "tries")), button("Retry", retry, { kind: "small" }), menu(`More for ${one.name}`, [{ label: "Drop", danger: true, run: drop }]));
}
