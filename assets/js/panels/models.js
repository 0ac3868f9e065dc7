// @ts-check
import { get } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { section, tile } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, count, name } from "../parts/words.js";
import { aside, to } from "../router.js";

export const title = "Models and providers";
export const about = "Who serves the model of each project, and how much a run may use.";

export const load = async () => Object.values(await get("/api/mappings"));

/** @type {[string, string][]} */
const NEEDS = [
  ["direct", "Needs the secret ANTHROPIC_API_KEY in the target repository, or in the service's environment for sessions. The model may be named in WORKFLOW.md."],
  ["cloud", "Needs the secret CLOUD_ROLE_ARN in the target repository, and the model id as model: in WORKFLOW.md (and PLANNING.md); there is no default."],
];

/** @param {number | null} cap @param {number} usual */
const cap = (cap, usual) => (cap === null ? h("span", { class: "faint", title: "The default" }, usual) : h("span", { class: "num" }, cap));

/** @param {any[]} rows */
export const view = (rows) => [
  h("div", { class: "tiles two" }, NEEDS.map(([provider, text]) => tile(name(PROVIDERS, provider), count(rows.filter((row) => row.provider === provider).length, "project"), text))),
  section("Projects", {}, table({
    id: "models", label: "Models by project", rows, key: (row) => row.teamKey, filter: "Filter projects", href: (row) => aside("edit", row.teamKey),
    columns: [
      { label: "Project", cell: (row) => h("span", { class: "two-lines" }, h("span", { class: "title" }, row.teamKey), h("span", { class: "sub" }, `${row.owner}/${row.repo}`)), sort: (row) => row.teamKey, text: (row) => `${row.teamKey} ${row.owner}/${row.repo}` },
      { label: "Provider", width: "m", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, name(PROVIDERS, row.provider)), h("span", { class: "sub" }, row.cloudRegion ?? "")), sort: (row) => row.provider, text: (row) => `${name(PROVIDERS, row.provider)} ${row.cloudRegion ?? ""}` },
      { label: "Runner", width: "m", hide: "md", cell: (row) => name(EXECUTION, row.executionMode) },
      { label: "Turns", width: "xs", right: true, hide: "sm", cell: (row) => cap(row.maxTurns, 50) },
      { label: "Iterations", width: "s", right: true, hide: "sm", cell: (row) => cap(row.maxIterations, row.provider === "cloud" ? 2 : 3) },
      { label: "Minutes", width: "xs", right: true, hide: "sm", cell: (row) => cap(row.maxJobMinutes, 90) },
    ],
    empty: { title: "No projects yet", text: "Each project chooses its provider.", action: h("a", { class: "button primary", href: to("projects/new") }, "New project") },
  })),
];
