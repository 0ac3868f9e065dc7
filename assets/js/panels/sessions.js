import { ApiError, get } from "../api.js";
import { h } from "../dom.js";
import { deleteButton } from "../parts/dialog.js";
import { col, table } from "../parts/table.js";
import { duration } from "../parts/time.js";
import { badge, notice, two } from "../parts/ui.js";
import { RUNNERS, name } from "../parts/words.js";
import { aside } from "../router.js";

export const about = "Machines and containers that runs live in.";
export const watch = ["job", "poll"];

/** One host that fails does not hide the sessions of the other. */
export const load = async () => {
	try {
		return { rows: await get("/api/sessions"), failed: null };
	} catch (thrown) {
		if (!(thrown instanceof ApiError) || !Array.isArray(thrown.body?.sessions)) throw thrown;
		return { rows: thrown.body.sessions, failed: thrown.message };
	}
};

/** A button that destroys a session. */
export const destroyButton = (id, label, issue, after) => deleteButton("Destroy", label, {
	title: `Destroy ${label}?`,
	text: `What it is doing ends, and unpushed work is lost.${issue ? ` The marker and the dedup entry of ${issue} are cleared, so it may be picked up again at the next poll.` : ""}`,
	path: `/api/sessions/${encodeURIComponent(id)}`, done: `${label} is destroyed.`, after,
});

export const view = ({ rows, failed }, ctx) => [failed && notice("warn", failed), table({
	id: "sessions", label: "sessions", rows, key: (row) => row.machineId, filter: true,
	columns: [
		col("Session", "", (row) => `${row.name} ${row.machineId}`, (row) => two(row.name, row.machineId)),
		col("State", "s", "state", (row) => badge(row.state)),
		col("Kind", "m md", "kind", (row) => two(name(RUNNERS, row.kind), row.region)),
		col("Issue", "s sm", "issueIdentifier", (row) => row.jobId ? h("a", { href: aside("job", row.jobId) }, row.issueIdentifier ?? "Run") : row.issueIdentifier ?? "–"),
		col("Repository", "m md", "repo"),
		col("Uptime", "s sm right", "uptimeSeconds", (row) => duration(row.uptimeSeconds * 1000)),
	],
	actions: (row) => destroyButton(row.machineId, row.name, row.issueIdentifier, ctx.reload),
	empty: ["No sessions", "Runs on Fly Machines and in local containers appear here while they live."],
})];
