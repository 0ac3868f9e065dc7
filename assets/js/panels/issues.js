import { gather, post } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, clamp, external, issueName, notice, toast, two } from "../parts/ui.js";
import { REASONS, name } from "../parts/words.js";
import { aside } from "../router.js";

export const about = "Every flagged issue, as the last poll saw it, and what was decided.";
export const watch = ["decision", "poll"];

export const load = () => gather("/api/issues", { mappings: "/api/mappings" });

export const actions = () => button("Poll now", pollNow, { icon: "refresh" });

export async function pollNow() {
	await post("/api/poll");
	toast("The ticketing systems are asked now.");
}

const outcome = (row) => row.decision?.reason ?? row.decision?.outcome;

export function view({ main, mappings }) {
	const since = main.staleSince ?? {};
	return [
		main.stale.map((team) => notice("warn", h("b", {}, team), since[team] ? [" is shown as it was ", ago(since[team]), "."] : " could not be read yet.", " Its ticketing system does not answer.")),
		h("p", { class: "slots" }, Object.entries(main.inProgressCountsByTeam).map(([team, n]) => h("span", { class: "slot" }, h("b", {}, team), ` ${n}${mappings?.[team] ? ` of ${mappings[team].maxInProgressAiIssues}` : ""} in progress`))),
		table({
			id: "issues", label: "issues", rows: main.issues, key: (row) => row.id, filter: true, href: (row) => aside("issue", row.identifier),
			chips: [
				["Waiting", (row) => row.decision?.outcome === "waiting"],
				["In progress", (row) => ["in-progress", "dispatched"].includes(row.decision?.outcome)],
				["Ready", (row) => row.ready],
				["Planning pending", (row) => row.planningPending],
			],
			columns: [
				col("Issue", "", (row) => `${row.identifier} ${row.title}`, (row) => issueName({ issueIdentifier: row.identifier, issueTitle: row.title })),
				col("Project", "s sm", "teamKey"),
				col("State", "m md", (row) => `${row.stateName} ${row.marker ?? ""}`, (row) => two(row.stateName, row.marker)),
				col("Decision", "m", outcome, (row) => badge(outcome(row), row.decision?.reason && name(REASONS, row.decision.reason))),
				col("Why", "xl md", (row) => row.decision?.message, (row) => clamp(row.decision?.message)),
				col("Ticket", "xs sm", null, (row) => external(row.url, "Open")),
			],
			empty: ["No flagged issues", "Put the label Agent-Implement on a Linear issue, or set Agent-Implement Status to Ready in Jira. It appears here after the next poll."],
		}),
	];
}
