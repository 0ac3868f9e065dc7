// Log of a run: loaded by offset, appended while the run is active. Only the chunks of lines near the view are elements.

import { ApiError, download, requestFile } from "../api.js";
import { h, island, render } from "../dom.js";
import { follow } from "../live.js";
import { url } from "../router.js";
import { colored, plain } from "./ansi.js";
import { exact, zone } from "./time.js";
import { button, copy, messageOf, optionsOf, searchBox } from "./ui.js";
import { hasFailed, isActive, number } from "./words.js";

/** Lines per chunk, the height of an unwrapped line in pixels, and lines added without a pause. */
const [CHUNK, LINE, SLICE] = [100, 18, 1000];
/** Minimum time between two requests for new lines, in milliseconds. */
const INTERVAL = 1000;
/** Length of a log above which the page begins anew. The service keeps 1 MiB. */
const MAX_HELD = 4 << 20;
const MARK = /^##\[(step|cut)\] (.*)/;
const FAILURE = /\b(error|failed|failure|fatal|panicked|blocked|denied)\b/;
const TIMES = [["elapsed", "Elapsed time"], ["clock", `Time of day (${zone})`], ["none", "No times"]];
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });

/** @typedef {{el: HTMLElement, from: number, until: number, step: string, isFilled: boolean}} Chunk */

/** Whole log of a run. `failed` is the id of the step that failed, if one did; `bytes` is null if no log is kept. @param {{job: any, failed: string | null, bytes: number | null | undefined}} about */
export const logView = (about) => island("log-view", about, mount);

