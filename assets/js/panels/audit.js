// @ts-check
import { get, gather, remove } from "../api.js";
import { h } from "../dom.js";
import { confirm } from "../parts/dialog.js";
import { table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, button, empty, issueName, section, toast } from "../parts/ui.js";
import { aside } from "../router.js";

export const title = "Audit log";
export const about = "Who changed what, and the ledger of what was dispatched.";
export const watch = ["job"];

const PAGE = 200;
/** Older entries than the first page, kept while the panel is open. @type {any[]} */
let older = [];

export const load = async () => {
  const data = await gather("/api/dedup", { audit: `/api/audit?limit=${PAGE}` });
  if (!older.length || !data.audit?.length) older = [];
  return data;
};

/** @param {any} detail */
const text = (detail) => (detail === null || detail === undefined ? "" : typeof detail === "string" ? detail : JSON.stringify(detail));

/** @param {any} data @param {import("../shell.js").Context} ctx */
export function view({ main: dedup, audit }, ctx) {
  const last = older.at(-1) ?? audit?.at(-1);
  const rows = audit ? [...audit, ...older.filter((one) => one.at < audit.at(-1)?.at)] : [];
  const more = async () => {
    const page = await get(`/api/audit?limit=${PAGE}&before=${encodeURIComponent(last.at)}`);
    if (!page.length) toast("There are no older entries.");
    older.push(...page);
    ctx.redraw();
  };
  return [
    section("Dedup ledger", { note: "issues that are not dispatched again for now" }, table({
      id: "dedup", label: "Dedup ledger", rows: dedup, key: (row) => row.issueId, filter: "Filter the ledger", href: (row) => aside("issue", row.issueIdentifier),
      columns: [
        { label: "Issue", cell: (row) => issueName(row.issueIdentifier, row.issueTitle), sort: (row) => row.issueIdentifier, text: (row) => `${row.issueIdentifier} ${row.issueTitle}` },
        { label: "Dispatched", width: "s", hide: "sm", right: true, cell: (row) => ago(row.dispatchedAt), sort: (row) => row.dispatchedAt },
        { label: "Expires", width: "s", right: true, cell: (row) => row.expiresAt ? ago(row.expiresAt) : "never", sort: (row) => row.expiresAt },
      ],
      actions: (row) => button("Delete", () => confirm({
        title: `Delete the entry of ${row.issueIdentifier}?`, text: "The issue may be dispatched again at the next poll, even if its last run had succeeded.", action: "Delete entry",
        run: async () => {
          await remove(`/api/dedup/${encodeURIComponent(row.issueId)}`);
          toast(`${row.issueIdentifier} is out of the ledger.`);
          await ctx.reload();
        },
      }), { kind: "small", title: `Delete the entry of ${row.issueIdentifier}` }),
      empty: { title: "The ledger is empty", text: "An issue enters it when it is dispatched, and leaves it when its run fails or its window is over." },
    })),
    section("Audit log", {}, audit ? [table({
      id: "audit", label: "Audit log", rows, key: (row) => `${row.at} ${row.action} ${row.target}`, filter: "Filter the audit log",
      columns: [
        { label: "Action", width: "l", cell: (row) => badge(row.action, row.action), sort: (row) => row.action, text: (row) => row.action },
        { label: "Target", cell: (row) => h("span", { class: "clamp", title: row.target }, row.target), sort: (row) => row.target, text: (row) => row.target ?? "" },
        { label: "Detail", width: "xl", hide: "md", cell: (row) => h("span", { class: "clamp", title: text(row.detail) }, text(row.detail)), text: (row) => text(row.detail) },
        { label: "By", width: "m", hide: "sm", cell: (row) => row.actor, sort: (row) => row.actor, text: (row) => row.actor ?? "" },
        { label: "When", width: "s", right: true, cell: (row) => ago(row.at), sort: (row) => row.at },
      ],
      empty: { title: "Nothing is recorded yet", text: "Every change in this panel, and every dispatch, cancel and destroy, is recorded here." },
    }), audit.length === PAGE && button("Older entries", more)] : empty("Not here", "This service does not offer an audit log yet.")),
  ];
}
