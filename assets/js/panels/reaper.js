// @ts-check
import { gather } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { ago, duration } from "../parts/time.js";
import { badge, notice, section, tile } from "../parts/ui.js";
import { RULES, name } from "../parts/words.js";

export const title = "Reaper";
export const about = "Destroys sessions that nobody needs any more, once a minute.";
export const watch = ["poll"];

export const load = () => gather("/api/reaper/summary", { recent: "/api/reaper/recent?limit=100" });

/** @param {any} data */
export const view = ({ main, recent }) => [
  main.dryRun && notice("info", h("strong", {}, "Dry run. "), "What would be destroyed is recorded, and nothing is. Unset REAPER_DRY_RUN to destroy."),
  h("div", { class: "tiles" }, Object.entries(main.byRule).map(([rule, n]) => tile(name(RULES, rule), n, "in 24 hours"))),
  section("Recent actions", { note: main.lastSweepAt ? ["last sweep ", ago(main.lastSweepAt)] : "no sweep yet" }, table({
    id: "reaper", label: "Reaper actions", rows: recent ?? [], key: (row) => `${row.at} ${row.machineId} ${row.rule}`, filter: "Filter actions",
    columns: [
      { label: "Machine", cell: (row) => h("span", { class: "two-lines" }, h("code", {}, row.machineId), h("span", { class: "sub" }, row.tenant ?? "")), sort: (row) => row.machineId, text: (row) => `${row.machineId} ${row.tenant ?? ""}` },
      { label: "Rule", width: "m", cell: (row) => name(RULES, row.rule), sort: (row) => row.rule, text: (row) => name(RULES, row.rule) },
      { label: "Issue", width: "s", hide: "sm", cell: (row) => row.issueIdentifier ?? "–", sort: (row) => row.issueIdentifier, text: (row) => row.issueIdentifier ?? "" },
      { label: "Age", width: "s", hide: "md", right: true, cell: (row) => duration(row.ageSeconds * 1000), sort: (row) => row.ageSeconds },
      { label: "Action", width: "s", cell: (row) => badge(row.badge), sort: (row) => row.badge },
      { label: "When", width: "s", hide: "sm", right: true, cell: (row) => ago(row.at), sort: (row) => row.at },
    ],
    empty: { title: "Nothing was destroyed", text: "Sessions end by themselves; the reaper takes only what is left over." },
  })),
];
