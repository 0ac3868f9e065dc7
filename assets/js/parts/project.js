// Page of a project: health, runs, numbers, workflows, secrets and settings.

import { ApiError, loadAll, projectPath } from "../api.js";
import { h } from "../dom.js";
import { asideUrl, navigate, url } from "../router.js";
import { chart } from "./chart.js";
import { askToDelete, menu } from "./dialog.js";
import { FIELDS, SECTIONS, plain, textOf, toValues } from "./mapping.js";
import { rangeOf, startOf, summaryCharts, summaryTiles } from "./numbers.js";
import { loadSecrets } from "./secrets.js";
import { setPaused, syncWorkflows } from "./sync.js";
import { ago, day, duration } from "./time.js";
import { badge, button, connections, empty, facts, jobLine, linkButton, meter, notice, ranges, rows, section, tile, twoLines } from "./ui.js";
import { KINDS, costText, count, labelOf, money, percent } from "./words.js";

const RUNS = 8;
const rangeFrom = (query) => rangeOf(query, "30d");

/** Project with everything that its page shows. @param {string} key @param {URLSearchParams} query */
export async function loadProject(key, query) {
	const range = rangeFrom(query);
	const data = await loadAll("/api/mappings", {
		config: "/api/admin/config-status", mode: "/api/runner-mode", usage: "/api/usage", templates: "/api/admin/template-status",
		summary: url`/api/summary?window=${range}&team=${key}`, month: url`/api/summary?window=30d&team=${key}`, scores: url`/api/scoreboard?by=team&from=${startOf(range)}`,
		runs: url`/api/log?team=${key}&limit=${RUNS}`, succeeded: url`/api/log?team=${key}&status=completed&limit=1`,
	});
	const project = data.main[key];
	if (!project) throw new ApiError(404, "Project not found");
	const [own, global] = await Promise.all([projectPath(key, "/secrets"), "/api/global-secrets"].map((path) =>
		loadSecrets(path).catch((error) => ({ names: [], failure: error.message }))));
	return { ...data, project, own, global };
}

/** Pauses or resumes a project. */
export const pauseButton = ({ teamKey, paused }, reload, kind = "small") => button(paused ? "Resume" : "Pause", async () => {
	await setPaused(teamKey, !paused);
	await reload();
}, kind, `${paused ? "Resume" : "Pause"} ${teamKey}`);

/** Menu of the other actions on a project. @param {any} project @param {() => any} changed @param {() => any} deleted */
export const projectMenu = ({ teamKey, owner, repo }, changed, deleted) => menu(`More for ${teamKey}`, [
	{ label: "Edit", run: () => navigate(asideUrl("edit", teamKey)) },
	{ label: "Secrets", run: () => navigate(asideUrl("secrets", teamKey)) },
	{ label: "Sync workflows", run: () => syncWorkflows(teamKey, changed) },
	{ label: "Delete", danger: true, run: () => askToDelete({
		title: `Delete the project ${teamKey}?`, text: `Issues of ${teamKey} will no longer be dispatched to ${owner}/${repo}. Active runs continue. Stored secrets are deleted.`,
		action: "Delete project", path: projectPath(teamKey), done: `Deleted ${teamKey}.`, after: deleted,
	}) },
]);

export const projectActions = ({ project }, { query, reload }) => [
	ranges(url`/admin/projects/${project.teamKey}`, rangeFrom(query)), pauseButton(project, reload, ""),
	projectMenu(project, reload, () => navigate("/admin/projects")),
];

export function projectView(data, { query, reload }) {
	const { project, summary, runs, mode, templates } = data;
	const { teamKey } = project;
	const filter = { team: teamKey, range: rangeFrom(query) };
	const problem = mode?.ineligible.find((one) => one.teamKey === teamKey);
	const workflows = templates?.find((one) => one.teamKey === teamKey);
	const values = toValues(project);
	return [
		project.paused && notice("warn", h("b", "Paused."), " Nothing new starts. Active runs continue."),
		problem && notice("bad", h("b", "Runs cannot start."), ` ${problem.reason}`),
		project.warnings?.map(({ message }) => notice("warn", plain(message))),
		summary && h("div.tiles", summaryTiles(summary, filter), scoreTiles(data)),
		h("div.columns",
			summary && summaryCharts(summary, filter),
			section("Health", {}, health(data)),
			budget(data),
			section("Latest runs", { actions: h("a", { href: url`/admin/pipelines?team=${teamKey}` }, "All runs") },
				runs?.length ? rows(runs, (job) => jobLine(job, ago(job.finishedAt ?? job.reservedAt), `${labelOf(KINDS, job.kind)}, ${costText(job.usage?.costUsd ?? null)}`))
					: empty("No runs yet", "Runs appear here as soon as an issue is dispatched.")),
			section("Workflows", { actions: button("Sync workflows", () => syncWorkflows(teamKey, reload), "small") },
				workflows?.error ? notice("bad", workflows.error) : [
					workflows?.files.some((one) => one.status === "missing") && notice("warn", `Runs need these workflows in ${project.owner}/${project.repo}. Sync opens a pull request with them.`),
					rows(workflows?.files ?? [], (one) => h("li", { key: one.path }, h("code.grow", one.path), badge(one.status)))]),
			section("Secrets", { actions: linkButton(asideUrl("secrets", teamKey), "Manage") }, secretList(data))),
		section("Settings", { actions: linkButton(asideUrl("edit", teamKey), "Edit") },
			facts(SECTIONS.flatMap(([part]) => FIELDS[part](values)).map((field) => [field.label, textOf(field, values)]))),
	];
}

