// The frame of every panel: where you are, where you can go, and how fresh it is.

import { get, signOut } from "./api.js";
import { $, h, render } from "./dom.js";
import { connect, disconnect, listen, liveState } from "./live.js";
import { icon, logo } from "./parts/icons.js";
import { ago } from "./parts/time.js";
import { busy, button, empty, loading as skeleton, messageOf, notice } from "./parts/ui.js";
import { closeAside, here, to } from "./router.js";

/**
 * @typedef {object} Panel
 * @property {string} [about] One line below the title.
 * @property {string[]} [watch] Events after which the panel looks again.
 * @property {(rest: string[]) => Promise<any>} load
 * @property {(data: any, ctx: Context) => any} view
 * @property {(data: any, ctx: Context) => any} [actions] Beside the title.
 */
/** @typedef {{reload: () => Promise<void>, rest: string[], redraw: () => void}} Context */

/** @type {[string, [string, string][]][]} The spec's groups and order. */
const GROUPS = [
	["Work", [["overview", "Overview"], ["issues", "Issues"], ["pipelines", "Pipelines"], ["pulls", "Pull requests"], ["blockers", "Blockers"]]],
	["Configure", [["projects", "Projects"], ["steps", "Pipelines and steps"], ["models", "Models and providers"]]],
	["Platform", [["runners", "Runners"], ["sessions", "Sessions"], ["reaper", "Reaper"], ["secrets", "Secrets"], ["settings", "Settings"]]],
	["Developer", [["audit", "Audit log"], ["customizations", "Customizations"]]],
];
const NAMES = new Map(GROUPS.flatMap(([, panels]) => panels));

/** What can be open over a panel, by its name in the query. @type {Record<string, () => Promise<{openAside: (id: string, closed: () => void) => {close: () => void}}>>} */
const ASIDES = {
	job: () => import("./parts/job.js"),
	issue: () => import("./parts/issue.js"),
	edit: () => import("./parts/edit.js"),
	secrets: () => import("./parts/secrets.js"),
};

/** No more often than this is a panel loaded because of events. */
const PACE = 400;

/** @type {HTMLElement} */
let root;
const nowhere = () => ({ name: "", rest: /** @type {string[]} */ ([]), mod: /** @type {Panel | null} */ (null), data: null, error: null, failedSince: /** @type {string | null} */ (null), loading: true });
let current = nowhere();
/** @type {{at: string, close: () => void} | null} */
let beside = null;
/** @type {ReturnType<typeof setTimeout> | null} */
let soon = null;
/** @type {string | null} */
let version = null;
let stopListening = () => {};
/** The menu of a narrow screen. */
let menuIsOpen = false;

export function open(el) {
	root = el;
	stopListening = listen(hear);
	connect();
	get("/").then((health) => {
		version = health.version;
		draw();
	}).catch(() => {});
	route();
}

/** Takes the frame down; the address stays. */
export function close() {
	stopListening();
	disconnect();
	current = nowhere();
	hush();
	for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
}

function hush() {
	const was = beside;
	beside = null;
	was?.close();
}

/** Shows what the address says. */
export async function route() {
	const { panel, rest, query } = here();
	const name = NAMES.has(panel) ? panel : "missing";
	if (current.name !== name || current.rest.join("/") !== rest.join("/")) {
		const moved = current.name !== "";
		current = { ...nowhere(), name, rest };
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
	await openBeside(query);
}

async function openBeside(query) {
	const kind = Object.keys(ASIDES).find((name) => query.get(name));
	const at = kind ? `${kind}=${query.get(kind)}` : "";
	if ((beside?.at ?? "") === at) return;
	hush();
	if (!kind) return;
	const { openAside } = await ASIDES[kind]();
	if (here().query.get(kind) !== query.get(kind) || beside) return;
	const mine = { at, close: () => {} };
	beside = mine;
	mine.close = openAside(query.get(kind) ?? "", () => {
		if (beside !== mine) return;
		beside = null;
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
function hear(event) {
	if (event.type === "state") return draw();
	const watched = event.type === "all" || current.mod?.watch?.includes(event.type);
	if (!watched || soon || !current.mod) return;
	const mine = current;
	soon = setTimeout(async () => {
		soon = null;
		if (mine === current) await reload(mine);
	}, PACE);
}

/** Loads what is shown again; for what was just changed. */
export const refresh = () => reload(current);

function draw() {
	if (!current.name) return;
	render(root, h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the content"), side(), h("div", { class: "page" }, top(), main()));
}

function skip(event) {
	event.preventDefault();
	$(root, "h1")?.focus();
}

function side() {
	const link = (/** @type {[string, string]} */ [name, title]) =>
		h("a", { href: to(name), class: "nav-link", "aria-current": current.name === name ? "page" : null }, icon(name), title);
	return h("nav", { class: menuIsOpen ? "side open" : "side", "aria-label": "Panels", id: "side" },
		h("div", { class: "brand" }, logo(), h("span", {}, "Agent Implement")),
		GROUPS.map(([group, panels]) => h("div", { class: "nav-group", role: "group", "aria-label": group }, h("p", { class: "nav-title", "aria-hidden": "true" }, group), panels.map(link))),
		h("p", { class: "version" }, version ? `Version ${version}` : ""));
}

const STATES = { live: ["ok", "Live", "Changes show by themselves."], connecting: ["warn", "Connecting", "Connecting to the service."], polling: ["warn", "Every 10 s", "The event stream is not available; the panel asks again every ten seconds."] };

function top() {
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
		h("button", { class: "button ghost", onclick: () => busy(leave) }, icon("leave"), h("span", { class: "wide-only" }, "Sign out")));
}

async function leave() {
	await signOut().catch(() => {});
	dispatchEvent(new Event("signed-out"));
}

const THEMES = /** @type {const} */ ({ auto: ["light", "Colours: as the system"], light: ["dark", "Colours: light"], dark: ["auto", "Colours: dark"] });

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

function main() {
	const { mod, data, error, failedSince, name, loading, rest } = current;
	const ctx = { reload: () => reload(current), redraw: draw, rest };
	return h("main", { id: "main", key: `${name}/${rest.join("/")}` },
		h("div", { class: "title-bar" },
			h("div", {}, h("h1", { tabindex: "-1" }, NAMES.get(name) ?? "Not found"), mod?.about && h("p", { class: "about" }, mod.about)),
			h("div", { class: "actions" }, data !== null && mod?.actions?.(data, ctx))),
		failedSince && data !== null && notice("warn", "Shown as it was ", ago(failedSince), ". It could not be refreshed: ", messageOf(error), " ", button("Try again", ctx.reload, { kind: "small" })),
		name === "missing" ? empty("There is no such page", "The address may be from an older version.", h("a", { class: "button", href: to("overview") }, "Go to the overview"))
			: data !== null && mod ? mod.view(data, ctx)
				: loading ? skeleton()
					: empty("This could not be loaded", messageOf(error), button("Try again", ctx.reload)));
}
