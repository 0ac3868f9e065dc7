// Terminal colors of a log line, as classes. The text is untrusted: time and elements per line are limited.

import { number } from "./words.js";

const SGR = /\x1b\[([\d;:]*)m/g;
/** Longest shown line, in characters, and most colored parts of it. */
const [MAX_LINE, MAX_PARTS] = [8192, 48];

/** Text without colors. @param {string} text */
export const plain = (text) => text.replace(SGR, "");

/** Parts of a line with their classes. @param {string} text @returns {{text: string, cls: string}[]} */
export function colored(text) {
	const cut = text.length - MAX_LINE;
	if (cut > 0) text = `${text.slice(0, MAX_LINE)} … ${number(cut)} more characters`;
	const parts = [];
	let [style, from] = [/** @type {Record<string, string>} */ ({}), 0];
	const push = (part) => part && parts.push({ text: part, cls: Object.values(style).join(" ") });
	for (const match of text.matchAll(SGR)) {
		if (parts.length >= MAX_PARTS) break;
		push(text.slice(from, match.index));
		style = apply(style, match[1].split(/[;:]/, 16).map(Number));
		from = match.index + match[0].length;
	}
	push(plain(text.slice(from)));
	return parts;
}

const LOOKS = { 1: "bold", 2: "f0" };
/** Styles that a code ends. */
const ENDS = { 22: [1, 2], 39: ["f"], 49: ["b"] };

/** @param {Record<string, string>} style @param {number[]} codes */
function apply(style, codes) {
	for (let at = 0; at < codes.length; at += 1) {
		const code = codes[at];
		const ground = code % 60 >= 40 ? "b" : "f";
		if (code === 0) style = {};
		else if (LOOKS[code]) style = { ...style, [code]: LOOKS[code] };
		else if (ENDS[code]) style = Object.fromEntries(Object.entries(style).filter(([name]) => !ENDS[code].map(String).includes(name)));
		else if (code === 38 || code === 48) {
			// Of 256 and more colors, only the first 16 are known to be readable.
			const [kind, index = 7] = codes.slice(at + 1);
			style = { ...style, [ground]: look(ground, kind === 5 && index < 16 ? index % 8 : 7) };
			at += kind === 5 ? 2 : 4;
		} else if ((code >= 30 && code <= 47) || (code >= 90 && code <= 107)) style = { ...style, [ground]: look(ground, code % 10) };
	}
	return style;
}

const look = (ground, color) => (ground === "b" ? `b b${color}` : `f${color}`);
