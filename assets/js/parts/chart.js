// Charts over time. Their values are read by pointer, touch and arrow keys, or as a table.

import { h, island, render, s } from "../dom.js";
import { navigate } from "../router.js";
import { number } from "./words.js";

const HOUR = 3_600_000;

/**
 * Definition of a chart. `series` are rows in the order of time, each with `at` and one value per part; null draws
 * nothing. Parts are stacked. `format` writes a value with its unit. `href` is the list of what a row counts, until
 * the time of the next row. Below the chart stand the sums, or the latest row if `sums` is false. `line` draws lines
 * instead of bars, and `limit` a horizontal line.
 * @typedef {{key: string, label: string, tone: string}} Part
 * @typedef {{label: string, series: any[], parts: Part[], format?: (value: number) => string, href?: (row: any, until: string) => string | null, sums?: boolean, line?: boolean, limit?: {label: string, value: number}}} Chart
 */

/** @param {Chart} about */
export const chart = (about) => island("chart", about, mount);

/** Values of the axis: from 0 in steps of 1, 2 or 5 × 10ⁿ. @param {number} max @param {boolean} whole */
function ticks(max, whole) {
	const size = 10 ** Math.floor(Math.log10(max / 4 || 1));
	const fits = [1, 2, 5, 10].map((by) => by * size).find((by) => by * 4 >= max && (!whole || by >= 1)) ?? 1;
	return Array.from({ length: Math.max(1, Math.ceil(max / fits - 1e-9)) + 1 }, (_, at) => at * fits);
}

/** @param {HTMLElement} el @param {Chart} chart */
function mount(el, chart) {
	/** Selected row; -1 for none. */
	let now = -1;
	const pick = (at) => {
		if (at === now) return;
		now = at;
		render(el, draw(chart, now, pick));
	};
	const update = (/** @type {Chart} */ next) => {
		chart = next;
		if (now >= chart.series.length) now = -1;
		render(el, draw(chart, now, pick));
	};
	el.onpointerleave = (event) => event.pointerType === "mouse" && pick(-1);
	update(chart);
	return update;
}

/** @param {Chart} chart @param {number} now @param {(at: number) => void} pick */
function draw(chart, now, pick) {
	const { label, series, parts, format = number, href, line, limit, sums = true } = chart;
	const last = series.length - 1;
	if (last < 0) return h("p.muted", "No data yet.");
	const interval = last ? Date.parse(series[1].at) - Date.parse(series[0].at) : 24 * HOUR;
	const when = whenOf(interval);
	const valueText = (value) => (typeof value === "number" ? format(value) : "–");
	const textOf = (row) => `${when(row.at, true)}: ${parts.map(({ key, label }) => `${label} ${valueText(row[key])}`).join(", ")}`;
	const linkOf = (at) => href?.(series[at], new Date(Date.parse(series[at].at) + interval).toISOString()) ?? null;
	const heights = series.map((row) => parts.map(({ key }) => row[key] ?? 0));
	const whole = heights.flat().every(Number.isInteger);
	const highest = Math.max(...heights.map((row) => (line ? Math.max(...row) : row.reduce((sum, value) => sum + value, 0))), limit?.value ?? 0);
	const scale = ticks(whole ? Math.max(4, highest) : highest, whole);
	const top = scale[scale.length - 1];
	const percent = (value) => `${(value / top) * 100}%`;

	const keys = (event) => {
		const from = now < 0 ? last : now;
		const to = { ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1, Home: 0, End: last }[event.key];
		if (to !== undefined) pick(Math.min(last, Math.max(0, to)));
		else if (event.key === "Enter" && linkOf(from)) navigate(linkOf(from) ?? "");
		else return;
		event.preventDefault();
	};
	const columnAt = (event) => {
		const box = event.currentTarget.getBoundingClientRect();
		return Math.min(last, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * series.length)));
	};
	const click = (event) => {
		const at = columnAt(event);
		const to = linkOf(at);
		// The first touch only shows the values.
		if (to && (event.pointerType !== "touch" || at === now)) navigate(to);
		else pick(at);
	};
	const points = ({ key }) => series.map((row, at) => (typeof row[key] === "number" ? `${((at + 0.5) / series.length) * 100},${100 - (row[key] / top) * 100}` : "")).filter(Boolean).join(" ");
	const shown = now < 0 ? last : now;
	const sumOf = (key) => series.reduce((sum, row) => sum + (row[key] ?? 0), 0);
	const every = Math.ceil(series.length / 6);
	return [
		h("div.axis-y.num", { "aria-hidden": "true" }, scale.map((value) => h("span", format(value)))),
		h("div", {
			class: href ? "plot leads" : "plot", role: "slider", tabindex: "0", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": last, "aria-valuenow": shown, "aria-valuetext": textOf(series[shown]),
			onkeydown: keys, onpointermove: (event) => event.pointerType !== "touch" && pick(columnAt(event)), onclick: click, onfocus: () => now < 0 && pick(last),
		},
		scale.map((value) => h("i.rule", { style: { bottom: percent(value) } })),
		series.map((_, at) => h("span", { class: at === now ? "bar now" : "bar" }, !line && parts.map(({ tone }, part) => heights[at][part] > 0 && h("i", { class: tone, style: { height: percent(heights[at][part]) } })))),
		line && s("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, parts.map((part) => s("polyline", { class: part.tone, points: points(part) }))),
		limit && h("i.limit", { style: { bottom: percent(limit.value) } }, h("span", `${limit.label} ${format(limit.value)}`))),
		h("div.axis-x.num", { "aria-hidden": "true" }, series.map(({ at }, index) => index % every === Math.floor(every / 2) && h("span", { style: { left: `${((index + 0.5) / series.length) * 100}%` } }, when(at)))),
		h("div.chart-foot",
			h("b.num", now < 0 && sums ? "Total" : when(series[shown].at, true)),
			parts.map(({ key, label, tone }) => h("span", { class: `legend ${tone}` }, label, h("b.num", valueText(now < 0 && sums ? sumOf(key) : series[shown][key])))),
			now >= 0 && linkOf(now) && h("a", { href: linkOf(now) }, "Show these runs")),
		h("details.as-table", h("summary", "Table"),
			h("table.plain", { "aria-label": label }, h("thead", h("tr", ["Time", ...parts.map((part) => part.label)].map((text) => h("th", { scope: "col" }, text)))),
				h("tbody", series.map((row) => h("tr", h("th", { scope: "row" }, when(row.at, true)), parts.map(({ key }) => h("td.num", valueText(row[key])))))))),
	];
}

/** Formatter of times on the axis. Days are those of UTC, as the service counts them. @param {number} interval */
function whenOf(interval) {
	const day = /** @type {const} */ ({ month: "short", day: "numeric" });
	const time = /** @type {const} */ ({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
	const [timeZone, timeZoneName] = /** @type {const} */ (["UTC", "short"]);
	const text = (options) => new Intl.DateTimeFormat(undefined, options);
	const [short, long] = interval < 24 * HOUR ? [text(time), text({ ...day, ...time, timeZoneName })] : [text({ ...day, timeZone }), text({ ...day, weekday: "short", timeZone, timeZoneName })];
	return (at, full = false) => (full ? long : short).format(new Date(at));
}
