// State of the whole service above every panel: incidents, a new version, and the numbers of failed runs and of
// issues that wait for a person.

import { get } from "../api.js";
import { h } from "../dom.js";
import { MIN_INTERVAL } from "./lists.js";
import { clockTime, until } from "./time.js";
import { button, notice } from "./ui.js";
import { count, failedOf } from "./words.js";

/** @typedef {{id: string, vendor: string, kind: "rate-limited" | "unreachable", headline: string, affects: string, since: string, until: string | null, issuesWaiting: number, updatesWaiting: number}} Incident */

/** @type {Incident[]} */
let incidents = [];
/** Version of the service that this page was loaded from. @type {string | null} */
let loaded = null;
/** @type {string | null} */
let running = null;
let failed = 0;
let waiting = 0;
/** @type {Set<number>} */
const scheduled = new Set();

/** Number of runs that failed in the last 24 hours. */
export const failures = () => failed;
/** Number of questions and plans that wait for a person. */
export const asked = () => waiting;
export const version = () => running;

/** Types of events after which the state is read again. */
const WATCHED = ["all", "poll", "job", "outbox"];

/** Reads the state, and calls `done` if it has changed. @param {() => void} done @param {string} [event] Event that may have changed it. */
export function readStatus(done, event) {
	if (!event) return void read(done);
	if (!WATCHED.includes(event)) return;
	// A path that was fetched just now is read again when it may be fetched again.
	for (const delay of [500, MIN_INTERVAL + 500]) {
		if (scheduled.has(delay)) continue;
		scheduled.add(delay);
		setTimeout(() => {
			scheduled.delete(delay);
			read(done);
		}, delay);
	}
}

async function read(done) {
	const before = JSON.stringify([incidents, running, failed, waiting]);
	const [health, open, summary] = await Promise.all(["/", "/api/incidents", "/api/summary?window=24h"].map((path) => get(path).catch(() => null)));
	if (health) running = health.version;
	loaded ??= running;
	if (open) incidents = open.incidents;
	if (summary) {
		const { question = 0, approval = 0 } = summary.waiting.byReason;
		[failed, waiting] = [failedOf(summary), question + approval];
	}
	if (JSON.stringify([incidents, running, failed, waiting]) !== before) done();
}

/** What a vendor's incident means, in words. @param {Incident} one */
function sentences(one) {
	const waiting = [one.issuesWaiting && count(one.issuesWaiting, "issue"), one.updatesWaiting && count(one.updatesWaiting, "update")].filter(Boolean);
	const single = one.issuesWaiting + one.updatesWaiting === 1;
	return [
		h("b", one.headline), one.until ? [" until ", until(one.until)] : [" since ", clockTime(one.since)], ". ",
		one.affects, waiting.length > 0 && ` ${waiting.join(" and ")} ${single ? "waits" : "wait"}.`, one.until && [" Since ", clockTime(one.since), "."],
	];
}

export const statusStrip = () => h("div.strip", { key: "strip" },
	running !== loaded && notice("run", "The service has been updated to version ", h("b", running), ". ", button("Reload", () => location.reload(), "small")),
	h("div", { role: "status" }, incidents.map((one) => h("div", { class: `notice ${one.kind === "unreachable" ? "bad" : "warn"}`, key: one.id }, h("div", sentences(one))))));
