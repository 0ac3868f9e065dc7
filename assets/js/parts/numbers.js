// Numbers of runs over time, of all projects or of one: range, tiles and charts.

import { chart } from "./chart.js";
import { section, tile } from "./ui.js";
import { FAILED_STATUSES, REASONS, costText, count, displayText, failedOf, labelOf, money, number, percent } from "./words.js";

const HOUR = 3_600_000;
/** Name, and size and number of the hours or UTC days of each range, as the service counts them. @type {Record<string, [string, number, number]>} */
const RANGES = /** @type {any} */ ({ __proto__: null, "24h": ["24 hours", HOUR, 24], "7d": ["7 days", 24 * HOUR, 7], "30d": ["30 days", 24 * HOUR, 30] });

/** Range in the URL. @param {URLSearchParams} query @param {string} preset @returns {string} */
export function rangeOf(query, preset) {
	const range = query.get("range") ?? "";
	return RANGES[range] ? range : preset;
}

/** Start of a range; null for an unknown one. @param {string | null} range */
export function startOf(range) {
	const [, size, buckets] = RANGES[range ?? ""] ?? [];
	return size && buckets ? new Date((Math.floor(Date.now() / size) - buckets + 1) * size).toISOString() : null;
}

/** List of the runs that a number counts. No number counts shadow runs. @param {Record<string, string>} filter */
export const runsUrl = (filter) => `/admin/pipelines?${new URLSearchParams(Object.entries({ ...filter, shadow: "false" }).filter(([, value]) => value))}`;

/** Tiles of a summary. @param {any} summary @param {Record<string, string>} filter Range, and the project if there is one. */
export function summaryTiles({ ended, running, waiting, costUsd }, filter) {
	const failures = failedOf({ ended });
	const judged = ended.completed + failures;
	const all = judged + ended.cancelled;
	const [text] = RANGES[filter.range];
	const list = (status) => runsUrl({ ...filter, status });
	return [
		tile("Failed", number(failures), failures ? FAILED_STATUSES.split(",").filter((word) => ended[word]).map((word) => `${ended[word]} ${displayText(word).toLowerCase()}`).join(", ") : `No run failed in ${text}`, failures ? "bad" : "", list("failed")),
		tile("Waiting", number(waiting.total), Object.entries(waiting.byReason).map(([reason, n]) => `${n} ${labelOf(REASONS, reason).toLowerCase()}`).join(", ") || "No waiting issues", waiting.total ? "warn" : "", filter.team ? `/admin/blockers?${new URLSearchParams({ q: filter.team })}` : "/admin/blockers"),
		tile("Running", number(running), running ? "Active now" : "No active runs", running ? "run" : "", runsUrl({ ...filter, range: "", status: "active" })),
		tile("Success rate", percent(judged ? ended.completed / judged : null), judged ? `${number(ended.completed)} of ${count(judged, "ended run")}` : "No run ended", "", list("completed")),
		tile("Cost", all || costUsd ? costText(costUsd) : "–", all ? `${count(all, "run")} ended in ${text}` : "No run ended", "", list("ended")),
	];
}

/** Charts of a summary. @param {any} summary @param {Record<string, string>} filter Range, and the project if there is one. */
export function summaryCharts(summary, { range, ...filter }) {
	const [text, size] = RANGES[range];
	const unit = size === HOUR ? "hour" : "day";
	const draw = (title, parts, format) => section(`${title} per ${unit}`, {}, chart({
		label: `${title} per ${unit}, last ${text}`, series: summary.series.map((row) => ({ ...row, failed: failedOf({ ended: row }) })), parts, format,
		href: (row, to) => runsUrl({ ...filter, status: "ended", from: row.at, to }),
	}));
	return [
		draw("Runs", [{ key: "completed", label: "Completed", tone: "ok" }, { key: "failed", label: "Failed", tone: "bad" }, { key: "cancelled", label: "Asked or cancelled", tone: "idle" }]),
		draw("Cost", [{ key: "costUsd", label: "Cost", tone: "mark" }], money),
	];
}
