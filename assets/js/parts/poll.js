// Polling the ticketing systems at once, and what came of it.

import { getNow, post } from "../api.js";
import { h } from "../dom.js";
import { subscribe } from "../live.js";
import { icon } from "./icons.js";
import { ago } from "./time.js";
import { button, toast } from "./ui.js";
import { count } from "./words.js";

const PATH = "/api/poll";
/** Time after which a poll counts as slow, in milliseconds. */
const SLOW = 60_000;

/** Starts a poll. Reports its result when it has ended. */
export async function pollNow() {
	const before = await getNow(PATH);
	// A poll that runs already ends before the requested one.
	let awaited = before.running ? 2 : 1;
	const ended = new Promise((done) => {
		const timer = setTimeout(() => finish(null), SLOW);
		const unsubscribe = subscribe(async ({ type }) => {
			if (type !== "poll" || (awaited -= 1) > 0) return;
			const now = await getNow(PATH).catch(() => before);
			if (now.last?.at !== before.last?.at) finish(now);
		});
		const finish = (poll) => {
			clearTimeout(timer);
			unsubscribe();
			done(poll);
		};
	});
	await post(PATH);
	toast("Started a poll of the ticketing systems.");
	ended.then((poll) => {
		if (!poll) return toast("The poll takes longer than a minute. Its result appears in the overview.");
		const { systems, last } = poll;
		const failed = systems.filter((one) => one.error);
		const read = systems.filter((one) => !one.error).map((one) => `${one.name}: ${count(one.issues, "issue")}.`);
		toast([...failed.map((one) => `${one.name} could not be polled: ${one.error}`), ...read, `${count(last.dispatched, "run")} started, ${count(last.waiting, "issue")} waiting.`].join(" "), failed.length ? "bad" : "ok");
	});
}

/** Time of the last successful poll of each system, and a button that polls. @param {{systems: any[]} | null} poll */
export const pollActions = (poll) => [
	h("span.poll-times", poll?.systems.map((one) => h("span", { class: one.error ? "warn-text" : "muted", title: one.error },
		`${one.name}: `, one.lastSuccessAt ? ["polled ", ago(one.lastSuccessAt)] : "not polled yet", one.error && one.lastAttemptAt && [", failed ", ago(one.lastAttemptAt)]))),
	button([icon("refresh"), "Poll now"], pollNow),
];
