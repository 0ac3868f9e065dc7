// Page of a run: what it is for, what it did and when, and its whole log.

import { get } from "../api.js";
import { h, island } from "../dom.js";
import { subscribe } from "../live.js";
import { detailRows, failure, isAbout, issueOf, read, runLine, runLinks, runs, stepsSection, totalCost } from "../parts/job.js";
import { logView } from "../parts/log.js";
import { ago } from "../parts/time.js";
import { badge, copyButton, external, facts, muted, section } from "../parts/ui.js";
import { count, costText, displayText, labelOf } from "../parts/words.js";
import { asideUrl } from "../router.js";

/** Minimum time between two reloads, in milliseconds. */
const INTERVAL = 1000;
const STEPS = 500;
const TRIGGERS = { ticket: "Label or status of the ticket", command: "Comment on the pull request", review: "Review of the pull request" };

export const title = ({ job }) => `${job.issueIdentifier} ${job.issueTitle}`;

export async function load([id]) {
	const run = await read(id, 1, STEPS);
	const [issue, details] = await Promise.all([issueOf(run.job), get(`/api/jobs/${encodeURIComponent(id)}/details`).catch(() => null)]);
	return { ...run, ...issue, details };
}

export const actions = ({ job }, ctx) => runLinks(job, ctx.reload);

/** Reloads the page after events about its run. */
const refresher = (job, ctx) => island("refresher", { job, ctx }, (el, props) => {
	let timer = null;
	const stop = subscribe((event) => {
		if (!el.isConnected) return stop();
		if (event.type === "all" || timer || !isAbout(event, props.job)) return;
		timer = setTimeout(() => {
			timer = null;
			if (el.isConnected) props.ctx.reload();
		}, INTERVAL);
	});
	return (next) => { props = next; };
});

export function view({ job, steps, dropped, next, jobs, pullRequests, details }, ctx) {
	const pull = pullRequests.find((one) => one.prUrl === job.prUrl);
	const failed = steps.findLast((step) => step.status === "failed");
	const { trigger, plan, prompts = [], reviewFindings = [], guardFindings = [], passes = [] } = details ?? {};
	return [
		refresher(job, ctx),
		runLine(job), failure(job),
		h("div", { class: "section" }, facts([
			["Branch", job.branch && h("span", { class: "run-pull" }, h("code", {}, job.branch), copyButton(job.branch, "the branch"))],
			["Pull request", job.prUrl && h("span", { class: "run-pull" }, external(job.prUrl, `#${job.prNumber}`), pull && pullState(pull))],
			["Triggered by", trigger && [trigger.by, " ", labelOf(TRIGGERS, trigger.source), muted(" ", ago(trigger.at))]],
			...detailRows(job).filter(([name]) => name !== "Branch"),
		])),
		stepsSection({ job, steps, dropped, next, passes, linked: true }, () => {}),
		section("Log", {}, logView(job, failed?.id ?? null)),
		reviewFindings.length > 0 && section("Review findings", { note: count(reviewFindings.length, "finding") }, findings(reviewFindings, (one) => [badge(one.severity), place(one.file, one.line), badge(one.state)])),
		guardFindings.length > 0 && section("Files blocked from the push", { note: count(guardFindings.length, "finding") }, findings(guardFindings, (one) => [place(one.path, one.line), muted(one.rule)])),
		plan && section("Plan", {}, h("pre", { class: "reason plan" }, plan)),
		prompts.length > 0 && section("Prompts", { note: "size by pass of the agent" }, facts(prompts.map((one) => [`${one.step} ${one.pass}`, `${one.bytes.toLocaleString("en")} bytes`]))),
		section("All runs of this issue", { note: costText(totalCost(jobs)), actions: h("a", { href: asideUrl("issue", job.issueIdentifier) }, "Time line of the issue") }, runs(jobs, job.id)),
	];
}

const place = (file, line) => file && h("code", {}, line ? `${file}:${line}` : file);

const findings = (all, head) => h("ul", { class: "findings" }, all.map((one) => h("li", {}, h("div", { class: "run-line" }, head(one)), h("p", {}, one.text))));

/** State, checks and review of a pull request. */
export const pullState = ({ prState, state, draft, checks, reviewDecision, findingsWaiting }) => [
	badge(draft && prState === "open" ? "draft" : prState ?? state),
	checks && badge(checks.state, checks.state === "failure" ? `${checks.failed} of ${count(checks.total, "check")} failed` : `Checks ${checks.state === "success" ? "passed" : "pending"}`),
	reviewDecision && badge(reviewDecision, displayText(reviewDecision)),
	findingsWaiting > 0 && muted(`${count(findingsWaiting, "comment")} to address`),
];
