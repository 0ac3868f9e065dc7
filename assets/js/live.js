// Event stream of the service. Read with fetch, because EventSource hides why a stream was refused. While there is no
// stream, subscribers are notified every ten seconds to reload.

import { isSignedIn, renewSession, request } from "./api.js";
import { apply, setLive } from "./parts/lists.js";

/** @typedef {{type: string, data: any}} Event_ */

const SUBSCRIBERS = new Set();
const MIN_RETRY_DELAY = 1000;
const MAX_RETRY_DELAY = 30_000;
const POLL_INTERVAL = 10_000;
/** Longer than three heartbeats of the service. */
const STREAM_TIMEOUT = 50_000;

/** Time for which a page that nobody sees keeps its stream, and the interval at which it is kept current after that. */
const HIDDEN_DELAY = 5000;
const HIDDEN_INTERVAL = 60_000;

/** @typedef {"live" | "connecting" | "polling"} State */
/** @type {State} */
let state = "connecting";
/** @type {AbortController | null} */
let stream = null;

export const liveState = () => state;

/** Calls `handler` for every event. Returns a function that unsubscribes. @param {(event: Event_) => void} handler */
export function subscribe(handler) {
	SUBSCRIBERS.add(handler);
	return () => SUBSCRIBERS.delete(handler);
}

/**
 * Calls `run` after events that `isWanted` accepts, once for all of an interval. Returns a function that ends this.
 * @param {(event: Event_) => boolean} isWanted @param {() => any} run @param {number} interval Milliseconds.
 */
export function follow(isWanted, run, interval) {
	/** @type {ReturnType<typeof setTimeout> | null} */
	let timer = null;
	return subscribe((event) => {
		if (timer || !isWanted(event)) return;
		timer = setTimeout(() => {
			timer = null;
			run();
		}, interval);
	});
}

function publish(type, data = null) {
	apply(type, data);
	for (const handler of [...SUBSCRIBERS]) handler({ type, data });
}

/** @param {State} next */
function setState(next) {
	if (state === next) return;
	state = next;
	setLive(state === "live");
	publish("state");
}

export function connect() {
	disconnect();
	const mine = new AbortController();
	stream = mine;
	keepConnected(mine);
}

export function disconnect() {
	stream?.abort();
	stream = null;
}

function reconnect() {
	setState("connecting");
	connect();
}

// The browser keeps a page that was left, with its connections, and permits only six of them for all tabs. So a page that
// nobody sees has none either. Its title names failed runs.
addEventListener("pagehide", disconnect);
addEventListener("pageshow", ({ persisted }) => persisted && reconnect());

/** @type {ReturnType<typeof setTimeout> | undefined} */
let resting;
function rest() {
	disconnect();
	setState("polling");
	resting = setInterval(() => publish("all"), HIDDEN_INTERVAL);
}
document.addEventListener("visibilitychange", () => {
	clearTimeout(resting);
	if (!isSignedIn()) return;
	if (document.hidden) resting = setTimeout(rest, HIDDEN_DELAY);
	else if (!stream) reconnect();
});

/** @param {AbortController} mine */
async function keepConnected(mine) {
	let delay = MIN_RETRY_DELAY;
	let attempts = 0;
	const polling = setInterval(() => state !== "live" && !document.hidden && publish("all"), POLL_INTERVAL);
	while (!mine.signal.aborted && isSignedIn()) {
		try {
			const began = Date.now();
			await read(mine);
			if (Date.now() - began > MAX_RETRY_DELAY) [delay, attempts] = [MIN_RETRY_DELAY, 0];
		} catch {
			// The service is unreachable or stopping. Both are handled by retrying.
		}
		if (mine.signal.aborted) break;
		attempts += 1;
		setState(attempts > 2 ? "polling" : "connecting");
		await new Promise((done) => setTimeout(done, delay * (0.5 + Math.random() / 2)));
		delay = Math.min(delay * 2, MAX_RETRY_DELAY);
	}
	clearInterval(polling);
}

/** @param {AbortController} mine */
async function read(mine) {
	const attempt = new AbortController();
	const stop = () => attempt.abort();
	mine.signal.addEventListener("abort", stop);
	let timeout = setTimeout(stop, STREAM_TIMEOUT);
	try {
		const response = await request("/api/events", { signal: attempt.signal });
		if (response.status === 401) await renewSession();
		if (!response.ok || !response.body) throw new Error("no stream");
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let text = "";
		for (;;) {
			const { done, value } = await reader.read();
			if (done) return;
			clearTimeout(timeout);
			timeout = setTimeout(stop, STREAM_TIMEOUT);
			if (state !== "live") {
				setState("live");
				// Changes may have been missed while disconnected.
				publish("all");
			}
			text += value;
			const parts = text.split("\n\n");
			text = parts.pop() ?? "";
			parts.forEach(dispatch);
		}
	} finally {
		clearTimeout(timeout);
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
		publish(type, JSON.parse(data));
	} catch {
		publish(type);
	}
}
