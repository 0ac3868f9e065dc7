import { loadAll } from "../api.js";
import { h } from "../dom.js";
import { bulk, clearAll, unparkAll } from "../parts/bulk.js";
import { setPaused } from "../parts/sync.js";
import { col, issueColumn, slug, table } from "../parts/table.js";
import { giveBack } from "../parts/take.js";
import { ago } from "../parts/time.js";
import { badge, button, clamp, linkButton, rows, section, twoLines } from "../parts/ui.js";
import { KINDS, REASONS, count, labelOf } from "../parts/words.js";
import { asideUrl, url } from "../router.js";

export const about = "Waiting issues, the reasons, and how to release them.";
export const watch = ["decision", "poll", "job"];

export const load = () => loadAll("/api/blockers?all=true", { parked: "/api/parked" });

/** Action of one issue. */
function release(row, ctx) {
	if (row.reason === "dedup") return clearDedup(row, ctx);
	if (row.reason === "taken-over") return button("Give back", () => giveBack(row.issueIdentifier, ctx.reload), "small", `Give ${row.issueIdentifier} back`);
	return row.reason === "parked" ? unpark(row, ctx) : null;
}

/** Action on all issues of a project that wait for the same reason. */
function releaseAll(issues, ctx) {
	const [{ reason, teamKey }] = issues;
	const edit = (text) => linkButton(asideUrl("edit", teamKey), text, `${text} of ${teamKey}`);
	const title = (verb) => `${verb} ${count(issues.length, "issue")} of ${teamKey}`;
	const resume = async () => {
		await setPaused(teamKey, false);
		await ctx.reload();
	};
	switch (reason) {
		case "paused": return button("Resume", resume, "small", `Resume ${teamKey}`);
		case "dedup": return button("Clear all", () => clearAll(issues, ctx.reload), "small", title("Clear the dedup entries of"));
		case "parked": return button("Unpark all", () => unparkAll(issues, ctx.reload), "small", title("Unpark"));
		case "no-mapping": return linkButton("/admin/projects/new", "Add project", `Add a project for ${teamKey}`);
		case "concurrency": return edit("Raise cap");
		case "ineligible": return linkButton(url`/admin/projects/${teamKey}`, "Show project", `Show project ${teamKey}`);
		case "quota": return linkButton("/admin/connections", "Connections");
		case "question": case "approval": return linkButton("/admin/questions", "Questions");
		case "budget": return edit("Raise budget");
		case "outside-hours": return edit("Change hours");
		case "review-capacity": case "collision": return linkButton("/admin/pulls", "Pull requests");
		default: return null;
	}
}

export const clearDedup = (row, ctx) => button("Clear", () => clearAll([row], ctx.reload), "small danger", `Clear dedup entry of ${row.issueIdentifier}`);
const unpark = (row, ctx) => button("Unpark", () => unparkAll([row], ctx.reload), "small", `Unpark ${row.issueIdentifier}`);

/** Issues by reason and project, most issues first. @param {any[]} blockers */
const groupsOf = (blockers) => [...Map.groupBy(blockers, ({ reason, teamKey }) => `${reason} ${teamKey}`).values()].sort((a, b) => b.length - a.length);

function groupLine(issues, ctx) {
	const [{ reason, teamKey }] = issues;
	const label = labelOf(REASONS, reason);
	const since = issues.reduce((first, row) => (row.since < first ? row.since : first), issues[0].since);
	const message = issues.every((row) => row.message === issues[0].message) ? issues[0].message : null;
	return h("li", { key: `${reason} ${teamKey}` },
		h("a.row-link.grow", { href: url`/admin/blockers?reason=${slug(label)}&q=${teamKey}` }, twoLines([teamKey, ": ", count(issues.length, "issue")], message)),
		badge(reason, label), h("span.muted.num", ago(since)), h("span.row-actions", releaseAll(issues, ctx)));
}

export const view = ({ main: { blockers, totals }, parked }, ctx) => [
	blockers.length > 0 && section("By reason and project", { note: `${count(totals.issues, "issue")} in ${count(totals.teams, "project")} ${totals.issues === 1 ? "is" : "are"} waiting` },
		rows(groupsOf(blockers), (issues) => groupLine(issues, ctx))),
	section("Waiting issues", {}, table({
		id: "blockers", label: "blockers", rows: blockers, key: (row) => row.issueId, filter: true, param: "reason", href: (row) => asideUrl("issue", row.issueIdentifier),
		chips: Object.keys(totals.byReason).map((reason) => [labelOf(REASONS, reason), (row) => row.reason === reason]),
		columns: [
			issueColumn,
			col("Project", "s md", "teamKey"),
			col("Reason", "n keep", "reason", (row) => badge(row.reason, labelOf(REASONS, row.reason))),
			col("Message", "l md", "message", (row) => clamp(row.message)),
			col("Since", "s sm right keep", "since", (row) => ago(row.since)),
		],
		actions: (row) => release(row, ctx),
		bulk: [
			bulk("Unpark", (row) => row.reason === "parked", unparkAll, ctx.reload),
			bulk("Clear", (row) => row.reason === "dedup", clearAll, ctx.reload),
		],
		empty: ["Nothing is blocked", "All flagged issues are running or done."],
	})),
	parked && section("Parked", { note: "by the dispatch breaker, after repeated failures" }, table({
		id: "parked", label: "parked issues", rows: parked, key: (row) => row.issueId,
		columns: [
			issueColumn,
			col("Repository", "m sm", "repo"),
			col("Phase", "m md", "phase", (row) => labelOf(KINDS, row.phase)),
			col("Failures", "xs right", "failures"),
			col("Last failure", "xl md", "lastConclusion", (row) => clamp(row.lastConclusion)),
			col("Parked", "s sm right keep", "parkedAt", (row) => ago(row.parkedAt)),
		],
		actions: (row) => unpark(row, ctx),
		bulk: [bulk("Unpark", () => true, unparkAll, ctx.reload)],
		empty: ["No issue is parked", "An issue whose runs fail repeatedly is parked until you unpark it."],
	})),
];
