import { get } from "../api.js";
import { h } from "../dom.js";
import { FIELDS } from "../parts/mapping.js";
import { col, table } from "../parts/table.js";
import { newProject, projectName, section, tile, twoLines } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, count, labelOf } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const about = "Model provider and run limits per project.";

export const load = async () => Object.values(await get("/api/mappings"));

/** Column of a run cap. Shows the default if none is set. */
const cap = (label, field, defaultOf) => col(label, "s sm right", (row) => row[field] ?? defaultOf(row), (row) => row[field] ?? h("span.muted", { title: "Default" }, defaultOf(row)));

export const view = (rows) => [
	h("div.tiles.wide", FIELDS.provider({})[0].options?.map(([provider, label, text]) => tile(label, count(rows.filter((row) => row.provider === provider).length, "project"), text))),
	section("Projects", {}, table({
		id: "models", label: "projects", rows, key: (row) => row.teamKey, filter: true, href: (row) => asideUrl("edit", row.teamKey),
		columns: [
			col("Project", "", projectName, (row) => twoLines(row.teamKey, `${row.owner}/${row.repo}`)),
			col("Provider", "m", (row) => `${labelOf(PROVIDERS, row.provider)} ${row.cloudRegion ?? ""}`, (row) => twoLines(labelOf(PROVIDERS, row.provider), row.cloudRegion)),
			col("Runner", "m md", (row) => labelOf(EXECUTION, row.executionMode)),
			cap("Turns", "maxTurns", () => 50),
			cap("Iterations", "maxIterations", (row) => (row.provider === "cloud" ? 2 : 3)),
			cap("Minutes", "maxJobMinutes", () => 90),
		],
		empty: ["No projects yet", "Each project has its own model provider.", newProject()],
	})),
];
