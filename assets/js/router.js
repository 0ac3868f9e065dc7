// URLs. `/admin/<panel>` is a panel; a dialog or drawer over it is in the query (`?job=…`). Every view can be
// linked to and is restored after signing in.

const BASE = "/admin";

/** @type {() => void} */
let onChange = () => {};

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

/** @param {string} to A URL below /admin, or a query. @param {{replace?: boolean}} [how] */
export function navigate(to, { replace = false } = {}) {
	history[replace ? "replaceState" : "pushState"](null, "", to);
	onChange();
}

/** Closes the dialog or drawer over the panel. */
export const closeAside = () => {
	if (location.search) navigate(location.pathname, { replace: true });
};

/** @param {string} panel */
export const panelUrl = (panel) => `${BASE}/${panel}`;
/** @param {string} kind @param {string} id */
export const asideUrl = (kind, id) => `?${kind}=${encodeURIComponent(id)}`;

export function start(changed) {
	onChange = changed;
	addEventListener("popstate", () => onChange());
	document.addEventListener("click", (event) => {
		const link = /** @type {HTMLElement} */ (event.target).closest?.("a");
		const isPlainClick = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
		if (!link || !isPlainClick || event.defaultPrevented || link.target || link.origin !== location.origin) return;
		if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
		event.preventDefault();
		if (link.href !== location.href) navigate(link.href);
	});
}
