import { get } from "../api.js";
import { h } from "../dom.js";
import { col, table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge, twoLines } from "../parts/ui.js";
import { displayText } from "../parts/words.js";

export const about = "Your files that override or extend the built-in pipelines and steps.";

export const load = () => get("/api/customizations");

const size = (bytes) => (bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`);

export const view = ({ root, customizations }) => [
	h("p.slots", "Read from ", h("code", root)),
	table({
		id: "customizations", label: "files", rows: customizations, key: (row) => row.path, filter: true,
		columns: [
			col("Path", "", (row) => `${row.path} ${row.upstreamPath ?? ""}`, (row) => twoLines(h("code", row.path), row.upstreamPath && `overrides ${row.upstreamPath}`)),
			col("Category", "m sm", (row) => displayText(row.category)),
			col("Status", "s", "status", (row) => badge(row.status)),
			col("Size", "s md right", "size", (row) => size(row.size)),
			col("Modified", "s sm right", "modifiedAt", (row) => ago(row.modifiedAt)),
		],
		empty: ["No customizations", "Add pipelines to custom/pipelines or steps to custom/steps to change what runs do."],
	}),
];
