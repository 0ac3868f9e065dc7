import { loadAll } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { ago, duration } from "../parts/time.js";
import { badge, notice, section, tile, twoLines } from "../parts/ui.js";
import { RULES, labelOf } from "../parts/words.js";

export const about = "Cleans up leftover machines and containers every minute.";
export const watch = ["poll"];

export const load = () => loadAll("/api/reaper/summary", { recent: "/api/reaper/recent?limit=100" });

export const view = ({ main, recent }) => [
	main.dryRun && notice("run", h("b", "Dry run. "), "The reaper records what it would destroy, but destroys nothing. Unset REAPER_DRY_RUN to enable it."),
	h("div.tiles", Object.entries(main.byRule).map(([rule, n]) => tile(labelOf(RULES, rule), n, "in 24 hours"))),
	section("Recent actions", { note: main.lastSweepAt ? ["last sweep ", ago(main.lastSweepAt)] : "no sweep yet" }, table({
		id: "reaper", label: "reaper actions", rows: recent ?? [], key: (row) => `${row.at} ${row.machineId} ${row.rule}`, filter: true,
		columns: [
			col("Machine", "", (row) => `${row.machineId} ${row.tenant ?? ""}`, (row) => twoLines(h("code", row.machineId), row.tenant)),
			col("Rule", "m sm", (row) => labelOf(RULES, row.rule)),
			col("Issue", "s sm", "issueIdentifier"),
			col("Age", "s md right", "ageSeconds", (row) => duration(row.ageSeconds * 1000)),
			col("Action", "m", "badge", (row) => badge(row.badge)),
			col("When", "s sm right", "at", (row) => ago(row.at)),
		],
		empty: ["Nothing was destroyed", "Sessions end on their own. The reaper destroys only leftover ones."],
	})),
];
