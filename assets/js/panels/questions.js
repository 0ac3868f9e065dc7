import { loadAll } from "../api.js";
import { empty, section } from "../parts/ui.js";
import { planCard, questionCard } from "../parts/waiting.js";
import { count } from "../parts/words.js";

export const about = "What runs ask people, and plans that wait for approval.";
export const watch = ["job", "decision", "poll"];

export const load = () => loadAll("/api/questions", { plans: "/api/plans" });

export function view({ main: { questions }, plans }, ctx) {
	const waiting = (plans?.plans ?? []).filter((one) => !one.approval);
	if (!questions.length && !waiting.length) return empty("Nothing waits for you", "Questions of runs and plans that need an approval appear here.");
	return [
		questions.length > 0 && section("Questions", { note: count(questions.length, "issue"), key: "questions" }, questions.map((one) => questionCard(one, ctx.reload))),
		waiting.length > 0 && section("Plans", { note: count(waiting.length, "issue"), key: "plans" }, waiting.map((one) => planCard(one, ctx.reload))),
	];
}
