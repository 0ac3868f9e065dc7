// @ts-check
import { gather, patch, post, remove } from "../api.js";
import { h } from "../dom.js";
import { confirm, menu } from "../parts/dialog.js";
import { openEdit } from "../parts/edit.js";
import { syncWorkflows } from "../parts/sync.js";
import { table } from "../parts/table.js";
import { badge, button, meter, notice, toast } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, SYSTEMS, name } from "../parts/words.js";
import { aside, go, to } from "../router.js";
import { stepper } from "../parts/stepper.js";

export const title = "Projects";
export const about = "Which tickets become pull requests of which repository.";
export const watch = ["poll"];

/** @param {string[]} rest */
export const load = async ([page]) => page === "new" ? { isNew: true } : gather("/api/mappings", { issues: "/api/issues", templates: "/api/admin/template-status" });

/** @param {any} data */
export const actions = ({ isNew }) => isNew ? h("a", { class: "button", href: to("projects") }, "Back to projects") : h("a", { class: "button primary", href: to("projects/new") }, "New project");

/** @param {any} row @param {import("../shell.js").Context} ctx */
function actionsOf(row, ctx) {
  const { teamKey, paused } = row;
  const path = `/api/mappings/${encodeURIComponent(teamKey)}`;
  const turn = async () => {
    await patch(path, { paused: !paused });
    toast(paused ? `${teamKey} dispatches again.` : `${teamKey} is paused. What runs goes on.`);
    await ctx.reload();
  };
  const drop = () => confirm({
    title: `Delete the project ${teamKey}?`, text: `Issues of ${teamKey} are not dispatched to ${row.owner}/${row.repo} any more. Its running jobs are followed to their end.`, action: "Delete project",
    run: async () => {
      await remove(path);
      toast(`${teamKey} is deleted.`);
      await ctx.reload();
    },
  });
  return [
    button(paused ? "Resume" : "Pause", turn, { kind: "small", title: `${paused ? "Resume" : "Pause"} ${teamKey}` }),
    menu(`More for ${teamKey}`, [
      { label: "Edit", run: () => openEdit(teamKey) },
      { label: "Secrets", run: () => go(aside("secrets", teamKey)) },
      { label: "Sync workflows", run: () => syncWorkflows(teamKey, ctx.reload) },
      { label: "Delete", danger: true, run: drop },
    ]),
  ];
}

/** @param {any} templates @param {any} row */
function templateOf(templates, row) {
  const found = templates?.find((/** @type {any} */ one) => one.teamKey === row.teamKey);
  if (!found) return h("span", { class: "faint" }, "–");
  const parts = [found.implementation, row.planningEnabled ? found.planning : null].filter(Boolean);
  const worst = ["error", "missing", "stale", "current"].find((word) => parts.includes(word)) ?? "current";
  return h("span", { title: found.error ?? "" }, badge(worst));
}

/** @param {any} data @param {import("../shell.js").Context} ctx */
export function view(data, ctx) {
  if (data.isNew) return stepper();
  const { main, issues, templates, failed } = data;
  const rows = Object.values(main);
  const used = (/** @type {any} */ row) => issues?.inProgressCountsByTeam[row.teamKey] ?? 0;
  return [
    failed.map((/** @type {string} */ text) => notice("warn", text)),
    table({
      id: "projects", label: "Projects", rows, key: (row) => row.teamKey, filter: "Filter projects", href: (row) => aside("edit", row.teamKey),
      chips: [{ name: "paused", label: "Paused", test: (row) => row.paused }, { name: "planning", label: "With planning", test: (row) => row.planningEnabled }],
      columns: [
        { label: "Project", cell: (row) => h("span", { class: "two-lines" }, h("span", { class: "title" }, row.teamKey, row.paused && h("span", { class: "badge idle inline" }, "Paused")), h("span", { class: "sub" }, `${row.owner}/${row.repo}`)), sort: (row) => row.teamKey, text: (row) => `${row.teamKey} ${row.owner}/${row.repo}` },
        { label: "Tickets", width: "s", hide: "md", cell: (row) => name(SYSTEMS, row.ticketingProvider), sort: (row) => row.ticketingProvider, text: (row) => name(SYSTEMS, row.ticketingProvider) },
        { label: "Runner", width: "m", hide: "sm", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, name(EXECUTION, row.executionMode)), h("span", { class: "sub" }, row.planningEnabled ? "with planning" : "")), sort: (row) => row.executionMode },
        { label: "Provider", width: "m", hide: "md", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, name(PROVIDERS, row.provider)), h("span", { class: "sub" }, row.cloudRegion ?? "")), sort: (row) => row.provider },
        { label: "In progress", width: "s", cell: (row) => h("span", { class: "two-lines" }, h("span", { class: "num" }, `${used(row)} of ${row.maxInProgressAiIssues}`), meter(used(row), row.maxInProgressAiIssues, `${used(row)} of ${row.maxInProgressAiIssues} in progress`)), sort: used },
        { label: "Workflows", width: "s", hide: "md", cell: (row) => templateOf(templates, row) },
      ],
      actions: (row) => actionsOf(row, ctx),
      empty: { title: "No projects yet", text: "A project maps a Linear team or a Jira query to a repository.", action: h("a", { class: "button primary", href: to("projects/new") }, "New project") },
    }),
  ];
}
