import { gather } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { ago, duration } from "../parts/time.js";
import { badge, notice, section, tile, two } from "../parts/ui.js";
import { RULES, name } from "../parts/words.js";

export const about = "Destroys sessions that nobody needs any more, once a minute.";
export const watch = ["poll"];

export const load = () => gather("/api/reaper/summary", { recent: "/api/reaper/recent?limit=100" });

export const view = ({ main, recent }) => [
	main.dryRun && notice("run", h("b", {}, "Dry run. "), "What would be destroyed is recorded, and nothing is. Unset REAPER_DRY_RUN to destroy."),
	h("div", { class: "tiles" }, Object.entries(main.byRule).map(([rule, n]) => tile(name(RULES, rule), n, "in 24 hours"))),
	section("Recent actions", { note: main.lastSweepAt ? ["last sweep ", ago(main.lastSweepAt)] : "no sweep yet" }, table({
		id: "reaper", label: "reaper actions", rows: recent ?? [], key: (row) => `${row.at} ${row.machineId} ${row.rule}`, filter: true,
		columns: [
			col("Machine", "", (row) => `${row.machineId} ${row.tenant ?? ""}`, (row) => two(h("code", {}, row.machineId), row.tenant)),
			col("Rule", "m sm", (row) => name(RULES, row.rule)),
			col("Issue", "s sm", "issueIdentifier"),
			col("Age", "s md right", "ageSeconds", (row) => duration(row.ageSeconds * 1000)),
			col("Action", "m", "badge", (row) => badge(row.badge)),
			col("When", "s sm right", "at", (row) => ago(row.at)),
		],
		empty: ["Nothing was destroyed", "Sessions end by themselves; the reaper takes only what is left over."],
	})),
];
