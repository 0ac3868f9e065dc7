// Actions on many issues or runs at once.

import { get, post, remove } from "../api.js";
import { ask } from "./dialog.js";
import { messageOf, toast } from "./ui.js";
import { count, hasFailed, isActive } from "./words.js";

/** Requests sent at the same time. */
const PARALLEL = 4;

/**
 * Acts on every row, and reports how many succeeded.
 * @template T @param {T[]} rows @param {string} done What has been done, such as `Unparked`. @param {string} noun @param {(row: T) => Promise<any>} act
 */
async function onEach(rows, done, noun, act) {
	const waiting = [...rows];
	/** @type {string[]} */
	const errors = [];
	const work = async () => {
		for (let row = waiting.shift(); row !== undefined; row = waiting.shift()) {
			try {
				await act(row);
			} catch (error) {
				errors.push(messageOf(error));
			}
		}
	};
	await Promise.all(Array.from({ length: PARALLEL }, work));
	const text = `${done} ${count(rows.length - errors.length, noun)}.`;
	toast(errors.length ? `${text} ${count(errors.length, noun)} failed: ${[...new Set(errors)].join(" ")}` : text, errors.length ? "bad" : "ok");
}

/** @typedef {import("./table.js").BulkAction} BulkAction */
/** Action with a confirmation. @param {(n: string) => {title: string, text: string, action: string, kind?: "danger" | "primary"}} about */
const confirmed = (rows, noun, about, done, act, after) => async () => {
	if (!await ask(about(count(rows.length, noun)))) return false;
	await onEach(rows, done, noun, act);
	await after();
	return true;
};

/** Releases parked issues. @param {any[]} rows @param {() => Promise<any>} after */
export async function unparkAll(rows, after) {
	await onEach(rows, "Unparked", "issue", (row) => post("/api/parked/unpark", { issueId: row.issueId }));
	await after();
	return true;
}

/** Clears dedup entries, after a confirmation. @param {any[]} rows @param {() => Promise<any>} after */
export const clearAll = (rows, after) => confirmed(rows, "issue", (n) => ({
	title: `Clear the dedup entries of ${n}?`, text: "They can be dispatched again at the next poll, even if their last run succeeded.", action: "Clear",
}), "Cleared", (row) => remove(`/api/dedup/${encodeURIComponent(row.issueId)}`), after)();

const jobPath = ({ id }, action) => `/api/jobs/${encodeURIComponent(id)}/${action}`;

const retryAbout = (n) => ({ title: `Retry ${n}?`, text: "Starts new runs as soon as there is capacity. Dedup entries and parking are cleared, and labels are put back on tickets where they are gone.", action: "Retry", kind: /** @type {const} */ ("primary") });

/** Retries the issues of runs. @param {() => Promise<any>} after @returns {BulkAction} */
export const retryRuns = (after) => ({ label: "Retry", applies: hasFailed, run: (rows) => confirmed(rows, "run", retryAbout, "Retrying", (job) => post(jobPath(job, "retry")), after)() });

/** Retries issues by their latest run. @param {any[]} rows @param {() => Promise<any>} after */
export const retryIssues = (rows, after) => confirmed(rows, "issue", retryAbout, "Retrying", async (row) => {
	const [job] = await get(`/api/log?limit=1&issue=${encodeURIComponent(row.identifier)}`);
	await post(jobPath(job, "retry"));
}, after)();

/** Cancels active runs for good. @param {() => Promise<any>} after @returns {BulkAction} */
export const cancelRuns = (after) => ({
	label: "Cancel", danger: true, applies: isActive, run: (rows) => confirmed(rows, "run", (n) => ({
		title: `Cancel ${n}?`, text: "Stops the runs. Unpushed changes are lost. The labels and all markers leave the tickets, with one comment each.", action: "Cancel runs",
	}), "Cancelled", (job) => post(jobPath(job, "cancel"), { retry: false }), after)(),
});
