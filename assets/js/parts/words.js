// Display names of API values, and formatting of counts and money.

export const SYSTEMS = { A: "Linear", B: "Jira", C: "GitHub" };
export const RUNNERS = { ci: "GitHub Actions", vm: "Fly Machines", local: "Local container", kubernetes: "Kubernetes" };
export const EXECUTION = { "ci-workflow": RUNNERS.ci, "vm-machines": RUNNERS.vm, kubernetes: RUNNERS.kubernetes };
export const PROVIDERS = { direct: "Anthropic API", cloud: "Amazon Bedrock" };
export const KINDS = { planning: "Planning", implementation: "Implementation", "gap-fill": "Gap fill", "follow-up": "Follow-up", "ci-fix": "CI fix", conflict: "Conflict resolution" };

export const CONNECTIONS = {
	"ticketing-a": "Linear",
	"ticketing-b": "Jira",
	"repo-host": "GitHub",
	"runner-callback": "Runner callback",
	"gap-fill-trigger": "Gap-fill trigger",
	webhook: "GitHub webhook",
	"vm-sessions": "Fly Machines",
	"local-containers": "Local containers",
	kubernetes: "Kubernetes",
	notifications: "Chat notifications",
};

export const REASONS = {
	concurrency: "At capacity",
	dedup: "Dispatched recently",
	"no-mapping": "No project",
	ambiguous: "Several projects",
	blocked: "Blocked",
	paused: "Paused",
	parked: "Parked",
	ineligible: "Cannot run",
	quota: "Rate limited",
	budget: "Budget spent",
	question: "Waits for an answer",
	approval: "Waits for approval",
	"taken-over": "Taken over",
	"outside-hours": "Outside dispatch hours",
	"review-capacity": "Waits for review",
	collision: "Changes the same files",
};

export const TIMEOUTS = {
	container_timeout: "The container exceeded its lifetime",
	machine_timeout: "The machine exceeded its lifetime",
	run_not_found: "No workflow run was found within 10 minutes",
	timed_out: "The CI run timed out",
};

export const RULES = {
	orphan: "Orphaned",
	"stale-terminal-job": "Run ended long ago",
	"max-age-exceeded": "Older than 4 hours",
	"issue-terminal": "Issue closed",
};

/** Actions of the audit log. */
export const ACTIONS = "approval-refused audit-exported backup-taken branch-deleted connection-deleted connection-set dedup-deleted github-app-asked given-back machine-destroyed mapping-capped mapping-created mapping-deleted mapping-paused mapping-resumed mapping-updated merge-armed merge-disarmed merge-refused outbox-dropped outbox-retried patch-read plan-approved plan-asked plan-rejected poll-asked pull-merged question-answered run-cancelled run-dispatched run-retried run-started runner-mode-set secret-deleted secret-set session-destroyed settings-changed sign-in sign-in-refused sign-in-throttled sign-out sync-asked taken-over ticket-command unparked".split(" ");

/** Text of an action of the audit log: `mapping-updated` → `Project updated`. */
export const actionText = (action) => displayText(action.replace("mapping-capped", "max-parallel-issues-changed").replace("mapping", "project")
	.replace("asked", "requested").replace("patch-read", "unpushed-changes-downloaded").replace("outbox", "update").replace("throttled", "blocked"));

/** Who acted, as people say it: `admin@10.0.0.1` → `operator at 10.0.0.1`. */
export const actorText = (actor) => actor.replace(/^admin@/, "operator at ").replace(/^(webhook|ticket):/, "$1: ").replace(/^owner$/, "owner of the host");

/** Status words by the tone of their badges; others are idle. */
const TONES = {
	ok: "completed passed ok current started done success approved resolved additive plan-approved question-answered",
	run: "dispatched running starting created in-progress open pending asked taken-over",
	warn: "review_failed limited stale missing concurrency quota budget waiting question approval review-capacity collision changes_requested medium",
	bad: "failed timed_out error destroyed no-mapping ambiguous parked ineligible failure critical high plan-rejected approval-refused",
	mark: "merged override",
};

export const toneOf = (word) => Object.keys(TONES).find((tone) => TONES[tone].split(" ").includes(word)) ?? "idle";

/** @type {Record<string, string>} */
const LABELS = { unknown: "Reserved", "built-in": "Built-in", ok: "OK" };

/** Display text of a status word: `review_failed` → `Review failed`. */
export function displayText(word) {
	if (LABELS[word]) return LABELS[word];
	const text = word.replace(/[-_]/g, " ");
	return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {Record<string, string>} names @param {string} word */
export const labelOf = (names, word) => names[word] ?? word;

/** Number with separators, rounded to one digit; a dash if it is unknown. */
export const number = (value) => (typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 1 }) : "–");

export const count = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

export const money = (usd) => (typeof usd === "number" ? `$${usd.toFixed(2)}` : "–");

/** Share in percent; a dash if it is unknown. */
export const percent = (share) => (typeof share === "number" ? `${Math.round(share * 100)}%` : "–");

/** Text of a total cost. @param {number|null} usd Null if no run reported its cost. */
export const costText = (usd) => (usd === null ? "unknown cost" : money(usd));

const ACTIVE = ["unknown", "dispatched", "running"];
/** @param {{status: string}} job */
export const isActive = (job) => ACTIVE.includes(job.status);
const FAILED = ["failed", "timed_out", "review_failed"];
/** Status of a run. A run that was cancelled or asked a question has not failed; one that GitHub has stopped at its time limit is not cancelled. @param {{status: string, failureCode?: string | null}} job */
export const statusOf = (job) => ENDS[job.failureCode ?? ""] ?? job.status;
/** @type {Record<string, string>} */
const ENDS = { CANCELLED: "cancelled", NEEDS_INPUT: "asked" };
/** Whether a run has failed: it failed, timed out, or its review failed. */
export const hasFailed = (job) => FAILED.includes(statusOf(job));
/** Whether the work of a run can be started again. */
export const isRetryable = (job) => !isActive(job) && !["completed", "asked"].includes(statusOf(job)) && !job.shadow;
/** Filter of the same runs, for `/api/log`. */
export const FAILED_STATUSES = FAILED.join();
export const ACTIVE_STATUSES = ACTIVE.join();
/** Number of failed runs of a summary. @param {{ended: Record<string, number>}} summary */
export const failedOf = ({ ended }) => FAILED.reduce((sum, status) => sum + ended[status], 0);
