import { get } from "../api.js";
import { totalCost } from "../parts/job.js";
import { col, table } from "../parts/table.js";
import { ago, span } from "../parts/time.js";
import { badge, external, issueName, issueText, muted, twoLines } from "../parts/ui.js";
import { KINDS, RUNNERS, costText, displayText, hasFailed, isActive, labelOf } from "../parts/words.js";
import { asideUrl } from "../router.js";

export const about = "The last 500 dispatches. Planning and implementation of an issue share a row.";
export const watch = ["job"];

export async function load() {
	/** @type {Map<string, any>} */
	const groups = new Map();
	for (const job of await get("/api/log")) {
		const group = groups.get(job.groupId);
		if (group) group.jobs.push(job);
		else groups.set(job.groupId, { ...job, jobs: [job] });
	}
	return [...groups.values()];
}

/** Status of the planning and the implementation of a group. */
const phases = ({ planningStatus, implementationStatus, kind }) => {
	const implementing = implementationStatus ? `Implementation ${displayText(implementationStatus).toLowerCase()}` : labelOf(KINDS, kind);
	return planningStatus ? twoLines(`Planning ${displayText(planningStatus).toLowerCase()}`, implementationStatus && implementing) : twoLines(implementing);
};

export const view = (rows) => table({
	id: "pipelines", label: "dispatches", rows, key: (row) => row.groupId, filter: true, href: (row) => asideUrl("job", row.id),
	chips: [["Active", isActive], ["Completed", (row) => row.status === "completed"], ["Failed", hasFailed]],
	columns: [
		col("Issue", "", (row) => `${issueText(row)} ${row.branch ?? ""}`, issueName),
		col("Status", "m", (row) => displayText(row.status), (row) => twoLines(badge(row.status), row.dispatchNumber > 1 && `Dispatch ${row.dispatchNumber}`)),
		col("Phases", "l md", (row) => row.planningStatus ?? "", phases),
		col("Repository", "m sm", (row) => `${row.repo} ${row.teamKey}`, (row) => twoLines(row.repo, row.teamKey)),
		col("Runner", "m md", (row) => `${labelOf(RUNNERS, row.runner)} ${row.sessionImage ?? ""}`, (row) => twoLines(`${labelOf(RUNNERS, row.runner)}${row.shadow ? ", shadow" : ""}`, row.sessionImage)),
		col("PR", "xs sm", (row) => row.prNumber, (row) => (row.prUrl ? external(row.prUrl, `#${row.prNumber}`) : muted("–"))),
		col("Cost", "xs md right", (row) => totalCost(row.jobs), (row) => costText(totalCost(row.jobs))),
		col("Time", "s right", (row) => row.reservedAt, (row) => twoLines(isActive(row) ? span(row.reservedAt) : span(row.startedAt ?? row.reservedAt, row.finishedAt), ago(row.reservedAt))),
	],
	empty: ["No dispatches yet", "Flag an issue. Its run appears here as soon as it is dispatched."],
});
