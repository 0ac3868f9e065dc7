// @ts-check
// One run: what it does, how long each step took, what it says, how it ended.

import { download, get, maybe, remove } from "../api.js";
import { h } from "../dom.js";
import { listen } from "../live.js";
import { aside } from "../router.js";
import { confirm, open } from "./dialog.js";
import { ago, duration, span } from "./time.js";
import { badge, busy, button, empty, external, facts, messageOf, notice, section, toast } from "./ui.js";
import { KINDS, RUNNERS, TIMEOUTS, count, isActive, money, name } from "./words.js";

/** @param {string} id @param {() => void} onClose */
export function openAside(id, onClose) {
  const dialog = open({ title: "Run", kind: "drawer", onClose: () => { quiet(); onClose(); } });
  /** @type {any} */
  let shown = null;
  /** @type {any[]} */
  let attempts = [];
  /** @type {ReturnType<typeof setTimeout> | null} */
  let soon = null;
  let closed = false;

  const load = async () => {
    try {
      const next = await get(`/api/jobs/${encodeURIComponent(id)}/steps`);
      if (!shown || shown.job.status !== next.job.status) {
        const log = (await maybe("/api/log")) ?? [];
        attempts = log.filter((/** @type {any} */ job) => job.issueId === next.job.issueId);
      }
      shown = next;
      if (!closed) draw();
    } catch (error) {
      if (!closed && !shown) dialog.show(empty("This run could not be loaded", messageOf(error), button("Try again", load)));
    }
  };
  const draw = () => {
    const log = /** @type {HTMLElement | null} */ (dialog.el.querySelector(".log"));
    const atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
    dialog.show(view(shown, attempts, load), null, title(shown.job));
    const after = /** @type {HTMLElement | null} */ (dialog.el.querySelector(".log"));
    if (after && atEnd) after.scrollTop = after.scrollHeight;
  };
  const quiet = listen(({ type, data }) => {
    const mine = type === "all" || (type === "step" && data?.jobId === id) || (type === "job" && (data?.id === id || data?.issueId === shown?.job.issueId));
    if (!mine || soon) return;
    soon = setTimeout(() => {
      soon = null;
      load();
    }, 200);
  });
  dialog.el.addEventListener("close", () => { closed = true; });
  dialog.show(h("div", { class: "loading", role: "status" }, h("i"), h("i"), h("i")));
  load();
  return dialog;
}

/** @param {any} job */
const title = (job) => [h("span", { class: "key" }, job.issueIdentifier), " ", job.issueTitle];

