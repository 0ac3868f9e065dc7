import { gather, ofProject, patch, post } from "../api.js";
import { h } from "../dom.js";
import { deleteButton } from "../parts/dialog.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, clamp, external, issueName, issueText, section, toast } from "../parts/ui.js";
import { KINDS, REASONS, count, name } from "../parts/words.js";
import { aside, to } from "../router.js";

export const about = "Issues that wait, what for, and what releases them.";
export const watch = ["decision", "poll", "job"];

export const load = () => gather("/api/blockers?all=true", { parked: "/api/parked" });

function release(row, ctx) {
	const { issueId, issueIdentifier: key, teamKey } = row;
	const link = (href, text) => h("a", { class: "button small", href, "aria-label": `${text} for ${key}` }, text);
	const resume = async () => {
		await patch(ofProject(teamKey), { paused: false });
		toast(`${teamKey} dispatches again.`);
		await ctx.reload();
	};
	switch (row.reason) {
		case "paused": return button("Resume", resume, { kind: "small", title: `Resume ${teamKey}` });
		case "dedup": return clearDedup(issueId, key, ctx);
		case "parked": return unpark(row, ctx);
		case "no-mapping": return link(to("projects/new"), "Add project");
		case "concurrency": return link(aside("edit", teamKey), "Raise cap");
		case "budget": return link(aside("edit", teamKey), "Raise budget");
		default: return null;
	}
}

export const clearDedup = (id, key, ctx) => deleteButton("Clear", `the entry of ${key}`, {
	title: `Clear the dedup entry of ${key}?`, text: "The issue may be dispatched again at the next poll, even if its last run had succeeded.",
	path: `/api/dedup/${encodeURIComponent(id)}`, done: `${key} is out of the dedup ledger.`, after: ctx.reload,
});

const unpark = ({ issueId, issueIdentifier: key }, ctx) => button("Unpark", async () => {
	const { unparked } = await post("/api/parked/unpark", { issueId });
	toast(unparked ? `${key} is released.` : `${key} was not parked any more.`);
	await ctx.reload();
}, { kind: "small", title: `Unpark ${key}` });

export const view = ({ main: { blockers, totals }, parked }, ctx) => [
	blockers.length > 0 && h("p", { class: "slots" }, `${count(totals.issues, "issue")} of ${count(totals.teams, "project")} ${totals.issues === 1 ? "waits" : "wait"}.`),
	table({
		id: "blockers", label: "blockers", rows: blockers, key: (row) => row.issueId, filter: true, href: (row) => aside("issue", row.issueIdentifier),
		chips: Object.keys(totals.byReason).map((reason) => [name(REASONS, reason), (row) => row.reason === reason]),
		columns: [
			col("Issue", "", issueText, issueName),
			col("Project", "s sm", "teamKey"),
			col("Reason", "m", "reason", (row) => badge(row.reason, name(REASONS, row.reason))),
			col("Message", "xl md", "message", (row) => clamp(row.message)),
			col("Since", "s sm right", "since", (row) => ago(row.since)),
			col("Ticket", "xs md", null, (row) => external(row.ticketUrl, "Open")),
		],
		actions: (row) => release(row, ctx),
		empty: ["Nothing is blocked", "Every flagged issue runs, or is done."],
	}),
	parked && section("Parked", { note: "by the dispatch breaker, after failures in a row" }, table({
		id: "parked", label: "parked issues", rows: parked, key: (row) => row.issueId,
		columns: [
			col("Issue", "", issueText, issueName),
			col("Repository", "m sm", "repo"),
			col("Phase", "m md", "phase", (row) => name(KINDS, row.phase)),
			col("Failures", "xs right", "failures"),
			col("Last failure", "xl md", "lastConclusion", (row) => clamp(row.lastConclusion)),
			col("Parked", "s sm right", "parkedAt", (row) => ago(row.parkedAt)),
		],
		actions: (row) => unpark(row, ctx),
		empty: ["No issue is parked", "An issue whose runs fail several times in a row is kept here until you release it."],
	})),
];
