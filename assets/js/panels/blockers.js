import { loadAll, patch, post, projectPath } from "../api.js";
import { h } from "../dom.js";
import { deleteButton } from "../parts/dialog.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, clamp, external, issueName, issueText, section, toast } from "../parts/ui.js";
import { KINDS, REASONS, count, labelOf } from "../parts/words.js";
import { asideUrl, panelUrl } from "../router.js";

export const about = "Waiting issues, the reasons, and how to release them.";
export const watch = ["decision", "poll", "job"];

export const load = () => loadAll("/api/blockers?all=true", { parked: "/api/parked" });

function release(row, ctx) {
	const { issueId, issueIdentifier: key, teamKey } = row;
	const link = (href, text) => h("a", { class: "button small", href, "aria-label": `${text} for ${key}` }, text);
	const resume = async () => {
		await patch(projectPath(teamKey), { paused: false });
		toast(`Resumed ${teamKey}.`);
		await ctx.reload();
	};
	switch (row.reason) {
		case "paused": return button("Resume", resume, { kind: "small", title: `Resume ${teamKey}` });
		case "dedup": return clearDedup(issueId, key, ctx);
		case "parked": return unpark(row, ctx);
		case "no-mapping": return link(panelUrl("projects/new"), "Add project");
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

export const view = ({ main: { blockers, totals }, parked }, ctx) => [
	blockers.length > 0 && h("p", { class: "slots" }, `${count(totals.issues, "issue")} in ${count(totals.teams, "project")} ${totals.issues === 1 ? "is" : "are"} waiting.`),
	table({
		id: "blockers", label: "blockers", rows: blockers, key: (row) => row.issueId, filter: true, href: (row) => asideUrl("issue", row.issueIdentifier),
		chips: Object.keys(totals.byReason).map((reason) => [labelOf(REASONS, reason), (row) => row.reason === reason]),
		columns: [
			col("Issue", "", issueText, issueName),
			col("Project", "s sm", "teamKey"),
			col("Reason", "m", "reason", (row) => badge(row.reason, labelOf(REASONS, row.reason))),
			col("Message", "xl md", "message", (row) => clamp(row.message)),
			col("Since", "s sm right", "since", (row) => ago(row.since)),
			col("Ticket", "xs md", null, (row) => external(row.ticketUrl, "Open")),
		],
		actions: (row) => release(row, ctx),
		empty: ["Nothing is blocked", "All flagged issues are running or done."],
	}),
	parked && section("Parked", { note: "by the dispatch breaker, after repeated failures" }, table({
		id: "parked", label: "parked issues", rows: parked, key: (row) => row.issueId,
		columns: [
			col("Issue", "", issueText, issueName),
			col("Repository", "m sm", "repo"),
			col("Phase", "m md", "phase", (row) => labelOf(KINDS, row.phase)),
			col("Failures", "xs right", "failures"),
			col("Last failure", "xl md", "lastConclusion", (row) => clamp(row.lastConclusion)),
			col("Parked", "s sm right", "parkedAt", (row) => ago(row.parkedAt)),
		],
		actions: (row) => unpark(row, ctx),
		empty: ["No issue is parked", "An issue whose runs fail repeatedly is parked until you unpark it."],
	})),
];
