// @ts-check
// Small pieces that every panel is made of.

import { ApiError } from "../api.js";
import { h } from "../dom.js";
import { icon } from "./icons.js";
import { say, toneOf } from "./words.js";

/** @typedef {import("../dom.js").Child} Child */

/** A word of the service as a coloured badge. @param {string | null | undefined} word @param {string} [text] */
export const badge = (word, text) =>
  word ? h("span", { class: `badge ${toneOf(word)}`, "data-word": word }, text ?? say(word)) : h("span", { class: "faint" }, "–");

/** @param {Child} label @param {() => any} run @param {{kind?: string, icon?: string, title?: string, disabled?: boolean}} [how] */
export function button(label, run, { kind = "", icon: picture, title, disabled } = {}) {
  return h("button", { type: "button", class: `button ${kind}`, title, "aria-label": label ? null : title, disabled, onclick: () => busy(run) },
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

/** Says something for a few seconds. @param {string} text @param {"ok" | "bad"} [tone] */
export function toast(text, tone = "ok") {
  // Over an open dialog only what stands inside of it can be seen and reached.
  const place = [...document.querySelectorAll("dialog[open]")].pop() ?? document.getElementById("toasts");
  const el = h("div", { class: `toast ${tone}`, role: tone === "bad" ? "alert" : "status" }, text);
  place?.append(el);
  setTimeout(() => el.remove(), tone === "bad" ? 9000 : 5000);
}

/** A link to somewhere else. Only addresses of the web are links. @param {string | null | undefined} url @param {Child} label @param {string} [cls] */
export const external = (url, label, cls = "") =>
  /^https?:\/\//i.test(url ?? "") ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer", class: `external ${cls}` }, label, icon("out"), h("span", { class: "sr" }, " (opens in a new tab)")) : label;

/** What stands where nothing is. @param {string} title @param {Child} text @param {Child} [action] */
export const empty = (title, text, action) =>
  h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, text), action);

/** @param {"warn" | "bad" | "info"} tone @param {...Child} children */
export const notice = (tone, ...children) => h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "note" }, h("div", {}, children));

/** A titled part of a panel. @param {string} title @param {{note?: Child, actions?: Child, key?: string}} about @param {...Child} children */
export const section = (title, { note, actions, key } = {}, ...children) =>
  h("section", { class: "section", key, "aria-label": title },
    h("div", { class: "section-head" }, h("h2", {}, title), note && h("span", { class: "note" }, note), actions && h("div", { class: "actions" }, actions)),
    children);

/** Names and values. @param {[string, Child][]} rows */
export const facts = (rows) =>
  h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** A number that is read from afar. @param {string} label @param {Child} value @param {Child} note @param {string} [tone] @param {string} [href] */
export const tile = (label, value, note, tone = "", href) =>
  h(href ? "a" : "div", { class: `tile ${tone}`, href }, h("span", { class: "tile-label" }, label), h("span", { class: "tile-value" }, value), h("span", { class: "tile-note" }, note));

/** How much of something is used. @param {number} used @param {number} of @param {string} label */
export const meter = (used, of, label) =>
  h("span", { class: `meter ${used >= of ? "full" : ""}`, role: "img", "aria-label": label, title: label },
    h("span", { class: "meter-bar", style: { width: `${of ? Math.min(100, (used / of) * 100) : 0}%` } }));

/** An issue by its key and title; opens why it stands where it stands. @param {string} key @param {string} title */
export const issueName = (key, title) =>
  h("span", { class: "two-lines" }, h("span", { class: "key" }, key), h("span", { class: "title" }, title));
