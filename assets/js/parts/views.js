// Saved views: names for a panel with its filter and order. They are kept in this browser.

import { $, h } from "../dom.js";
import { currentRoute, navigate, viewUrl } from "../router.js";
import { menu, open } from "./dialog.js";
import { fields } from "./form.js";
import { button, muted, rows, submitButton, toast } from "./ui.js";

const KEY = "agent-implement.views";

/** @returns {{name: string, url: string}[]} */
export function savedViews() {
	try {
		const views = JSON.parse(localStorage.getItem(KEY) ?? "[]");
		return Array.isArray(views) ? views.filter(({ name, url }) => typeof name === "string" && /^\/admin\//.test(url)) : [];
	} catch {
		return [];
	}
}

/** @param {{name: string, url: string}[]} views */
const store = (views) => localStorage.setItem(KEY, JSON.stringify(views));

/** Items of the menu, as the views are when it opens. */
const items = {
	*[Symbol.iterator]() {
		const views = savedViews();
		const { panel } = currentRoute();
		yield* views.filter(({ url }) => url.split(/[/?]/)[2] === panel).map(({ name, url }) => ({ label: name, run: () => navigate(url) }));
		yield { label: "Save this view", run: save };
		if (views.length) yield { label: "Manage views", run: manage };
	},
};

/** Menu of a table with the saved views of the current panel. */
export const viewsMenu = () => menu("Saved views", items, "views");

function save() {
	const dialog = open({ title: "Save this view" });
	const values = { name: "" };
	let error = "";
	const field = fields(values);
	const submit = () => {
		const name = values.name.trim();
		if (!name) {
			error = "Enter a name.";
			draw();
			return $(dialog.el, "input").focus();
		}
		store([...savedViews().filter((view) => view.name !== name), { name, url: viewUrl() }]);
		dialog.close();
		toast(`Saved the view ${name}.`);
	};
	const draw = () => dialog.show(h("form", { id: "view-form", onsubmit: submit, novalidate: true },
		field({ name: "name", label: "Name", required: true, hint: "Keeps the filter and the order of this page in this browser. A view of the same name is replaced." }, error)),
	[button("Cancel", dialog.close), submitButton("Save", "view-form")]);
	draw();
	$(dialog.el, "input").focus();
}

function manage() {
	const dialog = open({ title: "Saved views" });
	const draw = () => {
		const views = savedViews();
		const go = (url) => {
			dialog.close();
			navigate(url);
		};
		const remove = (gone) => {
			store(views.filter((view) => view !== gone));
			draw();
		};
		dialog.show(views.length ? rows(views, (view) => h("li", { key: view.name }, h("b.grow", view.name),
			button("Open", () => go(view.url), "small", `Open ${view.name}`), button("Delete", () => remove(view), "small danger", `Delete ${view.name}`)))
			: muted("No saved views."));
	};
	draw();
}
