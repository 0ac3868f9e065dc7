import { gather, post } from "../api.js";
import { h, island, render } from "../dom.js";
import { fields } from "../parts/form.js";
import { secretsOf } from "../parts/secrets.js";
import { busy, connections, messageOf, notice, section, toast } from "../parts/ui.js";

export const about = "The service itself: its connections, its sessions, its global secrets.";

export const load = () => gather("/api/admin/config-status", { settings: "/api/settings" });

export const view = ({ main, settings }, ctx) => [
	section("Connections", { note: "tried at most once a minute" }, connections(main.checks)),
	section("Fly Machines sessions", {}, settings && island("settings-form", { settings, reload: ctx.reload }, form)),
	section("Global secrets", { note: "for every session machine" }, island("global-secrets", null, (el) => {
		el.append(secretsOf("/api/global-secrets", "Every session gets them. A name must not begin with the key of a project."));
		return () => {};
	})),
];

function said(label, one) {
	if (one.overriddenByEnv) return `In force: ${one.runtimeValue || "nothing"}, from the environment. What is stored here takes effect when the variable is unset.`;
	return one.runtimeValue !== one.storedValue ? `In force until the restart: ${one.runtimeValue || "nothing"}.` : label;
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
				toast("The settings are saved.");
				await props.reload();
			} catch (thrown) {
				error = messageOf(thrown);
			}
			draw();
		});
	};
	const draw = () => render(el,
		settings.restartRequired && notice("warn", "What is stored takes effect after a restart of the service."),
		h("form", { onsubmit: save },
			h("div", { class: "form-grid" },
				field({ name: "vmSessionsApp", label: "App", placeholder: "agent-sessions", hint: said("The Fly app that machines are made in.", settings.vmSessionsApp) }),
				field({ name: "vmSessionsRegion", label: "Region", placeholder: "iad", hint: said("Where machines are made.", settings.vmSessionsRegion) })),
			error && h("p", { class: "error", role: "alert" }, error),
			h("button", { type: "submit", class: "button primary" }, "Save settings")));
	draw();
	return (next) => {
		props = next;
		settings = next.settings;
		draw();
	};
}
