import { gather, get } from "../api.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { button, clamp, issueName, issueText, section, toast } from "../parts/ui.js";
import { aside } from "../router.js";
import { clearDedup } from "./blockers.js";

export const about = "Who changed what, and the ledger of what was dispatched.";
export const watch = ["job"];

const PAGE = 200;
/** Older entries than the first page. @type {any[]} */
let older = [];

export const load = () => gather("/api/dedup", { audit: `/api/audit?limit=${PAGE}` });

const text = (detail) => (typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : "");

export function view({ main: dedup, audit }, ctx) {
	const edge = audit?.at(-1)?.seq;
	older = older.filter((one) => one.seq < edge);
	const more = async () => {
		const page = await get(`/api/audit?limit=${PAGE}&before=${older.at(-1)?.seq ?? edge}`);
		if (!page.length) toast("There are no older entries.");
		older.push(...page);
		ctx.redraw();
	};
	return [
		section("Dedup ledger", { note: "issues that are not dispatched again for now" }, table({
			id: "dedup", label: "dedup entries", rows: dedup, key: (row) => row.issueId, filter: true, href: (row) => aside("issue", row.issueIdentifier),
			columns: [
				col("Issue", "", issueText, issueName),
				col("Dispatched", "s sm right", "dispatchedAt", (row) => ago(row.dispatchedAt)),
				col("Expires", "s right", "expiresAt", (row) => (row.expiresAt ? ago(row.expiresAt) : "never")),
			],
			actions: (row) => clearDedup(row.issueId, row.issueIdentifier, ctx),
			empty: ["The ledger is empty", "An issue enters it when it is dispatched, and leaves it when its run fails or its window is over."],
		})),
		section("Audit log", {}, audit && [table({
			id: "audit", label: "audit entries", rows: [...audit, ...older], key: (row) => String(row.seq), filter: true,
			columns: [
				col("Action", "l", "action"),
				col("Target", "", "target", (row) => clamp(row.target)),
				col("Detail", "xl md", (row) => text(row.detail), (row) => clamp(text(row.detail))),
				col("By", "m sm", "actor"),
				col("When", "s right", "at", (row) => ago(row.at)),
			],
			empty: ["Nothing is recorded yet", "Every change in this panel, and every dispatch, cancel and destroy, is recorded here."],
		}), audit.length === PAGE && button("Older entries", more)]),
	];
}
