// Form of a project: its fields by section, their texts, and the conversion from and to the API.

import { check as ask } from "../api.js";
import { url } from "../router.js";
import { parseNumber } from "./form.js";
import { EXECUTION, PROVIDERS } from "./words.js";

/** @typedef {import("./form.js").Field} Field */
/** @typedef {Record<string, any>} Values */

/** Initial values of a new project. */
export const BLANK = {
	ticketingProvider: "A", teamKey: "", sourceTeamKey: "", match: "", matchName: "", jql: "", repoFieldValue: "", statusFieldOverride: "", repoFieldOverride: "",
	repository: "", defaultBranch: "main", branchPrefix: "",
	executionMode: "ci-workflow", sessionMode: "autonomous", machineCpus: "2", machineMemoryMb: "4096", workflowFile: "agent-implement.yml", planningEnabled: false, planningWorkflowFile: "agent-plan.yml",
	planApproval: "none", maxFiles: "", forbidPaths: "", approvers: "", questions: true, questionTimeoutHours: "",
	provider: "direct", cloudRegion: "", agent: "", model: "", fallbackAgents: "", runsOn: "", nodeSelector: "",
	maxInProgressAiIssues: "3", maxTurns: "", maxIterations: "", maxJobMinutes: "", budgetUsd: "", resumeAfterLimit: true,
	maxOpenPulls: "", maxAwaitingReview: "", days: "", from: "", to: "", timeZone: "", collisions: "wait", collisionIgnore: "",
	mode: "never", method: "squash", requireApprovals: "", mergeFiles: "", maxLines: "", personPaths: "", deleteBranch: false,
	extraEnv: "",
};

/** Sections of the form, in the order of the steps. @type {[string, string][]} */
export const SECTIONS = [
	["system", "Ticketing system"], ["source", "Source"], ["repository", "Repository"], ["runner", "Runner"],
	["provider", "Provider"], ["capacity", "Capacity"], ["landing", "Pull requests"], ["secrets", "Environment"],
];

/** Line break in the value of an environment variable, as the form shows it. */
const BREAK = "↵";
/** Custom field of Jira. @param {string} name @param {string} label @param {string} preset */
const jiraField = (name, label, preset) => /** @type {Field} */ ({ name, label, placeholder: preset, type: "combobox", named: true, choices: JIRA_FIELDS, hint: `Only if the field has another name than ${preset}.` });
const JIRA_FIELDS = "/api/ticketing-b/fields?name=";

/** @param {Values} v */
const isLinear = (v) => v.ticketingProvider === "A";

/** @param {Values} v */
const isFly = (v) => v.executionMode === "vm-machines";

/** @type {[string, string][]} */
const AGENTS = [["", "Choice of the repository"], ["claude", "Claude Code"], ["codex", "OpenAI Codex"], ["gemini", "Gemini CLI"]];

