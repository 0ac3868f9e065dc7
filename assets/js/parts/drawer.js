// Drawer of one resource, which is loaded again after events about it.

import { follow } from "../live.js";
import { open } from "./dialog.js";
import { button, empty, loading, messageOf } from "./ui.js";

/** Minimum time between two reloads, in milliseconds. */
const INTERVAL = 400;

/**
 * Opens a drawer. `load` gets what is shown so far, and `draw` shows what it returns.
 * @param {{title: string, noun: string, onClose: () => void, load: (shown: any) => Promise<any>, isAbout: (event: import("../live.js").Event_, shown: any) => boolean, draw: (dialog: ReturnType<typeof open>, shown: any, reload: () => Promise<void>) => void}} about
 */
export function openDrawer({ title, noun, onClose, load, isAbout, draw }) {
	/** @type {any} */
	let shown = null;
	const reload = async () => {
		try {
			shown = await load(shown);
			if (dialog.el.isConnected) draw(dialog, shown, reload);
		} catch (error) {
			if (dialog.el.isConnected && !shown) dialog.show(empty(`Could not load this ${noun}`, messageOf(error), button("Retry", reload)));
		}
	};
	const stop = follow((event) => isAbout(event, shown), reload, INTERVAL);
	const dialog = open({ title, kind: "drawer", onClose: () => { stop(); onClose(); } });
	dialog.show(loading());
	reload();
	return dialog;
}
