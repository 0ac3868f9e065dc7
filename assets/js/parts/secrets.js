// Names of secrets, of a project or of all. Values go in and never come out.

import { gather, get, ofProject, post } from "../api.js";
import { h, render } from "../dom.js";
import { deleteButton, open } from "./dialog.js";
import { fields } from "./form.js";
import { ago } from "./time.js";
import { busy, button, dim, empty, messageOf, rows, toast } from "./ui.js";

export function openAside(team, onClose) {
	const dialog = open({ title: `Secrets of ${team}`, onClose });
	dialog.show(secretsOf(ofProject(team, "/secrets"), `Stored as ${team.toUpperCase()}_NAME; runs of this project see them as NAME.`));
	return dialog;
}

/** A list of secrets that looks after itself. */
export function secretsOf(path, hint) {
	const el = h("div", { class: "secrets" });
	/** @type {any[] | null} */
	let names = null;
	let failure = "";
	let error = "";
	const values = { name: "", value: "" };
	const field = fields(values, () => {});
	const load = async () => {
		try {
			const { main, mode } = await gather("/api/admin/config-status", { mode: "/api/runner-mode" });
			const isOff = main.checks.some((one) => one.name === "vm-sessions" && one.status === "off") && mode?.mode !== "local";
			failure = isOff ? "They are for Fly Machines and local containers. Neither is in use here." : "";
			if (!isOff) names = await get(path);
		} catch (thrown) {
			failure = messageOf(thrown);
		}
		draw();
	};
	const save = (event) => {
		event.preventDefault();
		busy(async () => {
			try {
				const { name } = await post(path, values);
				toast(`${name} is stored.`);
				[values.name, values.value, error] = ["", "", ""];
				for (const input of el.querySelectorAll("input")) input.value = "";
				el.querySelector("input")?.focus();
				await load();
			} catch (thrown) {
				error = messageOf(thrown);
				draw();
			}
		});
	};
	const drop = (name) => deleteButton("Delete", name, {
		title: `Delete ${name}?`, text: "Runs that start from now on do not get it. It cannot be shown or brought back.",
		path: `${path}/${encodeURIComponent(name)}`, done: `${name} is deleted.`, after: load,
	});
	const draw = () => render(el,
		failure ? empty("Secrets cannot be managed here", failure, button("Try again", load))
			: [
				names?.length
					? rows(names, (one) => h("li", { key: one.name }, h("code", { class: "grow" }, one.name), dim(ago(one.updatedAt)), drop(one.name)))
					: names && h("p", { class: "muted" }, "No secrets yet."),
				h("form", { class: "inline-form", onsubmit: save },
					field({ name: "name", label: "Name", required: true, placeholder: "NPM_TOKEN" }), field({ name: "value", label: "Value", type: "password", required: true }),
					h("button", { type: "submit", class: "button" }, "Set secret")),
				error && h("p", { class: "error", role: "alert" }, error),
				h("p", { class: "hint" }, hint),
			]);
	draw();
	load();
	return el;
}
