// Polling the ticketing systems at once, and what came of it.

import { get, post } from "../api.js";
import { h } from "../dom.js";
import { subscribe } from "../live.js";
import { icon } from "./icons.js";
import { ago } from "./time.js";
import { button, toast } from "./ui.js";
import { count } from "./words.js";

/** Time after which a poll counts as slow, in milliseconds. */
const SLOW = 60_000;

/** Starts a poll. Reports its result when it has ended. */
export async function pollNow() {
	const ended = new Promise((done) => {
		const timer = setTimeout(() => finish(false), SLOW);
		const unsubscribe = subscribe(({ type }) => { if (type === "poll") finish(true); });
		const finish = (isEnded) => {
			clearTimeout(timer);
			unsubscribe();
			done(isEnded);
		};
	});
	await post("/api/poll");
	toast("Started a poll of the ticketing systems.");
	ended.then(async (isEnded) => {
		if (!isEnded) return toast("The poll takes longer than a minute. Its result appears in the overview.");
		const { systems, last } = await get("/api/poll");
		const failed = systems.filter((one) => one.error);
		const read = systems.filter((one) => !one.error).map((one) => `${one.name}: ${count(one.issues, "issue")}.`);
		const result = last ? `${count(last.dispatched, "run")} started, ${count(last.waiting, "issue")} waiting.` : "";
		toast([...failed.map((one) => `${one.name} could not be polled: ${one.error}`), ...read, result].join(" "), failed.length ? "bad" : "ok");
	}).catch(() => {});
}

/** Time of the last successful poll of each system, and a button that polls. @param {{systems: any[]} | null} poll */
export const pollActions = (poll) => [
	h("span.poll-times", poll?.systems.map((one) => h("span", { class: one.error ? "warn-text" : "muted", title: one.error },
		`${one.name}: `, one.lastSuccessAt ? ["polled ", ago(one.lastSuccessAt)] : "not polled yet", one.error && one.lastAttemptAt && [", failed ", ago(one.lastAttemptAt)]))),
	button([icon("refresh"), "Poll now"], pollNow),
];
