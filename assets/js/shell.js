// Frame of all panels: navigation, title, connection state, and the drawer or dialog over a panel.

import { ApiError, get, signOut } from "./api.js";
import { $, h, render } from "./dom.js";
import { connect, disconnect, liveState, subscribe } from "./live.js";
import { icon, logo } from "./parts/icons.js";
import { beginLoad, staleDelay } from "./parts/lists.js";
import { asked, failures, readStatus, statusStrip, version } from "./parts/strip.js";
import { clockTime } from "./parts/time.js";
import { button, empty, loading as skeleton, messageOf, notice, toast } from "./parts/ui.js";
import { displayText } from "./parts/words.js";
import { ASIDE_KINDS, closeAside, currentRoute } from "./router.js";

/**
 * @typedef {object} Panel
 * @property {(data: any, rest: string[]) => string} [title] Title of a page. Default: the name of the panel.
 * @property {string} [about] One line below the title.
 * @property {string[]} [watch] Event types after which the panel reloads.
 * @property {string[]} [params] Query parameters whose change reloads the panel.
 * @property {(rest: string[], query: URLSearchParams) => Promise<any>} load
 * @property {(data: any, ctx: Context) => any} view
 * @property {(data: any, ctx: Context) => any} [actions] Buttons beside the title.
 */
/** @typedef {{reload: () => Promise<void>, rest: string[], query: URLSearchParams, redraw: () => void}} Context */

/** @type {[string, string[]][]} Navigation groups and panels. */
const GROUPS = [
	["Work", ["overview", "issues", "pipelines", "pulls", "questions", "blockers", "scoreboard"]],
	["Configure", ["projects", "steps", "models"]],
	["Platform", ["connections", "runners", "sessions", "reaper", "secrets", "settings"]],
	["Developer", ["audit", "customizations"]],
];
/** Panels of pages outside the navigation. @type {Record<string, string>} */
const PAGES = { runs: "pipelines" };
const PANELS = GROUPS.flatMap(([, panels]) => panels);
/** @type {Record<string, string>} */
const NAMES = { pulls: "Pull requests", steps: "Pipelines and steps", models: "Models and providers", audit: "Audit log", runs: "Run", missing: "Not found" };
const nameOf = (panel) => NAMES[panel] ?? displayText(panel);

/** Time until the page is loaded again because a module could not be loaded, and minimum time between two, in milliseconds. */
const [RECOVERY_DELAY, RECOVERY_INTERVAL] = [3000, 60_000];

/** Minimum time between two reloads caused by events, in milliseconds. */
const RELOAD_INTERVAL = 400;

/** @type {HTMLElement} */
let root;
const emptyState = () => ({ name: "", rest: /** @type {string[]} */ ([]), mod: /** @type {Panel | null} */ (null), data: null, error: null, failedSince: /** @type {string | null} */ (null), loading: true, query: new URLSearchParams(), params: "" });
let current = emptyState();
/** @type {{at: string, close: () => void} | null} */
let openedAside = null;
/** @type {{timer: ReturnType<typeof setTimeout>, due: number} | null} */
let reloadTimer = null;
let stopListening = () => {};
/** Whether the menu of a narrow screen is open. */
let menuIsOpen = false;

export function open(el) {
	root = el;
	stopListening = subscribe(onEvent);
	addEventListener("keydown", onKey);
	document.addEventListener("pointerdown", onPress);
	connect();
	route();
	readStatus(draw);
}

export const isOpen = () => current.name !== "";

/** Removes the frame. The URL is kept. */
export function close() {
	stopListening();
	disconnect();
	removeEventListener("keydown", onKey);
	document.removeEventListener("pointerdown", onPress);
	stopReload();
	current = emptyState();
	closeOpenedAside();
	for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
}

/** Keys that work in every panel. @param {KeyboardEvent} event */
function onKey(event) {
	const isTyping = /** @type {HTMLElement} */ (event.target).closest?.("input, textarea, select, [contenteditable]");
	const run = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" ? showPalette
		: event.key === "Escape" && menuIsOpen ? () => toggleMenu(false)
			: isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") ? null
				: event.key === "/" ? focusFilter : event.key === "?" ? showKeys : null;
	if (!run) return;
	event.preventDefault();
	run();
}

const focusFilter = () => $(root, "[data-filter]")?.focus();
const showPalette = async () => (await import("./parts/palette.js")).showPalette(PANELS.map((panel) => [panel, nameOf(panel)]));
const showKeys = async () => (await import("./parts/palette.js")).showKeys();

