// Creates and patches DOM elements. Text is always inserted as text nodes: no module parses HTML.

/** @typedef {any} Child A node, a string, a number, a list of these, or nothing (null, undefined, false). */
/** @typedef {Record<string, any>} Props */
/** @typedef {HTMLElement & {on?: Props, key?: string, island?: Island}} Element_ */
/** @typedef {{kind: string, props: any, mount: (el: HTMLElement, props: any) => (props: any) => void, update?: (props: any) => void}} Island */

/** Returns the first matching element. @param {ParentNode} el @param {string} selector @returns {any} */
export const $ = (el, selector) => el.querySelector(selector);

const SVG = "http://www.w3.org/2000/svg";
const FORM_PROPS = ["value", "checked", "disabled"];

/**
 * Creates an element. The tag may carry classes: `p.note.num`. Props may be left out: `key`, `style` (object), `on<event>`,
 * properties of form controls, and attributes. False and null omit a prop. A button has type "button" unless `type` is
 * given.
 * @param {string} tag @param {...(Props | Child)} content Props, if any, and children.
 * @returns {any}
 */
export const h = (tag, ...content) => build((name) => document.createElement(name), tag, content);

/** Creates an SVG element. @param {string} tag @param {...(Props | Child)} content @returns {any} */
export const s = (tag, ...content) => build((name) => document.createElementNS(SVG, name), tag, content);

/** @param {(name: string) => any} create @param {string} tag @param {(Props | Child)[]} content */
function build(create, tag, content) {
	const [name, ...classes] = tag.split(".");
	const el = create(name);
	const props = content[0]?.constructor === Object ? content.shift() : {};
	add(el, content);
	if (name === "button") el.type = "button";
	if (classes.length) el.setAttribute("class", classes.join(" "));
	for (const [name, value] of Object.entries(props)) {
		if (value === null || value === undefined || value === false) continue;
		if (name.startsWith("on")) {
			(el.on ??= {})[name] = value;
			el[name] = value;
		} else if (name === "style") {
			for (const [property, text] of Object.entries(value)) el.style.setProperty(property, text);
		} else if (name === "key") el.key = value;
		else if (FORM_PROPS.includes(name)) {
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
 * Creates an element that renders its own content. `mount` is called once the element is in the page. It returns a
 * function that is called with the new props on every patch.
 * @template P
 * @param {string} kind @param {P} props @param {(el: HTMLElement, props: P) => (props: P) => void} mount
 */
export function island(kind, props, mount) {
	const el = h("div", { class: kind });
	el.island = { kind, props, mount };
	return el;
}

/** Replaces the children of an element. Patches existing nodes and changes only what differs. @param {HTMLElement} el @param {...Child} children */
export function render(el, ...children) {
	const wanted = document.createDocumentFragment();
	add(wanted, children);
	const restoreFocus = el.contains(document.activeElement) ? rememberFocus() : null;
	patchChildren(el, wanted);
	restoreFocus?.();
}

const FOCUSABLE = "a[href], button:not(:disabled), input:not(:disabled), select, textarea, [tabindex]";

/**
 * Remembers which element has the focus. Returns a function that, if that element is gone, puts the focus on the element
 * that has taken its place, or on the one before.
 */
export function rememberFocus() {
	const had = /** @type {HTMLElement} */ (document.activeElement);
	/** @type {[Element, number][]} */
	const places = [];
	for (let el = /** @type {Element} */ (had); el?.parentElement; el = el.parentElement) places.push([el.parentElement, [...el.parentElement.children].indexOf(el)]);
	return () => {
		if (had === document.body || (had.isConnected && had.checkVisibility()) || document.activeElement !== document.body) return;
		const [parent, at] = places.find(([parent]) => parent.isConnected) ?? [document.body, 0];
		const candidates = [parent.children[at], parent.children[at - 1], parent, parent.parentElement, $(document, "h1")];
		for (const el of candidates) {
			const target = el?.matches(FOCUSABLE) ? el : el?.querySelector(FOCUSABLE);
			if (target) return void target.focus({ preventScroll: true });
		}
	};
}

const isSameElement = (old, next) =>
	old.nodeName === next.nodeName && old.key === next.key && old.island?.kind === next.island?.kind;

/** @param {Node} old @param {Node} wanted */
function patchChildren(old, wanted) {
	const keyed = new Map();
	for (const child of /** @type {Iterable<any>} */ (old.childNodes)) if (child.key !== undefined) keyed.set(child.key, child);
	let at = /** @type {any} */ (old.firstChild);
	for (const next of /** @type {any[]} */ ([...wanted.childNodes])) {
		let found = next.key === undefined ? at : keyed.get(next.key);
		if (next.key === undefined) while (found && found.key !== undefined) found = found.nextSibling;
		if (found && isSameElement(found, next)) {
			if (found === at) at = at.nextSibling;
			else old.insertBefore(found, at);
			patch(found, next);
		} else {
			old.insertBefore(next, at);
			mountAll(next);
		}
	}
	while (at) {
		const obsolete = at;
		at = at.nextSibling;
		old.removeChild(obsolete);
	}
}

function patch(old, next) {
	if (old.nodeType === Node.TEXT_NODE) {
		if (old.data !== next.data) old.data = next.data;
		return;
	}
	for (const { name } of [...old.attributes]) {
		const isKept = name === "style" || (name === "open" && /^(DETAILS|DIALOG)$/.test(old.nodeName)) || (old.island && name !== "class");
		if (!isKept && !next.hasAttribute(name)) old.removeAttribute(name);
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
		// A field with the focus keeps what the user has typed.
		const isTyping = name === "value" && old === document.activeElement;
		if (old[name] !== next[name] && !isTyping) old[name] = next[name];
	}
	old.live = next.live;
}

function mountAll(node) {
	if (node.nodeType !== Node.ELEMENT_NODE) return;
	for (const el of [node, ...node.querySelectorAll("*")]) {
		if (el.island && !el.island.update) el.island.update = el.island.mount(el, el.island.props);
	}
}
