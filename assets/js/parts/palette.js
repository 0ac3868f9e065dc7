// Command palette: goes to an issue, run, project, panel or saved view, and acts. And the list of keys.

import { get } from "../api.js";
import { $, h } from "../dom.js";
import { asideUrl, navigate, url } from "../router.js";
import { retryAll } from "./bulk.js";
import { cancelRun } from "./control.js";
import { open } from "./dialog.js";
import { runName } from "./job.js";
import { pollNow } from "./poll.js";
import { setPaused } from "./sync.js";
import { busy, facts } from "./ui.js";
import { savedViews } from "./views.js";
import { displayText, hasFailed, isActive, statusOf } from "./words.js";

/** @typedef {{group: string, label: string, hint?: string, key?: string, run: () => any}} Command */

const MAX_PER_GROUP = 7;
const TYPING_PAUSE = 200;
const ISSUE_KEY = /^[a-z][a-z0-9_]*-\d+$/i;

let isShown = false;

/** @param {[string, string][]} panels Names and titles. */
export function showPalette(panels) {
	if (isShown) return;
	isShown = true;
	const dialog = open({ title: "Go to or do", kind: "palette", onClose: () => { isShown = false; } });
	/** @type {any} */
	const found = { query: "", at: 0, projects: [], issues: [], runs: [] };
	/** @type {Command[]} */
	let shown = [];
	/** @type {ReturnType<typeof setTimeout> | undefined} */
	let typing;

	const run = (/** @type {Command | undefined} */ command) => {
		if (!command) return;
		dialog.close();
		busy(command.run);
	};
	const typed = ({ target }) => {
		[found.query, found.at] = [target.value.trim(), 0];
		clearTimeout(typing);
		typing = setTimeout(search, TYPING_PAUSE);
		draw();
	};
	const search = async () => {
		const { query } = found;
		if (query.length < 2) return;
		const [issues, runs] = await Promise.all([get("/api/issues").catch(() => null), get(url`/api/log?limit=${MAX_PER_GROUP}&q=${query}`).catch(() => [])]);
		if (found.query !== query || !isShown) return;
		[found.issues, found.runs] = [issues?.issues ?? [], runs];
		draw();
	};
	const keys = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (step && shown.length) found.at = (found.at + step + shown.length) % shown.length;
		else if (event.key === "Enter") return event.preventDefault(), run(shown[found.at]);
		else return;
		event.preventDefault();
		draw();
		$(dialog.el, "[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
	};
	const draw = () => {
		shown = commandsOf(panels, found);
		found.at = Math.min(found.at, Math.max(0, shown.length - 1));
		const option = (command) => {
			const at = shown.indexOf(command);
			return h("div", { role: "option", id: `command-${at}`, key: command.key ?? command.label, "aria-selected": String(at === found.at), onclick: () => run(command) },
				h("span.clamp", command.label), command.hint && h("span.sub.clamp", command.hint));
		};
		dialog.show([
			h("input.palette-box", { type: "text", role: "combobox", "aria-label": "Issue, run, project, page or action", "aria-expanded": String(shown.length > 0), "aria-controls": "commands", "aria-autocomplete": "list",
				"aria-activedescendant": shown.length ? `command-${found.at}` : null, placeholder: "Issue, run, project, page or action", autocomplete: "off", spellcheck: "false", oninput: typed, onkeydown: keys }),
			h("div.commands", { role: "listbox", id: "commands", "aria-label": "Results" },
				[...new Set(shown.map((command) => command.group))].map((group) => h("div", { role: "group", "aria-label": group, key: group },
					h("p.nav-title", { "aria-hidden": "true" }, group), shown.filter((command) => command.group === group).map(option)))),
			h("p.muted", { role: "status" }, shown.length ? null : "Nothing found."),
		]);
	};
	draw();
	$(dialog.el, "input").focus();
	get("/api/mappings").then((mappings) => {
		found.projects = Object.values(mappings);
		if (isShown) draw();
	}).catch(() => {});
}

/** @returns {Command[]} */
function commandsOf(panels, { query, projects, issues, runs }) {
	const words = query.toLowerCase().split(/\s+/).filter(Boolean);
	const matches = (...texts) => words.every((word) => texts.join(" ").toLowerCase().includes(word));
	const goTo = (group, label, url, hint = "") => ({ group, label, hint, key: url, run: () => navigate(url) });
	const issue = (key, title) => goTo("Issues", key, asideUrl("issue", key), title);
	/** @type {Command[]} */
	const all = words.length ? issues.filter((one) => matches(one.identifier, one.title)).slice(0, MAX_PER_GROUP).map((one) => issue(one.identifier, one.title)) : [];
	if (ISSUE_KEY.test(query) && !all.some(({ label }) => label.toLowerCase() === query.toLowerCase())) all.unshift(issue(query.toUpperCase(), "Open the issue"));
	if (words.length) {
		all.push(...runs.map((job) => goTo("Runs", `${job.issueIdentifier}: ${runName(job)}`, url`/admin/runs/${job.id}`, `${displayText(statusOf(job))}. ${job.issueTitle}`)));
		all.push(...runs.filter(isActive).map((job) => ({ group: "Actions", key: job.id, label: `Cancel ${job.shadow ? "shadow " : ""}run of ${job.issueIdentifier}`, hint: job.issueTitle, run: () => cancelRun(job) })));
		all.push(...runs.filter((job) => hasFailed(job) && runs.find((one) => one.issueId === job.issueId && !one.shadow) === job).map((job) => ({ group: "Actions", label: `Retry ${job.issueIdentifier}`, hint: job.issueTitle, run: () => retryAll([job], () => {}) })));
	}
	const fixed = [
		...projects.map((one) => goTo("Projects", one.teamKey, url`/admin/projects/${one.teamKey}`, `${one.owner}/${one.repo}`)),
		...savedViews().map(({ name, url }) => goTo("Saved views", name, url)),
		...panels.map(([name, title]) => goTo("Pages", title, `/admin/${name}`)),
		{ group: "Actions", label: "Poll now", hint: "Read the ticketing systems", run: pollNow },
		goTo("Actions", "New project", "/admin/projects/new"),
		...projects.map((one) => ({ group: "Actions", label: `${one.paused ? "Resume" : "Pause"} project ${one.teamKey}`, hint: `${one.owner}/${one.repo}`, run: () => setPaused(one.teamKey, !one.paused) })),
	].filter((one) => matches(one.group, one.label, one.hint ?? ""));
	/** @type {Map<string, number>} */
	const counts = new Map();
	return [...all, ...fixed].filter(({ group }) => {
		counts.set(group, (counts.get(group) ?? 0) + 1);
		return (counts.get(group) ?? 0) <= (group === "Pages" ? 20 : MAX_PER_GROUP);
	}).sort((a, b) => ORDER.indexOf(a.group) - ORDER.indexOf(b.group));
}

const ORDER = ["Issues", "Runs", "Projects", "Saved views", "Pages", "Actions"];

const KEYS = [["Ctrl K", "Go to an issue, run, project or page, or act"], ["/", "Focus the filter"], ["?", "Show this list"], ["↓ or J, ↑ or K", "Next or previous row of a table"], ["X", "Select the row"], ["Enter", "Open the row"], ["Esc", "Close the dialog, drawer or menu"]];

/** Dialog that lists the keys. */
export function showKeys() {
	open({ title: "Keys" }).show(facts(KEYS.map(([key, text]) => [h("kbd", key), text])));
}