/** @param {HTMLElement} el @param {{job: any, failed: string | null, bytes: number | null | undefined}} props */
function mount(el, props) {
	/** `found` is the text that is searched. @type {{at: number, text: string, found: string}[]} */
	const lines = [];
	/** @type {Chunk[]} */
	const chunks = [];
	let [offset, partial, first] = [0, "", 0];
	/** `isMissed`: more was asked for during a request. `held` is the length of the lines. */
	let [loading, loaded, isMissed, held, error] = [false, false, false, 0, /** @type {unknown} */ (null)];
	let [query, hits, hit, marked] = ["", /** @type {number[]} */ ([]), -1, -1];
	let time = localStorage.getItem("log-time") ?? (innerWidth < 720 ? "none" : "elapsed");
	let wraps = localStorage.getItem("log-wrap") !== "off";
	let [follows, top] = [isActive(props.job) && !location.hash, 0];
	const path = url`/api/jobs/${props.job.id}/log`;
	const [bar, note] = [h("div.log-bar"), h("div")];

	/** Scrolling up ends following, and scrolling to the end resumes it. */
	const scrolled = () => {
		const { scrollTop, clientHeight, scrollHeight } = body;
		const was = follows;
		follows = scrollTop + clientHeight >= scrollHeight - 24 || (follows && scrollTop >= top);
		top = scrollTop;
		if (follows !== was && isActive(props.job)) draw();
	};
	const toEnd = () => { if (follows) body.scrollTop = body.scrollHeight; };
	const body = h("div", { tabindex: "0", role: "region", "aria-label": "Log lines", onscroll: scrolled });
	el.append(bar, body, note);

	/** Loads what was written since the last call. */
	const load = async () => {
		if (props.bytes === null) return;
		if (loading) return void (isMissed = true);
		loading = true;
		if (held > MAX_HELD && follows) clear();
		try {
			const response = await requestFile(`${path}?offset=${offset}`);
			const text = await response.text();
			offset = Number(response.headers.get("x-log-size") ?? 0);
			await append(text);
			error = null;
		} catch (thrown) {
			error = !(thrown instanceof ApiError) ? new ApiError(0, "Can't reach the service.") : thrown.status === 404 ? null : thrown;
		}
		loading = false;
		const isFirst = !loaded;
		loaded = true;
		draw();
		if (isFirst && location.hash) followHash();
		else toEnd();
		if (!isMissed) return;
		isMissed = false;
		load();
	};

	/** Begins anew with what the service keeps, which is less. */
	const clear = () => {
		observer.disconnect();
		body.replaceChildren();
		lines.length = chunks.length = offset = first = held = 0;
		[partial, hits, hit, marked] = ["", [], -1, -1];
	};

	const append = async (text) => {
		held += text.length;
		const rows = (partial + text).split("\n");
		partial = rows.pop() ?? "";
		for (let at = 0; at < rows.length; at += SLICE) {
			if (at) await new Promise((done) => setTimeout(done));
			rows.slice(at, at + SLICE).forEach(add);
		}
	};

	/** @param {string} row */
	const add = (row) => {
		const at = row[24] === " " ? Date.parse(row.slice(0, 24)) : NaN;
		let text = at ? row.slice(25) : row;
		const [, mark, value] = MARK.exec(text) ?? [];
		if (mark === "cut") text = lines.length ? `${value} of this log are missing here.` : `The oldest ${value} of this log were removed.`;
		first ||= at || 0;
		const number = lines.push({ at, text, found: plain(text).toLowerCase() }) - 1;
		if (matches(number)) hits.push(number);
		let chunk = chunks[chunks.length - 1];
		const isStep = mark === "step";
		if (isStep || !chunk) body.append(h("details", { open: true }, h("summary", isStep ? value : "Start")));
		if (isStep || !chunk || number - chunk.from >= CHUNK) {
			chunk = { el: h("div"), from: number, until: number, step: isStep ? value : chunk?.step ?? "", isFilled: false };
			chunks.push(chunk);
			body.lastChild.append(chunk.el);
			observer.observe(chunk.el);
		}
		chunk.until = number + 1;
		if (chunk.isFilled) chunk.el.append(lineOf(number));
		else chunk.el.style.height = `${(chunk.until - chunk.from) * LINE}px`;
	};
	const matches = (at) => query && lines[at].found.includes(query);

	const lineOf = (number) => {
		const { at, text } = lines[number];
		// The heading of its section shows the step.
		if (text.startsWith("##[step]")) return h("div", { hidden: true });
		return h("div", { class: `line ${number === marked ? "marked" : ""} ${number === hits[hit] ? "now" : ""}` },
			h("a", { href: `#L${number + 1}`, tabindex: "-1", title: at ? exact(at) : null, "data-elapsed": at ? elapsed(at - first) : "", "data-clock": at ? CLOCK.format(at) : "" }, number + 1),
			h("span", colored(text).map((part) => (part.cls ? h("span", { class: part.cls }, part.text) : part.text))));
	};
	/** @param {Chunk} chunk */
	const fill = (chunk) => {
		chunk.isFilled = true;
		chunk.el.style.height = "";
		chunk.el.replaceChildren(...Array.from({ length: chunk.until - chunk.from }, (_, at) => lineOf(chunk.from + at)));
	};
	const refill = () => {
		const filled = chunks.filter((chunk) => chunk.isFilled);
		filled.forEach(fill);
		CSS.highlights?.set("log-search", new Highlight(...(query ? filled.flatMap(({ el }) => rangesOf(el, query)) : [])));
	};
	const observer = new IntersectionObserver((entries) => {
		for (const { target, isIntersecting, boundingClientRect: { height } } of entries) {
			const chunk = chunks.find(({ el }) => el === target);
			if (!chunk || chunk.isFilled === isIntersecting) continue;
			if (isIntersecting) fill(chunk);
			else {
				// A folded chunk has no height.
				if (height) chunk.el.style.height = `${height}px`;
				chunk.el.replaceChildren();
				chunk.isFilled = false;
			}
		}
		if (query) refill();
		// The height of wrapped lines is known only now.
		toEnd();
	}, { root: body, rootMargin: "600px 0px" });

	/** Scrolls to a line. @param {number} at */
	const show = (at) => {
		const chunk = chunks.findLast(({ from }) => from <= at);
		if (!chunk || at >= lines.length) return;
		follows = false;
		/** @type {HTMLDetailsElement} */ (chunk.el.parentElement).open = true;
		chunk.isFilled = true;
		refill();
		body.scrollTop += chunk.el.children[at - chunk.from].getBoundingClientRect().top - body.getBoundingClientRect().top - body.clientHeight / 2;
		el.scrollIntoView({ block: "nearest" });
		draw();
	};
	/** Shows the line or the step that the URL links to. */
	const followHash = () => {
		if (!el.isConnected) return close();
		const hash = decodeURIComponent(location.hash.slice(1));
		const step = chunks.find((chunk) => `step-${chunk.step}` === hash);
		marked = Number(/^L(\d{1,9})$/.exec(hash)?.[1] ?? 0) - 1;
		if (marked >= 0) show(marked);
		else if (step) show(step.from);
	};
	/** Shows the last line about the failure: in the step that failed, if it is known. */
	const toFailure = () => {
		const of = chunks.filter(({ step }) => step === props.failed);
		const [from, until] = of.length ? [of[0].from, of[of.length - 1].until] : [0, lines.length];
		const found = lines.slice(from, until).findLastIndex(({ found }) => FAILURE.test(found.slice(0, 2000)));
		const hash = `#L${found < 0 ? until : from + found + 1}`;
		if (location.hash === hash) followHash();
		else location.replace(hash);
	};

	const search = (event) => {
		query = event.target.value.toLowerCase();
		[hits, hit] = [lines.map((_, at) => at).filter(matches), -1];
		if (hits.length) go(1);
		else {
			refill();
			draw();
		}
	};
	/** Shows the next or the previous match. @param {1 | -1} step */
	const go = (step) => {
		if (!hits.length) return;
		hit = (hit + step + hits.length) % hits.length;
		show(hits[hit]);
	};

	const draw = () => {
		const { job } = props;
		const set = (name, value) => {
			localStorage.setItem(name, value);
			draw();
		};
		const keys = (event) => { if (event.key === "Enter") go(event.shiftKey ? -1 : 1); };
		const follow = () => {
			follows = !follows;
			toEnd();
			draw();
		};
		const chip = (text, on, click) => h("button.chip", { "aria-pressed": String(on), onclick: click }, text);
		const small = (text, title, run) => button(text, run, "small ghost", title);
		body.className = `log-lines ${time} ${wraps ? "wrap" : ""}`;
		body.hidden = !lines.length;
		render(note, error ? h("p.error", messageOf(error), " ", button("Retry", load, "small"))
			: !lines.length && h("p.muted", !loaded && props.bytes !== null ? "Loading the log…" : isActive(job) ? "No output yet." : "No log of this run is kept."));
		render(bar, lines.length > 0 && [
			searchBox("Search the log", "Search the log", { oninput: search, onkeydown: keys }),
			query && [h("span.note.num", { role: "status" }, hits.length ? `${hit + 1} of ${number(hits.length)}` : "No matches"),
				small("↑", "Previous match", () => go(-1)), small("↓", "Next match", () => go(1))],
			h("span.grow"),
			isActive(job) ? chip("Follow", follows, follow) : hasFailed(job) && button("Jump to failure", toFailure, "small"),
			chip("Wrap lines", wraps, () => { wraps = !wraps; set("log-wrap", wraps ? "on" : "off"); }),
			h("select", { "aria-label": "Times of the lines", onchange: (event) => { time = event.target.value; set("log-time", time); } }, optionsOf(TIMES, time)),
			small("Copy", "Copy the log", () => copy(lines.map(({ text }) => plain(text)).join("\n"), "the log")),
			small("Download", "Download the log", () => download(`${path}?download=1`, `${job.issueIdentifier}-${job.kind}-${job.attempt ?? job.dispatchNumber}.log`))]);
	};

	const stop = follow(({ type, data }) => type === "all" || data?.jobId === props.job.id || data?.id === props.job.id, () => (el.isConnected ? load() : close()), INTERVAL);
	const close = () => {
		stop();
		observer.disconnect();
		removeEventListener("hashchange", followHash);
	};
	addEventListener("hashchange", followHash);
	draw();
	load();
	return (next) => {
		const isNew = props.bytes === null && next.bytes;
		props = next;
		draw();
		if (isNew) load();
	};
}

/** @param {number} ms */
function elapsed(ms) {
	const seconds = Math.max(0, Math.floor(ms / 1000));
	return [seconds / 3600, (seconds / 60) % 60, seconds % 60].map((part) => String(Math.floor(part)).padStart(2, "0")).join(":");
}

/** Ranges of a text in an element. @param {HTMLElement} el @param {string} text */
function rangesOf(el, text) {
	const [ranges, nodes] = [/** @type {StaticRange[]} */ ([]), document.createTreeWalker(el, NodeFilter.SHOW_TEXT)];
	for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
		const content = (node.textContent ?? "").toLowerCase();
		for (let at = content.indexOf(text); at >= 0; at = content.indexOf(text, at + text.length)) ranges.push(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: at + text.length }));
	}
	return ranges;
}
