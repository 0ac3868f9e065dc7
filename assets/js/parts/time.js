// Relative times and durations, updated every second.

import { h } from "../dom.js";

const SPANS = /** @type {const} */ ([["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]]);

/** Formats milliseconds: 3720000 → `1 h 2 min`. */
export function duration(ms) {
	if (typeof ms !== "number" || !Number.isFinite(ms)) return "–";
	if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
	const seconds = Math.floor(ms / 1000);
	const at = SPANS.findIndex(([, size]) => seconds >= size);
	const [unit, size] = SPANS[at];
	const whole = `${Math.floor(seconds / size)} ${unit}`;
	const next = SPANS[at + 1];
	const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
	return rest && next ? `${whole} ${rest} ${next[0]}` : whole;
}

function relative(at) {
	const ms = Date.now() - Date.parse(at);
	if (!Number.isFinite(ms)) return at;
	if (Math.abs(ms) < 5000) return "just now";
	const size = Math.abs(ms) / 1000;
	const [unit, span] = SPANS.find(([, span]) => size >= span) ?? SPANS[3];
	const text = `${Math.floor(size / span)} ${unit}`;
	return ms < 0 ? `in ${text}` : `${text} ago`;
}

const CLOCK = /** @type {const} */ ({ hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const FULL = /** @type {const} */ ({ ...CLOCK, year: "numeric", month: "short", day: "numeric", timeZoneName: "short" });

const EXACT = new Intl.DateTimeFormat(undefined, FULL);

/** Name of the time zone. */
export const zone = EXACT.formatToParts().find(({ type }) => type === "timeZoneName")?.value;

/** Date and time with the time zone: the format of every exact time. */
export function exact(at) {
	const date = new Date(at);
	return Number.isNaN(+date) ? at : EXACT.format(date);
}

/** Day of a time, in UTC. */
export const day = (at) => new Date(at).toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });

/** Relative time, with the exact time as tooltip. */
export const ago = (at) => (at ? h("time", { datetime: at, title: exact(at), "data-ago": at }, relative(at)) : "–");

/** Time of day, with the exact time as tooltip. */
export const clockTime = (at, format = {}) => h("time", { datetime: at, title: exact(at) }, new Date(at).toLocaleTimeString(undefined, { ...CLOCK, ...format }));

/** Time of day in the future, and the time until then. */
export const until = (at) => [clockTime(at, { second: undefined }), " (", ago(at), ")"];

/** Duration between two times, or the elapsed time since `from`. */
export function span(from, until) {
	if (!from) return "–";
	if (until) return h("span.num", duration(Date.parse(until) - Date.parse(from)));
	return h("time.num", { datetime: from, title: `since ${exact(from)}`, "data-since": from }, duration(Date.now() - Date.parse(from)));
}

setInterval(() => {
	if (document.hidden) return;
	for (const el of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-ago],[data-since]"))) {
		const { ago, since } = el.dataset;
		const text = ago ? relative(ago) : duration(Date.now() - Date.parse(since ?? ""));
		if (el.textContent !== text && el.firstChild) el.firstChild.nodeValue = text;
	}
}, 1000);
