import { ApiError, get } from "../api.js";
import { h } from "../dom.js";
import { deleteButton } from "../parts/dialog.js";
import { col, table } from "../parts/table.js";
import { duration } from "../parts/time.js";
import { badge, notice, twoLines } from "../parts/ui.js";
import { RUNNERS, labelOf } from "../parts/words.js";
import { asideUrl, url } from "../router.js";

export const about = "Machines and containers of runs.";
export const watch = ["job", "poll"];

/** If one host fails, the sessions of the other host are still shown. */
export const load = async () => {
	try {
		return { rows: await get("/api/sessions"), problem: null };
	} catch (thrown) {
		if (!(thrown instanceof ApiError) || !Array.isArray(thrown.body?.sessions)) throw thrown;
		return { rows: thrown.body.sessions, problem: thrown.message };
	}
};

/** Button that destroys a session after confirmation. */
const destroyButton = (id, label, issue, after) => deleteButton("Destroy", label, {
	text: `Stops the run and deletes the machine. Unpushed changes are lost.${issue ? ` ${issue} will be retried if it is still flagged.` : ""}`,
	path: url`/api/sessions/${id}`, done: `Destroyed ${label}.`, after,
});

export const view = ({ rows, problem }, ctx) => [problem && notice("warn", problem), table({
	id: "sessions", label: "sessions", rows, key: (row) => row.machineId, filter: true,
	columns: [
		col("Session", "", (row) => `${row.name} ${row.machineId}`, (row) => twoLines(row.name, row.machineId)),
		col("State", "s", "state", (row) => badge(row.state)),
		col("Kind", "m md", "kind", (row) => twoLines(labelOf(RUNNERS, row.kind), row.region)),
		col("Issue", "s sm", "issueIdentifier", (row) => row.jobId ? h("a", { href: asideUrl("job", row.jobId) }, row.issueIdentifier ?? "Run") : row.issueIdentifier ?? "–"),
		col("Repository", "m md", "repo"),
		col("Uptime", "s sm right", "uptimeSeconds", (row) => duration(row.uptimeSeconds * 1000)),
	],
	actions: (row) => destroyButton(row.machineId, row.name, row.issueIdentifier, ctx.reload),
	empty: ["No sessions", "Runs on Fly Machines and in local containers appear here while they are active."],
})];
