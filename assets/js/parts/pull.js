// State, checks and review of a pull request.

import { takenBadge } from "./take.js";
import { badge, muted } from "./ui.js";
import { count } from "./words.js";

export const stateOf = ({ prState, state }) => prState ?? state;

/** Whether the latest pull request of an issue is merged or closed. @param {any[]} pulls Newest first. */
export const isDone = ([latest]) => latest !== undefined && stateOf(latest) !== "open";

export const checksText = ({ checks }) => checks && { success: "Passed", pending: "Running", failure: `${checks.failed} of ${checks.total} failed` }[checks.state];

/** Feedback that waits for a run. */
export const feedbackText = ({ findingsWaiting }) => (findingsWaiting > 0 ? `${count(findingsWaiting, "comment")} to address` : undefined);

/** What the merge policy has decided. */
export const mergeText = ({ merge }) => merge?.state && `${{ refused: "Not merged", armed: "Auto-merge armed", queued: "In merge queue", merged: "Merged by policy" }[merge.state]}: ${merge.message}`;

/** All that is known about the state of a pull request. */
export const pullState = (pull) => [
	badge(pull.draft && pull.prState === "open" ? "draft" : stateOf(pull)),
	pull.checks && badge(pull.checks.state, `Checks: ${checksText(pull).toLowerCase()}`),
	pull.checks?.message && muted(pull.checks.message),
	pull.reviewDecision && badge(pull.reviewDecision),
	takenBadge(pull),
	mergeText(pull) && muted(mergeText(pull)),
	feedbackText(pull) && muted(feedbackText(pull)),
];
