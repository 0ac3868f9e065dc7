// Drawer of an issue: what happens to it next, and one time line of its runs, decisions and pull requests.

import { get } from "../api.js";
import { h } from "../dom.js";
import { subscribe } from "../live.js";
import { panelUrl } from "../router.js";
import { pullState } from "../panels/runs.js";
import { cancelButton, retryButton } from "./control.js";
import { open } from "./dialog.js";
import { runBadge, runName, totalCost } from "./job.js";
import { ago, span } from "./time.js";
import { badge, button, empty, external, loading, messageOf, muted, notice, section } from "./ui.js";
import { REASONS, TIMEOUTS, costText, count, isActive, labelOf, money } from "./words.js";

/** Minimum time between two reloads, in milliseconds. */
const INTERVAL = 400;

export function openAside(key, onClose) {
	const dialog = open({ title: key, kind: "drawer", onClose: () => { unsubscribe(); onClose(); } });
	/** @type {any} */
	let shown = null;
	/** @type {ReturnType<typeof setTimeout> | null} */
	let timer = null;
	const load = async () => {
		try {
			shown = await get(`/api/why/${encodeURIComponent(key)}`);
			if (dialog.el.isConnected) dialog.show(view(shown, load), null, [h("span", { class: "key" }, shown.identifier), " ", shown.title]);
		} catch (error) {
			if (dialog.el.isConnected && !shown) dialog.show(empty("Could not load this issue", messageOf(error), button("Retry", load)));
		}
	};
	const unsubscribe = subscribe(({ type, data }) => {
		if (type !== "all" && data?.issueIdentifier !== (shown?.identifier ?? key)) return;
		timer ??= setTimeout(() => {
			timer = null;
			load();
		}, INTERVAL);
	});
	dialog.show(loading());
	load();
	return dialog;
}

const decisionBadge = (decision) => decision.reason && decision.outcome !== "failed" ? badge(decision.reason, labelOf(REASONS, decision.reason)) : badge(decision.outcome);

function view({ decision, history, url, job, jobs = job ? [job] : [], pullRequests = [] }, reload) {
	const last = jobs[0];
	const failed = decision?.outcome === "failed";
	return [
		decision && (failed ? notice("bad", h("strong", {}, decision.message), " ", muted(ago(decision.at)))
			: h("div", { class: "run-line" }, decisionBadge(decision), h("span", {}, decision.message), muted(ago(decision.at)))),
		h("div", { class: "links" }, external(url, "Ticket"), last && (cancelButton(last, reload) ?? (failed && retryButton(last, reload)))),
		section("Time line", { note: jobs.length > 0 && `${count(jobs.length, "run")}, ${costText(totalCost(jobs))}` }, timeline({ decision, history, jobs, pullRequests }, failed)),
	];
}

/** Runs, decisions and pull requests, newest first. */
function timeline({ decision, history, jobs, pullRequests }, failed) {
	const rows = [
		...jobs.map((job) => ({ key: job.id, at: job.reservedAt, row: run(job) })),
		// The headline says it already.
		...[...(failed || !decision ? [] : [decision]), ...history].map((one) => ({ key: `${one.at} ${one.message}`, at: one.at, row: [decisionBadge(one), h("p", {}, one.message)] })),
		...pullRequests.map((pull) => ({ key: pull.prUrl, at: pull.createdAt ?? pull.lastDispatchedAt, row: [h("b", {}, external(pull.prUrl, `Pull request #${pull.prNumber}`)), pullState(pull)] })),
	].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
	return rows.length ? h("ol", { class: "entries history" }, rows.map(({ key, at, row }) => h("li", { key }, row, muted(ago(at)))))
		: h("p", { class: "muted" }, "No run has been dispatched, and nothing has been decided yet.");
}

const run = (job) => [
	h("a", { href: `${panelUrl("runs")}/${encodeURIComponent(job.id)}` }, runName(job)), runBadge(job),
	muted(isActive(job) ? "for " : "took ", span(job.startedAt ?? job.reservedAt, isActive(job) ? null : job.finishedAt)), h("span", { class: "num muted" }, money(job.usage?.costUsd)),
	(job.failureReason || job.timeoutReason) && h("p", {}, job.failureReason?.split("\n")[0] ?? labelOf(TIMEOUTS, job.timeoutReason)),
];
