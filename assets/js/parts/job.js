// Drawer of a run: status, steps, log and details.

import { download, get } from "../api.js";
import { $, h } from "../dom.js";
import { subscribe } from "../live.js";
import { asideUrl } from "../router.js";
import { destroyButton } from "../panels/sessions.js";
import { open } from "./dialog.js";
import { ago, duration, span } from "./time.js";
import { badge, button, empty, external, facts, loading, messageOf, muted, notice, section } from "./ui.js";
import { KINDS, RUNNERS, TIMEOUTS, costText, count, isActive, labelOf, money } from "./words.js";

export function openAside(id, onClose) {
	const dialog = open({ title: "Run", kind: "drawer", onClose: () => { unsubscribe(); onClose(); } });
	/** @type {any} */
	let shown = null;
	/** @type {any[]} */
	let attempts = [];
	/** @type {ReturnType<typeof setTimeout> | null} */
	let reloadTimer = null;
	let closed = false;
	let pages = 1;

	const load = async () => {
		try {
			const next = await read(id, pages);
			if (!shown || shown.job.status !== next.job.status) {
				attempts = (await get("/api/log")).filter((job) => job.issueId === next.job.issueId);
			}
			shown = next;
			if (!closed) draw();
		} catch (error) {
			if (!closed && !shown) dialog.show(empty("Could not load this run", messageOf(error), button("Retry", load)));
		}
	};
	const more = () => {
		pages += 1;
		return load();
	};
	const draw = () => {
		const log = $(dialog.el, ".log");
		const atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
		dialog.show(view(shown, attempts, load, more), null, title(shown.job));
		const after = $(dialog.el, ".log");
		if (after && atEnd) after.scrollTop = after.scrollHeight;
	};
	const unsubscribe = subscribe(({ type, data }) => {
		const isAboutThisRun = type === "all" || (type === "step" && data?.jobId === id) || (type === "job" && (data?.id === id || data?.issueId === shown?.job.issueId));
		if (!isAboutThisRun || reloadTimer) return;
		reloadTimer = setTimeout(() => {
			reloadTimer = null;
			load();
		}, 200);
	});
	dialog.el.addEventListener("close", () => { closed = true; });
	dialog.show(loading());
	load();
	return dialog;
}

/** Number of steps per page. */
const PAGE_SIZE = 100;

/** Loads a run with the first pages of its steps. @param {string} id @param {number} pages */
async function read(id, pages) {
	const path = `/api/jobs/${encodeURIComponent(id)}/steps?limit=${PAGE_SIZE}`;
	const run = await get(path);
	for (let page = 1; page < pages && run.next; page += 1) {
		const more = await get(`${path}&after=${encodeURIComponent(run.next)}`);
		run.steps.push(...more.steps);
		run.next = more.next;
	}
	return run;
}

const title = (job) => [h("span", { class: "key" }, job.issueIdentifier), " ", job.issueTitle];

