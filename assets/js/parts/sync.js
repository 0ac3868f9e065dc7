// Bringing the workflows of a target repository up to date.

import { ofProject, post } from "../api.js";
import { h } from "../dom.js";
import { open } from "./dialog.js";
import { external, messageOf } from "./ui.js";

/** @type {Record<string, string>} */
const ENDS = {
	"up-to-date": "The workflows are up to date; nothing had to change.",
	"pr-opened": "A pull request with the workflows is open. Merge it, and runs can start.",
	"pr-updated": "The open pull request was brought up to date. Merge it, and runs can start.",
	"pr-existing": "A pull request with these changes is open already. Merge it, and runs can start.",
};

export const syncing = () => h("p", { role: "status" }, "Comparing the repository's workflows with this version's…");

/** Opens or updates the pull request, and shows what came of it. @param {string} team @param {() => any} [done] */
export async function syncWorkflows(team, done) {
	const dialog = open({ title: `Sync workflows of ${team}`, onClose: done });
	dialog.show(syncing());
	dialog.show(await synced(team), h("button", { class: "button primary", onclick: dialog.close }, "Done"));
}

export async function synced(team) {
	try {
		const end = await post(ofProject(team, "/sync-workflows"));
		return [
			h("p", { role: "status" }, ENDS[end.status] ?? end.status),
			end.changedFiles?.length > 0 && h("ul", {}, end.changedFiles.map((file) => h("li", {}, h("code", {}, file)))),
			end.prUrl && h("p", {}, external(end.prUrl, `Pull request #${end.prNumber} of ${end.targetRepo}`)),
		];
	} catch (error) {
		return h("p", { class: "error", role: "alert" }, messageOf(error));
	}
}
