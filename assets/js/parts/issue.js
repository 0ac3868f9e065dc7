// Why an issue stands where it stands: what was decided about it, and before that.

import { get } from "../api.js";
import { h } from "../dom.js";
import { listen } from "../live.js";
import { open } from "./dialog.js";
import { costOf, runs } from "./job.js";
import { ago } from "./time.js";
import { badge, button, dim, empty, external, loading, messageOf, section } from "./ui.js";
import { REASONS, name, sumOf } from "./words.js";

export function openAside(key, onClose) {
	const dialog = open({ title: key, kind: "drawer", onClose: () => { quiet(); onClose(); } });
	const load = async () => {
		try {
			const [why, seen, log] = await Promise.all([get(`/api/why/${encodeURIComponent(key)}`), get("/api/issues").catch(() => null), get("/api/log")]);
			const issue = seen?.issues.find((one) => one.identifier === why.identifier);
			const jobs = log.filter((job) => job.issueIdentifier === why.identifier);
			if (dialog.el.isConnected) dialog.show(view(why, issue, jobs), null, [h("span", { class: "key" }, why.identifier), " ", issue?.title ?? jobs[0]?.issueTitle ?? ""]);
		} catch (error) {
			if (dialog.el.isConnected) dialog.show(empty("Nothing is known about this issue", messageOf(error), button("Try again", load)));
		}
	};
	const quiet = listen(({ type, data }) => {
		if (type === "all" || data?.issueIdentifier === key) load();
	});
	dialog.show(loading());
	load();
	return dialog;
}

const said = (decision) => decision.reason && decision.outcome !== "failed" ? badge(decision.reason, name(REASONS, decision.reason)) : badge(decision.outcome);

function view(why, issue, jobs) {
	const url = issue?.url ?? jobs[0]?.issueUrl;
	return [
		why.decision && h("div", { class: "run-line" }, said(why.decision), h("span", {}, why.decision.message), dim(ago(why.decision.at))),
		h("div", { class: "links" }, url && external(url, "Ticket"), issue?.marker && h("span", { class: "badge idle" }, issue.marker), issue && dim(issue.stateName)),
		section("Runs", { note: jobs.length > 0 && sumOf(costOf(jobs)) }, jobs.length ? runs(jobs) : h("p", { class: "muted" }, "No run was dispatched yet.")),
		section("Decisions before", { note: "newest first" }, why.history.length
			? h("ol", { class: "entries" }, why.history.map((one) => h("li", {}, said(one), h("span", {}, one.message), dim(ago(one.at)))))
			: h("p", { class: "muted" }, "This is the first.")),
	];
}
