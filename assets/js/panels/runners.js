// @ts-check
import { gather, post } from "../api.js";
import { h } from "../dom.js";
import { confirm } from "../parts/dialog.js";
import { badge, notice, section, toast } from "../parts/ui.js";
import { CONNECTIONS, RUNNERS, count, isActive, name } from "../parts/words.js";

export const title = "Runners";
export const about = "Where runs execute, for all projects or as each of them says.";
export const watch = ["job"];

/** @type {[string, string, string][]} */
const MODES = [
  ["default", "As each project says", "The execution mode of the project decides."],
  ["ci", "GitHub Actions", "Every run is a workflow of its target repository."],
  ["vm", "Fly Machines", "Every run gets a machine of its own."],
  ["local", "Local containers", "Every run is a container on this host."],
  ["shadow", "Shadow", "GitHub Actions runs count; a machine runs beside each and changes nothing outside."],
];
const PROBES = ["runner-callback", "repo-host", "vm-sessions", "local-containers"];

export const load = () => gather("/api/runner-mode", { config: "/api/admin/config-status", log: "/api/log" });

/** @param {any} data @param {import("../shell.js").Context} ctx */
export function view({ main: mode, config, log }, ctx) {
  const choose = (/** @type {string} */ next, /** @type {string} */ label) => confirm({
    title: `Switch every run to: ${label}?`, text: "Runs that start from now on follow the new mode. Those under way stay where they are.", action: "Switch",
    run: async () => {
      try {
        await post("/api/runner-mode", { mode: next });
        toast("The runner mode is saved.");
      } catch (error) {
        const { status, body, message } = /** @type {any} */ (error);
        if (status !== 409 || body?.persisted === undefined) throw error;
        toast(message, "bad");
      }
      await ctx.reload();
    },
  });
  const fromEnv = mode.source === "env";
  const chosen = fromEnv ? mode.stored ?? "default" : mode.mode;
  const checks = (config?.checks ?? []).filter((/** @type {any} */ one) => PROBES.includes(one.name));
  const running = (log ?? []).filter(isActive);
  return [
    fromEnv && notice("warn", h("strong", {}, "RUNNER_MODE is set in the environment. "), `The mode in force is “${mode.mode}”. What you choose here is stored and takes effect when the variable is unset.`),
    section("Runner mode", { note: ["In force: ", h("b", {}, MODES.find(([one]) => one === mode.mode)?.[1] ?? mode.mode)] },
      h("div", { class: "cards modes", role: "group", "aria-label": "Runner mode" }, MODES.map(([value, label, text]) =>
        h("button", { type: "button", key: value, class: "card-choice", "aria-pressed": String(chosen === value), "data-mode": value, onclick: () => chosen !== value && choose(value, label) },
          h("span", { class: "card-text" }, h("strong", {}, label), h("span", {}, text)))))),
    mode.ineligible?.length > 0 && section("Projects that cannot run in this mode", {}, h("ul", { class: "plain rows" }, mode.ineligible.map((/** @type {any} */ one) => h("li", { key: one.teamKey }, h("b", {}, one.teamKey), h("span", { class: "muted grow" }, one.reason))))),
    section("Runners", {}, h("ul", { class: "plain rows" }, Object.keys(RUNNERS).map((kind) => {
      const n = running.filter((/** @type {any} */ job) => job.runner === kind).length;
      return h("li", { key: kind }, h("span", { class: "grow" }, name(RUNNERS, kind)), h("span", { class: "muted num" }, n ? count(n, "run") : "idle"));
    }))),
    checks.length > 0 && section("Connections", {}, h("ul", { class: "plain rows" }, checks.map((/** @type {any} */ one) =>
      h("li", { key: one.name }, h("span", { class: "two-lines grow" }, h("span", { class: "title" }, name(CONNECTIONS, one.name)), h("span", { class: "sub", title: one.detail }, one.detail)), badge(one.status))))),
  ];
}
