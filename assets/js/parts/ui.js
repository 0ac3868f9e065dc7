// Small pieces that every panel is made of.

import { ApiError } from "../api.js";
import { $, h } from "../dom.js";
import { to } from "../router.js";
import { icon } from "./icons.js";
import { CONNECTIONS, name, say, toneOf } from "./words.js";


/** A word of the service as a coloured badge. @param {string | null | undefined} word @param {string} [text] */
export const badge = (word, text) =>
	word ? h("span", { class: `badge ${toneOf(word)}`, "data-word": word }, text ?? say(word)) : dim("–");

/** @param {any} label @param {() => any} run @param {{kind?: string, icon?: string, title?: string, disabled?: boolean}} [how] */
export function button(label, run, { kind = "", icon: picture, title, disabled } = {}) {
	return h("button", { class: `button ${kind}`, title, "aria-label": title, disabled, onclick: () => busy(run) },
		picture && icon(picture), label);
}

/**
 * Runs what a button does, once at a time; what fails is said.
 * @param {() => any} run
 */
export async function busy(run) {
	const el = /** @type {any} */ (document.activeElement);
	if (el?.ariaBusy === "true") return;
	try {
		const going = run();
		if (!(going instanceof Promise)) return;
		if (el) el.ariaBusy = "true";
		await going;
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

/** Over an open dialog only what stands inside of it can be seen and reached. */
export const placeToast = (el) => ([...document.querySelectorAll("dialog[open]")].pop() ?? $(document, "#toasts")).append(el);

/** Says something for a few seconds. @param {string} text @param {"ok" | "bad"} [tone] */
export function toast(text, tone = "ok") {
	const el = h("div", { class: `toast ${tone}`, role: tone === "bad" ? "alert" : "status" }, text);
	placeToast(el);
	setTimeout(() => el.remove(), tone === "bad" ? 9000 : 5000);
}

/** A link to somewhere else. Only addresses of the web are links. @param {string | null | undefined} url @param {string} [cls] */
export const external = (url, label, cls = "") =>
	/^https?:\/\//i.test(url ?? "") ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer", class: `external ${cls}` }, label, icon("out"), h("span", { class: "sr" }, " (opens in a new tab)")) : label;

/** What stands where something is about to be. */
export const loading = () => h("div", { class: "loading", role: "status" }, h("span", { class: "sr" }, "Loading"), h("i"), h("i"), h("i"));

/** What stands where nothing is. @param {string} title */
export const empty = (title, text, action = null) =>
	h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, text), action);

export const newProject = () => h("a", { class: "button primary", href: to("projects/new") }, "New project");

/** A project by its key and repository; a column of these sorts by its name. */
export const projectName = ({ teamKey, owner, repo }) => `${teamKey} ${owner}/${repo}`;

/** @param {"warn" | "bad" | "run"} tone */
export const notice = (tone, ...children) => h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "note" }, h("div", {}, children));

/** A titled part of a panel. @param {string} title @param {{note?: any, actions?: any, key?: string}} about */
export const section = (title, { note, actions, key } = {}, ...children) =>
	h("section", { class: "section", key, "aria-label": title },
		h("div", { class: "section-head" }, h("h2", {}, title), note && h("span", { class: "note" }, note), actions && h("div", { class: "actions" }, actions)),
		children);

/** Names and values. @param {[string, any][]} rows */
export const facts = (rows) =>
	h("dl", { class: "facts" }, rows.map(([name, value]) => value && h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** A number that is read from afar. @param {string} label @param {string} [tone] @param {string} [href] */
export const tile = (label, value, note, tone = "", href) =>
	h(href ? "a" : "div", { class: `tile ${tone}`, href }, h("span", { class: "tile-label" }, label), h("span", { class: "tile-value" }, value), h("span", { class: "tile-note" }, note));

/** How much of something is used. @param {number} used @param {number} of @param {string} label */
export const meter = (used, of, label) =>
	h("span", { class: `meter ${used >= of ? "full" : ""}`, role: "img", "aria-label": label, title: label },
		h("span", { class: "meter-bar", style: { width: `${of ? Math.min(100, (used / of) * 100) : 0}%` } }));

/** Two lines, the second a smaller one. @param {any} first @param {any} [second] @param {string} [cls] */
export const two = (first, second, cls = "") =>
	h("span", { class: `two-lines ${cls}` }, h("span", {}, first), second && h("span", { class: "sub", title: typeof second === "string" ? second : null }, second));

/** An issue by its key and title. */
export const issueName = ({ issueIdentifier, issueTitle }) => h("span", { class: "two-lines" }, h("span", { class: "key" }, issueIdentifier), h("span", { class: "title" }, issueTitle));
/** What a column of issues sorts and is filtered by. */
export const issueText = ({ issueIdentifier, issueTitle }) => `${issueIdentifier} ${issueTitle}`;

/** What is read second. */
export const dim = (...text) => h("span", { class: "muted" }, text);

/** One line, whole on hover. */
export const clamp = (text) => h("span", { class: "clamp", title: text }, text);

/** Rows of a name, what is known of it, and its state. @param {(row: any) => any} row */
export const rows = (rows, row) => h("ul", { class: "rows" }, rows.map(row));

/** Connections and how they are. */
export const connections = (checks) => rows(checks, (one) =>
	h("li", { key: one.name }, two(name(CONNECTIONS, one.name), one.detail, "grow"), badge(one.status)));
