// Actions on many issues or runs at once.

import { post, remove } from "../api.js";
import { url } from "../router.js";
import { ask } from "./dialog.js";
import { messageOf, toast } from "./ui.js";
import { count, isActive, isRetryable } from "./words.js";

/** Requests sent at the same time. */
const PARALLEL = 4;

/** Key of the only issue, or the number of issues. @param {any[]} rows Issues, or runs. */
const issuesOf = (rows) => (rows.length === 1 ? rows[0].issueIdentifier ?? rows[0].identifier : count(rows.length, "issue"));
const runsOf = (rows) => (rows.length === 1 ? `the run of ${rows[0].issueIdentifier}` : count(rows.length, "run"));

/**
 * Acts on every row, and reports what has been done. With `about`, it asks first. Returns whether it has acted.
 * @param {any[]} rows @param {string} done What has been done, such as `Unparked`. @param {(row: any) => Promise<any>} act @param {() => any} after
 * @param {(subject: string) => {title: string, text: string, action: string, kind?: "danger" | "primary"}} [about]
 */
async function onEach(rows, done, act, after, about, subjectOf = issuesOf) {
	if (about && !await ask(about(subjectOf(rows)))) return false;
	const waiting = [...rows];
	/** @type {any[]} */
	const succeeded = [];
	/** @type {Set<string>} */
	const errors = new Set();
	const work = async () => {
		for (let row = waiting.shift(); row !== undefined; row = waiting.shift()) {
			try {
				await act(row);
				succeeded.push(row);
			} catch (error) {
				errors.add(messageOf(error));
			}
		}
	};
	await Promise.all(Array.from({ length: PARALLEL }, work));
	const failed = rows.filter((row) => !succeeded.includes(row));
	toast([succeeded.length && `${done} ${subjectOf(succeeded)}.`, failed.length && `${subjectOf(failed)} failed: ${[...errors].join(" ")}`].filter(Boolean).join(" "), failed.length ? "bad" : "ok");
	await after();
	return true;
}

/** @typedef {import("./table.js").BulkAction} BulkAction */

/** Action of a table. @param {string} label @param {(row: any) => boolean} applies @param {(rows: any[], after: () => any) => Promise<boolean>} act @param {() => any} after @returns {BulkAction} */
export const bulk = (label, applies, act, after) => ({ label, applies, run: (rows) => act(rows, after) });

/** Id of an issue, or of the issue that a row is about. */
const idOf = ({ issueId, id }) => issueId ?? id;

/** Releases parked issues. @param {any[]} rows @param {() => any} after */
export const unparkAll = (rows, after) => onEach(rows, "Unparked", (row) => post("/api/parked/unpark", { issueId: idOf(row) }), after);

/** Clears dedup entries. @param {any[]} rows @param {() => any} after */
export const clearAll = (rows, after) => onEach(rows, "Cleared the dedup entry of", (row) => remove(url`/api/dedup/${idOf(row)}`), after, (subject) => (
	{ title: `Clear the dedup entry of ${subject}?`, text: `${subject} can be dispatched again at the next poll, even after a run that succeeded.`, action: "Clear" }));

/** Retries each issue once, by the first of its runs. @param {any[]} rows Runs, newest first, or issues. @param {() => any} after */
export const retryAll = (rows, after) => onEach([...Map.groupBy(rows, idOf).values()].map(([row]) => row), "Retrying", (row) => post(url`/api/jobs/${row.groupId ? row.id : row.identifier}/retry`), after, (subject) => ({
	title: `Retry ${subject}?`, text: `Starts a new run of ${subject} as soon as there is capacity. Dedup entries and parking are cleared, and missing labels are restored.`, action: "Retry", kind: "primary",
}));

/** What cancelling a run for good does, except to the run. */
export const effectOf = ({ kind, shadow }) => (shadow ? "" : ["planning", "implementation"].includes(kind)
	? "The trigger and all markers leave the ticket, with one comment. The issue waits until somebody triggers it again."
	: "The feedback that the run worked on is given up, with a comment on the pull request.");

/** Cancels active runs for good. @param {() => any} after @returns {BulkAction} */
export const cancelRuns = (after) => ({
	label: "Cancel", danger: true, applies: isActive, run: (rows) => onEach(rows, "Cancelled", (job) => post(url`/api/jobs/${job.id}/cancel`, { retry: false }), after, (subject) => (
		{ title: `Cancel ${subject}?`, text: ["Unpushed changes are lost.", ...new Set(rows.map(effectOf))].join(" "), action: "Cancel runs" }), runsOf),
});
