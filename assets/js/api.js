// HTTP client of the service. The only module that sends requests.

const KEY = "agent-implement.token";

/** Error response of the service. Status 0: the service could not be reached. */
export class ApiError extends Error {
	/** @param {number} status @param {string} message */
	constructor(status, message, body = null) {
		super(message);
		this.status = status;
		this.body = body;
	}
}

/** Called when the token has expired. @type {() => void} */
let signedOutHandler = () => {};
export const onSignedOut = (handler) => { signedOutHandler = handler; };

export const isSignedIn = () => sessionStorage.getItem(KEY) !== null;

/** @param {string} code */
export async function signIn(code) {
	const { token } = await send("POST", "/api/auth", { code });
	sessionStorage.setItem(KEY, token);
}

export async function signOut() {
	try {
		await send("POST", "/api/auth/logout");
	} finally {
		sessionStorage.removeItem(KEY);
	}
}

export const get = (path) => send("GET", path);
export const post = (path, body = {}) => send("POST", path, body);
export const patch = (path, body) => send("PATCH", path, body);
export const remove = (path) => send("DELETE", path);

/** API path of a project. @param {string} team @param {string} [suffix] */
export const projectPath = (team, suffix = "") => `/api/mappings/${encodeURIComponent(team)}${suffix}`;

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

/** Sends a request with the token. @param {string} path @param {RequestInit} [init] */
export function request(path, init = {}) {
	const headers = new Headers(init.headers);
	const token = sessionStorage.getItem(KEY);
	if (token) headers.set("authorization", `Bearer ${token}`);
	return fetch(path, { ...init, headers });
}

async function send(method, path, body = /** @type {any} */ (undefined)) {
	/** @type {Response} */
	let response;
	/** @type {any} */
	let content = null;
	try {
		response = await request(path, body === undefined
			? { method }
			: { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } });
		content = await response.json().catch(() => null);
	} catch {
		throw new ApiError(0, "Can't reach the service.");
	}
	// The health check responds 503 if the service is degraded. Its body is still valid.
	if (response.ok || content?.status === "degraded") return content;
	if (response.status === 401 && path !== "/api/auth" && isSignedIn()) {
		sessionStorage.removeItem(KEY);
		signedOutHandler();
	}
	throw errorOf(response, content);
}

const errorOf = ({ status }, content) => new ApiError(status, content?.error ?? `The service responded with status ${status}.`, content);

/** Downloads a response as a file. @param {string} path @param {string} name */
export async function download(path, name) {
	const response = await request(path);
	if (!response.ok) throw errorOf(response, await response.json().catch(() => null));
	const link = document.createElement("a");
	link.href = URL.createObjectURL(await response.blob());
	link.download = name;
	link.click();
	URL.revokeObjectURL(link.href);
}
