// What waits for a person: questions of runs, and plans that wait for approval.

import { get, post } from "../api.js";
import { $, h } from "../dom.js";
import { asideUrl, url } from "../router.js";
import { ask, open } from "./dialog.js";
import { ago } from "./time.js";
import { busy, button, external, muted, submitButton, toast } from "./ui.js";

/** Open questions and plans of one issue; empty if they cannot be loaded. @param {string} key @returns {Promise<{questions: any[], plans: any[]}>} */
export async function waitsOf(key) {
	const of = (path, list) => get(path).then((all) => all[list].filter((one) => one.issueIdentifier === key), () => []);
	const [questions, plans] = await Promise.all([of("/api/questions", "questions"), of("/api/plans", "plans")]);
	return { questions, plans };
}

/** What waits, with its issue. @param {any} one @param {any} facts @param {any[]} content */
const card = (one, facts, ...content) => h("article.waiting", { key: one.jobId, "aria-label": one.issueIdentifier },
	h("h3", h("a", { href: asideUrl("issue", one.issueIdentifier) }, one.issueIdentifier, " ", one.issueTitle)),
	h("div.links.muted", h("a", { href: url`/admin/projects/${one.teamKey}` }, one.teamKey), facts, one.remindedAt && h("span", "reminded ", ago(one.remindedAt)),
		h("a", { href: url`/admin/runs/${one.jobId}` }, "Run"), external(one.ticketUrl, "Ticket")),
	content);

/** Questions of a run, with a form for the answer. @param {any} one @param {() => any} after */
export function questionCard(one, after) {
	const { questions, issueId, issueIdentifier, expiresAt } = one;
	const id = `answer-${issueId}`;
	const box = () => $(document, `#${CSS.escape(id)}`);
	/** Puts a choice into the answer. The answers to several questions are numbered. */
	const choose = (at, text) => {
		const number = `${at + 1}. `;
		const others = box().value.split("\n").filter((line) => line && !line.startsWith(number));
		box().value = questions.length > 1 ? [...others, number + text].join("\n") : text;
		box().focus();
	};
	const send = () => busy(() => act(url`/api/questions/${issueId}/answer`, { answer: box().value }, `Answered ${issueIdentifier}. The work goes on.`, after));
	return card(one, [h("span", "asked ", ago(one.askedAt)), h("span", expiresAt ? ["goes on with the defaults ", ago(expiresAt)] : "waits without limit")],
		h("ol.questions", questions.map(({ text, choices, default: preset }, at) => h("li", h("p", text),
			choices.length > 0 && h("div.choices", choices.map((choice) => button(choice, () => choose(at, choice), "small"))),
			preset && muted("Default: ", preset)))),
		h("form", { onsubmit: send }, h("label", { for: id }, "Answer"),
			h("textarea", { id, rows: 3, required: true }), submitButton("Send answer")));
}

/** Sends a request, says what was done, and reloads. */
async function act(path, body, done, after) {
	try {
		await post(path, body);
		toast(done);
	} finally {
		await after();
	}
}

/** Plan that waits for an approval. @param {any} one @param {() => any} after */
export function planCard(one, after) {
	const { issueId, issueIdentifier: key } = one;
	const path = url`/api/plans/${issueId}`;
	const approve = () => act(`${path}/approve`, {}, `Approved the plan of ${key}. The implementation starts.`, after);
	const reject = async () => {
		if (await ask({ title: `Reject the plan of ${key}?`, text: `The trigger leaves the ticket. ${key} is planned again when somebody sets it anew.`, action: "Reject plan" })) await act(`${path}/reject`, {}, `Rejected the plan of ${key}.`, after);
	};
	const replan = () => {
		const dialog = open({ title: `Plan ${key} again?` });
		const send = () => busy(async () => {
			await act(`${path}/replan`, { instruction: $(dialog.el, "textarea").value }, `${key} is planned again.`, after);
			dialog.close();
		});
		dialog.show(h("form", { id: "replan", onsubmit: send }, h("label", { for: "instruction" }, "What to change", h("span.optional", "optional")), h("textarea", { id: "instruction", rows: 4 })),
			[button("Cancel", dialog.close), submitButton("Plan again", "replan")]);
		$(dialog.el, "textarea").focus();
	};
	return card(one, h("span", "planned ", ago(one.plannedAt)), one.objection && h("p", one.objection),
		h("div.actions", button("Approve", approve, "primary", `Approve the plan of ${key}`), button("Plan again", replan, "", `Plan ${key} again`), button("Reject", reject, "danger", `Reject the plan of ${key}`)));
}
