// @ts-check
import { get } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { ago, span } from "../parts/time.js";
import { badge, external, issueName } from "../parts/ui.js";
import { KINDS, RUNNERS, hasFailed, isActive, money, name } from "../parts/words.js";
import { aside } from "../router.js";

export const title = "Pipelines";
export const about = "The last 500 dispatches. Planning and implementation of one issue are one line.";
export const watch = ["job"];

export const load = async () => {
  /** @type {Map<string, any>} */
  const groups = new Map();
  for (const job of await get("/api/log")) {
    const known = groups.get(job.groupId);
    if (known) known.jobs.push(job);
    else groups.set(job.groupId, { ...job, jobs: [job] });
  }
  return [...groups.values()];
};

/** @param {any} row */
const cost = (row) => row.jobs.reduce((/** @type {number} */ sum, /** @type {any} */ job) => sum + (job.usage?.costUsd ?? 0), 0);

/** @param {any[]} rows */
export const view = (rows) => table({
  id: "pipelines", label: "Dispatches", rows, key: (row) => row.groupId, filter: "Filter dispatches", href: (row) => aside("job", row.id),
  chips: [
    { name: "active", label: "Active", test: isActive },
    { name: "completed", label: "Completed", test: (row) => row.status === "completed" },
    { name: "failed", label: "Failed", test: hasFailed },
  ],
  columns: [
    { label: "Issue", cell: (row) => issueName(row.issueIdentifier, row.issueTitle), sort: (row) => row.issueIdentifier, text: (row) => `${row.issueIdentifier} ${row.issueTitle} ${row.branch ?? ""}` },
    { label: "Status", width: "m", cell: (row) => h("span", { class: "two-lines" }, badge(row.status), h("span", { class: "sub" }, `${name(KINDS, row.kind)}${row.dispatchNumber > 1 ? `, number ${row.dispatchNumber}` : ""}`)), sort: (row) => row.status, text: (row) => row.status },
    { label: "Planning", width: "s", hide: "md", cell: (row) => badge(row.planningStatus), sort: (row) => row.planningStatus },
    { label: "Implementation", width: "m", hide: "md", cell: (row) => badge(row.implementationStatus), sort: (row) => row.implementationStatus },
    { label: "Repository", width: "m", hide: "sm", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, row.repo), h("span", { class: "sub" }, row.teamKey)), sort: (row) => row.repo, text: (row) => `${row.repo} ${row.teamKey}` },
    { label: "Runner", width: "m", hide: "md", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, name(RUNNERS, row.runner), row.shadow && " (shadow)"), h("span", { class: "sub", title: row.sessionImage ?? "" }, row.sessionImage ?? "")), text: (row) => `${name(RUNNERS, row.runner)} ${row.machineId ?? ""} ${row.sessionImage ?? ""}` },
    { label: "Pull request", width: "s", hide: "sm", cell: (row) => (row.prUrl ? external(row.prUrl, `#${row.prNumber}`) : h("span", { class: "faint" }, "–")), sort: (row) => row.prNumber, text: (row) => (row.prNumber ? `#${row.prNumber}` : "") },
    { label: "Cost", width: "xs", hide: "md", right: true, cell: (row) => money(cost(row) || null), sort: cost },
    { label: "Time", width: "s", right: true, cell: (row) => h("span", { class: "two-lines" }, isActive(row) ? span(row.reservedAt) : span(row.startedAt ?? row.reservedAt, row.finishedAt), h("span", { class: "sub" }, ago(row.reservedAt))), sort: (row) => row.reservedAt },
  ],
  empty: { title: "No dispatches yet", text: "Flag an issue and its run appears here, live from the first second." },
});
