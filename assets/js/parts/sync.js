// Actions on a project: pause, and sync of the workflow files of its repository.

import { patch, post, projectPath } from "../api.js";
import { h } from "../dom.js";
import { open } from "./dialog.js";
import { button, external, messageOf, toast } from "./ui.js";

/** Pauses or resumes a project. @param {string} team @param {boolean} paused */
export async function setPaused(team, paused) {
	await patch(projectPath(team), { paused });
	toast(paused ? `Paused ${team}. Active runs continue.` : `Resumed ${team}.`);
}

/** @type {Record<string, string>} */
const RESULTS = {
	"up-to-date": "The workflows are up to date.",
	"pr-opened": "A pull request with the workflows is open.",
	"pr-updated": "Updated the open pull request.",
	"pr-existing": "A pull request with these changes is already open.",
};

const syncing = () => h("p", { role: "status" }, "Comparing the repository's workflows with this version's…");

/** Syncs the workflows and shows the result in a dialog. @param {string} team @param {() => any} [done] */
export async function syncWorkflows(team, done) {
	const dialog = open({ title: `Sync workflows of ${team}`, onClose: done });
	dialog.show(syncing());
	dialog.show(await synced(team), button("Done", dialog.close, "primary"));
}

async function synced(team) {
	try {
		const result = await post(projectPath(team, "/sync-workflows"));
		return [
			h("p", { role: "status" }, RESULTS[result.status] ?? result.status, result.prUrl && " Merge it to enable runs."),
			result.changedFiles?.length > 0 && h("ul", result.changedFiles.map((file) => h("li", h("code", file)))),
			result.prUrl && h("p", external(result.prUrl, `Pull request #${result.prNumber} of ${result.targetRepo}`)),
		];
	} catch (error) {
		return h("p.error", { role: "alert" }, messageOf(error));
	}
}