/** @type {Record<string, (v: Values) => Field[]>} */
export const FIELDS = {
	system: () => [{
		name: "ticketingProvider", label: "Ticketing system", type: "cards",
		options: [["A", "Linear", "Flagged with the label Agent-Implement."], ["B", "Jira", "Flagged with Agent-Implement Status = Ready."], ["C", "GitHub Issues", "Flagged with the same label."]],
	}],
	source: (v) => [
		{ name: "teamKey", label: isLinear(v) ? "Team" : "Project key", required: true, placeholder: "ENG", type: "combobox", choices: `/api/choices/teams?system=${v.ticketingProvider}`,
			hint: isLinear(v) ? "The key of the Linear team, as in ENG-42." : "Key of this project in Agent Implement." },
		...(isLinear(v) ? /** @type {Field[]} */ ([
			{ name: "sourceTeamKey", label: "Linear team", type: "combobox", choices: "/api/choices/teams?system=A", hint: "Only if the key above is not that of the team." },
		]) : []),
		...(v.ticketingProvider === "B" ? /** @type {Field[]} */ ([
			{ name: "jql", label: "Query", type: "area", required: true, placeholder: "project = OPS", hint: "JQL that selects the issues of this project." },
			jiraField("repoFieldOverride", "Repository field", "Agent-Implement Repo"),
			{ name: "repoFieldValue", label: "Repository field value", required: true, placeholder: "shop", type: "combobox",
				choices: v.repoFieldOverride ? url`/api/ticketing-b/field-options?fieldId=${v.repoFieldOverride}` : null },
			jiraField("statusFieldOverride", "Status field", "Agent-Implement Status"),
		]) : /** @type {Field[]} */ ([
			{ name: "match", label: "Tickets", type: "select", options: [["", "All that match no other project"], ["label", "With a label"], ...(isLinear(v) ? [["project", "Of a Linear project"]] : [])] },
			...(v.match ? [{ name: "matchName", label: v.match === "label" ? "Label" : "Linear project", required: true, type: "combobox",
				choices: isLinear(v) ? url`/api/choices/${v.match}s?team=${v.sourceTeamKey || v.teamKey}` : null }] : []),
		])),
	],
	repository: (v) => [
		{ name: "repository", label: "Repository", required: true, placeholder: "acme/shop", type: "combobox", choices: "/api/choices/repositories" },
		{ name: "defaultBranch", label: "Default branch", required: true, placeholder: "main", type: "combobox", choices: branchesOf(v), hint: "Base branch of pull requests." },
		{ name: "branchPrefix", label: "Branch prefix", hint: "Prefix of agent-implement/… branches." },
	],
	runner: (v) => [
		{ name: "executionMode", label: "Runner", type: "cards",
			options: [["ci-workflow", EXECUTION["ci-workflow"], "Workflow runs in the repository."], ["vm-machines", EXECUTION["vm-machines"], "One machine per run."], ["kubernetes", EXECUTION.kubernetes, "One Job per run."]] },
		...(v.executionMode !== "ci-workflow" ? /** @type {Field[]} */ ([
			{ name: "machineCpus", label: "CPUs", type: "number", hint: isFly(v) ? "1, 2, 4, 6 or 8. Other numbers are rounded up." : "" },
			{ name: "machineMemoryMb", label: "Memory (MB)", type: "number", hint: isFly(v) ? "256 to 2048 per CPU, in steps of 256." : "Rounded up to steps of 256." },
			...(isFly(v) ? [] : /** @type {Field[]} */ ([{ name: "nodeSelector", label: "Node labels", placeholder: "pool=agents", hint: "Labels of the nodes for runs, separated by commas." }])),
			{ name: "sessionMode", label: "Session mode", type: "select", options: [["autonomous", "Autonomous: run and end"], ["interactive", "Interactive: prepare and keep for a person"], ["hybrid", "Hybrid: run, and keep if it fails"]] },
		]) : /** @type {Field[]} */ ([
			{ name: "workflowFile", label: "Workflow file", required: true },
			{ name: "runsOn", label: "Runner labels", placeholder: "ubuntu-latest", hint: "Separated by commas." },
		])),
		{ name: "planningEnabled", label: "Plan before implementing", type: "checkbox", hint: "A planning run first posts its plan on the ticket." },
		...(v.planningEnabled ? /** @type {Field[]} */ ([
			{ name: "planningWorkflowFile", label: "Planning workflow file", required: true },
			{ name: "planApproval", label: "Plan approval", type: "select", options: [["none", "None: implement at once"], ["required", "A person approves each plan"], ["auto", "Only for plans outside bounds"]] },
			...(v.planApproval === "auto" ? [
				{ name: "maxFiles", label: "Max files without approval", type: "number", required: true, hint: "Files that the plan names." },
				{ name: "forbidPaths", label: "Paths that need approval", type: "area", placeholder: "migrations/**", hint: "One pattern per line." },
			] : []),
			...(v.planApproval === "none" ? [] : [{ name: "approvers", label: "Approvers", type: "area", hint: "Email addresses or account ids, one per line. Blank: everybody who may edit the ticket." }]),
		]) : []),
		{ name: "questions", label: "Let runs ask questions", type: "checkbox" },
		...(v.questions ? /** @type {Field[]} */ ([{ name: "questionTimeoutHours", label: "Wait for an answer (hours)", type: "number", placeholder: "without limit", hint: "Then the run goes on with its defaults." }]) : []),
	],
	provider: (v) => [
		{ name: "provider", label: "Model provider", type: "cards",
			options: [["direct", PROVIDERS.direct, "Requires the secret ANTHROPIC_API_KEY in the repository."], ["cloud", PROVIDERS.cloud, "Requires the secret CLOUD_ROLE_ARN and a model in WORKFLOW.md. Only on GitHub Actions."]] },
		...(v.provider === "cloud" ? /** @type {Field[]} */ ([{ name: "cloudRegion", label: "Region", required: true, placeholder: "eu-central-1" }]) : []),
		{ name: "agent", label: "Agent", type: "select", options: AGENTS },
		{ name: "model", label: "Model", type: "combobox", choices: url`/api/choices/models?agent=${v.agent}` },
		{ name: "fallbackAgents", label: "Agents at a usage limit", placeholder: "codex, gemini", hint: "They continue the work instead of waiting." },
	],
	capacity: (v) => [
		{ name: "maxInProgressAiIssues", label: "Max parallel issues", type: "number", required: true },
		{ name: "maxTurns", label: "Model turns", type: "number", preset: 50, hint: "Per implementation pass." },
		{ name: "maxIterations", label: "Iterations", type: "number", preset: v.provider === "cloud" ? 2 : 3, hint: "Implementation and review cycles." },
		{ name: "maxJobMinutes", label: "Job timeout (minutes)", type: "number", preset: 90 },
		{ name: "budgetUsd", label: "Monthly budget (USD)", type: "number", placeholder: "none", hint: "When it is spent, no further runs start this month." },
		{ name: "resumeAfterLimit", label: "Resume after a usage limit", type: "checkbox" },
	],
	landing: (v) => [
		{ name: "maxOpenPulls", label: "Max open pull requests", type: "number", placeholder: "no limit", hint: "Of the service in the repository, with running implementations." },
		{ name: "maxAwaitingReview", label: "Max waiting for review", type: "number", placeholder: "no limit" },
		{ name: "days", label: "Dispatch days", placeholder: "mon, tue, wed, thu, fri", hint: "Runs start on these days. Blank: always." },
		...(v.days ? /** @type {Field[]} */ ([
			{ name: "from", label: "From", required: true, placeholder: "08:00" },
			{ name: "to", label: "To", required: true, placeholder: "18:00" },
			{ name: "timeZone", label: "Time zone", required: true, placeholder: "Europe/Berlin" },
		]) : []),
		{ name: "collisions", label: "Same files side by side", type: "select", options: [["wait", "Wait for the other ticket"], ["allow", "Allow"]] },
		...(v.collisions === "wait" ? /** @type {Field[]} */ ([{ name: "collisionIgnore", label: "Files that never collide", type: "area", placeholder: "docs/", hint: "One pattern per line." }]) : []),
		{ name: "mode", label: "Merging", type: "select", options: [["never", "People merge"], ["auto", "Merge when approved and green"], ["queue", "Add to the merge queue"]] },
		...(v.mode === "never" ? [] : /** @type {Field[]} */ ([
			{ name: "method", label: "Merge method", type: "select", options: [["squash", "Squash"], ["merge", "Merge commit"], ["rebase", "Rebase"]] },
			{ name: "requireApprovals", label: "Approvals", type: "number", preset: 1 },
			{ name: "mergeFiles", label: "Max files", type: "number", placeholder: "no limit" },
			{ name: "maxLines", label: "Max lines", type: "number", placeholder: "no limit" },
			{ name: "personPaths", label: "Paths that people merge", type: "area", hint: "One pattern per line." },
		])),
		{ name: "deleteBranch", label: "Delete merged branches", type: "checkbox" },
	],
	secrets: () => [
		{ name: "extraEnv", label: "Environment variables", type: "area", placeholder: "NODE_ENV=test", hint: `One NAME=value per line, for session machines, with ${BREAK} for a line break in a value. Not for secrets.` },
	],
};

