// @ts-check
// Why an issue stands where it stands: what was decided about it, and before that.

import { get, maybe } from "../api.js";
import { h } from "../dom.js";
import { listen } from "../live.js";
import { aside } from "../router.js";
import { open } from "./dialog.js";
import { ago } from "./time.js";
import { badge, button, empty, external, messageOf, section } from "./ui.js";
import { KINDS, REASONS, name } from "./words.js";

/** @param {string} key @param {() => void} onClose */
export function openAside(key, onClose) {
  const dialog = open({ title: key, kind: "drawer", onClose: () => { quiet(); onClose(); } });
  const load = async () => {
    try {
      const [why, seen, log] = await Promise.all([get(`/api/why/${encodeURIComponent(key)}`), maybe("/api/issues").catch(() => null), maybe("/api/log")]);
      const issue = seen?.issues.find((/** @type {any} */ one) => one.identifier === why.identifier);
      const jobs = (log ?? []).filter((/** @type {any} */ job) => job.issueIdentifier === why.identifier);
      if (dialog.el.isConnected) dialog.show(view(why, issue, jobs), null, [h("span", { class: "key" }, why.identifier), " ", issue?.title ?? jobs[0]?.issueTitle ?? ""]);
    } catch (error) {
      if (dialog.el.isConnected) dialog.show(empty("Nothing is known about this issue", messageOf(error), button("Try again", load)));
    }
  };
  const quiet = listen(({ type, data }) => {
    if (type === "all" || (type === "decision" && data?.issueIdentifier === key) || (type === "job" && data?.issueIdentifier === key)) load();
  });
  dialog.show(h("div", { class: "loading", role: "status" }, h("i"), h("i"), h("i")));
  load();
  return dialog;
}

/** @param {any} decision */
const said = (decision) => decision.reason ? badge(decision.reason, name(REASONS, decision.reason)) : badge(decision.outcome);

/** @param {any} why @param {any} issue @param {any[]} jobs */
function view(why, issue, jobs) {
  const url = issue?.url ?? jobs[0]?.issueUrl;
  return [
    why.decision && h("div", { class: "run-line" }, said(why.decision), h("span", {}, why.decision.message), h("span", { class: "muted" }, ago(why.decision.at))),
    h("div", { class: "links" }, url && external(url, "Ticket"), issue?.marker && h("span", { class: "badge idle" }, issue.marker), issue && h("span", { class: "muted" }, issue.stateName)),
    section("Runs", {}, jobs.length
      ? h("ol", { class: "plain attempts" }, jobs.map((job) => h("li", { key: job.id }, h("a", { href: aside("job", job.id) }, `${name(KINDS, job.kind)} ${job.dispatchNumber}`), badge(job.status), h("span", { class: "muted" }, ago(job.reservedAt)), job.prUrl && external(job.prUrl, `#${job.prNumber}`))))
      : h("p", { class: "muted" }, "No run was dispatched yet.")),
    section("Decisions before", { note: "newest first" }, why.history.length
      ? h("ol", { class: "plain decisions" }, why.history.map((/** @type {any} */ one) => h("li", {}, said(one), h("span", {}, one.message), h("span", { class: "muted" }, ago(one.at)))))
      : h("p", { class: "muted" }, "This is the first.")),
  ];
}
