import { get } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { newProject, projectName, section, tile, two } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, count, name } from "../parts/words.js";
import { aside } from "../router.js";

export const about = "Who serves the model of each project, and how much a run may use.";

export const load = async () => Object.values(await get("/api/mappings"));

/** @type {[string, string][]} */
const NEEDS = [
	["direct", "Needs the secret ANTHROPIC_API_KEY, in the repository or, for sessions, in the service's environment."],
	["cloud", "Needs the secret CLOUD_ROLE_ARN in the repository, and model: in WORKFLOW.md (and PLANNING.md)."],
];

/** A run cap; blank ones show the default. */
const cap = (label, field, usual) => col(label, "s sm right", (row) => row[field] ?? usual(row), (row) => row[field] ?? h("span", { class: "muted", title: "The default" }, usual(row)));

export const view = (rows) => [
	h("div", { class: "tiles wide" }, NEEDS.map(([provider, text]) => tile(name(PROVIDERS, provider), count(rows.filter((row) => row.provider === provider).length, "project"), text))),
	section("Projects", {}, table({
		id: "models", label: "projects", rows, key: (row) => row.teamKey, filter: true, href: (row) => aside("edit", row.teamKey),
		columns: [
			col("Project", "", projectName, (row) => two(row.teamKey, `${row.owner}/${row.repo}`)),
			col("Provider", "m", (row) => `${name(PROVIDERS, row.provider)} ${row.cloudRegion ?? ""}`, (row) => two(name(PROVIDERS, row.provider), row.cloudRegion)),
			col("Runner", "m md", (row) => name(EXECUTION, row.executionMode)),
			cap("Turns", "maxTurns", () => 50),
			cap("Iterations", "maxIterations", (row) => (row.provider === "cloud" ? 2 : 3)),
			cap("Minutes", "maxJobMinutes", () => 90),
		],
		empty: ["No projects yet", "Each project chooses its provider.", newProject()],
	})),
];