/** Owner and name of the repository. The URL of a repository is accepted as well. @param {string} repository */
const ownerAndName = (repository) => {
	const path = repository.trim().replace(/^https?:\/\/[^/]*\//, "").replace(/(\.git)?\/?$/, "");
	const at = path.indexOf("/");
	return at < 0 ? ["", path] : [path.slice(0, at), path.slice(at + 1)];
};

/** Path of the choices of branches. @param {Values} v */
function branchesOf(v) {
	const [owner, repo] = ownerAndName(v.repository);
	return owner && repo ? url`/api/choices/branches?owner=${owner}&repo=${repo}` : null;
}

/** Text of a field's value, as a person reads it. @param {Field} field @param {Values} values */
export function textOf({ name, type, options, preset }, values) {
	const value = values[name];
	if (type === "checkbox") return value ? "Yes" : "No";
	const text = options?.find(([option]) => option === value)?.[1] ?? String(value ?? "").trim();
	return text || (preset ? `${preset} (default)` : "None");
}

/** Field of the form in which the field of a problem is shown. @type {Record<string, string>} */
const SHOWN_IN = { owner: "repository", repo: "repository", awsRegion: "cloudRegion", ticketingConfig: "jql", planAutoApprove: "maxFiles", dispatchWindow: "days", merge: "mode" };

/** All fields, also those that the values hide. */
const allFields = () => Object.entries(FIELDS).flatMap(([step, fields]) =>
	fields({ ...BLANK, ticketingProvider: "B", executionMode: "kubernetes", provider: "cloud", planningEnabled: true, planApproval: "auto", days: "mon", mode: "auto" }).map((field) => ({ step, ...field })))
	.concat([{ step: "runner", name: "workflowFile", label: "Workflow file" }, { step: "runner", name: "runsOn", label: "Runner labels" }], FIELDS.source({ ...BLANK, match: "label" }).map((field) => ({ step: "source", ...field })));

/** Replaces the names of API fields in a message by their labels. @param {string} message */
export const plain = (message) => message.replace(/\b(?:ticketingConfig\.)?([a-z]+(?:[A-Z][a-z]*)+)\b/g, (name, field) =>
	allFields().find((one) => one.name === (SHOWN_IN[field] ?? field))?.label ?? name);

/**
 * Checks form values without storing them. Returns the problems and the warnings by field; those that concern no field
 * have the name "".
 * @param {Values} values @returns {Promise<{problems: Record<string, string>, warnings: Record<string, string>}>}
 */
export async function check(values) {
	const { problems, warnings } = await ask("/api/mappings/check", toBody(values));
	const byField = (list) => {
		/** @type {Record<string, string>} */
		const found = {};
		for (const { field, message } of list) {
			const name = SHOWN_IN[field] ?? field;
			const known = allFields().some((one) => one.name === name) ? name : "";
			found[known] = [found[known], plain(message)].filter(Boolean).join(" · ");
		}
		return found;
	};
	const missing = Object.values(FIELDS).flatMap((fields) => fields(values)).filter(({ name, required }) => required && !String(values[name]).trim());
	return { problems: { ...byField(problems), ...Object.fromEntries(missing.map(({ name, label }) => [name, `${label} is required.`])) }, warnings: byField(warnings) };
}

/** Section of a field. @param {string} name */
export const sectionOf = (name) => allFields().find((one) => one.name === name)?.step;

/** Converts a stored mapping to form values. @returns {Values} */
export function toValues(mapping) {
	const values = /** @type {Values} */ ({ ...BLANK });
	for (const name of Object.keys(BLANK)) {
		const stored = mapping[name] ?? mapping.ticketingConfig?.[name] ?? mapping.planAutoApprove?.[name] ?? mapping.dispatchWindow?.[name];
		if (name === "nodeSelector") values[name] = Object.entries(mapping.nodeSelector ?? {}).map((pair) => pair.join("=")).join(", ");
		else if (name === "extraEnv") values[name] = Object.entries(mapping.extraEnv ?? {}).map(([key, value]) => `${key}=${value.replace(/\r\n?|\n/g, BREAK)}`).join("\n");
		else values[name] = typeof stored === "boolean" ? stored : Array.isArray(stored) ? stored.join(LINES.includes(name) ? "\n" : ",") : String(stored ?? "");
	}
	const { teamKey, match } = mapping.ticketingConfig ?? {};
	values.sourceTeamKey = teamKey ?? "";
	[values.match, values.matchName] = Object.entries(match ?? {}).find(([by]) => by !== "default") ?? ["", ""];
	values.repository = `${mapping.owner}/${mapping.repo}`;
	const { maxFiles, forbidPaths = [], ...merge } = mapping.merge;
	for (const name of ["mode", "method", "requireApprovals", "maxLines"]) values[name] = String(merge[name] ?? BLANK[name]);
	[values.mergeFiles, values.personPaths] = [String(maxFiles ?? ""), forbidPaths.join("\n")];
	values.planningWorkflowFile ||= BLANK.planningWorkflowFile;
	return values;
}

/** Fields whose values are numbers or lists, and fields of Jira. */
const NUMBERS = ["maxInProgressAiIssues", "maxTurns", "maxIterations", "maxJobMinutes", "machineCpus", "machineMemoryMb", "budgetUsd", "questionTimeoutHours", "maxOpenPulls", "maxAwaitingReview"];
const LISTS = ["runsOn", "fallbackAgents"];
/** Lists with an entry per line. */
const LINES = ["forbidPaths", "approvers", "collisionIgnore"];
/** @param {string} text */
const entriesOf = (text, separator = "\n") => text.split(separator).map((one) => one.trim()).filter(Boolean);
const JIRA = ["jql", "repoFieldValue", "statusFieldOverride", "repoFieldOverride"];

/** Converts form values to a request body. Blank fields are null, so that the defaults of the service apply. @param {Values} v */
export function toBody({ repository, extraEnv, nodeSelector, sourceTeamKey, match, matchName, maxFiles, forbidPaths, days, from, to, timeZone, mode, method, requireApprovals, mergeFiles, maxLines, personPaths, ...v }) {
	const body = /** @type {Values} */ ({});
	const ticketing = /** @type {Values} */ ({ kind: v.ticketingProvider });
	for (const [name, value] of Object.entries(v)) {
		const content = typeof value === "boolean" ? value : NUMBERS.includes(name) ? parseNumber(value) : LISTS.includes(name) ? entriesOf(value, ",") : LINES.includes(name) ? entriesOf(value) : String(value ?? "").trim() || null;
		if (!JIRA.includes(name)) body[name] = content;
		else if (ticketing.kind === "B") ticketing[name] = content;
	}
	if (ticketing.kind === "A" && sourceTeamKey.trim()) ticketing.teamKey = sourceTeamKey.trim();
	if (ticketing.kind !== "B" && match) ticketing.match = { [match]: matchName.trim() };
	[body.owner, body.repo] = ownerAndName(repository);
	if (v.provider !== "cloud") body.cloudRegion = null;
	if (!v.planningEnabled) body.planningWorkflowFile = null;
	const planAutoApprove = v.planApproval === "auto" ? { maxFiles: parseNumber(maxFiles), forbidPaths: entriesOf(forbidPaths) } : null;
	const dispatchWindow = days.trim() ? { days: entriesOf(days, ","), from: from.trim(), to: to.trim(), timeZone: timeZone.trim() } : null;
	const merge = mode === "never" ? { mode } : { mode, method, requireApprovals: parseNumber(requireApprovals), maxFiles: parseNumber(mergeFiles), maxLines: parseNumber(maxLines), forbidPaths: entriesOf(personPaths) };
	return { ...body, planAutoApprove, dispatchWindow, merge, extraEnv: environment(extraEnv), nodeSelector: environment(entriesOf(nodeSelector, ",").join("\n")), ticketingConfig: ticketing };
}

/** Returns the fields of a stored mapping that were changed in the form. @param {Values} values */
export function changesOf(mapping, values) {
	const [before, after] = [toBody(toValues(mapping)), toBody(values)];
	const isChanged = ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]);
	return Object.fromEntries(Object.entries(after).filter(isChanged));
}

/** Names of the form fields whose values differ. @param {Values} before @param {Values} after */
export const differences = (before, after) => Object.keys(BLANK).filter((name) => before[name] !== after[name]);

/** @param {string} text */
function environment(text) {
	const pairs = text.split("\n").filter((line) => line.trim()).map((line) => {
		const at = line.indexOf("=");
		return at < 0 ? [line.trim(), null] : [line.slice(0, at).trim(), line.slice(at + 1).replaceAll(BREAK, "\n")];
	});
	return Object.fromEntries(pairs);
}
