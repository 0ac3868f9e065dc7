// @ts-check
import { get } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, external, issueName } from "../parts/ui.js";
import { aside } from "../router.js";

export const title = "Pull requests";
export const about = "Opened by runs and still followed: reviews and comments on them start follow-up runs.";
export const watch = ["job"];

export const load = () => get("/api/pulls");

/** @param {any} data */
export const view = ({ pulls }) => table({
  id: "pulls", label: "Pull requests", rows: pulls, key: (row) => row.prUrl, filter: "Filter pull requests", href: (row) => aside("job", row.jobId),
  columns: [
    { label: "Issue", cell: (row) => issueName(row.issueIdentifier, row.issueTitle), sort: (row) => row.issueIdentifier, text: (row) => `${row.issueIdentifier} ${row.issueTitle}` },
    { label: "Pull request", width: "s", cell: (row) => external(row.prUrl, `#${row.prNumber}`), sort: (row) => row.prNumber, text: (row) => `#${row.prNumber}` },
    { label: "Repository", width: "m", hide: "sm", cell: (row) => row.repo, sort: (row) => row.repo, text: (row) => row.repo },
    { label: "Status", width: "m", cell: (row) => h("span", { class: "two-lines" }, badge(row.jobStatus), row.draft && h("span", { class: "sub" }, "Draft")), sort: (row) => row.jobStatus, text: (row) => row.jobStatus },
    { label: "Runs", width: "xs", hide: "sm", right: true, cell: (row) => row.iterations, sort: (row) => row.iterations },
    { label: "Last run", width: "s", hide: "md", right: true, cell: (row) => ago(row.lastDispatchedAt), sort: (row) => row.lastDispatchedAt },
    { label: "Ticket", width: "s", hide: "md", cell: (row) => external(row.issueUrl, "Open") },
  ],
  empty: { title: "No pull requests yet", text: "When a run opens one, it is listed here with its reviews' follow-ups." },
});
