// Frame of all panels: navigation, title, connection state, and the drawer or dialog over a panel.

import { get, signOut } from "./api.js";
import { $, h, render } from "./dom.js";
import { connect, disconnect, liveState, subscribe } from "./live.js";
import { icon, logo } from "./parts/icons.js";
import { clockTime } from "./parts/time.js";
import { busy, button, empty, loading as skeleton, messageOf, notice } from "./parts/ui.js";
import { closeAside, currentRoute, panelUrl } from "./router.js";

/**
 * @typedef {object} Panel
 * @property {string} [about] One line below the title.
 * @property {string[]} [watch] Event types after which the panel reloads.
 * @property {(rest: string[]) => Promise<any>} load
 * @property {(data: any, ctx: Context) => any} view
 * @property {(data: any, ctx: Context) => any} [actions] Buttons beside the title.
 */
/** @typedef {{reload: () => Promise<void>, rest: string[], redraw: () => void}} Context */

/** @type {[string, [string, string][]][]} Navigation groups and panels. */
const GROUPS = [
	["Work", [["overview", "Overview"], ["issues", "Issues"], ["pipelines", "Pipelines"], ["pulls", "Pull requests"], ["blockers", "Blockers"]]],
	["Configure", [["projects", "Projects"], ["steps", "Pipelines and steps"], ["models", "Models and providers"]]],
	["Platform", [["runners", "Runners"], ["sessions", "Sessions"], ["reaper", "Reaper"], ["secrets", "Secrets"], ["settings", "Settings"]]],
	["Developer", [["audit", "Audit log"], ["customizations", "Customizations"]]],
];
const NAMES = new Map(GROUPS.flatMap(([, panels]) => panels));

/** Modules of dialogs and drawers over a panel, by query parameter. @type {Record<string, () => Promise<{openAside: (id: string, closed: () => void) => {close: () => void}}>>} */
const ASIDES = {
	job: () => import("./parts/job.js"),
	issue: () => import("./parts/issue.js"),
	edit: () => import("./parts/edit.js"),
	secrets: () => import("./parts/secrets.js"),
};

/** Minimum time between two reloads caused by events, in milliseconds. */
const RELOAD_INTERVAL = 400;

/** @type {HTMLElement} */
let root;
const emptyState = () => ({ name: "", rest: /** @type {string[]} */ ([]), mod: /** @type {Panel | null} */ (null), data: null, error: null, failedSince: /** @type {string | null} */ (null), loading: true });
let current = emptyState();
/** @type {{at: string, close: () => void} | null} */
let openedAside = null;
/** @type {ReturnType<typeof setTimeout> | null} */
let reloadTimer = null;
/** @type {string | null} */
let version = null;
let stopListening = () => {};
/** Whether the menu of a narrow screen is open. */
let menuIsOpen = false;

export function open(el) {
	root = el;
	stopListening = subscribe(onEvent);
	connect();
	get("/").then((health) => {
		version = health.version;
		draw();
	}).catch(() => {});
	route();
}

/** Removes the frame. The URL is kept. */
export function close() {
	stopListening();
	disconnect();
	current = emptyState();
	closeOpenedAside();
	for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
}

function closeOpenedAside() {
	const aside = openedAside;
	openedAside = null;
	aside?.close();
}

/** Shows the panel of the current URL. */
export async function route() {
	const { panel, rest, query } = currentRoute();
	const name = NAMES.has(panel) ? panel : "missing";
	if (current.name !== name || current.rest.join("/") !== rest.join("/")) {
		const moved = current.name !== "";
		current = { ...emptyState(), name, rest };
		menuIsOpen = false;
		document.title = `${NAMES.get(name) ?? "Not found"} · Agent Implement`;
		draw();
		if (moved) {
			scrollTo(0, 0);
			$(root, "h1")?.focus({ preventScroll: true });
		}
		const mine = current;
		if (name !== "missing") {
			try {
				mine.mod = await import(`./panels/${name}.js`);
			} catch (error) {
				mine.error = error;
			}
			await reload(mine);
		} else {
			mine.loading = false;
			draw();
		}
	}
	await openAsideOf(query);
}

async function openAsideOf(query) {
	const kind = Object.keys(ASIDES).find((name) => query.get(name));
	const at = kind ? `${kind}=${query.get(kind)}` : "";
	if ((openedAside?.at ?? "") === at) return;
	closeOpenedAside();
	if (!kind) return;
	const { openAside } = await ASIDES[kind]();
	if (currentRoute().query.get(kind) !== query.get(kind) || openedAside) return;
	const mine = { at, close: () => {} };
	openedAside = mine;
	mine.close = openAside(query.get(kind) ?? "", () => {
		if (openedAside !== mine) return;
		openedAside = null;
		closeAside();
	}).close;
}

