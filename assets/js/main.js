// Entry point: shows the sign-in form, or the panel of the current URL if signed in.

import { isSignedIn, onSignedOut, signIn } from "./api.js";
import { h, render } from "./dom.js";
import { logo } from "./parts/icons.js";
import { messageOf } from "./parts/ui.js";
import { start } from "./router.js";
import * as shell from "./shell.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));

function showSignIn(message) {
	shell.close();
	document.title = "Sign in · Agent Implement";
	let error = "";
	let waiting = false;
	const draw = () => render(app, h("main", { class: "sign-in", key: "sign-in" },
		h("form", { onsubmit: submit, "aria-labelledby": "sign-in-title" },
			logo(), h("h1", { id: "sign-in-title" }, "Agent Implement"),
			h("p", { class: "muted" }, message ?? "Sign in with the access code of this service."),
			h("label", { for: "code" }, "Access code"),
			h("input", { id: "code", name: "code", type: "password", autocomplete: "current-password", required: true, "aria-invalid": error ? "true" : null, "aria-describedby": error ? "code-error" : null }),
			error && h("p", { class: "error", id: "code-error", role: "alert" }, error),
			h("button", { type: "submit", class: "button primary", disabled: waiting }, waiting ? "Signing in…" : "Sign in"))));
	const submit = async (event) => {
		event.preventDefault();
		const box = /** @type {HTMLInputElement} */ (document.getElementById("code"));
		[waiting, error] = [true, ""];
		draw();
		try {
			await signIn(box.value);
			return enter();
		} catch (failure) {
			error = messageOf(failure);
		}
		waiting = false;
		draw();
		box.focus();
		box.select();
	};
	draw();
	document.getElementById("code")?.focus();
}

function enter() {
	render(app);
	shell.open(app);
}

onSignedOut(() => showSignIn("Your session has ended. Sign in again to continue."));
addEventListener("signed-out", () => showSignIn("You are signed out."));
start(() => {
	if (isSignedIn()) shell.route();
}, async () => {
	const { confirm } = await import("./parts/dialog.js");
	return new Promise((answer) => confirm({
		title: "Leave without saving?", text: "Your changes on this page are not saved yet.", action: "Leave without saving",
		run: async () => answer(true), onClose: () => answer(false),
	}));
});
if (isSignedIn()) enter();
else showSignIn();
