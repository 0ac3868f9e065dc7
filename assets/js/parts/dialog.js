// Dialogs, drawers and menus. The browser traps the focus and restores it on close.

import { $, h, rememberFocus, render } from "../dom.js";
import { icon } from "./icons.js";
import { remove } from "../api.js";
import { busy, button, placeToast, toast } from "./ui.js";

let count = 0;

/**
 * `mayClose` is asked before a person closes the dialog.
 * @param {{title: any, kind?: "modal" | "drawer" | "wide" | "palette", mayClose?: () => boolean, onClose?: () => void}} about
 * @returns {{el: HTMLDialogElement, show: (body: any, foot?: any, title?: any) => void, close: () => void}}
 */
export function open({ title, kind = "modal", mayClose = () => true, onClose }) {
	const id = `dialog-${(count += 1)}`;
	const el = /** @type {HTMLDialogElement} */ (h("dialog", { class: kind, "aria-labelledby": id }));
	const head = h("h2", { id, tabindex: "-1", autofocus: kind === "drawer" });
	const body = h("div.dialog-body");
	const foot = h("div.dialog-foot");
	const closeButton = button(icon("close"), () => tryToClose(), "ghost icon-only", "Close");
	el.append(h("div.dialog-head", head, closeButton), body, foot);
	el.addEventListener("close", () => {
		el.remove();
		for (const toast of el.querySelectorAll(".toast")) placeToast(toast);
		onClose?.();
		restoreFocus();
	});
	const tryToClose = () => mayClose() && el.close();
	// The browser closes a dialog at the second Escape, whatever the page answers, so the key is handled here.
	el.addEventListener("keydown", (event) => {
		if (event.key !== "Escape" || event.defaultPrevented || /** @type {Element} */ (event.target).closest("[popover]")) return;
		event.preventDefault();
		tryToClose();
	});
	el.addEventListener("cancel", (event) => { if (event.target === el && !mayClose()) event.preventDefault(); });
	// A pointer press that began inside, such as a text selection, does not close the drawer.
	let beganOutside = false;
	el.addEventListener("pointerdown", (event) => { beganOutside = event.target === el; });
	el.addEventListener("click", (event) => { if (beganOutside && event.target === el && ["drawer", "palette"].includes(kind)) tryToClose(); });
	document.body.append(el);
	render(head, title);
	const restoreFocus = rememberFocus();
	el.showModal();
	return {
		el,
		show(content, footer, heading) {
			render(body, content);
			render(foot, footer);
			if (heading) render(head, heading);
		},
		close: () => el.close(),
	};
}

/**
 * Opens a confirmation dialog. `kind` is the look of the action's button, `cancel` the text of the other one.
 * @param {{title: string, text: any, action: string, kind?: "danger" | "primary", cancel?: string, run: () => Promise<any>, onClose?: () => void}} about
 */
export function confirm({ title, text, action, kind = "danger", cancel = "Cancel", run, onClose }) {
	const dialog = open({ title, onClose });
	const go = async () => {
		await run();
		dialog.close();
	};
	dialog.show(h("p", text), [
		h("button.button", { autofocus: true, onclick: dialog.close }, cancel),
		button(action, go, kind),
	]);
	$(dialog.el, "[autofocus]").focus();
}

/**
 * Asks with a confirmation dialog. Returns whether the user has confirmed.
 * @param {{title: string, text: any, action: string, kind?: "danger" | "primary"}} about @returns {Promise<boolean>}
 */
export const ask = (about) => new Promise((answer) => confirm({ ...about, run: async () => answer(true), onClose: () => answer(false) }));

/**
 * Button that deletes a resource after confirmation, shows a message and reloads.
 * @param {string} label @param {string} subject Object of the action, for the accessible name.
 * @param {{text: any, path: string, done: string, after: () => Promise<any>}} about
 */
export const deleteButton = (label, subject, about) =>
	button(label, () => askToDelete({ title: `${label} ${subject}?`, action: `${label} ${subject}`, ...about }), "small danger", `${label} ${subject}`);

/** @param {{title: string, text: any, action: string, path: string, done: string, after: () => Promise<any>}} about */
export const askToDelete = ({ path, done, after, ...about }) => confirm({
	...about,
	run: async () => {
		await remove(path);
		toast(done);
		await after();
	},
});

/**
 * Button that opens a menu of actions. They are iterated when it opens.
 * @param {string} label @param {Iterable<{label: string, run: () => any, danger?: boolean}>} items
 */
export function menu(label, items, picture = "more") {
	const toggle = (event) => {
		const opener = event.currentTarget;
		const list = h("div.menu", { role: "menu", popover: "auto", "aria-label": label });
		for (const item of items) {
			const run = () => {
				list.hidePopover();
				opener.focus();
				busy(item.run);
			};
			list.append(h("button", { role: "menuitem", class: item.danger ? "danger" : "", onclick: run }, item.label));
		}
		list.addEventListener("keydown", move);
		list.addEventListener("toggle", (change) => {
			if (change.newState === "closed") list.remove();
		});
		(opener.closest("dialog") ?? document.body).append(list);
		list.showPopover();
		const box = opener.getBoundingClientRect();
		const left = Math.max(8, Math.min(box.right - list.offsetWidth, innerWidth - list.offsetWidth - 8));
		const below = box.bottom + 4 + list.offsetHeight < innerHeight;
		list.style.left = `${left}px`;
		list.style.top = `${below ? box.bottom + 4 : box.top - 4 - list.offsetHeight}px`;
		list.querySelector("button")?.focus();
	};
	return h("button.button.ghost.icon-only", { "aria-haspopup": "menu", "aria-label": label, title: label, onclick: toggle }, icon(picture));
}

/** @param {KeyboardEvent} event */
function move(event) {
	const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
	const items = [...(/** @type {HTMLElement} */ (event.currentTarget)).querySelectorAll("button")];
	if (!step || !items.length) return;
	event.preventDefault();
	const at = items.indexOf(/** @type {any} */ (document.activeElement));
	items[(at + step + items.length) % items.length].focus();
}
