// @ts-check
import { get } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { badge, empty, notice, section } from "../parts/ui.js";

export const title = "Pipelines and steps";
export const about = "What a run does, and which parts of it are your own.";

export const load = () => get("/api/pipelines-steps");

/** @param {any} data */
export const view = ({ pipelines, steps }) => [
  pipelines.length ? pipelines.map((/** @type {any} */ one) => section(one.id, { note: h("code", {}, one.file), actions: badge(one.status), key: one.id },
    one.error && notice("bad", h("strong", {}, "It does not load. "), one.error),
    h("ol", { class: "flow" }, one.steps.map((/** @type {any} */ step) => h("li", { key: step.id }, h("span", {}, step.id), step.type !== step.id && h("span", { class: "sub" }, step.type), step.status !== "built-in" && badge(step.status), step.module && h("code", { class: "sub" }, step.module))))))
    : empty("No pipelines", "The service found no definitions."),
  section("Step modules", {}, table({
    id: "steps", label: "Step modules", rows: steps, key: (row) => row.id, filter: "Filter steps",
    columns: [
      { label: "Step", width: "l", cell: (row) => h("span", { class: "title" }, row.id), sort: (row) => row.id, text: (row) => row.id },
      { label: "Status", width: "m", cell: (row) => badge(row.status), sort: (row) => row.status, text: (row) => row.status },
      { label: "Built-in", hide: "sm", cell: (row) => h("code", {}, row.builtinPath ?? "–"), text: (row) => row.builtinPath ?? "" },
      { label: "Custom", hide: "sm", cell: (row) => h("code", {}, row.customPath ?? "–"), text: (row) => row.customPath ?? "" },
    ],
    empty: { title: "No step modules", text: "Put an executable into custom/steps to add one." },
  })),
];
