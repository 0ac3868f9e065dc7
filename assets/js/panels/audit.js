import { get, loadAll } from "../api.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { button, clamp, issueName, issueText, section, toast } from "../parts/ui.js";
import { asideUrl } from "../router.js";
import { clearDedup } from "./blockers.js";

export const about = "Changes by people and by the service, and the dedup entries of dispatched issues.";
export const watch = ["job"];

const PAGE = 200;
/** Entries loaded after the first page. @type {any[]} */
let older = [];

export const load = () => loadAll("/api/dedup", { audit: `/api/audit?limit=${PAGE}` });

const detailText = (detail) => (typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : "");

export function view({ main: dedup, audit }, ctx) {
	const oldest = audit?.at(-1)?.seq;
	older = older.filter((entry) => entry.seq < oldest);
	const more = async () => {
		const page = await get(`/api/audit?limit=${PAGE}&before=${older.at(-1)?.seq ?? oldest}`);
		if (!page.length) toast("There are no older entries.");
		older.push(...page);
		ctx.redraw();
	};
	return [
		section("Dedup ledger", { note: "issues that are not dispatched again until their entry expires" }, table({
			id: "dedup", label: "dedup entries", rows: dedup, key: (row) => row.issueId, filter: true, href: (row) => asideUrl("issue", row.issueIdentifier),
			columns: [
				col("Issue", "", issueText, issueName),
				col("Dispatched", "s sm right", "dispatchedAt", (row) => ago(row.dispatchedAt)),
				col("Expires", "s right", "expiresAt", (row) => (row.expiresAt ? ago(row.expiresAt) : "never")),
			],
			actions: (row) => clearDedup(row.issueId, row.issueIdentifier, ctx),
			empty: ["No dedup entries", "An entry is added when an issue is dispatched. It is removed when the run fails or the dedup window ends."],
		})),
		section("Audit log", {}, audit && [table({
			id: "audit", label: "audit entries", rows: [...audit, ...older], key: (row) => String(row.seq), filter: true,
			columns: [
				col("Action", "l", "action"),
				col("Target", "", "target", (row) => clamp(row.target)),
				col("Detail", "xl md", (row) => detailText(row.detail), (row) => clamp(detailText(row.detail))),
				col("By", "m sm", "actor"),
				col("When", "s right", "at", (row) => ago(row.at)),
			],
			empty: ["No audit entries yet", "Changes in this panel, dispatches, cancellations and destroyed sessions are recorded here."],
		}), audit.length === PAGE && button("Older entries", more)]),
	];
}
