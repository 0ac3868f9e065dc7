import { get } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { badge, notice, section } from "../parts/ui.js";

export const about = "Pipelines and steps of runs, built-in and custom.";

export const load = () => get("/api/pipelines-steps");

export const view = ({ pipelines, steps }) => [
	pipelines.map((one) => section(one.id, { note: h("code", one.file), actions: badge(one.status), key: one.id },
		one.error && notice("bad", h("b", "Could not load this pipeline. "), one.error),
		h("ol.flow", one.steps.map((step) => h("li", { key: step.id }, h("span", step.id), step.type !== step.id && h("span.sub", step.type), step.status !== "built-in" && badge(step.status), step.module && h("code.sub", step.module)))))),
	section("Step modules", {}, table({
		id: "steps", label: "step modules", rows: steps, key: (row) => row.id, filter: true,
		columns: [
			col("Step", "l", "id"),
			col("Status", "m", "status", (row) => badge(row.status)),
			col("Built-in", "sm", "builtinPath", (row) => h("code", row.builtinPath ?? "–")),
			col("Custom", "sm", "customPath", (row) => h("code", row.customPath ?? "–")),
		],
		empty: ["No step modules", "Add an executable to custom/steps."],
	})),
];
