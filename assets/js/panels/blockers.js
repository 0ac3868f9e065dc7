// @ts-check
import { gather, patch, post, remove } from "../api.js";
import { h } from "../dom.js";
import { confirm } from "../parts/dialog.js";
import { table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, external, issueName, section, toast } from "../parts/ui.js";
import { KINDS, REASONS, count, name } from "../parts/words.js";
import { aside, to } from "../router.js";

export const title = "Blockers";
export const about = "Issues that wait, what for, and what releases them.";
export const watch = ["decision", "poll", "job"];

export const load = () => gather("/api/blockers?all=true", { parked: "/api/parked" });

/** @param {any} row @param {import("../shell.js").Context} ctx */
function release(row, ctx) {
  const { issueId, issueIdentifier: key, teamKey } = row;
  if (row.reason === "paused") {
    return button("Resume", async () => {
      await patch(`/api/mappings/${encodeURIComponent(teamKey)}`, { paused: false });
      toast(`${teamKey} dispatches again.`);
      await ctx.reload();
    }, { kind: "small", title: `Resume ${teamKey}` });
  }
  if (row.reason === "dedup") {
    return button("Clear", () => confirm({
      title: `Clear the dedup entry of ${key}?`, text: "It may be dispatched again at the next poll, even if its last run had succeeded.", action: "Clear entry",
      run: async () => {
        await remove(`/api/dedup/${encodeURIComponent(issueId)}`);
        await post("/api/poll");
        await ctx.reload();
      },
    }), { kind: "small", title: `Clear the dedup entry of ${key}` });
  }
  if (row.reason === "parked") return unpark(issueId, key, ctx);
  if (row.reason === "no-mapping") return h("a", { class: "button small", href: to("projects/new") }, "Add project");
  if (row.reason === "concurrency") return h("a", { class: "button small", href: aside("edit", teamKey) }, "Raise cap");
  return null;
}

/** @param {string} issueId @param {string} key @param {import("../shell.js").Context} ctx */
const unpark = (issueId, key, ctx) => button("Unpark", async () => {
  const { unparked } = await post("/api/parked/unpark", { issueId });
  toast(unparked ? `${key} is released.` : `${key} was not parked any more.`);
  await ctx.reload();
}, { kind: "small", title: `Unpark ${key}` });

/** @param {any} data @param {import("../shell.js").Context} ctx */
export function view({ main, parked }, ctx) {
  const { blockers, totals } = main;
  return [
    blockers.length > 0 && h("p", { class: "muted" }, `${count(totals.issues, "issue")} of ${count(totals.teams, "project")} ${totals.issues === 1 ? "waits" : "wait"}.`),
    table({
      id: "blockers", label: "Blockers", rows: blockers, key: (row) => row.issueId, filter: "Filter blockers", href: (row) => aside("issue", row.issueIdentifier),
      chips: Object.keys(totals.byReason).map((reason) => ({ name: reason, label: name(REASONS, reason), test: (row) => row.reason === reason })),
      columns: [
        { label: "Issue", cell: (row) => issueName(row.issueIdentifier, row.issueTitle), sort: (row) => row.issueIdentifier, text: (row) => `${row.issueIdentifier} ${row.issueTitle}` },
        { label: "Project", width: "s", hide: "sm", cell: (row) => row.teamKey, sort: (row) => row.teamKey, text: (row) => row.teamKey },
        { label: "Reason", width: "m", cell: (row) => badge(row.reason, name(REASONS, row.reason)), sort: (row) => row.reason, text: (row) => row.reason ?? "" },
        { label: "Message", width: "xl", hide: "md", cell: (row) => h("span", { class: "clamp", title: row.message }, row.message), text: (row) => row.message },
        { label: "Since", width: "s", hide: "sm", right: true, cell: (row) => ago(row.since), sort: (row) => row.since },
        { label: "Ticket", width: "xs", hide: "md", cell: (row) => external(row.ticketUrl, "Open") },
      ],
      actions: (row) => release(row, ctx),
      empty: { title: "Nothing is blocked", text: "Every flagged issue runs, or is done." },
    }),
    parked && section("Parked", { note: "by the dispatch breaker, after failures in a row" }, table({
      id: "parked", label: "Parked issues", rows: parked, key: (row) => row.issueId,
      columns: [
        { label: "Issue", cell: (row) => issueName(row.issueIdentifier, row.issueTitle) },
        { label: "Repository", width: "m", hide: "sm", cell: (row) => row.repo },
        { label: "Phase", width: "m", hide: "md", cell: (row) => name(KINDS, row.phase) },
        { label: "Failures", width: "xs", right: true, cell: (row) => row.failures },
        { label: "Last failure", width: "xl", hide: "md", cell: (row) => h("span", { class: "clamp", title: row.lastConclusion }, row.lastConclusion) },
        { label: "Parked", width: "s", hide: "sm", right: true, cell: (row) => ago(row.parkedAt) },
      ],
      actions: (row) => unpark(row.issueId, row.issueIdentifier, ctx),
      empty: { title: "No issue is parked", text: "An issue whose runs fail several times in a row is kept here until you release it." },
    })),
  ];
}
