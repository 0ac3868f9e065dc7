import { loadAll } from "../api.js";
import { h } from "../dom.js";
import { bulk, clearAll, retryAll, unparkAll } from "../parts/bulk.js";
import { pollActions } from "../parts/poll.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, clamp, external, issueName, notice, twoLines } from "../parts/ui.js";
import { REASONS, labelOf } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const about = "Issues labelled for the agent, and what happens to each next.";
export const watch = ["decision", "poll"];

export const load = () => loadAll("/api/issues", { mappings: "/api/mappings", poll: "/api/poll" });

export const actions = ({ poll }) => pollActions(poll);

/** Outcomes in the order of their urgency. */
const ORDER = ["failed", "waiting", "dispatched", "in-progress", "done"];
const outcomeOf = (row) => row.decision?.outcome;
const rankOf = (row) => (ORDER.indexOf(outcomeOf(row)) + ORDER.length + 1) % (ORDER.length + 1);
const isFailed = (row) => outcomeOf(row) === "failed";
const isRunning = (row) => ["in-progress", "dispatched"].includes(outcomeOf(row));
const decisionText = (row) => (outcomeOf(row) === "waiting" && row.decision.reason ? labelOf(REASONS, row.decision.reason) : null);

export function view({ main, mappings }, ctx) {
	const since = main.staleSince ?? {};
	const reasonIs = (reason) => (row) => outcomeOf(row) === "waiting" && row.decision.reason === reason;
	return [
		main.stale.map((team) => notice("warn", h("b", team), ": Can't reach the ticketing system. ", since[team] ? ["Showing data from ", ago(since[team]), "."] : "There is no data yet.")),
		h("p.slots", Object.entries(main.inProgressCountsByTeam).map(([team, n]) => h("span.slot", h("b", team), ` ${n}${mappings?.[team] ? ` of ${mappings[team].maxInProgressAiIssues}` : ""} in progress`))),
		table({
			id: "issues", label: "issues", rows: sorted(main.issues), key: (row) => row.id, filter: true, href: (row) => asideUrl("issue", row.identifier),
			chips: [
				["Failed", isFailed],
				["Waiting", (row) => outcomeOf(row) === "waiting"],
				["Running", isRunning],
				["Done", (row) => outcomeOf(row) === "done"],
			],
			columns: [
				col("Issue", "", (row) => `${row.identifier} ${row.title}`, (row) => issueName({ issueIdentifier: row.identifier, issueTitle: row.title })),
				col("Project", "s md", "teamKey"),
				col("State", "m md", (row) => `${row.stateName ?? ""} ${row.marker ?? ""}`, (row) => twoLines(row.stateName ?? "–", row.marker)),
				col("Decision", "n keep", (row) => decisionText(row) ?? outcomeOf(row), (row) => badge(decisionText(row) ? row.decision.reason : outcomeOf(row), decisionText(row) ?? undefined)),
				col("Details", "l md", (row) => row.decision?.message, (row) => clamp(row.decision?.message)),
				col("Ticket", "xs sm", null, (row) => external(row.url, "Open")),
			],
			bulk: [
				bulk("Retry", isFailed, retryAll, ctx.reload),
				bulk("Unpark", reasonIs("parked"), unparkAll, ctx.reload),
				bulk("Clear", reasonIs("dedup"), clearAll, ctx.reload),
			],
			empty: ["No flagged issues", "Set the label Agent-Implement (Linear, GitHub) or Agent-Implement Status = Ready (Jira). It appears after a poll."],
		}),
	];
}

/** Issues by urgency. Within an outcome, the order of the service is kept. @param {any[]} issues */
const sorted = (issues) => issues.map((row, at) => ({ row, at, rank: rankOf(row) })).sort((a, b) => a.rank - b.rank || a.at - b.at).map(({ row }) => row);
