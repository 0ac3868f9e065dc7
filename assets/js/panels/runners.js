import { loadAll, post } from "../api.js";
import { h } from "../dom.js";
import { confirm } from "../parts/dialog.js";
import { badge, connections, notice, rows, section, toast } from "../parts/ui.js";
import { RUNNERS, count, isActive } from "../parts/words.js";

export const about = "Where runs execute: one setting for all projects, or per project.";
export const watch = ["job"];

/** @type {[string, string, string][]} */
const MODES = [
	["default", "Per project", "The execution mode of each project applies."],
	["ci", "GitHub Actions", "Every run is a workflow run in its target repository."],
	["vm", "Fly Machines", "Every run gets its own machine."],
	["local", "Local containers", "Every run is a container on this host."],
	["kubernetes", "Kubernetes", "Every run is a Job in the cluster."],
	["shadow", "Shadow", "GitHub Actions runs, plus a dry run on a machine for comparison."],
];
const PROBES = ["runner-callback", "repo-host", "vm-sessions", "local-containers", "kubernetes"];

export const load = () => loadAll("/api/runner-mode", { config: "/api/admin/config-status", log: "/api/log?status=unknown,dispatched,running" });

const choose = (mode, label, ctx) => confirm({
	title: `Switch to “${label}”?`, text: "Applies to all runs that start from now on. Active runs are not affected.", action: "Switch",
	run: async () => {
		try {
			await post("/api/runner-mode", { mode });
			toast("Saved the runner mode.");
		} catch (error) {
			// The mode was stored but the environment overrides it. Shown as a message; the dialog closes.
			if (error.body?.persisted === undefined) throw error;
			toast(error.message, "bad");
		}
		await ctx.reload();
	},
});

export function view({ main: mode, config, log }, ctx) {
	const modeName = MODES.find(([value]) => value === mode.mode)?.[1] ?? mode.mode;
	const fromEnv = mode.source === "env";
	/** Mode that takes effect when the variable is unset. */
	const next = fromEnv ? mode.stored ?? "default" : null;
	const decider = { env: "set by RUNNER_MODE", stored: "chosen here", default: "the default" }[mode.source];
	const running = (log ?? []).filter(isActive);
	return [
		fromEnv && notice("warn", h("b", "RUNNER_MODE is set in the environment. "), `“${modeName}” is in force. A mode chosen here is stored and takes effect when the variable is unset.`),
		section("Runner mode", { note: ["In force: ", h("b", modeName), `, ${decider}`] },
			h("div.cards", { role: "group", "aria-label": "Runner mode" }, MODES.map(([value, label, text]) =>
				h("button.card-choice", { key: value, "aria-pressed": String(mode.mode === value), "data-mode": value, onclick: () => (next ?? mode.mode) !== value && choose(value, label, ctx) },
					h("span.card-text", h("b", label), h("span", text), next && [mode.mode === value && badge("ok", "In force"), next === value && badge("stored", "Stored, not in force")]))))),
		mode.ineligible?.length > 0 && section("Projects that cannot run in this mode", {}, rows(mode.ineligible, (one) => h("li", { key: one.teamKey }, h("b", one.teamKey), h("span.muted.grow", one.reason)))),
		section("Runners", {}, rows(Object.entries(RUNNERS), ([kind, label]) => {
			const n = running.filter((job) => job.runner === kind).length;
			return h("li", { key: kind }, h("span.grow", label), h("span.muted.num", n ? count(n, "run") : "idle"));
		})),
		config && section("Connections", {}, connections(config.checks.filter((one) => PROBES.includes(one.name)))),
	];
}
