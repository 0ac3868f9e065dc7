// What changes, while it changes: the service's event stream. It is read with fetch, because only so
// can it carry the token. Without a stream, everybody is asked to look again every few seconds.

import { isSignedIn, request } from "./api.js";

/** @typedef {{type: string, data: any}} Event_ */

const LISTENERS = new Set();
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;
const POLL_PERIOD = 10_000;
/** Longer than three heartbeats of the service. */
const SILENCE = 50_000;

/** @typedef {"live" | "connecting" | "polling"} State */
/** @type {State} */
let state = "connecting";
/** @type {AbortController | null} */
let stream = null;

export const liveState = () => state;

/** Calls `told` for every event until what it answers is called. @param {(event: Event_) => void} told */
export function listen(told) {
	LISTENERS.add(told);
	return () => LISTENERS.delete(told);
}

function tell(type, data = null) {
	for (const told of [...LISTENERS]) told({ type, data });
}

/** @param {State} next */
function become(next) {
	if (state === next) return;
	state = next;
	tell("state");
}

export function connect() {
	disconnect();
	const mine = new AbortController();
	stream = mine;
	run(mine);
}

export function disconnect() {
	stream?.abort();
	stream = null;
}

/** @param {AbortController} mine */
async function run(mine) {
	let wait = FIRST_WAIT;
	let tries = 0;
	const polling = setInterval(() => state !== "live" && !document.hidden && tell("all"), POLL_PERIOD);
	while (!mine.signal.aborted && isSignedIn()) {
		try {
			const began = Date.now();
			await read(mine);
			if (Date.now() - began > LONGEST_WAIT) [wait, tries] = [FIRST_WAIT, 0];
		} catch {
			// The service is away or stops; both are mended by trying again.
		}
		if (mine.signal.aborted) break;
		tries += 1;
		become(tries > 2 ? "polling" : "connecting");
		await new Promise((done) => setTimeout(done, wait * (0.5 + Math.random() / 2)));
		wait = Math.min(wait * 2, LONGEST_WAIT);
	}
	clearInterval(polling);
}

/** @param {AbortController} mine */
async function read(mine) {
	const dead = new AbortController();
	const stop = () => dead.abort();
	mine.signal.addEventListener("abort", stop);
	let silence = setTimeout(stop, SILENCE);
	try {
		const answer = await request("/api/events", { signal: dead.signal });
		// Who is not signed in any more hears it from the next question.
		if (answer.status === 401) tell("all");
		if (!answer.ok || !answer.body) throw new Error("no stream");
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		let text = "";
		for (;;) {
			const { done, value } = await reader.read();
			if (done) return;
			clearTimeout(silence);
			silence = setTimeout(stop, SILENCE);
			if (state !== "live") {
				become("live");
				// What happened while nobody listened.
				tell("all");
			}
			text += value;
			const parts = text.split("\n\n");
			text = parts.pop() ?? "";
			parts.forEach(dispatch);
		}
	} finally {
		clearTimeout(silence);
		mine.signal.removeEventListener("abort", stop);
		stop();
	}
}

function dispatch(block) {
	let type = "";
	let data = "";
	for (const line of block.split("\n")) {
		const [, name, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
		if (name === "event") type = value;
		if (name === "data") data += value;
	}
	if (!type) return;
	try {
		tell(type, JSON.parse(data));
	} catch {
		tell(type);
	}
}
