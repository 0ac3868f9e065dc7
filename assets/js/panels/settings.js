import { get, post } from "../api.js";
import { h, island, render } from "../dom.js";
import { fields, focusField } from "../parts/form.js";
import { secretsEditor } from "../parts/secrets.js";
import { busy, messageOf, notice, section, submitButton, toast } from "../parts/ui.js";

export const about = "Session settings and global secrets of the service.";

export const load = () => get("/api/settings");

export const view = (settings, ctx) => [
	section("Fly Machines sessions", {}, island("settings-form", { settings, reload: ctx.reload }, form)),
	section("Global secrets", { note: "for every session machine" }, island("global-secrets", null, (el) => {
		el.append(secretsEditor("/api/global-secrets", "Available to every session. Names must not begin with a project key."));
		return () => {};
	})),
];

/** Value in force and who decides it. @param {string} text What the setting is for. @param {any} setting @param {string} variable */
function hintOf(text, { runtimeValue: active, storedValue, source, restartRequired }, variable) {
	if (source === "env") return `In force: ${active}, set by ${variable} in the environment of the service. A value saved here counts once the variable is unset.`;
	if (restartRequired) return `In force until the restart: ${active ?? "nothing"}.${storedValue === null ? " Then the default." : ""}`;
	return `${text} ${active === null ? "Not set." : source === "stored" ? `In force: ${active}, saved here.` : `In force: ${active}, the default.`}`;
}

/** @param {HTMLElement} el @param {{settings: any, reload: () => Promise<void>}} props */
function form(el, props) {
	let { settings } = props;
	const values = { vmSessionsApp: settings.vmSessionsApp.storedValue ?? "", vmSessionsRegion: settings.vmSessionsRegion.storedValue ?? "" };
	/** @type {Record<string, string>} */
	let errors = {};
	const field = fields(values);
	const save = () => {
		busy(async () => {
			try {
				settings = await post("/api/settings", values);
				errors = {};
				toast("Saved the settings.");
				await props.reload();
			} catch (thrown) {
				const name = messageOf(thrown).startsWith("vmSessionsRegion") ? "vmSessionsRegion" : "vmSessionsApp";
				errors = { [name]: messageOf(thrown).replace("vmSessionsApp", "App").replace("vmSessionsRegion", "Region") };
			}
			draw();
			if (Object.keys(errors).length) focusField(el);
		});
	};
	const draw = () => render(el,
		settings.restartRequired && notice("warn", "Saved changes take effect after a restart of the service."),
		h("form", { onsubmit: save, novalidate: true },
			h("div.form-grid",
				field({ name: "vmSessionsApp", label: "App", placeholder: "none", hint: hintOf("Fly app in which machines are created.", settings.vmSessionsApp, "VM_SESSIONS_APP") }, errors.vmSessionsApp),
				field({ name: "vmSessionsRegion", label: "Region", placeholder: "none", hint: hintOf("Region in which machines are created.", settings.vmSessionsRegion, "VM_SESSIONS_REGION") }, errors.vmSessionsRegion)),
			submitButton("Save settings")));
	draw();
	return (next) => {
		props = next;
		settings = next.settings;
		draw();
	};
}
