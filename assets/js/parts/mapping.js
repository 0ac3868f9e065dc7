// @ts-check
// A project as a form: its fields, which step each belongs to, and how it travels.

import { number } from "./form.js";

/** @typedef {import("./form.js").Field} Field */

/** What a new project begins with. */
export const BLANK = {
  ticketingProvider: "A", teamKey: "", jql: "", repoFieldValue: "", statusFieldOverride: "", repoFieldOverride: "",
  owner: "", repo: "", defaultBranch: "main", branchPrefix: "",
  executionMode: "ci-workflow", sessionMode: "autonomous", machineCpus: "2", machineMemoryMb: "4096", workflowFile: "agent-implement.yml", planningEnabled: false, planningWorkflowFile: "agent-plan.yml",
  provider: "direct", cloudRegion: "",
  maxInProgressAiIssues: "3", maxTurns: "", maxIterations: "", maxJobMinutes: "",
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
      hint: v.ticketingProvider === "A" ? "The key of the Linear team, as in ENG-42." : "A key of your own for this project, as in OPS." },
    ...(v.ticketingProvider === "B" ? /** @type {Field[]} */ ([
      { name: "jql", label: "Query", type: "area", required: true, placeholder: "project = OPS", hint: "JQL that finds this project's issues; the Ready status is added." },
      { name: "repoFieldValue", label: "Repository field value", required: true, placeholder: "shop", hint: "Issues with this value of Agent-Implement Repo belong here." },
      { name: "statusFieldOverride", label: "Status field id", placeholder: "customfield_10042", hint: "Only when Agent-Implement Status is not found by its name." },
      { name: "repoFieldOverride", label: "Repository field id", placeholder: "customfield_10043" },
    ]) : []),
  ],
  repository: () => [
    { name: "owner", label: "Owner", required: true, placeholder: "acme" },
    { name: "repo", label: "Repository", required: true, placeholder: "shop" },
    { name: "defaultBranch", label: "Default branch", required: true, placeholder: "main", hint: "Pull requests are opened against it." },
    { name: "branchPrefix", label: "Branch prefix", placeholder: "bots", hint: "Put in front of agent-implement/… branches." },
  ],
  runner: (v) => [
    { name: "executionMode", label: "Where do runs execute?", type: "cards",
      options: [["ci-workflow", "GitHub Actions", "A workflow of the target repository."], ["vm-machines", "Fly Machines", "A machine for each run."]] },
    ...(v.executionMode === "vm-machines" ? /** @type {Field[]} */ ([
      { name: "machineCpus", label: "CPUs", type: "number" },
      { name: "machineMemoryMb", label: "Memory in MB", type: "number", hint: "At least 256." },
      { name: "sessionMode", label: "Session mode", type: "select", options: [["autonomous", "Autonomous: run and end"], ["interactive", "Interactive: prepared and kept for a person"], ["hybrid", "Hybrid: kept when it did not succeed"]] },
    ]) : [{ name: "workflowFile", label: "Workflow file", required: true }]),
    { name: "planningEnabled", label: "Plan before implementing", type: "checkbox", hint: "A planning run writes its plan on the ticket first." },
    ...(v.planningEnabled ? /** @type {Field[]} */ ([{ name: "planningWorkflowFile", label: "Planning workflow file", required: true }]) : []),
  ],
  provider: (v) => [
    { name: "provider", label: "Who serves the model?", type: "cards",
      options: [["direct", "Anthropic API", "Needs the secret ANTHROPIC_API_KEY in the target repository."], ["cloud", "Amazon Bedrock", "Needs the secret CLOUD_ROLE_ARN, and the model id in WORKFLOW.md. Not on Fly Machines."]] },
    ...(v.provider === "cloud" ? /** @type {Field[]} */ ([{ name: "cloudRegion", label: "Region", required: true, placeholder: "eu-central-1" }]) : []),
  ],
  capacity: (v) => [
    { name: "maxInProgressAiIssues", label: "Issues at once", type: "number", required: true, hint: "More wait until one of these is done." },
    { name: "maxTurns", label: "Model turns", type: "number", placeholder: "50", hint: "For each implement pass; blank is 50." },
    { name: "maxIterations", label: "Iterations", type: "number", placeholder: v.provider === "cloud" ? "2" : "3", hint: `Implement and review cycles; blank is ${v.provider === "cloud" ? 2 : 3}.` },
    { name: "maxJobMinutes", label: "Job time-out in minutes", type: "number", placeholder: "90", hint: "Blank is 90." },
  ],
  secrets: () => [
    { name: "extraEnv", label: "Extra environment", type: "area", placeholder: "NODE_ENV=test", hint: "One NAME=value on a line, for session machines. Not for secrets." },
  ],
};

