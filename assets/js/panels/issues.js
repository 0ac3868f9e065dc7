// @ts-check
import { gather, post } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, external, issueName, notice, toast } from "../parts/ui.js";
import { REASONS, name } from "../parts/words.js";
import { aside } from "../router.js";

export const title = "Issues";
export const about = "Every flagged issue, as the last poll saw it, and what was decided.";
export const watch = ["decision", "poll"];

export const load = () => gather("/api/issues", { mappings: "/api/mappings" });

export const actions = () => button("Poll now", async () => {
  await post("/api/poll");
  toast("The ticketing systems are asked now.");
}, { icon: "refresh" });

/** @param {any} data */
export function view({ main, mappings }) {
  const counts = Object.entries(main.inProgressCountsByTeam);
  const since = main.staleSince ?? {};
  return [
    main.stale.map((/** @type {string} */ team) => notice("warn", h("strong", {}, team), since[team] ? [" is shown as it was ", ago(since[team]), "."] : " could not be read yet.", " Its ticketing system does not answer.")),
    counts.length > 0 && h("p", { class: "slots" }, "In progress: ", counts.map(([team, n]) => h("span", { class: "slot" }, h("b", {}, team), ` ${n}${mappings?.[team] ? ` of ${mappings[team].maxInProgressAiIssues}` : ""}`))),
    table({
      id: "issues", label: "Issues", rows: main.issues, key: (row) => row.id, filter: "Filter issues",
      href: (row) => aside("issue", row.identifier),
      chips: [
        { name: "waiting", label: "Waiting", test: (row) => row.decision?.outcome === "waiting" },
        { name: "progress", label: "In progress", test: (row) => ["in-progress", "dispatched"].includes(row.decision?.outcome) },
        { name: "ready", label: "Ready", test: (row) => row.ready },
        { name: "planning", label: "Planning pending", test: (row) => row.planningPending },
      ],
      columns: [
        { label: "Issue", cell: (row) => issueName(row.identifier, row.title), sort: (row) => row.identifier, text: (row) => `${row.identifier} ${row.title}` },
        { label: "Project", width: "s", hide: "sm", cell: (row) => row.teamKey, sort: (row) => row.teamKey, text: (row) => row.teamKey },
        { label: "State", width: "m", hide: "md", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, row.stateName), h("span", { class: "sub" }, row.marker ?? "")), sort: (row) => row.stateName, text: (row) => `${row.stateName} ${row.marker ?? ""}` },
        { label: "Decision", width: "m", cell: (row) => row.decision && badge(row.decision.reason ?? row.decision.outcome, row.decision.reason && name(REASONS, row.decision.reason)), sort: (row) => row.decision?.reason ?? row.decision?.outcome, text: (row) => `${row.decision?.outcome} ${row.decision?.reason ?? ""}` },
        { label: "Why", width: "xl", hide: "md", cell: (row) => h("span", { class: "clamp", title: row.decision?.message }, row.decision?.message), text: (row) => row.decision?.message ?? "" },
        { label: "Ticket", width: "xs", hide: "sm", cell: (row) => external(row.url, "Open") },
      ],
      empty: { title: "No flagged issues", text: "Put the label Agent-Implement on a Linear issue, or set Agent-Implement Status to Ready in Jira. It appears here after the next poll." },
    }),
  ];
}
