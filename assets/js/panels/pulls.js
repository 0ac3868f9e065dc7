import { get } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, external, issueName, issueText, muted, twoLines } from "../parts/ui.js";
import { asideUrl } from "../router.js";

export const about = "Pull requests opened by runs. Reviews and comments on them start follow-up runs.";
export const watch = ["job"];

export const load = () => get("/api/pulls");

const REVIEWS = /** @type {const} */ ({ approved: ["ok", "Approved"], changes_requested: ["bad", "Changes requested"], review_required: ["idle", "Review required"] });
const STATES = /** @type {const} */ ({ open: ["run", "Open"], merged: ["mark", "Merged"], closed: ["idle", "Closed"] });

const stateOf = (row) => row.prState ?? row.state;
const labelled = (pair) => (pair ? h("span", { class: `badge ${pair[0]}` }, pair[1]) : muted("–"));
const checksText = ({ checks }) => checks && { success: "Passed", pending: "Running", failure: `${checks.failed} of ${checks.total} failed` }[checks.state];

/** @param {any} row */
const checks = (row) => labelled(row.checks && [{ success: "ok", pending: "run", failure: "bad" }[row.checks.state], checksText(row)]);

export const view = ({ pulls }) => table({
	id: "pulls", label: "pull requests", rows: pulls, key: (row) => row.prUrl, filter: true, href: (row) => asideUrl("job", row.jobId),
	chips: [
		["Open", (row) => stateOf(row) === "open"], ["Merged", (row) => stateOf(row) === "merged"], ["Closed", (row) => stateOf(row) === "closed"],
		["Red", (row) => row.checks?.state === "failure"],
	],
	columns: [
		col("Issue", "", issueText, issueName),
		col("Pull request", "m sm", (row) => `${row.repo} ${row.prNumber}`, (row) => twoLines(external(row.prUrl, `#${row.prNumber}`), row.repo)),
		col("State", "s", stateOf, (row) => twoLines(labelled(STATES[stateOf(row)]), stateOf(row) === "open" && (row.checks?.state === "failure" ? "Red" : row.draft && "Draft"))),
		col("Checks", "m sm", checksText, checks),
		col("Review", "m md", "reviewDecision", (row) => labelled(REVIEWS[row.reviewDecision])),
		col("Feedback", "s md", "findingsWaiting", (row) => (row.findingsWaiting ? `${row.findingsWaiting} waiting` : "–")),
		col("Runs", "xs md right", "iterations"),
		col("Age", "s sm right", (row) => row.createdAt ?? row.lastDispatchedAt, (row) => ago(row.createdAt ?? row.lastDispatchedAt)),
	],
	empty: ["No pull requests yet", "Pull requests appear here when runs open them."],
});
