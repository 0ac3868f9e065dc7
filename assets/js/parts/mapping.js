// Form of a project: its fields by section, and the conversion from and to the API.

import { number } from "./form.js";

/** @typedef {import("./form.js").Field} Field */

/** Initial values of a new project. */
export const BLANK = {
	ticketingProvider: "A", teamKey: "", jql: "", repoFieldValue: "", statusFieldOverride: "", repoFieldOverride: "",
	owner: "", repo: "", defaultBranch: "main", branchPrefix: "",
	executionMode: "ci-workflow", sessionMode: "autonomous", machineCpus: "2", machineMemoryMb: "4096", workflowFile: "agent-implement.yml", planningEnabled: false, planningWorkflowFile: "agent-plan.yml",
	provider: "direct", cloudRegion: "",
	maxInProgressAiIssues: "3", maxTurns: "", maxIterations: "", maxJobMinutes: "", budgetUsd: "", resumeAfterLimit: true,
	extraEnv: "",
};

/** @type {Record<string, (v: Record<string, any>) => Field[]>} */
export const FIELDS = {
	system: () => [{
		name: "ticketingProvider", label: "Ticketing system", type: "cards",
		options: [["A", "Linear", "Flagged with the label Agent-Implement."], ["B", "Jira", "Flagged with Agent-Implement Status = Ready."]],
	}],
	source: (v) => [
		{ name: "teamKey", label: v.ticketingProvider === "A" ? "Team key" : "Project key", required: true, placeholder: "ENG",
			hint: v.ticketingProvider === "A" ? "The key of the Linear team, as in ENG-42." : "Key of this project in Agent Implement." },
		...(v.ticketingProvider === "B" ? /** @type {Field[]} */ ([
			{ name: "jql", label: "Query", type: "area", required: true, placeholder: "project = OPS", hint: "JQL that selects the issues of this project." },
			{ name: "repoFieldValue", label: "Repository field value", required: true, placeholder: "shop", hint: "Value of the field Agent-Implement Repo." },
			{ name: "statusFieldOverride", label: "Status field ID", placeholder: "customfield_10042", hint: "Only if the field has another name than Agent-Implement Status." },
			{ name: "repoFieldOverride", label: "Repository field ID", placeholder: "customfield_10043", hint: "Only if the field has another name than Agent-Implement Repo." },
		]) : []),
	],
	repository: () => [
		{ name: "owner", label: "Owner", required: true, placeholder: "acme" },
		{ name: "repo", label: "Repository", required: true, placeholder: "shop" },
		{ name: "defaultBranch", label: "Default branch", required: true, placeholder: "main", hint: "Base branch of pull requests." },
		{ name: "branchPrefix", label: "Branch prefix", placeholder: "bots", hint: "Prefix of agent-implement/… branches." },
	],
	runner: (v) => [
		{ name: "executionMode", label: "Runner", type: "cards",
			options: [["ci-workflow", "GitHub Actions", "Workflow runs in the target repository."], ["vm-machines", "Fly Machines", "One machine per run."]] },
		...(v.executionMode === "vm-machines" ? /** @type {Field[]} */ ([
			{ name: "machineCpus", label: "CPUs", type: "number", hint: "1, 2, 4, 6 or 8. Other numbers are rounded up." },
			{ name: "machineMemoryMb", label: "Memory (MB)", type: "number", hint: "256 to 2048 per CPU, in steps of 256." },
			{ name: "sessionMode", label: "Session mode", type: "select", options: [["autonomous", "Autonomous: run and end"], ["interactive", "Interactive: prepare and keep for a person"], ["hybrid", "Hybrid: run, and keep if it fails"]] },
		]) : [{ name: "workflowFile", label: "Workflow file", required: true }]),
		{ name: "planningEnabled", label: "Plan before implementing", type: "checkbox", hint: "A planning run first posts its plan on the ticket." },
		...(v.planningEnabled ? /** @type {Field[]} */ ([{ name: "planningWorkflowFile", label: "Planning workflow file", required: true }]) : []),
	],
	provider: (v) => [
		{ name: "provider", label: "Model provider", type: "cards",
			options: [["direct", "Anthropic API", "Requires the secret ANTHROPIC_API_KEY in the repository."], ["cloud", "Amazon Bedrock", "Requires the secret CLOUD_ROLE_ARN and a model in WORKFLOW.md. Not available on Fly Machines."]] },
		...(v.provider === "cloud" ? /** @type {Field[]} */ ([{ name: "cloudRegion", label: "Region", required: true, placeholder: "eu-central-1" }]) : []),
	],
	capacity: (v) => [
		{ name: "maxInProgressAiIssues", label: "Concurrent issues", type: "number", required: true, hint: "Further issues wait until one of these is done." },
		{ name: "maxTurns", label: "Model turns", type: "number", placeholder: "50", hint: "Per implementation pass; default 50." },
		{ name: "maxIterations", label: "Iterations", type: "number", placeholder: v.provider === "cloud" ? "2" : "3", hint: `Implementation and review cycles; default ${v.provider === "cloud" ? 2 : 3}.` },
		{ name: "maxJobMinutes", label: "Job timeout (minutes)", type: "number", placeholder: "90", hint: "Default 90." },
		{ name: "budgetUsd", label: "Monthly budget (USD)", type: "number", placeholder: "none", hint: "When it is spent, no further runs start this month." },
		{ name: "resumeAfterLimit", label: "Resume after a usage limit", type: "checkbox", hint: "Runs that reach the usage limit of the model provider resume when it is lifted." },
	],
	secrets: () => [
		{ name: "extraEnv", label: "Environment variables", type: "area", placeholder: "NODE_ENV=test", hint: "One NAME=value per line, for session machines. Not for secrets." },
	],
};