/** Words of the service's refusals, and the step they belong to. @type {[RegExp, string, string][]} */
const ABOUT = [
  [/ticketingProvider/, "system", "ticketingProvider"],
  [/jql|query|ticketingConfig\.repoFieldValue/i, "source", "jql"],
  [/statusFieldOverride/, "source", "statusFieldOverride"],
  [/repoFieldOverride/, "source", "repoFieldOverride"],
  [/^teamKey\b(?!, owner)|overlap|system B|ticketing/i, "source", "teamKey"],
  [/defaultBranch/, "repository", "defaultBranch"],
  [/branchPrefix/, "repository", "branchPrefix"],
  [/^owner/, "repository", "owner"],
  [/^repo\b/, "repository", "repo"],
  [/awsRegion|cloudRegion/, "provider", "cloudRegion"],
  [/not supported with executionMode|^provider/, "provider", "provider"],
  [/executionMode/, "runner", "executionMode"],
  [/machineCpus/, "runner", "machineCpus"],
  [/machineMemoryMb/, "runner", "machineMemoryMb"],
  [/sessionMode/, "runner", "sessionMode"],
  [/planningWorkflowFile|planningEnabled/, "runner", "planningWorkflowFile"],
  [/workflowFile/, "runner", "workflowFile"],
  [/maxInProgressAiIssues/, "capacity", "maxInProgressAiIssues"],
  [/maxTurns/, "capacity", "maxTurns"],
  [/maxIterations/, "capacity", "maxIterations"],
  [/maxJobMinutes/, "capacity", "maxJobMinutes"],
  [/extraEnv/, "secrets", "extraEnv"],
  [/secret|name must|name and value|sessions config/i, "secrets", "secretName"],
];

/**
 * Where a refusal belongs.
 * @param {string} error @param {Record<string, any>} values
 * @returns {{step: string, field: string}}
 */
export function placeOf(error, values) {
  if (/teamKey, owner, and repo/.test(error)) {
    const missing = ["teamKey", "owner", "repo"].find((name) => !String(values[name]).trim()) ?? "teamKey";
    return { step: missing === "teamKey" ? "source" : "repository", field: missing };
  }
  const found = ABOUT.find(([words]) => words.test(error));
  return found ? { step: found[1], field: found[2] } : { step: "", field: "" };
}

/** A stored mapping as the form's values. @param {any} mapping */
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
  const text = (/** @type {string} */ name) => String(v[name] ?? "").trim() || null;
  const body = /** @type {Record<string, any>} */ ({});
  for (const name of ["teamKey", "owner", "repo", "defaultBranch", "branchPrefix", "executionMode", "workflowFile", "provider", "ticketingProvider"]) body[name] = text(name);
  for (const name of ["maxInProgressAiIssues", "maxTurns", "maxIterations", "maxJobMinutes", "machineCpus", "machineMemoryMb"]) body[name] = number(v[name]);
  body.sessionMode = text("sessionMode");
  body.cloudRegion = v.provider === "cloud" ? text("cloudRegion") : null;
  body.planningEnabled = Boolean(v.planningEnabled);
  body.planningWorkflowFile = body.planningEnabled ? text("planningWorkflowFile") : null;
  body.extraEnv = environment(String(v.extraEnv ?? ""));
  body.ticketingConfig = v.ticketingProvider === "B"
    ? { kind: "B", jql: text("jql"), repoFieldValue: text("repoFieldValue"), statusFieldOverride: text("statusFieldOverride"), repoFieldOverride: text("repoFieldOverride") }
    : { kind: "A" };
  return body;
}

/** @param {string} text */
function environment(text) {
  const pairs = text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line.trim(), null] : [line.slice(0, at).trim(), line.slice(at + 1)];
  });
  return Object.fromEntries(pairs);
}
