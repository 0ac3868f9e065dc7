// Drawer of a run: status, steps, the end of the log, and details. The run page shows the rest.

import { download, get } from "../api.js";
import { $, h } from "../dom.js";
import { asideUrl, url } from "../router.js";
import { cancelButton, retryButton } from "./control.js";
import { openDrawer } from "./drawer.js";
import { ago, span } from "./time.js";
import { badge, button, external, facts, muted, notice, section } from "./ui.js";
import { waterfall } from "./waterfall.js";
import { KINDS, RUNNERS, TIMEOUTS, actorText, costText, count, displayText, isActive, labelOf, money, number, statusOf } from "./words.js";

export function openAside(id, onClose) {
	let pages = 1;
	return openDrawer({
		title: "Run", noun: "run", onClose,
		load: async (shown) => {
			const next = await read(id, pages);
			// While a run is active, its issue has no newer one.
			next.attempts = isActive(next.job) && shown?.job.status === next.job.status ? shown.attempts : (await issueOf(next.job)).jobs;
			return next;
		},
		isAbout: (event, shown) => isAbout(event, shown?.job ?? { id }),
		draw: (dialog, shown, reload) => {
			const more = () => {
				pages += 1;
				return reload();
			};
			const log = $(dialog.el, ".log");
			const atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
			dialog.show(view(shown, reload, more), null, [h("span.key", shown.job.issueIdentifier), " ", shown.job.issueTitle]);
			const after = $(dialog.el, ".log");
			if (after && atEnd) after.scrollTop = after.scrollHeight;
		},
	});
}

/** Whether an event changes what is shown about a run. @param {import("../live.js").Event_} event @param {any} job */
export const isAbout = ({ type, data }, { id, issueId }) =>
	type === "all" || (type === "step" && data?.jobId === id) || (type === "job" && (data?.id === id || data?.issueId === issueId));

/** Number of steps per page. */
const PAGE_SIZE = 100;

/** Loads a run with the first pages of its steps. @param {string} id @param {number} pages */
export async function read(id, pages, size = PAGE_SIZE) {
	const path = url`/api/jobs/${id}/steps?limit=${size}`;
	const run = await get(path);
	for (let page = 1; page < pages && run.next; page += 1) {
		const more = await get(path + url`&after=${run.next}`);
		run.steps.push(...more.steps);
		run.next = more.next;
	}
	return run;
}

/** Runs and pull requests of the issue of a run. @param {any} job @returns {Promise<{jobs: any[], pullRequests: any[], takenOver: any}>} */
export const issueOf = async (job) => {
	const { jobs = [job], pullRequests = [], takenOver = null } = await get(url`/api/why/${job.issueIdentifier}`).catch(() => ({}));
	return { jobs, pullRequests, takenOver };
};

/** Badge with the status of a run. */
export const runBadge = (job) => badge(statusOf(job));
/** Kind of a run and its number among the runs of the issue. */
export const runName = (job) => `${labelOf(KINDS, job.kind)}, attempt ${job.attempt ?? job.dispatchNumber}${job.shadow ? ", shadow" : ""}`;

export const runTime = (job) => muted(isActive(job) ? "for " : "took ", span(job.startedAt ?? job.dispatchedAt ?? job.reservedAt, isActive(job) ? null : job.finishedAt));

/** Status, kind, attempt and duration. */
export const runLine = (job) => h("div.run-line", runBadge(job), h("span", runName(job)), runTime(job));

/** Reason of a failure, or what the run asked; null for other runs. */
export const failure = (job) => statusOf(job) === "asked" ? notice("run", h("strong", "The run ended with a question."), " The work goes on when it is answered.", h("pre.reason", job.failureReason)) : (job.failureReason || job.timeoutReason || job.failureCode) && notice(job.status === "review_failed" ? "warn" : "bad",
	h("strong", job.failureCode ? displayText(job.failureCode.toLowerCase()) : labelOf(TIMEOUTS, job.timeoutReason)), job.cancelledBy ? ` by ${actorText(job.cancelledBy)}` : job.failureReason && h("pre.reason", job.failureReason));

