// One run: what it does, how long each step took, what it says, how it ended.

import { download, get } from "../api.js";
import { $, h } from "../dom.js";
import { listen } from "../live.js";
import { aside } from "../router.js";
import { destroyButton } from "../panels/sessions.js";
import { open } from "./dialog.js";
import { ago, duration, span } from "./time.js";
import { badge, button, dim, empty, external, facts, loading, messageOf, notice, section } from "./ui.js";
import { KINDS, RUNNERS, TIMEOUTS, count, isActive, money, name, sumOf } from "./words.js";

export function openAside(id, onClose) {
	const dialog = open({ title: "Run", kind: "drawer", onClose: () => { quiet(); onClose(); } });
	/** @type {any} */
	let shown = null;
	/** @type {any[]} */
	let attempts = [];
	/** @type {ReturnType<typeof setTimeout> | null} */
	let soon = null;
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
			if (!closed && !shown) dialog.show(empty("This run could not be loaded", messageOf(error), button("Try again", load)));
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
	const quiet = listen(({ type, data }) => {
		const mine = type === "all" || (type === "step" && data?.jobId === id) || (type === "job" && (data?.id === id || data?.issueId === shown?.job.issueId));
		if (!mine || soon) return;
		soon = setTimeout(() => {
			soon = null;
			load();
		}, 200);
	});
	dialog.el.addEventListener("close", () => { closed = true; });
	dialog.show(loading());
	load();
	return dialog;
}

/** How many steps are shown before somebody asks for more. */
const PAGE = 100;

/** A run with the first pages of its steps. @param {string} id @param {number} pages */
async function read(id, pages) {
	const path = `/api/jobs/${encodeURIComponent(id)}/steps?limit=${PAGE}`;
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
		h("div", { class: "run-line" }, badge(job.status), h("span", {}, name(KINDS, job.kind)), dim(active ? "for " : "took ", took),
			job.shadow && h("span", { class: "badge idle" }, "Shadow"), job.planningStatus && job.implementationStatus && dim("planned first")),
		(job.failureReason || job.timeoutReason || job.failureCode) && notice(job.status === "review_failed" ? "warn" : "bad",
			job.failureCode && h("strong", {}, job.failureCode), job.timeoutReason && h("strong", {}, name(TIMEOUTS, job.timeoutReason)),
			job.failureReason && h("pre", { class: "reason" }, job.failureReason)),
		h("div", { class: "links" },
			external(job.issueUrl, "Ticket"), job.prUrl && external(job.prUrl, `Pull request #${job.prNumber}`), job.runUrl && external(job.runUrl, "Run at the host"),
			job.failureCode && button("Unpushed work", savePatch, { kind: "small ghost", title: "Unpushed work: saves what could not be pushed, if there is any" }),
			job.machineId && active && destroyButton(job.machineId, job.machineId, job.issueIdentifier, reload)),
		section("Steps", { note: next ? `the first ${steps.length}` : steps.length ? count(steps.length, "step") : null },
			steps.length ? timeline(steps) : h("p", { class: "muted" }, active ? "No step has been reported yet." : "The run reported no steps."),
			next && button("More steps", more, { kind: "small" }),
			dropped > 0 && notice("warn", `${count(dropped, "report")} of this run went over the limit of 500 steps and 4 MiB. Such steps are missing here, or shown without their output.`)),
		(log || active) && section("Log", { note: active ? "live, the last lines" : "the last lines" },
			h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log of the run" }, log || "Nothing yet.")),
		section("Facts", {}, facts(rows(job))),
		attempts.length > 1 && section("All runs of this issue", { note: sumOf(costOf(attempts)) }, runs(attempts, job.id)),
	];
}

/** What runs have cost; null when some have ended and none of them told. */
export const costOf = (jobs) => {
	const told = jobs.map((job) => job.usage?.costUsd).filter((cost) => typeof cost === "number");
	return told.length > 0 || jobs.every(isActive) ? told.reduce((sum, cost) => sum + cost, 0) : null;
};

/** Runs, newest first, each leading to itself. */
export const runs = (jobs, current) => h("ol", { class: "entries" }, jobs.map((one) =>
	h("li", { key: one.id, "aria-current": one.id === current ? "true" : null },
		h("a", { href: aside("job", one.id) }, `${name(KINDS, one.kind)} ${one.dispatchNumber}`), badge(one.status), dim(ago(one.reservedAt)), h("span", { class: "num muted" }, money(one.usage?.costUsd)))));

/** @returns {[string, any][]} */
function rows(job) {
	const { usage } = job;
	return [
		["Repository", job.repo],
		["Project", h("a", { href: aside("edit", job.teamKey) }, job.teamKey)],
		["Runner", name(RUNNERS, job.runner)],
		["Image", job.sessionImage && h("code", {}, job.sessionImage)],
		["Branch", job.branch && h("code", {}, job.branch)],
		["Dispatch", `number ${job.dispatchNumber}`],
		["Dispatch id", h("code", {}, job.dispatchId)],
		["Run id", job.runId && h("code", {}, job.runId)],
		["Machine", job.machineId && h("code", {}, job.machineId)],
		["Reserved", ago(job.reservedAt)],
		["Ended", job.finishedAt && ago(job.finishedAt)],
		["Conclusion", job.conclusion && job.conclusion],
		["Cost", usage && money(usage.costUsd)],
		["Turns", usage && usage.turns.toLocaleString("en")],
		["Tokens", usage && `${usage.inputTokens.toLocaleString("en")} in, ${usage.outputTokens.toLocaleString("en")} out`],
	];
}

const took = (step) => step.elapsed_ms ?? (step.ended_at ? Date.parse(step.ended_at) - Date.parse(step.started_at) : step.status === "running" ? null : 0);

function timeline(steps) {
	const soFar = (step) => took(step) ?? Date.now() - Date.parse(step.started_at);
	const longest = Math.max(1000, ...steps.map(soFar));
	return h("ol", { class: "timeline" }, steps.map((step) => {
		const ms = took(step);
		const outputs = typeof step.outputs === "string" ? step.outputs : step.outputs && JSON.stringify(step.outputs, null, 2);
		return h("li", { key: step.id },
			h("span", { class: step.parent_step_id ? "step-name inner" : "step-name" }, step.id, step.type !== step.id && dim(` ${step.type}`)),
			badge(step.status),
			h("span", { class: "step-bar", "aria-hidden": "true" }, h("i", { style: { width: `${Math.max(1, (soFar(step) / longest) * 100)}%` } })),
			h("span", { class: "num step-time" }, ms === null ? span(step.started_at) : ms ? duration(ms) : "–"),
			(outputs || step.logs_url) && h("details", {}, h("summary", {}, "Output"), outputs && h("pre", {}, outputs), step.logs_url && external(step.logs_url, "Log")));
	}));
}