/** Closes the open menu of a narrow screen at a press outside of it. */
function onPress(event) {
	if (menuIsOpen && !event.target.closest(".side, .menu-toggle")) toggleMenu(false, false);
}

function toggleMenu(open = !menuIsOpen, focus = true) {
	menuIsOpen = open;
	draw();
	if (focus) $(root, open ? "nav.side a" : ".menu-toggle")?.focus();
}

function closeOpenedAside() {
	const aside = openedAside;
	openedAside = null;
	aside?.close();
}

/** Shows the panel and the dialog or drawer of the current URL. */
export function route() {
	const { panel, rest, query } = currentRoute();
	const name = PANELS.includes(panel) || PAGES[panel] ? panel : "missing";
	if (current.name !== name || current.rest.join("/") !== rest.join("/")) enter(name, rest, query);
	else if (paramsOf(query) !== current.params) reload();
	else draw();
	openAsideOf(query);
}

/** Values of the query parameters that the current panel loads its data by. */
const paramsOf = (query) => (current.mod?.params ?? []).map((name) => query.get(name) ?? "").join("\n");

async function enter(name, rest, query) {
	const moved = current.name !== "";
	stopReload();
	current = { ...emptyState(), name, rest, query, loading: name !== "missing" };
	menuIsOpen = false;
	draw();
	if (moved) {
		scrollTo(0, 0);
		$(root, "h1")?.focus({ preventScroll: true });
	}
	if (name !== "missing") await loadPanel(current);
}

/** Loads the module of a panel, and its data. */
async function loadPanel(mine) {
	try {
		mine.mod = await import(`./panels/${mine.name}.js`);
	} catch {
		await new Promise((done) => setTimeout(done, RECOVERY_DELAY));
		[mine.loading, mine.error] = [false, new ApiError(0, "A part of the panel could not be loaded from the service.")];
		if (mine === current) await recover();
		return draw();
	}
	await reload(mine);
}

/** Loads the page again if the service can be reached, because the browser remembers which modules could not be loaded. */
async function reloadPage() {
	await get("/api/auth");
	sessionStorage.setItem("recovered", String(Date.now()));
	location.reload();
}

/** Loads the page again, unless that did not help a moment ago. */
async function recover() {
	if (Date.now() - Number(sessionStorage.getItem("recovered")) > RECOVERY_INTERVAL) await reloadPage().catch(() => {});
}

async function openAsideOf(query) {
	const kind = ASIDE_KINDS.find((name) => query.get(name));
	const at = kind ? `${kind}=${query.get(kind)}` : "";
	if ((openedAside?.at ?? "") === at) return;
	closeOpenedAside();
	if (!kind) return;
	try {
		const { openAside } = await import(`./parts/${kind}.js`);
		if (currentRoute().query.get(kind) !== query.get(kind) || openedAside) return;
		const mine = { at, close: () => {} };
		openedAside = mine;
		mine.close = openAside(query.get(kind) ?? "", () => {
			if (openedAside !== mine) return;
			openedAside = null;
			closeAside();
		}).close;
	} catch (error) {
		toast(messageOf(error), "bad");
		closeAside();
	}
}

async function reload(mine = current) {
	if (!mine.mod) return;
	mine.query = currentRoute().query;
	const params = (mine.params = paramsOf(mine.query));
	beginLoad();
	const [data, error] = await mine.mod.load(mine.rest, mine.query).then((data) => [data, null], (error) => [mine.data, error]);
	if (mine !== current || params !== mine.params) return;
	Object.assign(mine, { data, error, loading: false, failedSince: error && (mine.failedSince ?? new Date().toISOString()) });
	draw();
	performance.mark(`shown:${mine.name}`);
	reloadIn(staleDelay());
}

/** @param {import("./live.js").Event_} event */
function onEvent(event) {
	if (event.type === "state") return draw();
	readStatus(draw, event.type);
	if (event.type === "all" && current.error && !current.mod) recover();
	if (event.type === "all" || current.mod?.watch?.includes(event.type)) reloadIn(RELOAD_INTERVAL);
}

/** Reloads the current panel after a time; never if it is infinite. Lists that events have updated are not fetched again. */
function reloadIn(time) {
	const due = Date.now() + time;
	if (!current.mod || (reloadTimer?.due ?? Infinity) <= due) return;
	stopReload();
	const timer = setTimeout(() => {
		stopReload();
		reload();
	}, time);
	reloadTimer = { timer, due };
}

function stopReload() {
	clearTimeout(reloadTimer?.timer);
	reloadTimer = null;
}

