import { gather, ofProject, patch } from "../api.js";
import { h } from "../dom.js";
import { askToDelete, menu } from "../parts/dialog.js";
import { stepper } from "../parts/stepper.js";
import { syncWorkflows } from "../parts/sync.js";
import { col, table } from "../parts/table.js";
import { badge, button, dim, meter, newProject, notice, projectName, toast, two } from "../parts/ui.js";
import { EXECUTION, PROVIDERS, SYSTEMS, money, name, sumOf } from "../parts/words.js";
import { aside, go, to } from "../router.js";

export const about = "Which tickets become pull requests of which repository.";
export const watch = ["poll"];

export const load = async ([page]) => page === "new" ? { isNew: true } : gather("/api/mappings", { issues: "/api/issues", templates: "/api/admin/template-status", usage: "/api/usage" });

export const actions = ({ isNew }) => isNew ? h("a", { class: "button", href: to("projects") }, "Back to projects") : newProject();

function actionsOf({ teamKey, paused, owner, repo }, { reload }) {
	const path = ofProject(teamKey);
	const turn = async () => {
		await patch(path, { paused: !paused });
		toast(paused ? `${teamKey} dispatches again.` : `${teamKey} is paused. What runs goes on.`);
		await reload();
	};
	const drop = () => askToDelete({
		title: `Delete the project ${teamKey}?`, text: `Issues of ${teamKey} are not dispatched to ${owner}/${repo} any more. Its running jobs are followed to their end. Its stored secrets are deleted.`,
		action: "Delete project", path, done: `${teamKey} is deleted.`, after: reload,
	});
	return [
		button(paused ? "Resume" : "Pause", turn, { kind: "small", title: `${paused ? "Resume" : "Pause"} ${teamKey}` }),
		menu(`More for ${teamKey}`, [
			{ label: "Edit", run: () => go(aside("edit", teamKey)) },
			{ label: "Secrets", run: () => go(aside("secrets", teamKey)) },
			{ label: "Sync workflows", run: () => syncWorkflows(teamKey, reload) },
			{ label: "Delete", danger: true, run: drop },
		]),
	];
}

/** How the workflows in the repository stand against ours. */
function templateOf(templates, row) {
	const found = templates?.find((one) => one.teamKey === row.teamKey);
	if (!found) return dim("–");
	const parts = [found.implementation, row.planningEnabled && found.planning];
	return h("span", { title: found.error ?? "" }, badge(["error", "missing", "stale"].find((word) => parts.includes(word)) ?? "current"));
}

export function view({ isNew, main, issues, templates, usage, failed }, ctx) {
	if (isNew) return stepper();
	const used = (row) => issues?.inProgressCountsByTeam[row.teamKey] ?? 0;
	const slots = (row) => `${used(row)} of ${row.maxInProgressAiIssues}`;
	const usageOf = (row) => usage?.mappings.find((one) => one.teamKey === row.teamKey);
	const spent = (row) => usageOf(row)?.costUsd ?? null;
	const budget = (row) => row.budgetUsd ? `${sumOf(spent(row))} of ${money(row.budgetUsd)}` : sumOf(spent(row));
	return [
		failed.map((text) => notice("warn", text)),
		Object.values(main).flatMap((row) => (row.warnings ?? []).map(({ message }) => notice("warn", `${row.teamKey}: ${message}`))),
		Object.values(main).filter((row) => usageOf(row)?.warning).map((row) => notice("warn", h("b", {}, row.teamKey), ": ", usageOf(row).warning.replace("budgetUsd is", "a budget is"))),
		table({
			id: "projects", label: "projects", rows: Object.values(main), key: (row) => row.teamKey, filter: true, href: (row) => aside("edit", row.teamKey),
			chips: [["Paused", (row) => row.paused], ["With planning", (row) => row.planningEnabled]],
			columns: [
				col("Project", "", projectName, (row) => two([row.teamKey, row.paused && h("span", { class: "badge inline" }, "Paused")], `${row.owner}/${row.repo}`)),
				col("Tickets", "s md", (row) => name(SYSTEMS, row.ticketingProvider)),
				col("Runner", "m sm", (row) => name(EXECUTION, row.executionMode), (row) => two(name(EXECUTION, row.executionMode), row.planningEnabled && "with planning")),
				col("Provider", "m md", (row) => name(PROVIDERS, row.provider), (row) => two(name(PROVIDERS, row.provider), row.cloudRegion)),
				col("In progress", "s", used, (row) => h("span", { class: "num" }, slots(row), meter(used(row), row.maxInProgressAiIssues, `${slots(row)} in progress`))),
				col("This month", "m md", spent, (row) => h("span", { class: "num" }, budget(row), row.budgetUsd && spent(row) !== null && meter(spent(row), row.budgetUsd, `${budget(row)} spent`))),
				col("Workflows", "s md", null, (row) => templateOf(templates, row)),
			],
			actions: (row) => actionsOf(row, ctx),
			empty: ["No projects yet", "A project maps a Linear team or a Jira query to a repository.", newProject()],
		}),
	];
}
