// Entry point: shows the sign-in form, or the panel of the current URL if signed in.

import { forgetSession, isSignedIn, onSession, signIn } from "./api.js";
import { $, h, island, render } from "./dom.js";
import { ask, open } from "./parts/dialog.js";
import { logo } from "./parts/icons.js";
import { messageOf, submitButton } from "./parts/ui.js";
import { start } from "./router.js";
import * as shell from "./shell.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));

/** Form for the access code. @param {() => void} done */
const codeForm = (done) => island("code-form", done, (el) => {
	let error = "";
	let waiting = false;
	const draw = () => render(el, h("form", { onsubmit: submit },
		h("label", { for: "code" }, "Access code"),
		h("input", { id: "code", name: "code", type: "password", autocomplete: "current-password", required: true, "aria-invalid": error ? "true" : null, "aria-describedby": error ? "code-error" : null }),
		error && h("p.error", { id: "code-error", role: "alert" }, error),
		submitButton(waiting ? "Signing in…" : "Sign in", undefined, { disabled: waiting })));
	const submit = async () => {
		const box = $(el, "#code");
		[waiting, error] = [true, ""];
		draw();
		try {
			await signIn(box.value);
			return done();
		} catch (failure) {
			error = messageOf(failure);
		}
		waiting = false;
		draw();
		box.focus();
		box.select();
	};
	draw();
	return () => {};
});

/** @param {string} [message] */
function showSignIn(message = "Sign in with the access code of this service.") {
	shell.close();
	document.title = "Sign in · Agent Implement";
	render(app, h("main.sign-in", { key: "sign-in" }, h("div.sign-in-card",
		logo(), h("h1", "Agent Implement"), h("p.muted", message), codeForm(enter))));
	$(app, "#code").focus();
}

/** Asks for the access code over the page, so that nothing typed there is lost. Returns whether the user has signed in. @returns {Promise<boolean>} */
const signInAgain = () => new Promise((answer) => {
	let isSignedInAgain = false;
	const succeed = () => {
		isSignedInAgain = true;
		dialog.close();
	};
	const dialog = open({ title: "Sign in again", onClose: () => {
		closeRenewal = () => {};
		answer(isSignedInAgain);
		if (isSignedInAgain || !isSignedIn()) return;
		forgetSession();
		showSignIn("Your session has ended. Sign in again to continue.");
	} });
	closeRenewal = succeed;
	dialog.show([h("p.muted", "Your session has ended. Sign in again to continue. What you have entered on this page is kept."), codeForm(succeed)]);
	$(dialog.el, "#code").focus();
});
let closeRenewal = () => {};

function enter() {
	render(app);
	shell.open(app);
}

onSession({
	ended: signInAgain,
	changed: (signedIn) => {
		if (!signedIn) showSignIn("You are signed out.");
		else if (shell.isOpen()) closeRenewal();
		else enter();
	},
});
addEventListener("signed-out", () => showSignIn("You are signed out."));
start(() => shell.isOpen() && shell.route(), () => ask({ title: "Leave without saving?", text: "Your changes on this page are not saved yet.", action: "Leave without saving" }));
if (isSignedIn()) enter();
else showSignIn();