/** Reloads the current panel after a change. */
export const refresh = () => reload(current);

function draw() {
	if (!current.name) return;
	const failed = failures();
	document.title = `${failed ? `(${failed}) ` : ""}${titleOf(current)} · Agent Implement`;
	$(document, "link[rel=icon]").href = `/admin/assets/${failed ? "icon-failed" : "icon"}.svg`;
	render(root, h("a.skip", { href: "#main", onclick: skip }, "Skip to the content"), sidebar(), h("div.page", topBar(), statusStrip(), main()));
}

function skip(event) {
	event.preventDefault();
	$(root, "h1")?.focus();
}

function sidebar() {
	const link = (name) =>
		h("a.nav-link", { href: `/admin/${name}`, "aria-current": (PAGES[current.name] ?? current.name) === name ? "page" : null }, icon(name), nameOf(name), name === "questions" && asked() > 0 && h("span.count.num", h("span.sr", " waiting: "), asked()));
	return h("nav", { class: menuIsOpen ? "side open" : "side", "aria-label": "Panels", id: "side" },
		h("div.brand", logo(), h("span", "Agent Implement")),
		GROUPS.map(([group, panels]) => h("div.nav-group", { role: "group", "aria-label": group }, h("p.nav-title", { "aria-hidden": "true" }, group), panels.map(link))),
		h("p.version", version() && `Version ${version()}`));
}

const STATES = { live: ["ok", "Live", "Changes appear automatically."], connecting: ["warn", "Connecting"], polling: ["warn", "Refreshes every 10 s", "The event stream is not available."] };

function topBar() {
	const [tone, text, title] = STATES[liveState()];
	return h("header.top",
		h("button.button.ghost.icon-only.menu-toggle", { "aria-label": "Panels", "aria-controls": "side", "aria-expanded": String(menuIsOpen), onclick: () => toggleMenu() }, icon("menu")),
		h("span", { class: `live ${tone}`, title, role: "status" }, text),
		h("span.grow"),
		h("button.button.ghost", { "aria-label": "Search", "aria-keyshortcuts": "Control+K", title: "Go to an issue, run or project (Ctrl K)", onclick: showPalette }, icon("search"), h("kbd.wide-only", "Ctrl K")),
		themeSwitch(),
		button([icon("leave"), h("span.wide-only", "Sign out")], endSession, "ghost", "Sign out"));
}

async function endSession() {
	await signOut().catch(() => {});
	dispatchEvent(new Event("signed-out"));
}

const THEMES = /** @type {const} */ ({ auto: ["light", "Theme: system"], light: ["dark", "Theme: light"], dark: ["auto", "Theme: dark"] });

function themeSwitch() {
	const { dataset } = document.documentElement;
	const now = /** @type {keyof typeof THEMES} */ (dataset.theme ?? "auto");
	const [next, title] = THEMES[now];
	const change = () => {
		if (next === "auto") delete dataset.theme;
		else dataset.theme = next;
		localStorage.setItem("theme", next);
		draw();
	};
	return button(icon({ auto: "auto", light: "sun", dark: "moon" }[now]), change, "ghost icon-only", title);
}

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** Title of the current panel or page. */
const titleOf = ({ mod, data, rest, name }) => (data !== null && mod?.title?.(data, rest)) || nameOf(name);

function main() {
	const { mod, data, error, failedSince, name, loading, rest, query } = current;
	const ctx = { reload: () => reload(current), redraw: draw, rest, query };
	const parent = PAGES[name] ?? (rest.length ? name : null);
	return h("main", { id: "main", key: `${name}/${rest.join("/")}` },
		h("div.title-bar",
			h("div", parent && h("a.crumb", { href: `/admin/${parent}` }, nameOf(parent)), h("h1", { tabindex: "-1" }, titleOf(current)), !rest.length && mod?.about && h("p.about", mod.about)),
			h("div.actions", data !== null && mod?.actions?.(data, ctx))),
		failedSince && data !== null && notice("warn", sentence(messageOf(error)), " Showing data from ", clockTime(failedSince), ". ", button("Retry", ctx.reload, "small")),
		/** @type {any} */ (data)?.failed?.map((text) => notice("warn", text)),
		name === "missing" ? empty("Page not found", "The link may be from an older version.", h("a.button", { href: "/admin/overview" }, "Go to the overview"))
			: data !== null && mod ? mod.view(data, ctx)
				: loading ? skeleton()
					: empty("Could not load this page", messageOf(error), button("Retry", mod ? ctx.reload : reloadPage)));
}
