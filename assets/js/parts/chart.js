// Bar chart of runs per hour.

import { h, s } from "../dom.js";
import { hasFailed, isActive } from "./words.js";

const HOUR = 3_600_000;
const [WIDTH, HEIGHT, SLOT] = [720, 120, 30];
const KINDS = /** @type {const} */ ([["ok", "Completed"], ["warn", "Review failed"], ["bad", "Failed"], ["run", "Running"]]);

const kindOf = (job) => (isActive(job) ? "run" : job.status === "review_failed" ? "warn" : hasFailed(job) ? "bad" : "ok");

/** Chart of the last 24 hours, by the time of reservation. */
export function runChart(jobs) {
	const last = Math.floor(Date.now() / HOUR);
	/** @type {{hour: number, ok: number, warn: number, bad: number, run: number}[]} */
	const hours = Array.from({ length: 24 }, (_, at) => ({ hour: last - 23 + at, ok: 0, warn: 0, bad: 0, run: 0 }));
	for (const job of jobs) {
		const slot = hours[Math.floor(Date.parse(job.reservedAt) / HOUR) - last + 23];
		if (slot) slot[kindOf(job)] += 1;
	}
	const maximum = Math.max(4, ...hours.map((one) => one.ok + one.warn + one.bad + one.run));
	const clock = (hour) => new Date(hour * HOUR).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
	const summary = (one) => KINDS.filter(([kind]) => one[kind]).map(([kind, text]) => `${one[kind]} ${text.toLowerCase()}`).join(", ");
	const bars = hours.map((one, at) => {
		let top = HEIGHT;
		const parts = KINDS.map(([kind]) => {
			if (!one[kind]) return null;
			const height = (one[kind] / maximum) * (HEIGHT - 8);
			top -= height;
			return s("rect", { class: kind, x: at * SLOT + 5, y: top, width: SLOT - 10, height: Math.max(2, height - 1), rx: 2 });
		});
		return s("g", {}, s("title", {}, `${clock(one.hour)}: ${summary(one) || "no runs"}`),
			s("rect", { class: "ground", x: at * SLOT + 2, y: 0, width: SLOT - 4, height: HEIGHT, rx: 3 }), parts);
	});
	const ticks = [0, 6, 12, 18].map((at) => h("span", {}, clock(hours[at].hour)));
	const sums = KINDS.map(([kind, text]) => ({ kind, text, n: hours.reduce((sum, one) => sum + one[kind], 0) }));
	return h("figure", { class: "chart" },
		s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Runs of the last 24 hours: ${sums.map(({ text, n }) => `${n} ${text.toLowerCase()}`).join(", ")}` },
			bars),
		h("div", { class: "ticks num", "aria-hidden": "true" }, ticks, h("span", {}, "now")),
		h("figcaption", {}, sums.map(({ kind, text, n }) => h("span", { class: `legend ${kind}` }, text, h("b", { class: "num" }, n)))));
}
