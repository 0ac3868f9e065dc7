// List and form of project or global secrets. Values are write-only.

import { get, loadAll, post, projectPath } from "../api.js";
import { h, render } from "../dom.js";
import { url } from "../router.js";
import { deleteButton, open } from "./dialog.js";
import { fields, focusField } from "./form.js";
import { ago } from "./time.js";
import { busy, button, empty, messageOf, muted, rows, toast } from "./ui.js";

export function openAside(team, onClose) {
	const dialog = open({ title: `Secrets of ${team}`, onClose });
	dialog.show(secretsEditor(projectPath(team, "/secrets"), `Stored as ${team.toUpperCase()}_NAME; runs of this project see them as NAME.`));
	return dialog;
}

/** Names of stored secrets. `failure` says why there can be none. @param {string} path @returns {Promise<{names: any[], failure: string}>} */
export async function loadSecrets(path) {
	const { main, mode } = await loadAll("/api/admin/config-status", { mode: "/api/runner-mode" });
	const isOff = (name) => main.checks.some((one) => one.name === name && one.status === "off");
	const isUnused = isOff("vm-sessions") && isOff("kubernetes") && mode?.mode !== "local";
	return isUnused ? { names: [], failure: "Secrets are for Fly Machines, local containers and Kubernetes. None is in use." } : { names: await get(path), failure: "" };
}

/** Element that lists and edits secrets. */
export function secretsEditor(path, hint) {
	const el = h("div.secrets");
	/** @type {any[] | null} */
	let names = null;
	let failure = "";
	let error = "";
	const values = { name: "", value: "" };
	const field = fields(values);
	const load = async () => {
		try {
			({ names, failure } = await loadSecrets(path));
		} catch (thrown) {
			failure = messageOf(thrown);
		}
		draw();
	};
	const save = () => {
		busy(async () => {
			try {
				const { name } = await post(path, values);
				toast(`Saved ${name}.`);
				[values.name, values.value, error] = ["", "", ""];
				for (const input of el.querySelectorAll("input")) input.value = "";
				focusField(el, "name");
				await load();
			} catch (thrown) {
				error = messageOf(thrown).replace(/^(Secret )?name /, "The name ");
				draw();
				focusField(el);
			}
		});
	};
	const deleteSecret = (name) => deleteButton("Delete", name, {
		text: "New runs will not get it. The value cannot be restored.",
		path: path + url`/${name}`, done: `Deleted ${name}.`, after: load,
	});
	const draw = () => render(el,
		failure ? empty("Secrets cannot be managed here", failure, button("Retry", load))
			: [
				// A list that appears must not move the form, which has the focus.
				h("div", names?.length
					? rows(names, (one) => h("li", { key: one.name }, h("code.grow", one.name), muted(ago(one.updatedAt)), deleteSecret(one.name)))
					: names && h("p.muted", "No secrets yet.")),
				h("form.inline-form", { onsubmit: save, novalidate: true },
					field({ name: "name", label: "Name", required: true, placeholder: "NPM_TOKEN" }, error), field({ name: "value", label: "Value", type: "password", required: true }),
					h("button.button", { type: "submit" }, "Set secret")),
				h("p.hint", hint),
			]);
	draw();
	load();
	return el;
}
