// Drawer of an issue: what happens to it next, and one time line of its runs, decisions and pull requests.

import { get } from "../api.js";
import { h } from "../dom.js";
import { url } from "../router.js";
import { cancelButton, retryButton } from "./control.js";
import { openDrawer } from "./drawer.js";
import { runBadge, runName, runTime, totalCost } from "./job.js";
import { isDone, pullState } from "./pull.js";
import { takeButton, takenLine } from "./take.js";
import { ago } from "./time.js";
import { waitsOf } from "./waiting.js";
import { badge, external, muted, notice, section } from "./ui.js";
import { REASONS, TIMEOUTS, actionText, actorText, costText, count, labelOf, money } from "./words.js";

/** Actions of the audit log that are replies to runs. */
const REPLIES = "approval-refused,given-back,plan-approved,plan-asked,plan-rejected,question-answered,taken-over,ticket-command";

export const openAside = (key, onClose) => openDrawer({
	title: key, noun: "issue", onClose,
	load: async () => {
		const why = await get(url`/api/why/${key}`);
		const since = why.jobs?.at(-1)?.reservedAt;
		const path = url`/api/audit?target=${why.identifier}&action=${REPLIES}&from=${since}&limit=50`;
		const [waits, replies] = await Promise.all([waitsOf(why.identifier), since ? get(path).catch(() => []) : []]);
		// The filter finds the key as a part of others as well.
		return { ...why, ...waits, replies: replies.filter(({ target }) => target === why.identifier) };
	},
	isAbout: ({ type, data }, shown) => type === "all" || data?.issueIdentifier === (shown?.identifier ?? key),
	draw: (dialog, shown, reload) => dialog.show(view(shown, reload), null, [h("span.key", shown.identifier), " ", shown.title]),
});

const decisionBadge = (decision) => decision.reason && decision.outcome !== "failed" ? badge(decision.reason, labelOf(REASONS, decision.reason)) : badge(decision.outcome);

function view({ identifier, decision, history, url, job, jobs = job ? [job] : [], pullRequests = [], questions, plans, replies, takenOver }, reload) {
	const last = jobs.find((one) => !one.shadow);
	const failed = decision?.outcome === "failed";
	return [
		takenOver && takenLine(takenOver),
		decision && (failed ? notice("bad", h("strong", decision.message), " ", muted(ago(decision.at)))
			: h("div.run-line", decisionBadge(decision), h("span", decision.message), muted(ago(decision.at)))),
		h("div.links", external(url, "Ticket"), ["question", "approval"].includes(decision?.reason) && h("a", { href: "/admin/questions" }, "Questions"), last && (cancelButton(last, reload) ?? (failed && retryButton(last, reload))),
			(takenOver || !isDone(pullRequests)) && takeButton(identifier, Boolean(takenOver), reload)),
		section("Time line", { note: jobs.length > 0 && `${count(jobs.length, "run")}, ${costText(totalCost(jobs))}` }, timeline({ decision, history, jobs, pullRequests, questions, plans, replies }, failed)),
	];
}

/** Runs, decisions, questions, plans, what people replied, and pull requests, newest first. */
function timeline({ decision, history, jobs, pullRequests, questions, plans, replies }, failed) {
	const rows = [
		...jobs.map((job) => ({ key: job.id, at: job.reservedAt, row: run(job) })),
		// The headline says it already.
		...[...(failed || !decision ? [] : [decision]), ...history].map((one) => ({ key: `${one.at} ${one.message}`, at: one.at, row: [decisionBadge(one), h("p", one.message)] })),
		...pullRequests.map((pull) => ({ key: pull.prUrl, at: pull.createdAt ?? pull.lastDispatchedAt, row: [h("b", external(pull.prUrl, `Pull request #${pull.prNumber}`)), pullState(pull)] })),
		...questions.map((one) => ({ key: `asked ${one.jobId}`, at: one.askedAt, row: [badge("question", "Question"), one.questions.map(({ text }) => h("p", text))] })),
		...plans.map((one) => ({ key: `planned ${one.jobId}`, at: one.plannedAt, row: [badge("approval", "Plan"), h("p", one.objection ?? "The plan needs an approval.")] })),
		...replies.map((one) => ({ key: `reply ${one.seq}`, at: one.at, row: [badge(one.action, actionText(one.action)), h("p", `${actorText(one.actor)}: ${one.detail}`)] })),
	].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
	return rows.length ? h("ol.entries.history", rows.map(({ key, at, row }) => h("li", { key }, row, muted(ago(at)))))
		: h("p.muted", "No run has been dispatched, and nothing has been decided yet.");
}

const run = (job) => [
	h("a", { href: url`/admin/runs/${job.id}` }, runName(job)), runBadge(job),
	runTime(job), h("span.num.muted", money(job.usage?.costUsd)),
	(job.failureReason || job.timeoutReason) && h("p", job.failureReason?.split("\n")[0] ?? labelOf(TIMEOUTS, job.timeoutReason)),
];
