// HTTP client of the service. The only module that sends requests. The session is a cookie that scripts cannot read;
// it serves all tabs of the browser.

import { cached, clear, expire, isCached } from "./parts/lists.js";
import { url } from "./router.js";

/** Key under which the end of the session is stored, so that all tabs know whether they are signed in. */
const SESSION = "agent-implement.session";

/** Error response of the service. Status 0: the service could not be reached. */
export class ApiError extends Error {
	/** @param {number} status @param {string} message */
	constructor(status, message, body = null) {
		super(message);
		this.status = status;
		this.body = body;
	}
}

/** Signs in again after the session has ended; false if the user does not. @type {() => Promise<boolean>} */
let renew = async () => false;
/** @type {Promise<boolean> | null} */
let renewal = null;
let signedInAt = 0;

/**
 * `ended` is called when the session has ended; requests wait for it. `changed` is called when another tab has signed in
 * or out.
 * @param {{ended: () => Promise<boolean>, changed: (signedIn: boolean) => void}} handlers
 */
export function onSession({ ended, changed }) {
	renew = ended;
	addEventListener("storage", ({ key }) => {
		if (key === SESSION || key === null) changed(isSignedIn());
	});
}

/** Whether this browser has signed in. The session may have ended since. */
export const isSignedIn = () => localStorage.getItem(SESSION) !== null;

/** @param {string} code */
export async function signIn(code) {
	const { expiresAt } = await send("POST", "/api/auth", { code });
	signedInAt = performance.now();
	localStorage.setItem(SESSION, expiresAt);
}

export async function signOut() {
	try {
		await send("POST", "/api/auth/logout", {});
	} finally {
		forgetSession();
	}
}

/** Forgets the session and all data. */
export function forgetSession() {
	localStorage.removeItem(SESSION);
	clear();
}

/** Waits until the user has signed in again. */
export const renewSession = () => (renewal ??= renew().finally(() => { renewal = null; }));

export const get = (path) => (isCached(path) ? cached(path, (etag) => sendFor(path, etag)) : send("GET", path));
export const post = (path, body = {}) => change("POST", path, body);
/** Reads a path past the cache. */
export const getNow = (path) => send("GET", path);
/** Asks about a body. Nothing is changed. */
export const check = (path, body) => send("POST", path, body);
/** @param {string} [etag] Version that the change is based on. */
export const patch = (path, body, etag) => change("PATCH", path, body, etag ? { "if-match": etag } : {});
export const remove = (path) => change("DELETE", path);

async function change(method, path, body = /** @type {any} */ (undefined), headers = {}) {
	try {
		return await send(method, path, body, headers);
	} finally {
		expire();
	}
}

/** API path of a project. @param {string} team @param {string} [suffix] */
export const projectPath = (team, suffix = "") => url`/api/mappings/${team}` + suffix;

/**
 * Loads several paths in parallel. If `main` fails, the call fails. Another path that fails is null in the result,
 * and its error is listed in `failed`.
 * @param {string} main @param {Record<string, string>} others
 */
export async function loadAll(main, others) {
	const names = Object.keys(others);
	const [first, ...rest] = await Promise.allSettled([get(main), ...names.map((name) => get(others[name]))]);
	if (first.status === "rejected") throw first.reason;
	/** @type {Record<string, any>} */
	const loaded = { main: first.value, failed: [] };
	rest.forEach((result, at) => {
		loaded[names[at]] = result.status === "fulfilled" ? result.value : null;
		if (result.status === "rejected") loaded.failed.push(`Part of this page could not be loaded: ${result.reason.message}`);
	});
	return loaded;
}

/** Sends a request. The header proves that it comes from the panel. @param {string} path @param {RequestInit} [init] */
export function request(path, init = {}) {
	const headers = new Headers(init.headers);
	headers.set("x-requested-with", "agent-implement");
	return fetch(path, { ...init, headers });
}

/** Sends a request and returns the response, after signing in again if the session has ended. @returns {Promise<Response>} */
async function respond(path, init) {
	const began = performance.now();
	/** @type {Response} */
	let response;
	try {
		response = await request(path, init);
	} catch {
		throw new ApiError(0, "Can't reach the service.");
	}
	if (response.status !== 401 || path === "/api/auth" || !isSignedIn()) return response;
	return signedInAt > began || await renewSession() ? respond(path, init) : response;
}

async function send(method, path, body = /** @type {any} */ (undefined), headers = {}) {
	const response = await respond(path, body === undefined
		? { method, headers }
		: { method, body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } });
	return contentOf(response);
}

async function sendFor(path, etag) {
	const response = await respond(path, { headers: etag ? { "if-none-match": etag } : {} });
	if (response.status === 304) return null;
	return { data: await contentOf(response), etag: response.headers.get("etag") };
}

/** Versions of resources, by their content. @type {WeakMap<object, string>} */
const ETAGS = new WeakMap();
/** Version of a resource as it was loaded. @param {object} content */
export const etagOf = (content) => ETAGS.get(content);

/** Paths of next pages, by the rows of a page. @type {WeakMap<object, string>} */
const NEXT = new WeakMap();
/** Path of the page after a page of a list; null for the last one. @param {any[]} rows */
export const nextPage = (rows) => NEXT.get(rows) ?? null;

/** @param {Response} response */
async function contentOf(response) {
	const content = await response.json().catch(() => null);
	const next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "");
	if (next && content) NEXT.set(content, next[1]);
	// The response to a stale version carries the current one.
	const versioned = response.status === 412 ? content?.mapping : content;
	if (versioned && response.headers.has("etag")) ETAGS.set(versioned, response.headers.get("etag") ?? "");
	// The health check responds 503 if the service is degraded. Its body is still valid.
	if (response.ok || content?.status === "degraded") return content;
	throw errorOf(response, content);
}

const errorOf = ({ status }, content) => new ApiError(status, content?.error ?? `The service responded with status ${status}.`, content);

/** Requests a file. @param {string} path */
export async function requestFile(path) {
	const response = await respond(path);
	if (!response.ok) throw errorOf(response, await response.json().catch(() => null));
	return response;
}

/** Downloads a file. @param {string} path @param {string} name */
export const download = async (path, name) => saveAs(name, await (await requestFile(path)).blob());

/** Saves a text or a blob as a file. @param {string} name @param {BlobPart} content */
export function saveAs(name, content) {
	const link = document.createElement("a");
	link.href = URL.createObjectURL(new Blob([content]));
	link.download = name;
	link.click();
	URL.revokeObjectURL(link.href);
}
