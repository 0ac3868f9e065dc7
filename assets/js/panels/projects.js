import { loadAll } from "../api.js";
import { h } from "../dom.js";
import { loadProject, pauseButton, projectActions, projectMenu, projectView } from "../parts/project.js";
import { stepper, unfinished } from "../parts/stepper.js";
import { plain } from "../parts/mapping.js";
import { col, table } from "../parts/table.js";
import { badge, meter, muted, newProject, notice, projectName, twoLines } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, SYSTEMS, costText, labelOf, money } from "../parts/words.js";
import { url } from "../router.js";

export const about = "Ticket sources, and the repositories in which pull requests are opened.";
export const watch = ["poll", "job"];
export const params = ["range"];
export const title = (_, [page]) => (page === "new" ? "New project" : page ?? "Projects");

/** @param {string[]} rest */
export async function load([page, step], query) {
	if (page === "new") return { isNew: true, step };
	if (page) return loadProject(page, query);
	return loadAll("/api/mappings", { issues: "/api/issues", templates: "/api/admin/template-status", usage: "/api/usage" });
}

export const actions = (data, ctx) => data.isNew ? null : data.project ? projectActions(data, ctx) : newProject();

/** Status of the workflow files in the repository. */
function templateBadge(templates, row) {
	const found = templates?.find((one) => one.teamKey === row.teamKey);
	if (!found) return muted("–");
	const parts = [found.implementation, row.planningEnabled && found.planning];
	return h("span", { title: found.error ?? "" }, badge(["error", "missing", "stale"].find((status) => parts.includes(status)) ?? "current"));
}

export function view(data, ctx) {
	if (data.isNew) return stepper(data.step);
	if (data.project) return projectView(data, ctx);
	const { main, issues, templates, usage } = data;
	const used = (row) => issues?.inProgressCountsByTeam[row.teamKey] ?? 0;
	const slots = (row) => `${used(row)} of ${row.maxInProgressAiIssues}`;
	const usageOf = (row) => usage?.mappings.find((one) => one.teamKey === row.teamKey);
	const spent = (row) => usageOf(row)?.costUsd ?? null;
	const budget = (row) => row.budgetUsd ? `${costText(spent(row))} of ${money(row.budgetUsd)}` : costText(spent(row));
	return [
		unfinished(ctx.redraw),
		Object.values(main).flatMap((row) => row.warnings?.map(({ message }) => notice("warn", `${row.teamKey}: ${plain(message)}`))),
		Object.values(main).filter((row) => usageOf(row)?.warning).map((row) => notice("warn", h("b", row.teamKey), ": ", usageOf(row).warning.replace("budgetUsd", "a budget"))),
		table({
			id: "projects", label: "projects", rows: Object.values(main), key: (row) => row.teamKey, filter: true, href: (row) => url`/admin/projects/${row.teamKey}`,
			chips: [["Paused", (row) => row.paused], ["With planning", (row) => row.planningEnabled]],
			columns: [
				col("Project", "", projectName, (row) => twoLines([row.teamKey, row.paused && h("span.badge.inline", "Paused")], `${row.owner}/${row.repo}`)),
				col("Tickets", "s md", (row) => labelOf(SYSTEMS, row.ticketingProvider)),
				col("Runner", "m sm", (row) => labelOf(EXECUTION, row.executionMode), (row) => twoLines(labelOf(EXECUTION, row.executionMode), row.planningEnabled && "with planning")),
				col("Provider", "m md", (row) => labelOf(PROVIDERS, row.provider), (row) => twoLines(labelOf(PROVIDERS, row.provider), row.cloudRegion)),
				col("In progress", "s", used, (row) => h("span.num", slots(row), meter(used(row), row.maxInProgressAiIssues, `${slots(row)} in progress`))),
				col("This month", "m md", spent, (row) => h("span.num", budget(row), row.budgetUsd && spent(row) !== null && meter(spent(row), row.budgetUsd, `${budget(row)} spent`))),
				col("Workflows", "s md", null, (row) => templateBadge(templates, row)),
			],
			actions: (row) => [pauseButton(row, ctx.reload), projectMenu(row, ctx.reload, ctx.reload)],
			empty: ["No projects yet", "A project maps tickets to a repository.", newProject()],
		}),
	];
}