/**
 * Returns the step and field of a validation error: the first field that its text names.
 * @param {string} error @param {Record<string, any>} values
 * @returns {{step: string, field: string}}
 */
export function fieldOfError(error, values) {
	if (/teamKey, owner, and repo/.test(error)) {
		const missing = ["teamKey", "owner", "repo"].find((name) => !String(values[name]).trim()) ?? "teamKey";
		return { step: missing === "teamKey" ? "source" : "repository", field: missing };
	}
	// An error text of the service uses the AWS name of the field.
	const words = error.replace("awsRegion", "cloudRegion").split(/[^A-Za-z]+/);
	const allFields = { ...values, ticketingProvider: "B", executionMode: "vm-machines", provider: "cloud", planningEnabled: true };
	const candidates = Object.entries(FIELDS).flatMap(([step, fields]) => fields(allFields).map(({ name }) => ({ step, field: name })));
	candidates.push({ step: "runner", field: "workflowFile" }, { step: "secrets", field: "secretName" });
	const found = words.map((word) => candidates.find(({ field }) => field === word)).find(Boolean);
	return found ?? { step: /secret|^name |sessions config/i.test(error) ? "secrets" : "", field: "secretName" };
}

/** Converts a stored mapping to form values. */
export function toValues(mapping) {
	const values = /** @type {Record<string, any>} */ ({ ...BLANK });
	for (const name of Object.keys(BLANK)) {
		const stored = mapping[name] ?? mapping.ticketingConfig?.[name];
		if (name === "extraEnv") values[name] = Object.entries(mapping.extraEnv ?? {}).map(([key, value]) => `${key}=${value}`).join("\n");
		else values[name] = typeof stored === "boolean" ? stored : stored === null || stored === undefined ? "" : String(stored);
	}
	values.planningWorkflowFile ||= BLANK.planningWorkflowFile;
	return values;
}

/** Converts form values to a request body. Blank fields are null, so that the defaults of the service apply. @param {Record<string, any>} v */
export function toBody(v) {
	const text = (name) => String(v[name] ?? "").trim() || null;
	const body = /** @type {Record<string, any>} */ ({});
	for (const name of ["teamKey", "owner", "repo", "defaultBranch", "branchPrefix", "executionMode", "workflowFile", "provider", "ticketingProvider"]) body[name] = text(name);
	for (const name of ["maxInProgressAiIssues", "maxTurns", "maxIterations", "maxJobMinutes", "machineCpus", "machineMemoryMb", "budgetUsd"]) body[name] = number(v[name]);
	body.sessionMode = text("sessionMode");
	body.cloudRegion = v.provider === "cloud" ? text("cloudRegion") : null;
	for (const name of ["planningEnabled", "resumeAfterLimit"]) body[name] = Boolean(v[name]);
	body.planningWorkflowFile = body.planningEnabled ? text("planningWorkflowFile") : null;
	body.extraEnv = environment(String(v.extraEnv ?? ""));
	body.ticketingConfig = v.ticketingProvider === "B"
		? { kind: "B", jql: text("jql"), repoFieldValue: text("repoFieldValue"), statusFieldOverride: text("statusFieldOverride"), repoFieldOverride: text("repoFieldOverride") }
		: { kind: "A" };
	return body;
}

/** Returns the fields of a stored mapping that were changed in the form. @param {Record<string, any>} values */
export function changesOf(mapping, values) {
	const [before, after] = [toBody(toValues(mapping)), toBody(values)];
	const isChanged = ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]);
	return Object.fromEntries(Object.entries(after).filter(isChanged));
}

/** @param {string} text */
function environment(text) {
	const pairs = text.split("\n").filter((line) => line.trim()).map((line) => {
		const at = line.indexOf("=");
		return at < 0 ? [line.trim(), null] : [line.slice(0, at).trim(), line.slice(at + 1)];
	});
	return Object.fromEntries(pairs);
}
