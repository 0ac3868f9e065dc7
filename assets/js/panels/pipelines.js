import { get } from "../api.js";
import { costOf } from "../parts/job.js";
import { col, table } from "../parts/table.js";
import { ago, span } from "../parts/time.js";
import { badge, dim, external, issueName, issueText, two } from "../parts/ui.js";
import { KINDS, RUNNERS, hasFailed, isActive, name, say, sumOf } from "../parts/words.js";
import { aside } from "../router.js";

export const about = "The last 500 dispatches. Planning and implementation of one issue are one line.";
export const watch = ["job"];

export async function load() {
	/** @type {Map<string, any>} */
	const groups = new Map();
	for (const job of await get("/api/log")) {
		const known = groups.get(job.groupId);
		if (known) known.jobs.push(job);
		else groups.set(job.groupId, { ...job, jobs: [job] });
	}
	return [...groups.values()];
}

/** How both halves of a job stand. */
const halves = ({ planningStatus, implementationStatus, kind }) => {
	const implementing = implementationStatus ? `Implementation ${say(implementationStatus).toLowerCase()}` : name(KINDS, kind);
	return planningStatus ? two(`Planning ${say(planningStatus).toLowerCase()}`, implementationStatus && implementing) : two(implementing);
};

export const view = (rows) => table({
	id: "pipelines", label: "dispatches", rows, key: (row) => row.groupId, filter: true, href: (row) => aside("job", row.id),
	chips: [["Active", isActive], ["Completed", (row) => row.status === "completed"], ["Failed", hasFailed]],
	columns: [
		col("Issue", "", (row) => `${issueText(row)} ${row.branch ?? ""}`, issueName),
		col("Status", "m", (row) => say(row.status), (row) => two(badge(row.status), row.dispatchNumber > 1 && `Dispatch ${row.dispatchNumber}`)),
		col("Phases", "l md", (row) => row.planningStatus ?? "", halves),
		col("Repository", "m sm", (row) => `${row.repo} ${row.teamKey}`, (row) => two(row.repo, row.teamKey)),
		col("Runner", "m md", (row) => `${name(RUNNERS, row.runner)} ${row.sessionImage ?? ""}`, (row) => two(`${name(RUNNERS, row.runner)}${row.shadow ? ", shadow" : ""}`, row.sessionImage)),
		col("PR", "xs sm", (row) => row.prNumber, (row) => (row.prUrl ? external(row.prUrl, `#${row.prNumber}`) : dim("–"))),
		col("Cost", "xs md right", (row) => costOf(row.jobs), (row) => sumOf(costOf(row.jobs))),
		col("Time", "s right", (row) => row.reservedAt, (row) => two(isActive(row) ? span(row.reservedAt) : span(row.startedAt ?? row.reservedAt, row.finishedAt), ago(row.reservedAt))),
	],
	empty: ["No dispatches yet", "Flag an issue and its run appears here, live from the first second."],
});
