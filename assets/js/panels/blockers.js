import { loadAll, patch, post, projectPath } from "../api.js";
import { h } from "../dom.js";
import { clearAll, unparkAll } from "../parts/bulk.js";
import { deleteButton } from "../parts/dialog.js";
import { col, slug, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, clamp, issueName, issueText, rows, section, toast, twoLines } from "../parts/ui.js";
import { KINDS, REASONS, count, labelOf } from "../parts/words.js";
import { asideUrl, panelUrl } from "../router.js";

export const about = "Waiting issues, the reasons, and how to release them.";
export const watch = ["decision", "poll", "job"];

export const load = () => loadAll("/api/blockers?all=true", { parked: "/api/parked" });

/** Action of one issue. */
function release(row, ctx) {
	if (row.reason === "dedup") return clearDedup(row.issueId, row.issueIdentifier, ctx);
	return row.reason === "parked" ? unpark(row, ctx) : null;
}

/** Action on all issues of a project that wait for the same reason. */
function releaseAll({ reason, teamKey, issues }, ctx) {
	const link = (href, text) => h("a", { class: "button small", href, "aria-label": `${text} of ${teamKey}` }, text);
	const title = (verb) => `${verb} ${count(issues.length, "issue")} of ${teamKey}`;
	const resume = async () => {
		await patch(projectPath(teamKey), { paused: false });
		toast(`Resumed ${teamKey}.`);
		await ctx.reload();
	};
	switch (reason) {
		case "paused": return button("Resume", resume, { kind: "small", title: `Resume ${teamKey}` });
		case "dedup": return button("Clear all", () => clearAll(issues, ctx.reload), { kind: "small", title: title("Clear the dedup entries of") });
		case "parked": return button("Unpark all", () => unparkAll(issues, ctx.reload), { kind: "small", title: title("Unpark") });
		case "no-mapping": return h("a", { class: "button small", href: panelUrl("projects/new"), "aria-label": `Add a project for ${teamKey}` }, "Add project");
		case "concurrency": return link(asideUrl("edit", teamKey), "Raise cap");
		case "budget": return link(asideUrl("edit", teamKey), "Raise budget");
		default: return null;
	}
}

export const clearDedup = (id, key, ctx) => deleteButton("Clear", `dedup entry of ${key}`, {
	title: `Clear the dedup entry of ${key}?`, text: "The issue can be dispatched again at the next poll, even if its last run succeeded.",
	path: `/api/dedup/${encodeURIComponent(id)}`, done: `Cleared the dedup entry of ${key}.`, after: ctx.reload,
});

const unpark = ({ issueId, issueIdentifier: key }, ctx) => button("Unpark", async () => {
	const { unparked } = await post("/api/parked/unpark", { issueId });
	toast(unparked ? `Unparked ${key}.` : `${key} was no longer parked.`);
	await ctx.reload();
}, { kind: "small", title: `Unpark ${key}` });

/** Issues by reason and project, most issues first. @param {any[]} blockers */
function groupsOf(blockers) {
	/** @type {Map<string, {reason: string, teamKey: string, issues: any[]}>} */
	const groups = new Map();
	for (const row of blockers) {
		const key = `${row.reason} ${row.teamKey}`;
		const group = groups.get(key);
		if (group) group.issues.push(row);
		else groups.set(key, { reason: row.reason, teamKey: row.teamKey, issues: [row] });
	}
	return [...groups.values()].sort((a, b) => b.issues.length - a.issues.length);
}

function groupLine(group, ctx) {
	const { reason, teamKey, issues } = group;
	const label = labelOf(REASONS, reason);
	const since = issues.reduce((first, row) => (row.since < first ? row.since : first), issues[0].since);
	const message = issues.every((row) => row.message === issues[0].message) ? issues[0].message : null;
	return h("li", { key: `${reason} ${teamKey}` },
		h("a", { class: "row-link grow", href: `${panelUrl("blockers")}?reason=${slug(label)}&q=${encodeURIComponent(teamKey)}` }, twoLines([teamKey, ": ", count(issues.length, "issue")], message)),
		badge(reason, label), h("span", { class: "muted num" }, ago(since)), h("span", { class: "row-actions" }, releaseAll(group, ctx)));
}

export const view = ({ main: { blockers, totals }, parked }, ctx) => [
	blockers.length > 0 && section("By reason and project", { note: `${count(totals.issues, "issue")} in ${count(totals.teams, "project")} ${totals.issues === 1 ? "is" : "are"} waiting` },
		rows(groupsOf(blockers), (group) => groupLine(group, ctx))),
	section("Waiting issues", {}, table({
		id: "blockers", label: "blockers", rows: blockers, key: (row) => row.issueId, filter: true, param: "reason", href: (row) => asideUrl("issue", row.issueIdentifier),
		chips: Object.keys(totals.byReason).map((reason) => [labelOf(REASONS, reason), (row) => row.reason === reason]),
		columns: [
			col("Issue", "", issueText, issueName),
			col("Project", "s sm", "teamKey"),
			col("Reason", "n keep", "reason", (row) => badge(row.reason, labelOf(REASONS, row.reason))),
			col("Message", "l md", "message", (row) => clamp(row.message)),
			col("Since", "s sm right keep", "since", (row) => ago(row.since)),
		],
		actions: (row) => release(row, ctx),
		bulk: [
			{ label: "Unpark", applies: (row) => row.reason === "parked", run: (issues) => unparkAll(issues, ctx.reload) },
			{ label: "Clear", applies: (row) => row.reason === "dedup", run: (issues) => clearAll(issues, ctx.reload) },
		],
		empty: ["Nothing is blocked", "All flagged issues are running or done."],
	})),
	parked && section("Parked", { note: "by the dispatch breaker, after repeated failures" }, table({
		id: "parked", label: "parked issues", rows: parked, key: (row) => row.issueId,
		columns: [
			col("Issue", "", issueText, issueName),
			col("Repository", "m sm", "repo"),
			col("Phase", "m md", "phase", (row) => labelOf(KINDS, row.phase)),
			col("Failures", "xs right", "failures"),
			col("Last failure", "xl md", "lastConclusion", (row) => clamp(row.lastConclusion)),
			col("Parked", "s sm right keep", "parkedAt", (row) => ago(row.parkedAt)),
		],
		actions: (row) => unpark(row, ctx),
		bulk: [{ label: "Unpark", applies: () => true, run: (issues) => unparkAll(issues, ctx.reload) }],
		empty: ["No issue is parked", "An issue whose runs fail repeatedly is parked until you unpark it."],
	})),
];
