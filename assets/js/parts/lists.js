// Cache of what the panels show. Nothing is fetched more than once in five seconds, except after an own change. Events
// of the service update the rows of cached lists, so that most changes need no request.

/** Minimum time between two fetches of the same path, in milliseconds. */
export const MIN_INTERVAL = 5000;
/** Time after which a list that events keep current is fetched again, in milliseconds. */
const MAX_AGE = 60_000;
const MAX_ENTRIES = 40;

/** Paths that are always fetched: one run, one issue, one project, and choices of forms. */
const UNCACHED = /^\/api\/(jobs|why|auth|mappings\/[^/]+$|ticketing-b|events)/;

/** Types of events after which a path has to be fetched again, unless the event carries the changed row. @type {[RegExp, string[]][]} */
const AFFECTED = [
	[/^\/api\/(log|usage|sessions|dedup|scoreboard)/, ["job"]],
	[/^\/api\/pulls/, ["job", "poll"]],
	[/^\/api\/(issues|blockers)/, ["decision", "poll"]],
	[/^\/api\/(summary|parked|questions|plans)/, ["job", "decision", "poll"]],
	[/^\/(api\/(poll|incidents|admin\/config-status))?$/, ["poll"]],
	[/^\/api\/(outbox|incidents)/, ["outbox"]],
];

/**
 * `at` is the time of the last fetch, `retryIn` the time until a failed one is repeated, `rows` the position of each row
 * by its key, and `missed` are the events that arrived during a fetch.
 * @typedef {{data: any, etag: string | null, at: number, retryIn: number, stale: boolean, pending: Promise<any> | null, rows: Map<string, number> | null, missed: [string, any][]}} Entry
 */
/** @type {Map<string, Entry>} */
const entries = new Map();
/** Paths that were read since the last call of `beginLoad`, with the oldest content that was returned. @type {Map<string, any>} */
let returned = new Map();
let isLive = false;

/** @param {boolean} live Whether events arrive. */
export const setLive = (live) => { isLive = live; };

/** @param {string} path */
export const isCached = (path) => !UNCACHED.test(path);

/** State that changes without an event. */
const UNOBSERVED = /^\/(api\/admin\/config-status)?$/;
const isKeptCurrent = (path) => isLive && !UNOBSERVED.test(path) && AFFECTED.some(([paths]) => paths.test(path));
const isDue = (path, entry) => {
	const age = Date.now() - entry.at;
	return age >= MIN_INTERVAL && (entry.stale || age >= (isKeptCurrent(path) ? MAX_AGE : MIN_INTERVAL));
};

/**
 * Returns the cached content of a path, or fetches it. `fetchIt` gets the ETag of the cached content, and returns null
 * if that is still current.
 * @param {string} path @param {(etag: string | null) => Promise<{data: any, etag: string | null} | null>} fetchIt
 */
export async function cached(path, fetchIt) {
	let content;
	try {
		return (content = await read(path, fetchIt));
	} finally {
		if (!returned.has(path)) returned.set(path, content);
	}
}

function read(path, fetchIt) {
	const entry = entries.get(path) ?? { data: undefined, etag: null, at: -MAX_AGE, retryIn: 0, stale: true, pending: null, rows: null, missed: [] };
	entries.delete(path);
	entries.set(path, entry);
	if (entries.size > MAX_ENTRIES) entries.delete([...entries.keys()][0]);
	if (entry.pending) return entry.pending;
	if (entry.data !== undefined && !isDue(path, entry)) return Promise.resolve(entry.data);
	entry.stale = false;
	const load = async () => {
		try {
			const next = await fetchIt(entry.etag);
			// The user has changed something since.
			if (entry.pending !== mine) return read(path, fetchIt);
			if (next) [entry.data, entry.etag, entry.rows] = [next.data, next.etag, null];
			[entry.at, entry.retryIn] = [Date.now(), 0];
			return entry.data;
		} catch (error) {
			[entry.stale, entry.retryIn] = [true, Math.min(entry.retryIn * 2 || MIN_INTERVAL, MAX_AGE)];
			throw error;
		} finally {
			if (entry.pending === mine) {
				entry.pending = null;
				for (const [type, data] of entry.missed.splice(0)) applyTo(path, entry, type, data);
			}
		}
	};
	const mine = load();
	return (entry.pending = mine);
}

