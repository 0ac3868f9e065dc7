// Issues that people continue by hand: take over, how to continue, and give back.

import { download, get, post } from "../api.js";
import { $, h } from "../dom.js";
import { url } from "../router.js";
import { open } from "./dialog.js";
import { ago } from "./time.js";
import { badge, busy, button, copyButton, muted, notice, section, submitButton, toast } from "./ui.js";

/** Key under which the name of the person is stored in this browser. */
const NAME = "person";

/** Who has an issue, and since when. @param {{by: string, at: string}} taken */
export const takenLine = ({ by, at }) => notice("run", h("strong", "Taken over by ", h("bdi", by)), " since ", ago(at), ". Automatic work pauses until somebody gives it back.");

/** Button that takes an issue over or, if a person has it, shows how to continue and gives it back. @param {string} key @param {boolean} isTaken @param {() => any} after */
export const takeButton = (key, isTaken, after) => isTaken
	? button("By hand", () => showCommands(key, after), "small", `Continue ${key} by hand, or give it back`)
	: button("Take over", () => takeOver(key, after), "small", `Take over ${key}`);

/** Who takes over or gives back, as typed in this browser before. */
const person = () => ({ by: localStorage.getItem(NAME) });

export async function giveBack(key, after) {
	try {
		await post(url`/api/issues/${key}/give-back`, person());
		toast(`Nobody has ${key} any more. Automatic work goes on.`);
	} finally {
		await after();
	}
}

function takeOver(key, after) {
	const dialog = open({ title: `Take over ${key}?` });
	const send = () => busy(async () => {
		localStorage.setItem(NAME, $(dialog.el, "input").value.trim());
		const shown = await post(url`/api/issues/${key}/take`, person());
		toast(`You have ${key}.`);
		showIn(dialog, key, shown, after);
		await after();
	});
	dialog.show([
		h("p", "You continue by hand. No run starts and nothing automatic happens on the pull request until you give it back. Comments with /agent-implement still start runs."),
		h("form", { id: "take-over", onsubmit: send },
			h("div.field", h("label", { for: "person" }, "Your name", h("span.optional", "optional")), h("input", { id: "person", maxlength: 60, autocomplete: "name", value: person().by ?? "" }), h("p.hint", "Shown on the pull request or the ticket."))),
	], [button("Cancel", dialog.close), submitButton("Take over", "take-over")]);
	$(dialog.el, "input").focus();
}

async function showCommands(key, after) {
	const shown = await get(url`/api/issues/${key}/take`);
	showIn(open({ title: "" }), key, shown, after);
}

/** Shows how to continue. @param {{show: any, close: () => void}} dialog */
function showIn(dialog, key, { repo, commands, patch, findings, lastRun }, after) {
	const back = async () => {
		await giveBack(key, after);
		dialog.close();
	};
	const save = () => download(url`/api/jobs/${patch.jobId}/patch`, patch.file);
	dialog.show([
		lastRun?.active && notice("warn", "A run is at work and may push to the branch. Cancel it, or wait for its end."),
		commands.length > 0 ? [h("p", "In a clone of ", h("b", repo), ":"), commandList(commands)] : h("p", "No run has worked on it yet, so there is no branch."),
		patch && [h("p", "The last run kept work that is not on the branch. ", button("Download patch", save, "small", `Download ${patch.file}`), " Then:"), commandList([patch.command])],
		lastRun?.summary && section("Summary of the last run", {}, h("pre.reason", lastRun.summary)),
		findings.length > 0 && section("Open findings", {}, h("ul.findings", findings.map(({ author, file, line, text }) =>
			h("li", h("div.run-line", file && h("code", line ? `${file}:${line}` : file), muted(author ?? "review of the run")), h("p", text))))),
	], [button("Give back", back, "", `Give ${key} back`), button("Close", dialog.close, "primary")], `Continue ${key} by hand`);
}

/** Commands for a shell, with a button that copies them. @param {string[]} commands */
const commandList = (commands) => h("div.run-pull.commands", h("pre", commands.join("\n")), copyButton(commands.join("\n"), "the commands"));

/** Badge of a pull request that a person has. @param {{takenBy?: string | null}} pull */
export const takenBadge = ({ takenBy }) => takenBy && badge("taken-over", `Taken over by ${takenBy}`);
