import { get } from "../api.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, external, issueName, issueText, twoLines } from "../parts/ui.js";
import { asideUrl } from "../router.js";

export const about = "Pull requests opened by runs. Reviews and comments on them start follow-up runs.";
export const watch = ["job"];

export const load = () => get("/api/pulls");

export const view = ({ pulls }) => table({
	id: "pulls", label: "pull requests", rows: pulls, key: (row) => row.prUrl, filter: true, href: (row) => asideUrl("job", row.jobId),
	columns: [
		col("Issue", "", issueText, issueName),
		col("Pull request", "s", "prNumber", (row) => external(row.prUrl, `#${row.prNumber}`)),
		col("Repository", "m sm", "repo"),
		col("Status", "m", "jobStatus", (row) => twoLines(badge(row.jobStatus), row.draft && "Draft")),
		col("Runs", "xs sm right", "iterations"),
		col("Last run", "s md right", "lastDispatchedAt", (row) => ago(row.lastDispatchedAt)),
		col("Ticket", "xs md", null, (row) => external(row.issueUrl, "Open")),
	],
	empty: ["No pull requests yet", "Pull requests appear here when runs open them."],
});
