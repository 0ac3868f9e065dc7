// Addresses. `/admin/<panel>` is a panel; what is open over it stands in the query (`?job=…`), so that
// every view can be linked to and comes back after signing in.

const BASE = "/admin";

/** @type {() => void} */
let onChange = () => {};

/** @returns {{panel: string, rest: string[], query: URLSearchParams}} */
export function here() {
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

/** @param {string} to An address below /admin, or a query. @param {{replace?: boolean}} [how] */
export function go(to, { replace = false } = {}) {
	history[replace ? "replaceState" : "pushState"](null, "", to);
	onChange();
}

/** Takes away what is open over the panel. */
export const closeAside = () => {
	if (location.search) go(location.pathname, { replace: true });
};

/** @param {string} panel */
export const to = (panel) => `${BASE}/${panel}`;
/** @param {string} kind @param {string} id */
export const aside = (kind, id) => `?${kind}=${encodeURIComponent(id)}`;

export function start(changed) {
	onChange = changed;
	addEventListener("popstate", () => onChange());
	document.addEventListener("click", (event) => {
		const link = /** @type {HTMLElement} */ (event.target).closest?.("a");
		const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
		if (!link || !plain || event.defaultPrevented || link.target || link.origin !== location.origin) return;
		if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
		event.preventDefault();
		if (link.href !== location.href) go(link.href);
	});
}