/** Share of merged pull requests, and the time to merge. */
function scoreTiles({ project, scores }) {
	const score = scores?.rows.find((one) => one.key === project.teamKey);
	const { mergedShare, pullRequests, hoursToMerge, hoursToPullRequest } = score ?? {};
	const hours = (times) => (times ? duration(times.p50 * 3_600_000) : "–");
	const since = scores ? ` since ${day(scores.from)}` : "";
	return [
		tile("Merged", percent(mergedShare), pullRequests ? `of ${count(pullRequests, "pull request")}${since}` : `No pull requests${since}`),
		tile("Lead time", hours(hoursToMerge), hoursToMerge ? `Median to merge; to pull request ${hours(hoursToPullRequest)}` : `Nothing merged${since}`),
	];
}

/** Connections of the hosts of sessions. @type {Record<string, string>} */
const HOSTS = { vm: "vm-sessions", "vm-machines": "vm-sessions", local: "local-containers", kubernetes: "kubernetes" };

/** Connection of the host on which sessions of the project run: machines, containers or Jobs. @returns {string | undefined} */
const sessionHost = ({ project, mode }) => HOSTS[mode && mode.mode !== "default" ? mode.mode : project.executionMode];

/** Connections that the project needs, and when it last succeeded. */
function health(data) {
	const { project, config, succeeded } = data;
	const needed = [`ticketing-${project.ticketingProvider.toLowerCase()}`, "repo-host", "webhook", "runner-callback", sessionHost(data)];
	const [last] = succeeded ?? [];
	return [
		config && connections(config.checks.filter((one) => needed.includes(one.name))),
		h("p.slots", "Last success: ", last ? h("a", { href: asideUrl("job", last.id) }, last.issueIdentifier, " ", ago(last.finishedAt)) : "none yet"),
	];
}

/** Budget left at the end of each day of this month. */
function budget({ project, month, usage }) {
	const limit = project.budgetUsd;
	const spent = usage?.mappings.find((one) => one.teamKey === project.teamKey)?.costUsd;
	if (!limit || !month || typeof spent !== "number") return null;
	const text = `${money(spent)} of ${money(limit)} spent this month`;
	let left = limit - spent;
	/** @type {{at: string, left: number}[]} */
	const series = [];
	for (const { at, costUsd } of month.series.filter((one) => one.at.startsWith(new Date().toISOString().slice(0, 7))).reverse()) {
		series.unshift({ at, left: Math.max(0, left) });
		left += costUsd ?? 0;
	}
	return section("Budget", { note: text, actions: meter(spent, limit, text) },
		chart({ label: "Budget left", series, parts: [{ key: "left", label: "Left", tone: "run" }], format: money, sums: false, line: true, limit: { label: "Budget", value: limit } }));
}

/** Names of the secrets that runs of the project get, and of those that they need. */
function secretList(data) {
	const { project, own, global } = data;
	const needed = project.provider === "cloud" ? "CLOUD_ROLE_ARN" : "ANTHROPIC_API_KEY";
	const names = [...own.names.map((one) => [one.name, "for this project"]), ...global.names.map((one) => [one.name, "for all projects"])];
	const isSession = sessionHost(data) !== undefined;
	const note = isSession ? "Not set here; runs use that of the service" : `Needed in the Actions secrets of ${project.owner}/${project.repo}`;
	const line = (name, text, mark) => h("li", { key: name + text }, twoLines(h("code", name), text, "grow"), mark);
	return [
		own.failure && h("p.slots", own.failure),
		h("ul.rows", !(isSession && names.some(([name]) => name === needed)) && line(needed, note, badge("unknown", isSession ? "From the service" : "On GitHub")),
			names.map(([name, text]) => line(name, text, badge("ok", "Set")))),
	];
}
