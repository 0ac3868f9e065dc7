// Actions on runs: cancel and retry. Each asks first, in a dialog that says what will happen.

import { post } from "../api.js";
import { $, h } from "../dom.js";
import { confirm, open } from "./dialog.js";
import { busy, button, toast } from "./ui.js";
import { RUNNERS, isActive, labelOf } from "./words.js";

const path = ({ id }, action) => `/api/jobs/${encodeURIComponent(id)}/${action}`;
const nothing = async () => {};

/** Button that cancels an active run; null if the run has ended. @param {any} job @param {() => any} [after] */
export const cancelButton = (job, after = nothing) =>
	isActive(job) ? button("Cancel run", () => cancelRun(job, after), { kind: "small danger", title: `Cancel run of ${job.issueIdentifier}` }) : null;

/** Button that retries the issue of a failed run; null if the run is active or has succeeded. @param {any} job @param {() => any} [after] */
export const retryButton = (job, after = nothing) =>
	isActive(job) || job.status === "completed" || job.shadow ? null : button("Retry", () => retryRun(job, after), { kind: "small", title: `Retry ${job.issueIdentifier}` });

/** Asks whether an active run is cancelled for good or started again, and cancels it. @param {any} job @param {() => any} [after] */
export function cancelRun(job, after = nothing) {
	const issue = job.issueIdentifier;
	const dialog = open({ title: `Cancel the run of ${issue}?` });
	const choice = (retry, title, text) => h("label", { class: "card-choice" },
		h("input", { type: "radio", name: "retry", value: String(retry), checked: !retry }), h("span", { class: "card-text" }, h("b", {}, title), h("span", {}, text)));
	const go = () => busy(async () => {
		const retry = $(dialog.el, "input:checked")?.value === "true";
		try {
			await post(path(job, "cancel"), { retry });
			toast(retry ? `Cancelled the run. ${issue} starts again.` : `Cancelled the run of ${issue}.`);
		} finally {
			dialog.close();
			await after();
		}
	});
	dialog.show([
		h("p", {}, `Stops the run on ${labelOf(RUNNERS, job.runner)}${job.runner === "ci" ? "" : " and deletes its session"}. Unpushed changes are lost.`),
		!job.shadow && h("fieldset", { class: "cards" }, h("legend", { class: "sr" }, `What happens to ${issue}`),
			choice(false, "Cancel for good", `The label and all markers leave the ticket, with one comment. ${issue} waits until somebody labels it again.`),
			choice(true, "Cancel and start again", `${issue} keeps its label. A new run starts as soon as there is capacity.`)),
	], [
		h("button", { class: "button", onclick: dialog.close }, "Keep running"),
		h("button", { class: "button danger", onclick: go }, "Cancel run"),
	]);
	$(dialog.el, ".dialog-foot button").focus();
}

/** Asks, and dispatches the issue of an ended run again. @param {any} job @param {() => any} [after] */
export const retryRun = (job, after = nothing) => confirm({
	title: `Retry ${job.issueIdentifier}?`,
	text: `Starts a new run of ${job.issueIdentifier} as soon as there is capacity. Its dedup entry and parking are cleared, and its label is restored.`,
	action: "Retry",
	kind: "primary",
	run: async () => {
		await post(path(job, "retry"));
		toast(`Retrying ${job.issueIdentifier}.`);
		await after();
	},
});
