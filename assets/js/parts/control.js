// Actions on runs: cancel and retry. Each asks first, in a dialog that says what will happen.

import { post } from "../api.js";
import { $, h } from "../dom.js";
import { url } from "../router.js";
import { effectOf, retryAll } from "./bulk.js";
import { open } from "./dialog.js";
import { button, choiceCard, toast } from "./ui.js";
import { RUNNERS, isActive, isRetryable, labelOf } from "./words.js";

const nothing = async () => {};

/** Button that cancels an active run; null if the run has ended. @param {any} job @param {() => any} [after] */
export const cancelButton = (job, after = nothing) =>
	isActive(job) ? button("Cancel run", () => cancelRun(job, after), "small danger", `Cancel run of ${job.issueIdentifier}`) : null;

/** Button that retries the issue of a failed run; null if the run is active or has succeeded. @param {any} job @param {() => any} [after] */
export const retryButton = (job, after = nothing) =>
	isRetryable(job) ? button("Retry", () => retryAll([job], after), "small", `Retry ${job.issueIdentifier}`) : null;

/** Asks whether an active run is cancelled for good or started again, and cancels it. @param {any} job @param {() => any} [after] */
export function cancelRun(job, after = nothing) {
	const issue = job.issueIdentifier;
	const dialog = open({ title: `Cancel the run of ${issue}?` });
	const choice = (retry, title, text) => choiceCard({ name: "retry", value: String(retry), checked: !retry }, h("b", title), h("span", text));
	const go = async () => {
		const retry = $(dialog.el, "input:checked")?.value === "true";
		try {
			await post(url`/api/jobs/${job.id}/cancel`, { retry });
			toast(retry ? `Cancelled the run. ${issue} starts again.` : `Cancelled the run of ${issue}.`);
		} finally {
			dialog.close();
			await after();
		}
	};
	dialog.show([
		h("p", `Stops the run on ${labelOf(RUNNERS, job.runner)}${job.runner === "ci" ? "" : " and deletes its session"}. Unpushed changes are lost.`),
		!job.shadow && h("fieldset.cards", h("legend.sr", `What happens to ${issue}`),
			choice(false, "Cancel for good", effectOf(job)),
			choice(true, "Cancel and start again", "A new run for the same work starts as soon as there is capacity.")),
	], [
		button("Keep running", dialog.close),
		button("Cancel run", go, "danger"),
	]);
	$(dialog.el, ".dialog-foot button").focus();
}
