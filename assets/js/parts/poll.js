// Polling the ticketing systems at once, and what came of it.

import { post } from "../api.js";
import { h } from "../dom.js";
import { ago } from "./time.js";
import { muted, toast } from "./ui.js";

/** Starts a poll. Reports its result when it has ended. */
export async function pollNow() {
	await post("/api/poll");
	toast("Started a poll of the ticketing systems.");
}

/** Time of the last successful poll of each system. @param {{systems: any[]} | null} poll */
export const pollTimes = (poll) => poll?.systems.map((one) => h("span", { class: one.error ? "warn-text" : "muted", title: one.error ?? null },
	`${one.name}: `, one.lastSuccessAt ? ["polled ", ago(one.lastSuccessAt)] : "not polled yet", one.error && one.lastAttemptAt && [", failed ", ago(one.lastAttemptAt)])) ?? muted();
