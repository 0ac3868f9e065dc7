import { get, post } from "../api.js";
import { h, island, render } from "../dom.js";
import { deleteButton } from "../parts/dialog.js";
import { fields, focusField } from "../parts/form.js";
import { badge, busy, button, external, messageOf, notice, section, submitButton, toast } from "../parts/ui.js";
import { url } from "../router.js";

export const about = "Credentials of the vendors. Values are encrypted and never shown.";

const SOURCES = { env: "From the environment of the service.", stored: "Saved here.", none: "" };
/** Address that the browser loaded the page from. The page at that address alone may send a form to GitHub. */
const loadedFrom = () => new URL(performance.getEntriesByType("navigation")[0].name).pathname;

export async function load() {
	if (loadedFrom() !== location.pathname) location.reload();
	return get("/api/connections");
}

export const view = (all, ctx) => all.map((one) => island("connection", { one, reload: ctx.reload }, card));

/** @param {HTMLElement} el @param {{one: any, reload: () => Promise<void>}} props */
function card(el, props) {
	let isOpen = false;
	let error = "";
	/** @type {Record<string, string>} */
	let values = {};
	let field = fields(values);
	const organization = { name: "" };
	const organizationField = fields(organization);
	const toggle = () => {
		isOpen = !isOpen;
		draw();
		if (isOpen) focusField(el, editable()[0].name);
	};
	const editable = () => props.one.fields.filter((one) => one.editable);
	const path = () => url`/api/connections/${props.one.name}`;
	const save = () => busy(async () => {
		try {
			await post(path(), values);
			toast(`Saved ${props.one.title}.`);
			[values, error, isOpen] = [{}, "", false];
			field = fields(values);
			await props.reload();
		} catch (thrown) {
			error = messageOf(thrown);
		}
		draw();
		if (error) focusField(el);
	});
	const test = async () => {
		await post(`${path()}/test`);
		await props.reload();
	};
	const createApp = () => busy(async () => {
		const { action, manifest } = await get(url`/api/github-app/manifest?organization=${organization.name}`);
		const form = h("form", { action, method: "post" }, h("input", { type: "hidden", name: "manifest", value: JSON.stringify(manifest) }));
		el.append(form);
		form.submit();
	});
	const draw = () => {
		const { name, title, help, helpUrl, configured, source, stored, status, detail, missing, installUrl } = props.one;
		const verb = isOpen ? "Cancel" : configured ? "Edit" : "Connect";
		render(el, section(title, {
			note: [badge(status ?? (configured ? "ok" : "off")), " ", SOURCES[source]],
			actions: [
				status && button("Test", test, "small", `Test ${title}`),
				editable().length > 0 && button(verb, toggle, "small", `${verb} ${title}`),
				stored && deleteButton("Remove", title, { text: "The saved values are deleted. Runs, polls and updates that need them wait.", path: path(), done: `Removed ${title}.`, after: props.reload }),
			],
		},
		detail && h("p", detail),
		installUrl && h("p", external(installUrl, "Install the App on repositories")),
		missing.map((text) => h("p.muted", text)),
		isOpen && [
			name === "github" && source !== "env" && h("form", { onsubmit: createApp, novalidate: true },
				organizationField({ name: "name", label: "Organization of a new App", hint: "Blank for your own account. GitHub asks once more." }),
				submitButton("Create a GitHub App")),
			h("form", { onsubmit: save, novalidate: true },
				h("p.hint", help, " ", helpUrl && external(helpUrl, "Get the credentials")),
				h("div.form-grid", editable().map((one) => field({ name: one.name, label: one.label, type: one.secret ? "password" : "text" }))),
				error && h("div.error", { tabindex: "-1" }, notice("bad", error)),
				submitButton("Test and save")),
		]));
	};
	draw();
	return (next) => {
		props = next;
		draw();
	};
}
