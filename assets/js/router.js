// URLs. `/admin/<panel>[/…]` is a panel or a page. Its filters are in the query, and so is the dialog or drawer over it
// (`?job=…`). Every view can be linked to and is restored after signing in.

const BASE = "/admin";
/** Query parameters of dialogs and drawers over a panel, and names of their modules. */
export const ASIDE_KINDS = ["job", "issue", "edit", "secrets"];

/** @type {() => void} */
let onChange = () => {};
/** Navigation that waits until the browser has gone back. @type {(() => void) | null} */
let afterBack = null;
let isGoingBack = false;

/** @returns {{panel: string, rest: string[], query: URLSearchParams}} */
export function currentRoute() {
	const [, , panel, ...rest] = location.pathname.split("/").map(decode);
	return { panel: panel || "overview", rest, query: new URLSearchParams(location.search) };
}

function decode(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

/** Forms with unsaved changes: functions that return true while there are some. @type {Set<() => boolean>} */
const unsaved = new Set();
/** @type {() => Promise<boolean>} */
let askToLeave = async () => true;
/** URL and state of the current view, to return to if the user stays. */
let shown = { url: location.href, depth: 0 };

/**
 * Asks before the view is left while `isDirty` returns true. Returns a function that ends this.
 * @param {() => boolean} isDirty
 */
export function guardUnsaved(isDirty) {
	unsaved.add(isDirty);
	return () => unsaved.delete(isDirty);
}
const isUnsaved = () => [...unsaved].some((isDirty) => isDirty());

/** Number of drawers that were opened one after the other over the panel, each with its history entry. */
const depth = () => history.state?.depth ?? 0;

/** Current query with changes. Null removes a parameter. @param {Record<string, string | null>} changes */
export function withQuery(changes, base = location.search) {
	const query = new URLSearchParams(base);
	for (const [name, value] of Object.entries(changes)) {
		if (value) query.set(name, value);
		else query.delete(name);
	}
	return query.size ? `?${query}` : "";
}

/** Stores filters in the URL without a history entry and without loading anything. @param {Record<string, string | null>} changes */
export function setQuery(changes) {
	history.replaceState(history.state, "", location.pathname + withQuery(changes));
	shown.url = location.href;
}

/**
 * Opens a URL. One that begins with `?` opens a dialog or drawer over the current panel and keeps its filters.
 * @param {string} to @param {{replace?: boolean}} [how]
 */
export async function navigate(to, { replace = false } = {}) {
	if (isGoingBack) return void (afterBack = () => navigate(to, { replace }));
	const isAside = to.startsWith("?");
	if (!isAside && isUnsaved()) {
		if (!await askToLeave()) return;
		unsaved.clear();
	}
	const target = isAside ? location.pathname + withoutAsides(new URLSearchParams(to)) : to;
	const state = isAside ? { depth: depth() + (replace ? 0 : 1) } : null;
	history[replace ? "replaceState" : "pushState"](state, "", target);
	changed();
}

function changed() {
	shown = { url: location.href, depth: depth() };
	onChange();
}

/** Query of the panel without its dialogs and drawers, and with `added`. */
function withoutAsides(added = new URLSearchParams()) {
	return withQuery({ ...Object.fromEntries(ASIDE_KINDS.map((kind) => [kind, null])), ...Object.fromEntries(added) });
}

/** URL of the current panel with its filters. */
export const viewUrl = () => location.pathname + withoutAsides();

/** Closes the dialog or drawer over the panel, and goes back to the history entry of the panel. */
export function closeAside() {
	if (!ASIDE_KINDS.some((kind) => currentRoute().query.has(kind))) return;
	if (!depth()) {
		history.replaceState(null, "", location.pathname + withoutAsides());
		return changed();
	}
	isGoingBack = true;
	history.go(-depth());
}

/** Template of a URL whose values are encoded. @param {TemplateStringsArray} texts @param {...any} values */
export const url = (texts, ...values) => String.raw(texts, ...values.map(encodeURIComponent));
/** @param {string} kind @param {string} id */
export const asideUrl = (kind, id) => url`?${kind}=${id}`;

/** @param {() => void} handler Shows the current URL. @param {() => Promise<boolean>} ask Returns whether unsaved changes are dropped. */
export function start(handler, ask) {
	[onChange, askToLeave] = [handler, ask];
	addEventListener("popstate", moved);
	addEventListener("beforeunload", (event) => { if (isUnsaved()) event.preventDefault(); });
	// Forms are handled by scripts. None may reload the page.
	document.addEventListener("submit", (event) => event.preventDefault());
	document.addEventListener("click", (event) => {
		const link = /** @type {HTMLElement} */ (event.target).closest?.("a");
		const isPlainClick = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
		if (!link || !isPlainClick || event.defaultPrevented || link.target || link.origin !== location.origin) return;
		if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
		if (link.getAttribute("href")?.startsWith("#")) return;
		event.preventDefault();
		const href = link.getAttribute("href") ?? "";
		if (href.startsWith("?") || link.href !== location.href) navigate(href);
	});
}

async function moved() {
	isGoingBack = false;
	const next = afterBack;
	afterBack = null;
	if (isUnsaved() && location.pathname !== new URL(shown.url).pathname) {
		history.pushState({ depth: shown.depth }, "", shown.url);
		if (!await askToLeave()) return;
		unsaved.clear();
		return history.back();
	}
	changed();
	next?.();
}
