// Shared user interface elements.

import { ApiError } from "../api.js";
import { $, h } from "../dom.js";
import { asideUrl, withQuery } from "../router.js";
import { icon } from "./icons.js";
import { CONNECTIONS, KINDS, displayText, labelOf, statusOf, toneOf } from "./words.js";

/** Colored badge of a status word. @param {string | null | undefined} word @param {string} [text] */
export const badge = (word, text) =>
	word ? h("span", { class: `badge ${toneOf(word)}`, "data-word": word }, text ?? displayText(word)) : muted("–");

/** @param {any} label @param {() => any} run @param {string} [kind] Looks, as classes. @param {string} [title] Accessible name, unless it is the label. */
export const button = (label, run, kind = "", title = "") => h("button", { class: `button ${kind}`, title: title || null, "aria-label": title || null, onclick: () => busy(run) }, label);

/** Link that looks like a small button. @param {string} [title] Accessible name, unless it is the text. */
export const linkButton = (href, text, title) => h("a.button.small", { href, "aria-label": title }, text);

/** @param {string} label @param {string} [form] ID of the form, for a button outside of it. @param {Record<string, any>} [props] */
export const submitButton = (label, form, props) => h("button.button.primary", { type: "submit", form, ...props }, label);

/**
 * Runs the action of a button or a form. Ignores further clicks, and Enter in the form, until it is done, and shows errors.
 * @param {() => any} run
 */
export async function busy(run) {
	const el = /** @type {any} */ (document.activeElement);
	const subject = el.form ?? el;
	if (subject.ariaBusy === "true") return;
	try {
		const pending = run();
		if (!(pending instanceof Promise)) return;
		subject.ariaBusy = el.ariaBusy = "true";
		await pending;
	} catch (error) {
		toast(messageOf(error), "bad");
	} finally {
		subject.ariaBusy = el.ariaBusy = null;
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
	/^https?:\/\//i.test(url ?? "") ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer", class: `external ${cls}` }, label, icon("out"), h("span.sr", " (opens in a new tab)")) : label;

/** Field that searches or filters. The key `/` focuses it. @param {string} label @param {string} placeholder @param {Record<string, any>} props */
export const searchBox = (label, placeholder, props) => h("label.search", icon("search"), h("span.sr", label),
	h("input", { type: "search", placeholder, spellcheck: "false", autocomplete: "off", "data-filter": "", "aria-keyshortcuts": "/", ...props }));

/** @param {string[][]} options Values and texts. @param {string} now */
export const optionsOf = (options, now) => options.map(([value, text]) => h("option", { value, selected: value === now }, text));

/** Choice of several, as a card. @param {Record<string, any>} props Props of the radio button. @param {any[]} content Title and description. */
export const choiceCard = (props, ...content) => h("label.card-choice", h("input", { type: "radio", ...props }), h("span.card-text", content));

/** Loading placeholder. */
export const loading = () => h("div.loading", { role: "status" }, h("span.sr", "Loading"), h("i"), h("i"), h("i"));

/** Placeholder for empty content. @param {string} title */
export const empty = (title, text, action = null) =>
	h("div.empty", h("p.empty-title", title), text && h("p", text), action);

export const newProject = () => h("a.button.primary", { href: "/admin/projects/new" }, "New project");

/** Key and repository of a project, for sorting and filtering. */
export const projectName = ({ teamKey, owner, repo }) => `${teamKey} ${owner}/${repo}`;

/** @param {"ok" | "warn" | "bad" | "run"} tone */
export const notice = (tone, ...children) => h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "note" }, h("div", children));

/** Section of a panel with a title. @param {string} title @param {{note?: any, actions?: any, key?: string}} about */
export const section = (title, { note, actions, key } = {}, ...children) =>
	h("section.section", { key, "aria-label": title },
		h("div.section-head", h("h2", title), note && h("span.note", note), actions && h("div.actions", actions)),
		children);