/** @param {{job: any, steps: any[], log?: string | null, dropped: number, next: string | null}} data */
function view({ job, steps, log, dropped, next }, attempts, reload, more) {
	const active = isActive(job);
	const took = span(job.startedAt ?? job.dispatchedAt ?? job.reservedAt, active ? null : job.finishedAt);
	const savePatch = () => download(`/api/jobs/${encodeURIComponent(job.id)}/patch`, `${job.issueIdentifier}.patch`);
	return [
		h("div", { class: "run-line" }, badge(job.status), h("span", {}, labelOf(KINDS, job.kind)), muted(active ? "for " : "took ", took),
			job.shadow && h("span", { class: "badge idle" }, "Shadow"), job.planningStatus && job.implementationStatus && muted("with planning")),
		(job.failureReason || job.timeoutReason || job.failureCode) && notice(job.status === "review_failed" ? "warn" : "bad",
			job.failureCode && h("strong", {}, job.failureCode), job.timeoutReason && h("strong", {}, labelOf(TIMEOUTS, job.timeoutReason)),
			job.failureReason && h("pre", { class: "reason" }, job.failureReason)),
		h("div", { class: "links" },
			external(job.issueUrl, "Ticket"), job.prUrl && external(job.prUrl, `Pull request #${job.prNumber}`), job.runUrl && external(job.runUrl, "View on GitHub Actions"),
			job.failureCode && button("Unpushed changes", savePatch, { kind: "small ghost", title: "Unpushed changes: download as a patch, if there are any" }),
			job.machineId && active && destroyButton(job.machineId, job.machineId, job.issueIdentifier, reload)),
		section("Steps", { note: next ? `first ${steps.length}` : steps.length ? count(steps.length, "step") : null },
			steps.length ? timeline(steps) : h("p", { class: "muted" }, active ? "No step has been reported yet." : "The run reported no steps."),
			next && button("More steps", more, { kind: "small" }),
			dropped > 0 && notice("warn", `${count(dropped, "report")} of this run exceeded the limit of 500 steps and 4 MiB. These steps are missing, or shown without their output.`)),
		(log || active) && section("Log", { note: active ? "live, last lines" : "last lines" },
			h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log of the run" }, log || "No output yet.")),
		section("Details", {}, facts(rows(job))),
		attempts.length > 1 && section("All runs of this issue", { note: costText(totalCost(attempts)) }, runs(attempts, job.id)),
	];
}

/** Total cost of runs; null if some have ended and none reported a cost. */
export const totalCost = (jobs) => {
	const costs = jobs.map((job) => job.usage?.costUsd).filter((cost) => typeof cost === "number");
	return costs.length > 0 || jobs.every(isActive) ? costs.reduce((sum, cost) => sum + cost, 0) : null;
};

/** List of runs, newest first, with links. */
export const runs = (jobs, current) => h("ol", { class: "entries" }, jobs.map((one) =>
	h("li", { key: one.id, "aria-current": one.id === current ? "true" : null },
		h("a", { href: asideUrl("job", one.id) }, `${labelOf(KINDS, one.kind)} ${one.dispatchNumber}`), badge(one.status), muted(ago(one.reservedAt)), h("span", { class: "num muted" }, money(one.usage?.costUsd)))));

/** @returns {[string, any][]} */
function rows(job) {
	const { usage } = job;
	return [
		["Repository", job.repo],
		["Project", h("a", { href: asideUrl("edit", job.teamKey) }, job.teamKey)],
		["Runner", labelOf(RUNNERS, job.runner)],
		["Image", job.sessionImage && h("code", {}, job.sessionImage)],
		["Branch", job.branch && h("code", {}, job.branch)],
		["Dispatch", `number ${job.dispatchNumber}`],
		["Dispatch id", h("code", {}, job.dispatchId)],
		["Run id", job.runId && h("code", {}, job.runId)],
		["Machine", job.machineId && h("code", {}, job.machineId)],
		["Reserved", ago(job.reservedAt)],
		["Ended", job.finishedAt && ago(job.finishedAt)],
		["Conclusion", job.conclusion],
		["Cost", usage && money(usage.costUsd)],
		["Turns", usage && usage.turns.toLocaleString("en")],
		["Tokens", usage && `${usage.inputTokens.toLocaleString("en")} in, ${usage.outputTokens.toLocaleString("en")} out`],
	];
}

const durationOf = (step) => step.elapsed_ms ?? (step.ended_at ? Date.parse(step.ended_at) - Date.parse(step.started_at) : step.status === "running" ? null : 0);

function timeline(steps) {
	const elapsed = (step) => durationOf(step) ?? Date.now() - Date.parse(step.started_at);
	const longest = Math.max(1000, ...steps.map(elapsed));
	return h("ol", { class: "timeline" }, steps.map((step) => {
		const ms = durationOf(step);
		const outputs = typeof step.outputs === "string" ? step.outputs : step.outputs && JSON.stringify(step.outputs, null, 2);
		return h("li", { key: step.id },
			h("span", { class: step.parent_step_id ? "step-name inner" : "step-name" }, step.id, step.type !== step.id && muted(` ${step.type}`)),
			badge(step.status),
			h("span", { class: "step-bar", "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(1, (elapsed(step) / longest) * 100)}%` } })),
			h("span", { class: "num step-time" }, ms === null ? span(step.started_at) : ms ? duration(ms) : "–"),
			(outputs || step.logs_url) && h("details", {}, h("summary", {}, "Output"), outputs && h("pre", {}, outputs), step.logs_url && external(step.logs_url, "Log")));
	}));
}
