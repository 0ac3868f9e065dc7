// State, checks and review of a pull request.

import { badge, muted } from "./ui.js";
import { count } from "./words.js";

export const stateOf = ({ prState, state }) => prState ?? state;

export const checksText = ({ checks }) => checks && { success: "Passed", pending: "Running", failure: `${checks.failed} of ${checks.total} failed` }[checks.state];

/** All that is known about the state of a pull request. */
export const pullState = (pull) => [
	badge(pull.draft && pull.prState === "open" ? "draft" : stateOf(pull)),
	pull.checks && badge(pull.checks.state, `Checks: ${checksText(pull).toLowerCase()}`),
	pull.reviewDecision && badge(pull.reviewDecision),
	pull.findingsWaiting > 0 && muted(`${count(pull.findingsWaiting, "comment")} to address`),
];
