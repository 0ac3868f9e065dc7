// Shared user interface elements.

import { ApiError } from "../api.js";
import { $, h } from "../dom.js";
import { panelUrl } from "../router.js";
import { icon } from "./icons.js";
import { CONNECTIONS, displayText, labelOf, toneOf } from "./words.js";

/** Colored badge of a status word. @param {string | null | undefined} word @param {string} [text] */
export const badge = (word, text) =>
	word ? h("span", { class: `badge ${toneOf(word)}`, "data-word": word }, text ?? displayText(word)) : muted("–");

/** @param {any} label @param {() => any} run @param {{kind?: string, icon?: string, title?: string, disabled?: boolean}} [how] */
export function button(label, run, { kind = "", icon: picture, title, disabled } = {}) {
	return h("button", { class: `button ${kind}`, title, "aria-label": title, disabled, onclick: () => busy(run) },
		picture && icon(picture), label);
}

/**
 * Runs the action of a button. Ignores further clicks until it is done, and shows errors.
 * @param {() => any} run
 */
export async function busy(run) {
	const el = /** @type {any} */ (document.activeElement);
	if (el?.ariaBusy === "true") return;
	try {
		const pending = run();
		if (!(pending instanceof Promise)) return;
		if (el) el.ariaBusy = "true";
		await pending;
	} catch (error) {
		toast(messageOf(error), "bad");
	} finally {
		if (el) el.ariaBusy = null;
	}
}

/** @param {unknown} error */
export const messageOf = (error) => {
	if (error instanceof ApiError) return error.message;
	console.error(error);
	return "Something went wrong in this page. Reload it and try again.";
};

/** Adds a toast to the topmost dialog, because elements outside of a modal dialog are not reachable. */
export const placeToast = (el) => ([...document.querySelectorAll("dialog[open]")].pop() ?? $(document, "#toasts")).append(el);

/** Shows a message for a few seconds. @param {string} text @param {"ok" | "bad"} [tone] */
export function toast(text, tone = "ok") {
	const el = h("div", { class: `toast ${tone}`, role: tone === "bad" ? "alert" : "status" }, text);
	placeToast(el);
	setTimeout(() => el.remove(), tone === "bad" ? 9000 : 5000);
}

/** External link. Only http and https URLs become links. @param {string | null | undefined} url @param {string} [cls] */
export const external = (url, label, cls = "") =>
	/^https?:\/\//i.test(url ?? "") ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer", class: `external ${cls}` }, label, icon("out"), h("span", { class: "sr" }, " (opens in a new tab)")) : label;

/** Loading placeholder. */
export const loading = () => h("div", { class: "loading", role: "status" }, h("span", { class: "sr" }, "Loading"), h("i"), h("i"), h("i"));

/** Placeholder for empty content. @param {string} title */
export const empty = (title, text, action = null) =>
	h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, text), action);

export const newProject = () => h("a", { class: "button primary", href: panelUrl("projects/new") }, "New project");

/** Key and repository of a project, for sorting and filtering. */
export const projectName = ({ teamKey, owner, repo }) => `${teamKey} ${owner}/${repo}`;

/** @param {"ok" | "warn" | "bad" | "run"} tone */
export const notice = (tone, ...children) => h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "note" }, h("div", {}, children));

/** Section of a panel with a title. @param {string} title @param {{note?: any, actions?: any, key?: string}} about */
export const section = (title, { note, actions, key } = {}, ...children) =>
	h("section", { class: "section", key, "aria-label": title },
		h("div", { class: "section-head" }, h("h2", {}, title), note && h("span", { class: "note" }, note), actions && h("div", { class: "actions" }, actions)),
		children);

/** List of names and values. @param {[string, any][]} rows */
export const facts = (rows) =>
	h("dl", { class: "facts" }, rows.map(([name, value]) => value && h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** Tile with a large number. @param {string} label @param {string} [tone] @param {string} [href] */
export const tile = (label, value, note, tone = "", href) =>
	h(href ? "a" : "div", { class: `tile ${tone}`, href }, h("span", { class: "tile-label" }, label), h("span", { class: "tile-value" }, value), h("span", { class: "tile-note" }, note));

/** Bar that shows usage of a limit. @param {number} used @param {number} of @param {string} label */
export const meter = (used, of, label) =>
	h("span", { class: `meter ${used >= of ? "full" : ""}`, role: "img", "aria-label": label, title: label },
		h("span", { class: "meter-bar", style: { width: `${of ? Math.min(100, (used / of) * 100) : 0}%` } }));

/** Two lines of text, the second smaller. @param {any} first @param {any} [second] @param {string} [cls] */
export const twoLines = (first, second, cls = "") =>
	h("span", { class: `two-lines ${cls}` }, h("span", {}, first), second && h("span", { class: "sub", title: typeof second === "string" ? second : null }, second));

/** Key and title of an issue. */
export const issueName = ({ issueIdentifier, issueTitle }) => h("span", { class: "two-lines" }, h("span", { class: "key" }, issueIdentifier), h("span", { class: "title" }, issueTitle));
/** Key and title of an issue as text, for sorting and filtering. */
export const issueText = ({ issueIdentifier, issueTitle }) => `${issueIdentifier} ${issueTitle}`;

/**
 * Tabs of a panel, as links that differ in the query parameter `tab`.
 * @param {string} label @param {string} url URL of the panel. @param {URLSearchParams} query @param {[string, string][]} tabs Value and text; the first is the default.
 */
export const tabs = (label, url, query, tabs) => h("nav", { class: "tabs", "aria-label": label }, tabs.map(([tab, text], at) =>
	h("a", { href: at ? `${url}?tab=${tab}` : url, "aria-current": (query.get("tab") ?? tabs[0][0]) === tab ? "page" : null }, text)));

export const RANGES = /** @type {[string, string][]} */ ([["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]]);
/** Links that choose a range of time by the query parameter `range`. @param {string} url URL of the panel. @param {string} now */
export const ranges = (url, now, options = RANGES) => h("nav", { class: "segments", "aria-label": "Range" }, options.map(([range, text]) =>
	h("a", { href: range ? `${url}?range=${range}` : url, "aria-current": range === now ? "true" : null }, text)));

/** Button that copies a text. @param {string} text @param {string} what What is copied, for the accessible name. */
export const copyButton = (text, what) => h("button", { class: "button ghost icon-only copy", "aria-label": `Copy ${what}`, title: `Copy ${what}`, onclick: () => busy(() => copy(text, what)) }, icon("copy"));

/** Copies a text to the clipboard and says so. @param {string} text @param {string} what */
export async function copy(text, what) {
	await navigator.clipboard.writeText(text).catch(() => { throw new ApiError(0, "The browser did not allow copying."); });
	toast(`Copied ${what}.`);
}

/** Secondary text. */
export const muted = (...text) => h("span", { class: "muted" }, text);

/** Text clamped to one line, with the full text as tooltip. */
export const clamp = (text) => h("span", { class: "clamp", title: text }, text);

/** List of rows. @param {(row: any) => any} row */
export const rows = (rows, row) => h("ul", { class: "rows" }, rows.map(row));

/** List of connections with their status. */
export const connections = (checks) => rows(checks, (one) =>
	h("li", { key: one.name }, twoLines(labelOf(CONNECTIONS, one.name), one.detail, "grow"), badge(one.status)));
