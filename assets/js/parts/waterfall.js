// Steps of a run on one time axis.

import { h, island, render } from "../dom.js";
import { url } from "../router.js";
import { duration } from "./time.js";
import { badge, external, muted } from "./ui.js";
import { count, isActive, money } from "./words.js";

/** Tolerated difference between the clocks of the run and of the service, in milliseconds. */
const CLOCK_SKEW = 60_000;

/** @param {{job: any, steps: any[], passes?: any[], linked?: boolean}} run `linked`: each step links to its part of the log. */
export const waterfall = (run) => island("waterfall", run, (el, run) => {
	const draw = () => render(el, view(run));
	const timer = setInterval(() => {
		if (!el.isConnected) clearInterval(timer);
		else if (isActive(run.job) && !document.hidden) draw();
	}, 1000);
	draw();
	return (next) => {
		run = next;
		draw();
	};
});

/** Status of a step. A step of an ended run does not run, even if the run reported no end of it. */
const statusOf = (job, { status }) => (status === "running" && !isActive(job) ? "cancelled" : status);

/** Start and end of each step, and of the axis. The times are those that the run reports, so they are limited to its time at the service. */
function layout(job, steps) {
	const end = isActive(job) ? Date.now() : Date.parse(job.finishedAt);
	const [first, last] = [Date.parse(job.reservedAt) - CLOCK_SKEW, end + CLOCK_SKEW];
	const spans = steps.map((step) => {
		const from = Date.parse(step.started_at);
		if (!(from >= first && from <= last) || step.status === "skipped") return null;
		const until = step.status === "running" ? end : step.elapsed_ms === null ? Date.parse(step.ended_at) : from + step.elapsed_ms;
		return { from, until: Math.max(from, Math.min(until || from, last)) };
	});
	const known = spans.filter((span) => span !== null);
	const start = Math.min(...known.map(({ from }) => from), isActive(job) ? end - 1000 : Infinity);
	return { spans, start, length: Math.max(1000, ...known.map(({ until }) => until - start)) };
}

/** @param {{job: any, steps: any[], passes?: any[], linked?: boolean}} run */
function view({ job, steps, passes = [], linked = false }) {
	const { spans, start, length } = layout(job, steps);
	const percent = (ms) => `${(ms / length) * 100}%`;
	const size = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400].find((seconds) => length / seconds / 1000 <= 4) ?? 28_800;
	const marks = Array.from({ length: Math.floor(length / size / 1000) + 1 }, (_, at) => at * size * 1000);
	return [
		h("div.axis.num", { "aria-hidden": "true" }, h("span.track", marks.map((ms) => h("span", { style: { left: percent(ms) } }, ms ? duration(ms) : "0")))),
		h("ol.timeline", steps.map((step, at) => {
			const span = spans[at];
			const status = statusOf(job, step);
			const { outputs } = step;
			const reason = typeof outputs?.reason === "string" && outputs.reason;
			const text = reason ? null : typeof outputs === "string" ? outputs : outputs && JSON.stringify(outputs, null, 2);
			const used = passes.filter((pass) => pass.step === step.id);
			const sum = (field) => used.reduce((sum, pass) => sum + (pass[field] ?? 0), 0);
			return h("li", { key: step.id, class: status },
				h("span", { class: step.parent_step_id ? "step-name inner" : "step-name" }, linked ? h("a", { href: url`#step-${step.id}` }, step.id) : step.id,
					used.length > 0 ? muted(` ${count(sum("turns"), "turn")}, ${money(sum("costUsd"))}`) : step.type !== step.id && muted(` ${step.type}`)),
				badge(status),
				status === "skipped" ? h("span.track.muted", reason || "The run gave no reason.")
					: h("span.track", { "aria-hidden": "true" }, span && h("i", { style: { left: percent(span.from - start), width: percent(span.until - span.from) } })),
				h("span.num.step-time", span ? duration(span.until - span.from) : "–"),
				status === "failed" && reason && h("span.error", reason),
				(text || step.logs_url) && h("details", h("summary", "Output"), text && h("pre", text), step.logs_url && external(step.logs_url, "Log")));
		})),
	];
}
