// A project as a form: its fields, which step each belongs to, and how it travels.

import { number } from "./form.js";

/** @typedef {import("./form.js").Field} Field */

/** What a new project begins with. */
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
		name: "ticketingProvider", label: "Where are the tickets?", type: "cards",
		options: [["A", "Linear", "Flagged with the label Agent-Implement."], ["B", "Jira", "Flagged with Agent-Implement Status = Ready."]],
	}],
	source: (v) => [
		{ name: "teamKey", label: v.ticketingProvider === "A" ? "Team key" : "Project key", required: true, placeholder: "ENG",
			hint: v.ticketingProvider === "A" ? "The key of the Linear team, as in ENG-42." : "What this project is called here." },
		...(v.ticketingProvider === "B" ? /** @type {Field[]} */ ([
			{ name: "jql", label: "Query", type: "area", required: true, placeholder: "project = OPS", hint: "JQL that finds this project's issues." },
			{ name: "repoFieldValue", label: "Repository field value", required: true, placeholder: "shop", hint: "The value of Agent-Implement Repo." },
			{ name: "statusFieldOverride", label: "Status field id", placeholder: "customfield_10042", hint: "When Agent-Implement Status has another name." },
			{ name: "repoFieldOverride", label: "Repository field id", placeholder: "customfield_10043" },
		]) : []),
	],
	repository: () => [
		{ name: "owner", label: "Owner", required: true, placeholder: "acme" },
		{ name: "repo", label: "Repository", required: true, placeholder: "shop" },
		{ name: "defaultBranch", label: "Default branch", required: true, placeholder: "main", hint: "What pull requests are opened against." },
		{ name: "branchPrefix", label: "Branch prefix", placeholder: "bots", hint: "Put in front of agent-implement/… branches." },
	],
	runner: (v) => [
		{ name: "executionMode", label: "Where do runs execute?", type: "cards",
			options: [["ci-workflow", "GitHub Actions", "A workflow of the target repository."], ["vm-machines", "Fly Machines", "A machine for each run."]] },
		...(v.executionMode === "vm-machines" ? /** @type {Field[]} */ ([
			{ name: "machineCpus", label: "CPUs", type: "number", hint: "1, 2, 4, 6 or 8; other numbers are rounded up." },
			{ name: "machineMemoryMb", label: "Memory in MB", type: "number", hint: "256 to 2048 for each CPU, in steps of 256." },
			{ name: "sessionMode", label: "Session mode", type: "select", options: [["autonomous", "Autonomous: run and end"], ["interactive", "Interactive: prepared and kept for a person"], ["hybrid", "Hybrid: kept when it did not succeed"]] },
		]) : [{ name: "workflowFile", label: "Workflow file", required: true }]),
		{ name: "planningEnabled", label: "Plan before implementing", type: "checkbox", hint: "A planning run writes its plan on the ticket first." },
		...(v.planningEnabled ? /** @type {Field[]} */ ([{ name: "planningWorkflowFile", label: "Planning workflow file", required: true }]) : []),
	],
	provider: (v) => [
		{ name: "provider", label: "Who serves the model?", type: "cards",
			options: [["direct", "Anthropic API", "With the secret ANTHROPIC_API_KEY of the repository."], ["cloud", "Amazon Bedrock", "With the secret CLOUD_ROLE_ARN and a model in WORKFLOW.md. Not on Fly Machines."]] },
		...(v.provider === "cloud" ? /** @type {Field[]} */ ([{ name: "cloudRegion", label: "Region", required: true, placeholder: "eu-central-1" }]) : []),
	],
	capacity: (v) => [
		{ name: "maxInProgressAiIssues", label: "Issues at once", type: "number", required: true, hint: "More wait until one of these is done." },
		{ name: "maxTurns", label: "Model turns", type: "number", placeholder: "50", hint: "For each implement pass; blank is 50." },
		{ name: "maxIterations", label: "Iterations", type: "number", placeholder: v.provider === "cloud" ? "2" : "3", hint: `Implement and review cycles; blank is ${v.provider === "cloud" ? 2 : 3}.` },
		{ name: "maxJobMinutes", label: "Job time-out in minutes", type: "number", placeholder: "90", hint: "Blank is 90." },
		{ name: "budgetUsd", label: "Budget a month in $", type: "number", placeholder: "none", hint: "Nothing more is dispatched once it is spent." },
		{ name: "resumeAfterLimit", label: "Go on after a usage limit", type: "checkbox", hint: "What meets the model's limit waits until it is lifted." },
	],
	secrets: () => [
		{ name: "extraEnv", label: "Extra environment", type: "area", placeholder: "NODE_ENV=test", hint: "One NAME=value on a line, for session machines. Not for secrets." },
	],
};

/**
 * Where a refusal belongs: to the field that it names first.
 * @param {string} error @param {Record<string, any>} values
 * @returns {{step: string, field: string}}
 */
export function placeOf(error, values) {
	if (/teamKey, owner, and repo/.test(error)) {
		const missing = ["teamKey", "owner", "repo"].find((name) => !String(values[name]).trim()) ?? "teamKey";
		return { step: missing === "teamKey" ? "source" : "repository", field: missing };
	}
	// The service speaks of regions as one vendor does.
	const words = error.replace("awsRegion", "cloudRegion").split(/[^A-Za-z]+/);
	const everything = { ...values, ticketingProvider: "B", executionMode: "vm-machines", provider: "cloud", planningEnabled: true };
	const places = Object.entries(FIELDS).flatMap(([step, fields]) => fields(everything).map(({ name }) => ({ step, field: name })));
	places.push({ step: "runner", field: "workflowFile" }, { step: "secrets", field: "secretName" });
	const found = words.map((word) => places.find(({ field }) => field === word)).find(Boolean);
	return found ?? { step: /secret|^name |sessions config/i.test(error) ? "secrets" : "", field: "secretName" };
}

/** A stored mapping as the form's values. */
export function toValues(mapping) {
	const values = /** @type {Record<string, any>} */ ({ ...BLANK });
	for (const name of Object.keys(BLANK)) {
		const given = mapping[name] ?? mapping.ticketingConfig?.[name];
		if (name === "extraEnv") values[name] = Object.entries(mapping.extraEnv ?? {}).map(([key, value]) => `${key}=${value}`).join("\n");
		else values[name] = typeof given === "boolean" ? given : given === null || given === undefined ? "" : String(given);
	}
	values.planningWorkflowFile ||= BLANK.planningWorkflowFile;
	return values;
}

/** What is sent: blanks are left to the service's defaults. @param {Record<string, any>} v */
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

/** What somebody changed in the form of a stored mapping. @param {Record<string, any>} values */
export function changesOf(mapping, values) {
	const [before, after] = [toBody(toValues(mapping)), toBody(values)];
	const isNew = ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]);
	return Object.fromEntries(Object.entries(after).filter(isNew));
}

/** @param {string} text */
function environment(text) {
	const pairs = text.split("\n").filter((line) => line.trim()).map((line) => {
		const at = line.indexOf("=");
		return at < 0 ? [line.trim(), null] : [line.slice(0, at).trim(), line.slice(at + 1)];
	});
	return Object.fromEntries(pairs);
}
