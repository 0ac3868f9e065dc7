import { loadAll, post } from "../api.js";
import { h, island, render } from "../dom.js";
import { fields } from "../parts/form.js";
import { secretsEditor } from "../parts/secrets.js";
import { busy, connections, messageOf, notice, section, toast } from "../parts/ui.js";

export const about = "Connections, session settings and global secrets of the service.";

export const load = () => loadAll("/api/admin/config-status", { settings: "/api/settings" });

export const view = ({ main, settings }, ctx) => [
	section("Connections", { note: "checked at most once a minute" }, connections(main.checks)),
	section("Fly Machines sessions", {}, settings && island("settings-form", { settings, reload: ctx.reload }, form)),
	section("Global secrets", { note: "for every session machine" }, island("global-secrets", null, (el) => {
		el.append(secretsEditor("/api/global-secrets", "Available to every session. Names must not begin with a project key."));
		return () => {};
	})),
];

function hintOf(text, setting) {
	const active = setting.runtimeValue || "no value";
	if (setting.overriddenByEnv) return `Active: ${active}, set by the environment. A value saved here takes effect when the variable is unset.`;
	return setting.runtimeValue !== setting.storedValue ? `Active until the next restart: ${active}.` : text;
}

/** @param {HTMLElement} el @param {{settings: any, reload: () => Promise<void>}} props */
function form(el, props) {
	let { settings } = props;
	const values = { vmSessionsApp: settings.vmSessionsApp.storedValue ?? "", vmSessionsRegion: settings.vmSessionsRegion.storedValue ?? "" };
	let error = "";
	const field = fields(values, () => {});
	const save = (event) => {
		event.preventDefault();
		busy(async () => {
			try {
				settings = await post("/api/settings", values);
				error = "";
				toast("Saved the settings.");
				await props.reload();
			} catch (thrown) {
				error = messageOf(thrown);
			}
			draw();
		});
	};
	const draw = () => render(el,
		settings.restartRequired && notice("warn", "Saved changes take effect after a restart of the service."),
		h("form", { onsubmit: save },
			h("div", { class: "form-grid" },
				field({ name: "vmSessionsApp", label: "App", placeholder: "agent-sessions", hint: hintOf("Fly app in which machines are created.", settings.vmSessionsApp) }),
				field({ name: "vmSessionsRegion", label: "Region", placeholder: "iad", hint: hintOf("Region in which machines are created.", settings.vmSessionsRegion) })),
			error && h("p", { class: "error", role: "alert" }, error),
			h("button", { type: "submit", class: "button primary" }, "Save settings")));
	draw();
	return (next) => {
		props = next;
		settings = next.settings;
		draw();
	};
}
