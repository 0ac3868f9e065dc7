import { get } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { newProject, projectName, section, tile, twoLines } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, count, labelOf } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const about = "Model provider and run limits per project.";

export const load = async () => Object.values(await get("/api/mappings"));

/** @type {[string, string][]} */
const REQUIREMENTS = [
	["direct", "Requires the secret ANTHROPIC_API_KEY in the repository or, for sessions, in the environment of the service."],
	["cloud", "Requires the secret CLOUD_ROLE_ARN in the repository, and model: in WORKFLOW.md (and PLANNING.md)."],
];

/** Column of a run cap. Shows the default if none is set. */
const cap = (label, field, defaultOf) => col(label, "s sm right", (row) => row[field] ?? defaultOf(row), (row) => row[field] ?? h("span", { class: "muted", title: "Default" }, defaultOf(row)));

export const view = (rows) => [
	h("div", { class: "tiles wide" }, REQUIREMENTS.map(([provider, text]) => tile(labelOf(PROVIDERS, provider), count(rows.filter((row) => row.provider === provider).length, "project"), text))),
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
