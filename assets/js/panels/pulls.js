import { get } from "../api.js";
import { h } from "../dom.js";
import { checksText, feedbackText, mergeText, stateOf } from "../parts/pull.js";
import { col, issueColumn, table } from "../parts/table.js";
import { takeButton } from "../parts/take.js";
import { ago, exact } from "../parts/time.js";
import { badge, external, twoLines } from "../parts/ui.js";
import { count } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const about = "Pull requests of the latest runs, at most 500. Reviews and comments start follow-up runs.";
// Sweeps read pull requests from the host about as often as polls read tickets.
export const watch = ["job", "poll"];

export const load = () => get("/api/pulls");

const openedAt = (row) => row.createdAt ?? row.lastDispatchedAt;

export function view({ pulls }, ctx) {
	const { query } = ctx;
	const [team, from, to] = ["team", "from", "to"].map((name) => query.get(name));
	const rows = pulls.filter((row) => (!team || row.teamKey === team) && (!from || openedAt(row) >= from) && (!to || openedAt(row) < to));
	return [
		(team || from || to) && h("p.slots", h("span", "Pull requests", team && [" of ", h("b", team)], from && [" opened from ", h("b", exact(from))], to && [" to ", h("b", exact(to))], "."), h("a", { href: "/admin/pulls" }, "Show all pull requests")),
		pullTable(rows, ctx.reload),
	];
}

const pullTable = (rows, reload) => table({
	id: "pulls", label: "pull requests", rows, key: (row) => row.prUrl, filter: true, href: (row) => asideUrl("job", row.jobId),
	chips: [
		["Open", (row) => stateOf(row) === "open"], ["Merged", (row) => stateOf(row) === "merged"], ["Closed", (row) => stateOf(row) === "closed"],
		["Red", (row) => row.checks?.state === "failure"],
		["Taken over", (row) => row.takenBy],
	],
	columns: [
		issueColumn,
		col("Pull request", "m sm", (row) => `${row.repo} ${row.prNumber}`, (row) => twoLines(external(row.prUrl, `#${row.prNumber}`), row.repo)),
		col("State", "s", stateOf, (row) => twoLines(badge(stateOf(row)), row.takenBy ? `Taken over by ${row.takenBy}` : stateOf(row) === "open" && (row.checks?.state === "failure" ? "Red" : row.draft && "Draft"))),
		col("Checks", "m sm", checksText, (row) => twoLines(badge(row.checks?.state, checksText(row)), row.checks?.message)),
		col("Review", "n lg", "reviewDecision", (row) => twoLines(badge(row.reviewDecision), feedbackText(row) ?? mergeText(row))),
		col("Age", "s sm right", openedAt, (row) => twoLines(ago(openedAt(row)), count(row.iterations, "run"))),
	],
	actions: (row) => stateOf(row) === "open" && takeButton(row.issueIdentifier, Boolean(row.takenBy), reload),
	empty: ["No pull requests yet", "Pull requests appear here when runs open them."],
});
