// Page of a run: what it is for, what it did and when, and its whole log.

import { get } from "../api.js";
import { h, island } from "../dom.js";
import { follow } from "../live.js";
import { detailRows, failure, isAbout, issueOf, read, runLine, runLinks, runs, stepsSection, totalCost } from "../parts/job.js";
import { logView } from "../parts/log.js";
import { isDone, pullState } from "../parts/pull.js";
import { takeButton, takenLine } from "../parts/take.js";
import { ago } from "../parts/time.js";
import { questionCard, waitsOf } from "../parts/waiting.js";
import { badge, copyButton, external, facts, muted, section } from "../parts/ui.js";
import { count, costText, labelOf, number } from "../parts/words.js";
import { asideUrl, url } from "../router.js";

/** Minimum time between two reloads, in milliseconds. */
const INTERVAL = 1000;
const STEPS = 500;
const TRIGGERS = { ticket: "Label or status of the ticket", command: "Comment on the pull request", review: "Review of the pull request", checks: "Failing checks", conflict: "Conflict with the base branch" };

export const title = ({ job }) => `${job.issueIdentifier} ${job.issueTitle}`;

export async function load([id]) {
	const run = await read(id, 1, STEPS);
	const { issueIdentifier } = run.job;
	const [issue, details, { questions }] = await Promise.all([issueOf(run.job), get(url`/api/jobs/${id}/details`).catch(() => null), waitsOf(issueIdentifier)]);
	return { ...run, ...issue, details, open: questions.filter((one) => one.jobId === id) };
}

export function actions({ job, jobs, pullRequests, takenOver }, ctx) {
	const links = runLinks(job, jobs, ctx.reload);
	if (!job.shadow && (takenOver || !isDone(pullRequests))) links.append(takeButton(job.issueIdentifier, Boolean(takenOver), ctx.reload));
	return links;
}

/** Reloads the page after events about its run. */
const refresher = (job, ctx) => island("refresher", { job, ctx }, (el, props) => {
	const stop = follow((event) => event.type !== "all" && isAbout(event, props.job), () => (el.isConnected ? props.ctx.reload() : stop()), INTERVAL);
	return (next) => { props = next; };
});

export function view({ job, steps, dropped, next, jobs, pullRequests, takenOver, details, open }, ctx) {
	const pull = pullRequests.find((one) => one.prUrl === job.prUrl);
	const failed = steps.findLast((step) => step.status === "failed");
	const { trigger, plan, summary, evidence = [], prompts = [], reviewFindings = [], guardFindings = [], refusedHosts = [], passes = [] } = details ?? {};
	return [
		refresher(job, ctx),
		takenOver && takenLine(takenOver), runLine(job), failure(job), open.map((one) => questionCard(one, ctx.reload)),
		h("div.section", facts([
			["Branch", job.branch && h("span.run-pull", h("code", job.branch), copyButton(job.branch, "the branch"))],
			["Pull request", job.prUrl && h("span.run-pull", external(job.prUrl, `#${job.prNumber}`), pull && pullState(pull))],
			["Triggered by", trigger && [trigger.by, " ", labelOf(TRIGGERS, trigger.source), muted(" ", ago(trigger.at))]],
			...detailRows(job).filter(([name]) => name !== "Branch"),
		])),
		stepsSection({ job, steps, dropped, next, passes, linked: true }, () => {}),
		section("Log", {}, logView({ job, failed: failed?.id ?? null, bytes: details?.logBytes })),
		summary && section("Summary", { note: "by the agent" }, h("pre.reason.plan", summary)),
		evidence.length > 0 && section("Evidence", { note: "left by the verify script" }, h("ul.evidence", evidence.map((file) => h("li", { key: file.name }, evidenceLink(job, file))))),
		reviewFindings.length > 0 && section("Review findings", { note: count(reviewFindings.length, "finding") }, findings(reviewFindings, (one) => [badge(one.severity), place(one.file, one.line), badge(one.state)])),
		guardFindings.length > 0 && section("Files blocked from the push", { note: count(guardFindings.length, "finding") }, findings(guardFindings, (one) => [place(one.path, one.line), muted(one.rule)])),
		refusedHosts.length > 0 && section("Refused connections", { note: "by the proxy of local containers" }, h("ul", refusedHosts.map((host) => h("li", { key: host }, h("code", host))))),
		plan && section("Plan", {}, h("pre.reason.plan", plan)),
		prompts.length > 0 && section("Prompts", { note: "size by pass of the agent" }, facts(prompts.map((one) => [`${one.step} ${one.pass}`, `${number(one.bytes)} bytes`]))),
		section("All runs of this issue", { note: costText(totalCost(jobs)), actions: h("a", { href: asideUrl("issue", job.issueIdentifier) }, "Time line of the issue") }, runs(jobs, job.id)),
	];
}

/** Link to a file that the verify script left, with a picture of an image. The browser loads it when it comes into view. */
function evidenceLink(job, { name, kind, bytes }) {
	const href = url`/api/jobs/${job.id}/evidence/${name}`;
	return h("a", { href, target: "_blank", rel: "noopener" },
		kind === "png" && h("img", { src: href, alt: "", loading: "lazy" }),
		h("code", name), muted(" ", sizeText(bytes)), h("span.sr", " (opens in a new tab)"));
}

const sizeText = (bytes) => (bytes < 1024 ? `${bytes} bytes` : bytes < 1 << 20 ? `${number(bytes / 1024)} KiB` : `${number(bytes / (1 << 20))} MiB`);

const place = (file, line) => file && h("code", line ? `${file}:${line}` : file);

const findings = (all, head) => h("ul.findings", all.map((one) => h("li", h("div.run-line", head(one)), h("p", one.text))));
