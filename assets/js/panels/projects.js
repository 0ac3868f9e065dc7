import { loadAll, patch, projectPath } from "../api.js";
import { h } from "../dom.js";
import { askToDelete, menu } from "../parts/dialog.js";
import { plain } from "../parts/mapping.js";
import { stepper, unfinished } from "../parts/stepper.js";
import { syncWorkflows } from "../parts/sync.js";
import { col, table } from "../parts/table.js";
import { badge, button, meter, muted, newProject, notice, projectName, toast, twoLines } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, SYSTEMS, costText, labelOf, money } from "../parts/words.js";
import { asideUrl, navigate, panelUrl } from "../router.js";

export const about = "Ticket sources, and the repositories in which pull requests are opened.";
export const watch = ["poll"];

export const title = (_, [page]) => (page === "new" ? "New project" : "Projects");

export const load = async ([page, step]) => page === "new" ? { isNew: true, step } : loadAll("/api/mappings", { issues: "/api/issues", templates: "/api/admin/template-status", usage: "/api/usage" });

export const actions = ({ isNew }) => isNew ? h("a", { class: "button", href: panelUrl("projects") }, "Back to projects") : newProject();

function actionsOf({ teamKey, paused, owner, repo }, { reload }) {
	const path = projectPath(teamKey);
	const togglePaused = async () => {
		await patch(path, { paused: !paused });
		toast(paused ? `Resumed ${teamKey}.` : `Paused ${teamKey}. Active runs continue.`);
		await reload();
	};
	const confirmDelete = () => askToDelete({
		title: `Delete the project ${teamKey}?`, text: `Issues of ${teamKey} will no longer be dispatched to ${owner}/${repo}. Active runs continue. Stored secrets are deleted.`,
		action: "Delete project", path, done: `Deleted ${teamKey}.`, after: reload,
	});
	return [
		button(paused ? "Resume" : "Pause", togglePaused, { kind: "small", title: `${paused ? "Resume" : "Pause"} ${teamKey}` }),
		menu(`More for ${teamKey}`, [
			{ label: "Edit", run: () => navigate(asideUrl("edit", teamKey)) },
			{ label: "Secrets", run: () => navigate(asideUrl("secrets", teamKey)) },
			{ label: "Sync workflows", run: () => syncWorkflows(teamKey, reload) },
			{ label: "Delete", danger: true, run: confirmDelete },
		]),
	];
}

/** Status of the workflow files in the repository. */
function templateBadge(templates, row) {
	const found = templates?.find((one) => one.teamKey === row.teamKey);
	if (!found) return muted("–");
	const parts = [found.implementation, row.planningEnabled && found.planning];
	return h("span", { title: found.error ?? "" }, badge(["error", "missing", "stale"].find((status) => parts.includes(status)) ?? "current"));
}

export function view({ isNew, step, main, issues, templates, usage, failed }, ctx) {
	if (isNew) return stepper(step);
	const used = (row) => issues?.inProgressCountsByTeam[row.teamKey] ?? 0;
	const slots = (row) => `${used(row)} of ${row.maxInProgressAiIssues}`;
	const usageOf = (row) => usage?.mappings.find((one) => one.teamKey === row.teamKey);
	const spent = (row) => usageOf(row)?.costUsd ?? null;
	const budget = (row) => row.budgetUsd ? `${costText(spent(row))} of ${money(row.budgetUsd)}` : costText(spent(row));
	return [
		unfinished(ctx.redraw),
		failed.map((text) => notice("warn", text)),
		Object.values(main).flatMap((row) => (row.warnings ?? []).map(({ message }) => notice("warn", `${row.teamKey}: ${plain(message)}`))),
		Object.values(main).filter((row) => usageOf(row)?.warning).map((row) => notice("warn", h("b", {}, row.teamKey), ": ", usageOf(row).warning.replace("budgetUsd", "a budget"))),
		table({
			id: "projects", label: "projects", rows: Object.values(main), key: (row) => row.teamKey, filter: true, href: (row) => asideUrl("edit", row.teamKey),
			chips: [["Paused", (row) => row.paused], ["With planning", (row) => row.planningEnabled]],
			columns: [
				col("Project", "", projectName, (row) => twoLines([row.teamKey, row.paused && h("span", { class: "badge inline" }, "Paused")], `${row.owner}/${row.repo}`)),
				col("Tickets", "s md", (row) => labelOf(SYSTEMS, row.ticketingProvider)),
				col("Runner", "m sm", (row) => labelOf(EXECUTION, row.executionMode), (row) => twoLines(labelOf(EXECUTION, row.executionMode), row.planningEnabled && "with planning")),
				col("Provider", "m md", (row) => labelOf(PROVIDERS, row.provider), (row) => twoLines(labelOf(PROVIDERS, row.provider), row.cloudRegion)),
				col("In progress", "s", used, (row) => h("span", { class: "num" }, slots(row), meter(used(row), row.maxInProgressAiIssues, `${slots(row)} in progress`))),
				col("This month", "m md", spent, (row) => h("span", { class: "num" }, budget(row), row.budgetUsd && spent(row) !== null && meter(spent(row), row.budgetUsd, `${budget(row)} spent`))),
				col("Workflows", "s md", null, (row) => templateBadge(templates, row)),
			],
			actions: (row) => actionsOf(row, ctx),
			empty: ["No projects yet", "A project maps a Linear team or a Jira query to a repository.", newProject()],
		}),
	];
}
