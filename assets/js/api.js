// The only place that asks the service anything.

const KEY = "agent-implement.token";

/** What the service refused, in its words. Status 0: it could not be reached. */
export class ApiError extends Error {
	/** @param {number} status @param {string} message */
	constructor(status, message, body = null) {
		super(message);
		this.status = status;
		this.body = body;
	}
}

/** Who is told when the token is no longer good. @type {() => void} */
let onSignedOut = () => {};
export const whenSignedOut = (told) => { onSignedOut = told; };

export const isSignedIn = () => sessionStorage.getItem(KEY) !== null;

/** @param {string} code */
export async function signIn(code) {
	const { token } = await ask("POST", "/api/auth", { code });
	sessionStorage.setItem(KEY, token);
}

export async function signOut() {
	try {
		await ask("POST", "/api/auth/logout");
	} finally {
		sessionStorage.removeItem(KEY);
	}
}

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
export const remove = (path) => ask("DELETE", path);

/** What belongs to a project. @param {string} team @param {string} [what] */
export const ofProject = (team, what = "") => `/api/mappings/${encodeURIComponent(team)}${what}`;

/**
 * Several questions at once; the first is what the view is about, of the others what failed is null
 * and named in `failed`.
 * @param {string} main @param {Record<string, string>} others
 */
export async function gather(main, others) {
	const names = Object.keys(others);
	const [first, ...rest] = await Promise.allSettled([get(main), ...names.map((name) => get(others[name]))]);
	if (first.status === "rejected") throw first.reason;
	/** @type {Record<string, any>} */
	const found = { main: first.value, failed: [] };
	rest.forEach((one, at) => {
		found[names[at]] = one.status === "fulfilled" ? one.value : null;
		if (one.status === "rejected") found.failed.push(`${others[names[at]]}: ${one.reason.message}`);
	});
	return found;
}

/** A request with the token. @param {string} path @param {RequestInit} [init] */
export function request(path, init = {}) {
	const headers = new Headers(init.headers);
	const token = sessionStorage.getItem(KEY);
	if (token) headers.set("authorization", `Bearer ${token}`);
	return fetch(path, { ...init, headers });
}

async function ask(method, path, body = /** @type {any} */ (undefined)) {
	/** @type {Response} */
	let answer;
	/** @type {any} */
	let said = null;
	try {
		answer = await request(path, body === undefined
			? { method }
			: { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } });
		said = await answer.json().catch(() => null);
	} catch {
		throw new ApiError(0, "The service cannot be reached.");
	}
	// Degraded comes with 503, and is an answer.
	if (answer.ok || said?.status === "degraded") return said;
	if (answer.status === 401 && path !== "/api/auth" && isSignedIn()) {
		sessionStorage.removeItem(KEY);
		onSignedOut();
	}
	throw refusal(answer, said);
}

const refusal = ({ status }, said) => new ApiError(status, said?.error ?? `The service answered ${status}.`, said);

/** Saves what the service answers as a file. @param {string} path @param {string} name */
export async function download(path, name) {
	const answer = await request(path);
	if (!answer.ok) throw refusal(answer, await answer.json().catch(() => null));
	const link = document.createElement("a");
	link.href = URL.createObjectURL(await answer.blob());
	link.download = name;
	link.click();
	URL.revokeObjectURL(link.href);
}