/** First page of a list with the older rows that were loaded before, newest first; without them if rows between are missing. @param {any[]} page @param {any[]} before @param {string} key */
export function withOlder(page, before, key) {
	const oldest = page.at(-1)?.[key];
	return oldest <= before[0]?.[key] ? [...page, ...before.filter((row) => row[key] < oldest)] : [...page];
}

/** Makes the next reads fetch again: the user has changed something. */
export function expire() {
	for (const entry of entries.values()) [entry.at, entry.stale, entry.pending] = [-MAX_AGE, true, null];
}

/** Starts to note what a panel reads. */
export const beginLoad = () => { returned = new Map(); };
/** Time until some of the paths read since `beginLoad` have to be read again; infinite if all are current. */
export const staleDelay = () => Math.min(...[...returned].map(([path, content]) => {
	const entry = entries.get(path);
	if (entry?.stale) return entry.retryIn || MIN_INTERVAL;
	// Something else has read a newer version, or is about to.
	return entry && (entry.pending || entry.data !== content) ? 0 : Infinity;
}));

/** Forgets everything, after signing out. */
export const clear = () => entries.clear();

/** Updates the cached lists by an event of the service. @param {string} type @param {any} data */
export function apply(type, data) {
	for (const [path, entry] of entries) {
		if (entry.pending) entry.missed.push([type, data]);
		applyTo(path, entry, type, data);
	}
}

/** @param {Entry} entry */
function applyTo(path, entry, type, data) {
	const isAffected = type === "all" || AFFECTED.some(([paths, types]) => paths.test(path) && types.includes(type));
	if (!isAffected || entry.data === undefined) return;
	const update = data && UPDATES[`${type} ${path.split("?")[0]}`];
	if (!update?.(entry, data, new URLSearchParams(path.split("?")[1]))) entry.stale = true;
}

/** Position of a row. @param {Entry} entry @param {any[]} rows @param {string} field @param {string} key */
function positionOf(entry, rows, field, key) {
	entry.rows ??= new Map(rows.map((row, at) => [row[field], at]));
	return entry.rows.get(key) ?? -1;
}

/** Updates by type of event and path. Each returns whether the list is current now. @type {Record<string, (entry: Entry, data: any, query: URLSearchParams) => boolean>} */
const UPDATES = {
	"job /api/log"(entry, job, query) {
		const rows = entry.data;
		const at = positionOf(entry, rows, "id", job.id);
		const isFiltered = [...query.keys()].some((name) => name !== "limit");
		if (at >= 0) {
			const changesFilter = isFiltered && rows[at].status !== job.status;
			rows[at] = { ...rows[at], ...job };
			return !changesFilter;
		}
		if (isFiltered) return false;
		if (rows.length && job.id < rows[0].id) return job.id < rows.at(-1).id;
		// The last row stays: the next page follows it.
		rows.unshift(job);
		entry.rows = null;
		return true;
	},
	"decision /api/issues"(entry, decision) {
		const rows = entry.data.issues;
		const at = positionOf(entry, rows, "identifier", decision.issueIdentifier);
		if (at < 0) return false;
		rows[at] = { ...rows[at], decision };
		return true;
	},
	"decision /api/blockers"(entry, { issueIdentifier, outcome, reason, message, at: since }) {
		const { blockers, totals } = entry.data;
		const at = positionOf(entry, blockers, "issueIdentifier", issueIdentifier);
		if (at < 0) return outcome !== "waiting";
		const row = blockers[at];
		if (outcome !== "waiting") return false;
		if (row.reason !== reason) {
			totals.byReason[row.reason] -= 1;
			if (!totals.byReason[row.reason]) delete totals.byReason[row.reason];
			totals.byReason[reason] = (totals.byReason[reason] ?? 0) + 1;
		}
		blockers[at] = { ...row, reason, message, since: row.reason === reason ? row.since : since };
		return true;
	},
};
