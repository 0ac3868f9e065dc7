// Drawer of an issue: current and earlier decisions, and its runs.

import { get } from "../api.js";
import { h } from "../dom.js";
import { subscribe } from "../live.js";
import { open } from "./dialog.js";
import { runs, totalCost } from "./job.js";
import { ago } from "./time.js";
import { badge, button, empty, external, loading, messageOf, muted, section } from "./ui.js";
import { REASONS, costText, labelOf } from "./words.js";

export function openAside(key, onClose) {
	const dialog = open({ title: key, kind: "drawer", onClose: () => { unsubscribe(); onClose(); } });
	const load = async () => {
		try {
			const [why, polled, log] = await Promise.all([get(`/api/why/${encodeURIComponent(key)}`), get("/api/issues").catch(() => null), get("/api/log")]);
			const issue = polled?.issues.find((candidate) => candidate.identifier === why.identifier);
			const jobs = log.filter((job) => job.issueIdentifier === why.identifier);
			if (dialog.el.isConnected) dialog.show(view(why, issue, jobs), null, [h("span", { class: "key" }, why.identifier), " ", issue?.title ?? jobs[0]?.issueTitle ?? ""]);
		} catch (error) {
			if (dialog.el.isConnected) dialog.show(empty("Could not load this issue", messageOf(error), button("Retry", load)));
		}
	};
	const unsubscribe = subscribe(({ type, data }) => {
		if (type === "all" || data?.issueIdentifier === key) load();
	});
	dialog.show(loading());
	load();
	return dialog;
}

const decisionBadge = (decision) => decision.reason && decision.outcome !== "failed" ? badge(decision.reason, labelOf(REASONS, decision.reason)) : badge(decision.outcome);

function view(why, issue, jobs) {
	const url = issue?.url ?? jobs[0]?.issueUrl;
	return [
		why.decision && h("div", { class: "run-line" }, decisionBadge(why.decision), h("span", {}, why.decision.message), muted(ago(why.decision.at))),
		h("div", { class: "links" }, url && external(url, "Ticket"), issue?.marker && h("span", { class: "badge idle" }, issue.marker), issue && muted(issue.stateName)),
		section("Runs", { note: jobs.length > 0 && costText(totalCost(jobs)) }, jobs.length ? runs(jobs) : h("p", { class: "muted" }, "No run has been dispatched yet.")),
		section("Earlier decisions", { note: "newest first" }, why.history.length
			? h("ol", { class: "entries" }, why.history.map((one) => h("li", {}, decisionBadge(one), h("span", {}, one.message), muted(ago(one.at)))))
			: h("p", { class: "muted" }, "There are no earlier decisions.")),
	];
}