/** List of names and values. @param {[string, any][]} rows */
export const facts = (rows) =>
	h("dl.facts", rows.map(([name, value]) => value && h("div", h("dt", name), h("dd", value))));

/** Tile with a large number. @param {string} label @param {string} [tone] @param {string} [href] */
export const tile = (label, value, note, tone = "", href) =>
	h(href ? "a" : "div", { class: `tile ${tone}`, href }, h("span.tile-label", label), h("span.tile-value", value), h("span.tile-note", note));

/** Bar that shows usage of a limit. @param {number} used @param {number} of @param {string} label */
export const meter = (used, of, label) =>
	h("span", { class: `meter ${used >= of ? "full" : ""}`, role: "img", "aria-label": label, title: label },
		h("span.meter-bar", { style: { width: `${of ? Math.min(100, (used / of) * 100) : 0}%` } }));

/** Two lines of text, the second smaller. @param {any} first @param {any} [second] @param {string} [cls] */
export const twoLines = (first, second, cls = "") =>
	h("span", { class: `two-lines ${cls}` }, h("span", first), second && h("span.sub", { title: typeof second === "string" ? second : null }, second));

/** Key and title of an issue. */
export const issueName = ({ issueIdentifier, issueTitle }) => h("span.two-lines", h("span.key", issueIdentifier), h("span.title", issueTitle));
/** Key and title of an issue as text, for sorting and filtering. */
export const issueText = ({ issueIdentifier, issueTitle }) => `${issueIdentifier} ${issueTitle}`;

/** Row of a list about an issue, with the link of the row. */
export const issueLine = (key, href, issue, sub, mark, time) =>
	h("li", { key }, h("a.row-link.grow", { href }, twoLines([h("span.key", issue.issueIdentifier), " ", issue.issueTitle], sub)), mark, h("span.muted.num", time));

/** Row of a list about a run. */
export const jobLine = (job, time, sub) => issueLine(job.id, asideUrl("job", job.id), job, sub ?? `${labelOf(KINDS, job.kind)} in ${job.repo}`, badge(statusOf(job)), time);

/**
 * Links that choose a value of a query parameter, and keep the other filters, except a range of times.
 * @param {"tabs" | "segments"} look @param {string} label @param {string} url URL of the panel. @param {string} param @param {string | null} now @param {[string, string][]} values Values and texts; the value "" has no parameter.
 */
export const choices = (look, label, url, param, now, values) => h("nav", { class: look, "aria-label": label }, values.map(([value, text]) =>
	h("a", { href: url + withQuery({ [param]: value, from: null, to: null }), "aria-current": value === (now ?? "") ? "page" : null }, text)));

/** Links that choose a range of time. @param {string} url URL of the panel. @param {string | null} now @param {[string, string][]} more */
export const ranges = (url, now, more = []) => choices("segments", "Range", url, "range", now, [["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ...more]);

/** Button that copies a text. @param {string} text @param {string} what What is copied, for the accessible name. */
export const copyButton = (text, what) => button(icon("copy"), () => copy(text, what), "ghost icon-only copy", `Copy ${what}`);

/** Copies a text to the clipboard and says so. @param {string} text @param {string} what */
export async function copy(text, what) {
	await navigator.clipboard.writeText(text).catch(() => { throw new ApiError(0, "The browser did not allow copying."); });
	toast(`Copied ${what}.`);
}

/** Secondary text. */
export const muted = (...text) => h("span.muted", text);

/** Text clamped to one line, with the full text as tooltip. */
export const clamp = (text) => h("span.clamp", { title: text }, text);

/** List of rows. @param {(row: any) => any} row */
export const rows = (rows, row) => h("ul.rows", rows.map(row));

/** List of connections with their status. */
export const connections = (checks) => rows(checks, (one) =>
	h("li", { key: one.name }, twoLines(labelOf(CONNECTIONS, one.name), one.detail, "grow"), badge(one.status)));