async function reload(mine = current) {
	if (!mine.mod) return draw();
	try {
		const data = await mine.mod.load(mine.rest);
		if (mine !== current) return;
		[mine.data, mine.error, mine.failedSince, mine.loading] = [data, null, null, false];
	} catch (error) {
		if (mine !== current) return;
		[mine.error, mine.loading] = [error, false];
		mine.failedSince ??= new Date().toISOString();
	}
	draw();
	performance.mark(`shown:${mine.name}`);
}

/** @param {import("./live.js").Event_} event */
function onEvent(event) {
	if (event.type === "state") return draw();
	const watched = event.type === "all" || current.mod?.watch?.includes(event.type);
	if (!watched || reloadTimer || !current.mod) return;
	const mine = current;
	reloadTimer = setTimeout(async () => {
		reloadTimer = null;
		if (mine === current) await reload(mine);
	}, RELOAD_INTERVAL);
}

/** Reloads the current panel after a change. */
export const refresh = () => reload(current);

function draw() {
	if (!current.name) return;
	render(root, h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the content"), sidebar(), h("div", { class: "page" }, topBar(), main()));
}

function skip(event) {
	event.preventDefault();
	$(root, "h1")?.focus();
}

function sidebar() {
	const link = (/** @type {[string, string]} */ [name, title]) =>
		h("a", { href: panelUrl(name), class: "nav-link", "aria-current": current.name === name ? "page" : null }, icon(name), title);
	return h("nav", { class: menuIsOpen ? "side open" : "side", "aria-label": "Panels", id: "side" },
		h("div", { class: "brand" }, logo(), h("span", {}, "Agent Implement")),
		GROUPS.map(([group, panels]) => h("div", { class: "nav-group", role: "group", "aria-label": group }, h("p", { class: "nav-title", "aria-hidden": "true" }, group), panels.map(link))),
		h("p", { class: "version" }, version ? `Version ${version}` : ""));
}

const STATES = { live: ["ok", "Live", "Changes appear automatically."], connecting: ["warn", "Connecting", "Connecting to the service."], polling: ["warn", "Refreshes every 10 s", "The event stream is not available. The panel refreshes every 10 seconds."] };

function topBar() {
	const [tone, text, title] = STATES[liveState()];
	const toggle = () => {
		menuIsOpen = !menuIsOpen;
		draw();
		if (menuIsOpen) $(root, "nav.side a")?.focus();
	};
	return h("header", { class: "top" },
		h("button", { class: "button ghost icon-only menu-toggle", "aria-label": "Panels", "aria-controls": "side", "aria-expanded": String(menuIsOpen), onclick: toggle }, icon("menu")),
		h("span", { class: `live ${tone}`, title, role: "status" }, text),
		h("span", { class: "grow" }),
		themeSwitch(),
		h("button", { class: "button ghost", onclick: () => busy(endSession) }, icon("leave"), h("span", { class: "wide-only" }, "Sign out")));
}

async function endSession() {
	await signOut().catch(() => {});
	dispatchEvent(new Event("signed-out"));
}

const THEMES = /** @type {const} */ ({ auto: ["light", "Theme: system"], light: ["dark", "Theme: light"], dark: ["auto", "Theme: dark"] });

function themeSwitch() {
	const now = /** @type {keyof typeof THEMES} */ (document.documentElement.dataset.theme ?? "auto");
	const [next, title] = THEMES[now];
	const change = () => {
		if (next === "auto") delete document.documentElement.dataset.theme;
		else document.documentElement.dataset.theme = next;
		localStorage.setItem("theme", next);
		draw();
	};
	return h("button", { class: "button ghost icon-only", "aria-label": title, title, onclick: change }, icon({ auto: "auto", light: "sun", dark: "moon" }[now]));
}

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function main() {
	const { mod, data, error, failedSince, name, loading, rest } = current;
	const ctx = { reload: () => reload(current), redraw: draw, rest };
	return h("main", { id: "main", key: `${name}/${rest.join("/")}` },
		h("div", { class: "title-bar" },
			h("div", {}, h("h1", { tabindex: "-1" }, NAMES.get(name) ?? "Not found"), mod?.about && h("p", { class: "about" }, mod.about)),
			h("div", { class: "actions" }, data !== null && mod?.actions?.(data, ctx))),
		failedSince && data !== null && notice("warn", sentence(messageOf(error)), " Showing data from ", clockTime(failedSince), ". ", button("Retry", ctx.reload, { kind: "small" })),
		name === "missing" ? empty("Page not found", "The link may be from an older version.", h("a", { class: "button", href: panelUrl("overview") }, "Go to the overview"))
			: data !== null && mod ? mod.view(data, ctx)
				: loading ? skeleton()
					: empty("Could not load this page", messageOf(error), button("Retry", ctx.reload)));
}
