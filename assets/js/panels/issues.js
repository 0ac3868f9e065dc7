import { loadAll, post } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, clamp, external, issueName, notice, toast, twoLines } from "../parts/ui.js";
import { REASONS, labelOf } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const about = "Issues labelled for the agent, and what happens to each next.";
export const watch = ["decision", "poll"];

export const load = () => loadAll("/api/issues", { mappings: "/api/mappings" });

export const actions = () => button("Poll now", pollNow, { icon: "refresh" });

export async function pollNow() {
	await post("/api/poll");
	toast("Started a poll of the ticketing systems.");
}

const decisionWord = (row) => row.decision?.reason ?? row.decision?.outcome;

export function view({ main, mappings }) {
	const since = main.staleSince ?? {};
	return [
		main.stale.map((team) => notice("warn", h("b", {}, team), ": Can't reach the ticketing system. ", since[team] ? ["Showing data from ", ago(since[team]), "."] : "There is no data yet.")),
		h("p", { class: "slots" }, Object.entries(main.inProgressCountsByTeam).map(([team, n]) => h("span", { class: "slot" }, h("b", {}, team), ` ${n}${mappings?.[team] ? ` of ${mappings[team].maxInProgressAiIssues}` : ""} in progress`))),
		table({
			id: "issues", label: "issues", rows: main.issues, key: (row) => row.id, filter: true, href: (row) => asideUrl("issue", row.identifier),
			chips: [
				["Waiting", (row) => row.decision?.outcome === "waiting"],
				["In progress", (row) => ["in-progress", "dispatched"].includes(row.decision?.outcome)],
				["Ready", (row) => row.ready],
				["Planning pending", (row) => row.planningPending],
			],
			columns: [
				col("Issue", "", (row) => `${row.identifier} ${row.title}`, (row) => issueName({ issueIdentifier: row.identifier, issueTitle: row.title })),
				col("Project", "s sm", "teamKey"),
				col("State", "m md", (row) => `${row.stateName} ${row.marker ?? ""}`, (row) => twoLines(row.stateName, row.marker)),
				col("Decision", "m", decisionWord, (row) => badge(decisionWord(row), row.decision?.reason && labelOf(REASONS, row.decision.reason))),
				col("Details", "xl md", (row) => row.decision?.message, (row) => clamp(row.decision?.message)),
				col("Ticket", "xs sm", null, (row) => external(row.url, "Open")),
			],
			empty: ["No flagged issues", "Add the label Agent-Implement to a Linear issue, or set Agent-Implement Status to Ready in Jira. The issue appears here after the next poll."],
		}),
	];
}
