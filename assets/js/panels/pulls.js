import { get } from "../api.js";
import { checksText, stateOf } from "../parts/pull.js";
import { col, issueColumn, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, external, twoLines } from "../parts/ui.js";
import { asideUrl } from "../router.js";

export const about = "Pull requests opened by runs. Reviews and comments on them start follow-up runs.";
export const watch = ["job"];

export const load = () => get("/api/pulls");

export const view = ({ pulls }) => table({
	id: "pulls", label: "pull requests", rows: pulls, key: (row) => row.prUrl, filter: true, href: (row) => asideUrl("job", row.jobId),
	chips: [
		["Open", (row) => stateOf(row) === "open"], ["Merged", (row) => stateOf(row) === "merged"], ["Closed", (row) => stateOf(row) === "closed"],
		["Red", (row) => row.checks?.state === "failure"],
	],
	columns: [
		issueColumn,
		col("Pull request", "m sm", (row) => `${row.repo} ${row.prNumber}`, (row) => twoLines(external(row.prUrl, `#${row.prNumber}`), row.repo)),
		col("State", "s", stateOf, (row) => twoLines(badge(stateOf(row)), stateOf(row) === "open" && (row.checks?.state === "failure" ? "Red" : row.draft && "Draft"))),
		col("Checks", "m sm", checksText, (row) => badge(row.checks?.state, checksText(row))),
		col("Review", "m md", "reviewDecision", (row) => badge(row.reviewDecision)),
		col("Feedback", "s md", "findingsWaiting", (row) => (row.findingsWaiting ? `${row.findingsWaiting} waiting` : "–")),
		col("Runs", "xs md right", "iterations"),
		col("Age", "s sm right", (row) => row.createdAt ?? row.lastDispatchedAt, (row) => ago(row.createdAt ?? row.lastDispatchedAt)),
	],
	empty: ["No pull requests yet", "Pull requests appear here when runs open them."],
});
