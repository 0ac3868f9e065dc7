// Elements out of data. Text is text: nothing here, or anywhere else, reads HTML.

/** @typedef {any} Child A node, a text, a number, a list of these, or nothing. */
/** @typedef {Record<string, any>} Props */
/** @typedef {HTMLElement & {on?: Props, key?: string, island?: Island}} Made */
/** @typedef {{kind: string, props: any, mount: (el: HTMLElement, props: any) => (props: any) => void, update?: (props: any) => void}} Island */

/** The first element that fits. @param {ParentNode} el @param {string} selector @returns {any} */
export const $ = (el, selector) => el.querySelector(selector);

const SVG = "http://www.w3.org/2000/svg";
const LIVE = ["value", "checked", "disabled"];

/**
 * An element. Props: `class`, `key`, `style` (object), `on<event>`, properties of form controls, and
 * attributes; false and null leave one out. A button submits nothing unless it says so.
 * @param {string} tag @param {Props | null} [props] @param {...Child} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
	return dress(document.createElement(tag), props, children);
}

/** The same in SVG. @param {string} tag @param {Props | null} [props] @param {...Child} children @returns {any} */
export function s(tag, props, ...children) {
	return dress(document.createElementNS(SVG, tag), props, children);
}

/** @param {Props | null | undefined} props @param {Child[]} children */
function dress(el, props, children) {
	add(el, children);
	if (el.nodeName === "BUTTON") el.setAttribute("type", "button");
	for (const [name, value] of Object.entries(props ?? {})) {
		if (value === null || value === undefined || value === false) continue;
		if (name.startsWith("on")) {
			(el.on ??= {})[name] = value;
			el[name] = value;
		} else if (name === "style") {
			for (const [rule, set] of Object.entries(value)) el.style.setProperty(rule, set);
		} else if (name === "key") el.key = value;
		else if (LIVE.includes(name)) {
			(el.live ??= {})[name] = value;
			el[name] = value;
		}
		else el.setAttribute(name, value === true ? "" : value);
	}
	return el;
}

/** @param {Node} el @param {Child[]} children */
function add(el, children) {
	for (const child of children) {
		if (Array.isArray(child)) add(el, child);
		else if (child instanceof Node) el.appendChild(child);
		else if (child !== null && child !== undefined && child !== false) {
			el.appendChild(document.createTextNode(String(child)));
		}
	}
}

/**
 * An element that looks after itself: `mount` is called once it stands in the page, and what it
 * answers is called with the new props when the place is patched.
 * @template P
 * @param {string} kind @param {P} props @param {(el: HTMLElement, props: P) => (props: P) => void} mount
 */
export function island(kind, props, mount) {
	const el = h("div", { class: kind });
	el.island = { kind, props, mount };
	return el;
}

/** Puts children in place of those that stand there, touching only what differs. @param {HTMLElement} el @param {...Child} children */
export function render(el, ...children) {
	const wanted = document.createDocumentFragment();
	add(wanted, children);
	patchChildren(el, wanted);
}

const alike = (was, is) =>
	was.nodeName === is.nodeName && was.key === is.key && was.island?.kind === is.island?.kind;

/** @param {Node} old @param {Node} wanted */
function patchChildren(old, wanted) {
	const keyed = new Map();
	for (const child of /** @type {Iterable<any>} */ (old.childNodes)) if (child.key !== undefined) keyed.set(child.key, child);
	let at = /** @type {any} */ (old.firstChild);
	for (const next of /** @type {any[]} */ ([...wanted.childNodes])) {
		let found = next.key === undefined ? at : keyed.get(next.key);
		if (next.key === undefined) while (found && found.key !== undefined) found = found.nextSibling;
		if (found && alike(found, next)) {
			if (found === at) at = at.nextSibling;
			else old.insertBefore(found, at);
			patch(found, next);
		} else {
			old.insertBefore(next, at);
			mountAll(next);
		}
	}
	while (at) {
		const gone = at;
		at = at.nextSibling;
		old.removeChild(gone);
	}
}

function patch(old, next) {
	if (old.nodeType === Node.TEXT_NODE) {
		if (old.data !== next.data) old.data = next.data;
		return;
	}
	for (const { name } of [...old.attributes]) {
		const own = name === "style" || (name === "open" && /^(DETAILS|DIALOG)$/.test(old.nodeName)) || (old.island && name !== "class");
		if (!own && !next.hasAttribute(name)) old.removeAttribute(name);
	}
	for (const { name, value } of next.attributes) {
		if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
	}
	if (old.style && old.style.cssText !== next.style.cssText && !old.island) old.style.cssText = next.style.cssText;
	for (const name of Object.keys({ ...old.on, ...next.on })) old[name] = next.on?.[name] ?? null;
	old.on = next.on;
	if (old.island) {
		old.island.props = next.island.props;
		old.island.update?.(next.island.props);
		return;
	}
	patchChildren(old, next);
	for (const name of Object.keys({ ...old.live, ...next.live })) {
		// What somebody is typing is theirs.
		const typing = name === "value" && old === document.activeElement;
		if (old[name] !== next[name] && !typing) old[name] = next[name];
	}
	old.live = next.live;
}

function mountAll(node) {
	if (node.nodeType !== Node.ELEMENT_NODE) return;
	for (const el of [node, ...node.querySelectorAll("*")]) {
		if (el.island && !el.island.update) el.island.update = el.island.mount(el, el.island.props);
	}
}