/** @param {{job: any, steps: any[], log?: string | null}} data @param {any[]} attempts @param {() => Promise<void>} reload */
function view({ job, steps, log }, attempts, reload) {
  const active = isActive(job);
  const took = span(job.startedAt ?? job.dispatchedAt ?? job.reservedAt, active ? null : job.finishedAt);
  const savePatch = () => download(`/api/jobs/${encodeURIComponent(job.id)}/patch`, `${job.issueIdentifier}.patch`);
  return [
    h("div", { class: "run-line" }, badge(job.status), h("span", {}, name(KINDS, job.kind)), h("span", { class: "muted" }, active ? "for " : "took ", took),
      job.shadow && h("span", { class: "badge idle" }, "Shadow"), job.planningStatus && job.implementationStatus && h("span", { class: "muted" }, "planned first")),
    (job.failureReason || job.timeoutReason || job.failureCode) && notice(job.status === "review_failed" ? "warn" : "bad",
      job.failureCode && h("strong", {}, job.failureCode), job.timeoutReason && h("strong", {}, name(TIMEOUTS, job.timeoutReason)),
      job.failureReason && h("pre", { class: "reason" }, job.failureReason)),
    h("div", { class: "links" },
      external(job.issueUrl, "Ticket"), job.prUrl && external(job.prUrl, `Pull request #${job.prNumber}`), job.runUrl && external(job.runUrl, "Run at the host"),
      job.failureCode && button("Unpushed work", savePatch, { kind: "small ghost", title: "Saves work that could not be pushed, if there is any" }),
      job.machineId && active && button("Destroy session", () => destroy(job, reload), { kind: "small danger" })),
    section("Steps", { note: steps.length ? count(steps.length, "step") : null },
      steps.length ? timeline(steps) : h("p", { class: "muted" }, active ? "No step has been reported yet." : "The run reported no steps.")),
    (log || active) && section("Log", { note: active ? "live, the last lines" : "the last lines" },
      h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log of the run" }, log || "Nothing yet.")),
    section("Facts", {}, facts(rows(job))),
    attempts.length > 1 && section("All runs of this issue", {}, h("ol", { class: "plain attempts" }, attempts.map((one) =>
      h("li", { key: one.id, "aria-current": one.id === job.id ? "true" : null },
        h("a", { href: aside("job", one.id) }, `${name(KINDS, one.kind)} ${one.dispatchNumber}`), badge(one.status), h("span", { class: "muted" }, ago(one.reservedAt)), h("span", { class: "num muted" }, money(one.usage?.costUsd)))))),
  ];
}

/** @param {any} job @returns {[string, import("../dom.js").Child][]} */
function rows(job) {
  const { usage } = job;
  return /** @type {any} */ ([
    ["Repository", job.repo],
    ["Project", h("a", { href: aside("edit", job.teamKey) }, job.teamKey)],
    ["Runner", name(RUNNERS, job.runner)],
    job.sessionImage && ["Image", h("code", {}, job.sessionImage)],
    job.branch && ["Branch", h("code", {}, job.branch)],
    ["Dispatch", `number ${job.dispatchNumber}`],
    ["Dispatch id", h("code", {}, job.dispatchId)],
    job.runId && ["Run id", h("code", {}, job.runId)],
    job.machineId && ["Machine", h("code", {}, job.machineId)],
    ["Reserved", ago(job.reservedAt)],
    job.finishedAt && ["Ended", ago(job.finishedAt)],
    job.conclusion && ["Conclusion", job.conclusion],
    usage && ["Cost", money(usage.costUsd)],
    usage && ["Turns", usage.turns.toLocaleString("en")],
    usage && ["Tokens", `${usage.inputTokens.toLocaleString("en")} in, ${usage.outputTokens.toLocaleString("en")} out`],
  ].filter(Boolean));
}

/** @param {any} step */
const took = (step) => step.elapsed_ms ?? (step.ended_at ? Date.parse(step.ended_at) - Date.parse(step.started_at) : null);

/** @param {any[]} steps */
function timeline(steps) {
  const longest = Math.max(1000, ...steps.map((step) => took(step) ?? 0));
  return h("ol", { class: "timeline" }, steps.map((step) => {
    const ms = took(step);
    const outputs = step.outputs && JSON.stringify(step.outputs, null, 2);
    return h("li", { key: step.id, class: step.parent_step_id ? "inner" : "" },
      h("span", { class: "step-name" }, step.id, step.type !== step.id && h("span", { class: "muted" }, ` ${step.type}`)),
      badge(step.status),
      h("span", { class: "step-bar", "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(1, ((ms ?? 0) / longest) * 100)}%` } })),
      h("span", { class: "num step-time" }, ms === null ? span(step.started_at) : duration(ms)),
      (outputs || step.logs_url) && h("details", {}, h("summary", {}, "Output"), outputs && h("pre", {}, outputs), step.logs_url && external(step.logs_url, "Log")));
  }));
}

/** @param {any} job @param {() => Promise<void>} reload */
async function destroy(job, reload) {
  confirm({
    title: "Destroy this session?",
    text: `The machine ${job.machineId} of ${job.issueIdentifier} is destroyed and its work is lost. The issue's marker and dedup entry are cleared, so it may be picked up again.`,
    action: "Destroy session",
    run: async () => {
      await remove(`/api/sessions/${encodeURIComponent(job.machineId)}`);
      toast("The session is destroyed.");
      await busy(reload);
    },
  });
}