/** Links of a run, and buttons that control it. Only the latest run of an issue is retried. @param {any} job @param {any[]} attempts Runs of the issue, newest first. @param {() => any} after */
export function runLinks(job, attempts, after, ...more) {
	const isLatest = attempts.find((one) => !one.shadow)?.id === job.id;
	const savePatch = () => download(url`/api/jobs/${job.id}/patch`, `${job.issueIdentifier}.patch`);
	return h("div.links", more, external(job.issueUrl, "Ticket"),
		job.prUrl && external(job.prUrl, `Pull request #${job.prNumber}`), job.runUrl && external(job.runUrl, "View on GitHub Actions"),
		job.failureCode && button("Unpushed changes", savePatch, "small ghost", "Unpushed changes: download as a patch, if there are any"),
		cancelButton(job, after), isLatest && retryButton(job, after));
}

/** @param {{job: any, steps: any[], log?: string | null, dropped: number, next: string | null, attempts: any[]}} data */
function view({ job, steps, log, dropped, next, attempts }, reload, more) {
	const active = isActive(job);
	return [
		runLine(job), failure(job),
		runLinks(job, attempts, reload, h("a", { href: url`/admin/runs/${job.id}` }, "Open run page")),
		stepsSection({ job, steps, dropped, next }, more),
		(log || active) && section("Log", { note: active ? "live, last lines" : "last lines" },
			h("pre.log", { tabindex: "0", role: "log", "aria-label": "Log of the run" }, log || "No output yet.")),
		section("Details", {}, facts(detailRows(job))),
		attempts.length > 1 && section("All runs of this issue", { note: costText(totalCost(attempts)) }, runs(attempts, job.id)),
	];
}

/** @param {{job: any, steps: any[], dropped: number, next: string | null, passes?: any[], linked?: boolean}} run @param {() => any} more */
export const stepsSection = ({ dropped, next, ...run }, more) => section("Steps", { note: next ? `first ${run.steps.length}` : run.steps.length ? count(run.steps.length, "step") : null },
	run.steps.length ? waterfall(run) : h("p.muted", isActive(run.job) ? "No step has been reported yet." : "The run reported no steps."),
	next && button("More steps", more, "small"),
	dropped > 0 && notice("warn", `${count(dropped, "report")} of this run exceeded the limit of 500 steps and 4 MiB. These steps are missing, or shown without their output.`));

/** Total cost of runs; null if some have ended and none reported a cost. */
export const totalCost = (jobs) => {
	const costs = jobs.map((job) => job.usage?.costUsd).filter((cost) => typeof cost === "number");
	return costs.length > 0 || jobs.every(isActive) ? costs.reduce((sum, cost) => sum + cost, 0) : null;
};

/** List of runs, newest first, with links. */
export const runs = (jobs, current) => h("ol.entries", jobs.map((one) =>
	h("li", { key: one.id, "aria-current": one.id === current ? "true" : null },
		h("a", { href: asideUrl("job", one.id) }, runName(one)), runBadge(one), muted(ago(one.reservedAt)), h("span.num.muted", money(one.usage?.costUsd)))));

/** @returns {[string, any][]} */
export function detailRows(job) {
	const { usage } = job;
	return [
		["Repository", job.repo],
		["Project", h("a", { href: url`/admin/projects/${job.teamKey}` }, job.teamKey)],
		["Runner", labelOf(RUNNERS, job.runner)],
		["Agent", [job.agent, job.model].filter(Boolean).join(", ")],
		["Image", job.sessionImage && h("code", job.sessionImage)],
		["Branch", job.branch && h("code", job.branch)],
		["Run id", h("code", job.dispatchId)],
		["Actions run", job.runId && h("code", job.runId)],
		["Machine", job.machineId && h("code", job.machineId)],
		["Reserved", ago(job.reservedAt)],
		["Ended", job.finishedAt && ago(job.finishedAt)],
		["Conclusion", job.conclusion],
		["Cost", usage && money(usage.costUsd)],
		["Turns", usage && number(usage.turns)],
		["Tokens", usage && `${number(usage.inputTokens)} in, ${number(usage.outputTokens)} out`],
	];
}
