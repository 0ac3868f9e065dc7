// New project in eight steps, each with its own address. The service checks every step, so that the review shows only
// what it accepts.

import { get, post, projectPath } from "../api.js";
import { $, h, island, render } from "../dom.js";
import { currentRoute, navigate, url } from "../router.js";
import { ask } from "./dialog.js";
import { loadDraft, saveDraft } from "./draft.js";
import { fields, focusField } from "./form.js";
import { BLANK, FIELDS, SECTIONS, check, sectionOf, textOf, toBody } from "./mapping.js";
import { busy, button, connections, messageOf, muted, notice, rows, submitButton, toast } from "./ui.js";

/** @type {[string, string][]} */
const STEPS = [...SECTIONS.filter(([step]) => step !== "secrets"), ["secrets", "Secrets"], ["review", "Review"]];
const REVIEW = STEPS.length - 1;
const DRAFT = "new-project";
const EMPTY = { secretName: "", secretValue: "" };

/** Connection that a step depends on. @type {Record<string, (v: Record<string, any>) => string>} */
const CONNECTION = {
	system: (v) => `ticketing-${v.ticketingProvider.toLowerCase()}`,
	repository: () => "repo-host",
	runner: (v) => ({ "vm-machines": "vm-sessions", kubernetes: "kubernetes" })[v.executionMode] ?? "runner-callback",
};

const addressOf = (at, query = "") => `/admin/projects/new/${STEPS[at][0]}${query}`;

/**
 * Form as far as it has been filled in. `furthest` is the last step that was reached, `secrets` are names.
 * @type {{values: Record<string, any>, secrets: string[], furthest: number}}
 */
let draft;
/** Values of the secrets, which are not part of the draft. @type {Map<string, string>} */
const secretValues = new Map();
/** Fields of the current secret. */
const entry = { ...EMPTY };

function restore() {
	const kept = loadDraft(DRAFT);
	draft = { secrets: [], furthest: 0, ...kept, values: { ...BLANK, ...kept?.values } };
}

function discard() {
	saveDraft(DRAFT, null);
	secretValues.clear();
	Object.assign(entry, EMPTY);
}

addEventListener("signed-out", discard);
addEventListener("beforeunload", (event) => { if (secretValues.size || entry.secretValue) event.preventDefault(); });

/** Notice about an unfinished form; null without one. @param {() => void} redraw */
export function unfinished(redraw) {
	restore();
	if (!loadDraft(DRAFT)) return null;
	const { teamKey, repository } = draft.values;
	return notice("run", h("b", "New project, not finished: "), `${teamKey} ${repository} `,
		h("a", { href: addressOf(draft.furthest) }, "Continue"), " ", button("Discard", () => { discard(); redraw(); }, "small ghost", "Discard the unfinished project"));
}

/** @param {string | undefined} step */
export const stepper = (step) => island("stepper", step, mount);

/** @param {HTMLElement} el @param {string | undefined} step */
function mount(el, step) {
	restore();
	const wanted = STEPS.findIndex(([name]) => name === step);
	const at = wanted < 0 || wanted > draft.furthest ? draft.furthest : wanted;
	if (at !== wanted) queueMicrotask(() => navigate(addressOf(at), { replace: true }));
	else run(el, at);
	return () => {};
}

/** Runs one step. @param {HTMLElement} el @param {number} at */
function run(el, at) {
	const [step, title] = STEPS[at];
	const { values } = draft;
	const { query } = currentRoute();
	const fromReview = query.get("then") === "review";
	/** @type {Record<string, string>} */
	let problems = {};
	/** @type {Record<string, string>} */
	let warnings = {};
	let failure = "";
	/** @type {any[]} */
	let checks = [];

	const changed = () => {
		saveDraft(DRAFT, draft);
		draw();
	};
	const field = fields(values, changed);
	const secretField = fields(entry, () => draw());
	const go = (next, suffix) => {
		draft.furthest = Math.max(draft.furthest, next);
		saveDraft(DRAFT, draft);
		return navigate(addressOf(next, suffix));
	};
	const show = (found, text = "") => {
		[problems, failure] = [found, text];
		draw();
		if (Object.keys(problems).length || text) focusField(el);
	};
	/** Checks the steps up to `last`. Returns whether they are valid; shows the problems of the first that is not. */
	const isValid = async (last) => {
		const found = await check(values);
		const bad = STEPS.findIndex(([name], index) => index <= last && Object.keys(found.problems).some((one) => sectionOf(one) === name));
		const general = last === REVIEW ? found.problems[""] ?? "" : "";
		if (bad === at || (bad < 0 && general)) show(pick(found.problems, (name) => sectionOf(name) === step), general);
		else if (bad >= 0) {
			toast(`“${STEPS[bad][1]}” needs a correction.`, "bad");
			await go(bad, fromReview || at === REVIEW ? "?then=review" : "");
		} else return true;
		return false;
	};
	const proceed = () => {
		busy(async () => {
			try {
				if (at >= REVIEW - 1 && !addSecret()) return;
				if (step === "source" && !await isFree()) return;
				if (!await isValid(at)) return;
				if (step === "review") await create();
				else await go(fromReview ? REVIEW : at + 1);
			} catch (error) {
				show({}, messageOf(error));
			}
		});
	};
	const isFree = async () => {
		const key = values.teamKey.trim();
		const taken = key && (await get("/api/mappings"))[key];
		if (taken) show({ teamKey: `${key} is already mapped to ${taken.owner}/${taken.repo}. Edit that project instead.` });
		return !taken;
	};
	/** Takes over the secret that was entered. Returns whether the secrets are complete. */
	const addSecret = () => {
		const name = entry.secretName.trim();
		if (name || entry.secretValue) {
			if (!name || !entry.secretValue) return void show({ [name ? "secretValue" : "secretName"]: "Enter both a name and a value, or neither." });
			if (!draft.secrets.includes(name)) draft.secrets.push(name);
			secretValues.set(name, entry.secretValue);
			Object.assign(entry, EMPTY);
			saveDraft(DRAFT, draft);
		}
		const lost = draft.secrets.find((one) => !secretValues.has(one));
		if (lost) return void show({}, `Enter the value of ${lost} again, or remove it. A reload does not keep it.`);
		return true;
	};
	const create = async () => {
		const { teamKey } = await post("/api/mappings", toBody(values));
		try {
			for (const [name, value] of secretValues) await post(projectPath(teamKey, "/secrets"), { name, value });
			toast(`Created the project ${teamKey}. Sync its workflows next.`);
		} catch (error) {
			toast(`Created the project ${teamKey}, but not all of its secrets could be stored: ${messageOf(error)}`, "bad");
		}
		discard();
		await navigate(url`/admin/projects/${teamKey}`, { replace: true });
	};

	const drop = async () => {
		if (!await ask({ title: "Discard the new project?", text: "What you have entered is deleted.", action: "Discard" })) return;
		discard();
		await navigate("/admin/projects");
	};

	const draw = () => {
		const item = ([name, text], index) => {
			const state = index === at ? "now" : index < draft.furthest ? "past" : "";
			const content = [h("span.step-number", index + 1), h("span.step-label", text)];
			return h("li", { class: state, key: name, "aria-current": index === at ? "step" : null },
				index <= draft.furthest ? h("a", { href: addressOf(index) }, content) : h("span", content));
		};
		render(el, h("ol.rail", { "aria-label": "Steps" }, STEPS.map(item)),
			h("form.step-panel", { onsubmit: proceed, novalidate: true, "aria-labelledby": "step-title" },
				h("h2", { tabindex: "-1", id: "step-title" }, title),
				failure && h("p.error", { role: "alert", tabindex: "-1" }, failure),
				step === "review" ? review() : [(FIELDS[step] ?? (() => []))(values).map((one) => field(one, problems[one.name])), step === "secrets" && secretPart()],
				connections(checks.filter((one) => one.name === CONNECTION[step](values))),
				h("div.step-foot",
					loadDraft(DRAFT) && button("Discard", drop, "ghost", "Discard the unfinished project"),
					at > 0 && !fromReview && h("a.button", { href: addressOf(at - 1) }, "Back"),
					submitButton(step === "review" ? "Create project" : fromReview ? "Back to the review" : "Continue"))));
	};

	const secretPart = () => {
		const drop = (name) => {
			draft.secrets.splice(draft.secrets.indexOf(name), 1);
			secretValues.delete(name);
			failure = "";
			changed();
		};
		const line = (name) => h("li", { key: name }, h("code.grow", name),
			!secretValues.has(name) && muted("value needed"),
			button("Remove", () => drop(name), "small", `Remove ${name}`));
		return h("fieldset.form-part", h("legend", "Secrets of this project"),
			draft.secrets.length > 0 && rows(draft.secrets, line),
			h("div.form-grid", secretField({ name: "secretName", label: "Name", placeholder: "NPM_TOKEN" }, problems.secretName), secretField({ name: "secretValue", label: "Value", type: "password" }, problems.secretValue)),
			button("Add another", () => { if (addSecret()) { show({}); focusField(el, "secretName"); } }, "small"),
			h("p.hint", "For Fly Machines and local containers. Runs on GitHub Actions use the Actions secrets of the repository."));
	};

	const review = () => STEPS.slice(0, REVIEW).map(([name, text], index) => {
		const change = (target) => addressOf(index, `?then=review${target ? `&field=${target}` : ""}`);
		const line = (label, value, target, warning) => h("div", h("dt", label), h("dd", value, warning && h("p.hint.warn-text", warning)),
			h("dd", h("a", { href: change(target), "aria-label": `Change ${label}` }, "Change")));
		return h("section.review", { "aria-label": text }, h("h3", text), h("dl",
			FIELDS[name](values).map((one) => line(one.label, textOf(one, values), one.name, warnings[one.name])),
			name === "secrets" && line("Secrets", draft.secrets.join(", ") || "None", "secretName")));
	});

	draw();
	if (query.get("field")) focusField(el, query.get("field") ?? "");
	else if ([document.body, $(document, "h1")].includes(document.activeElement)) $(el, "h2").focus({ preventScroll: true });
	if (CONNECTION[step]) get("/api/admin/config-status").then((status) => {
		({ checks } = status);
		draw();
	}, () => {});
	// What was valid may have become invalid by a change of another step, or at the vendor.
	if (at === draft.furthest && step !== "review") return;
	check(values).then((found) => {
		warnings = found.warnings;
		show(pick(found.problems, (name) => sectionOf(name) === step));
	}, () => {});
}

/** @param {Record<string, string>} texts @param {(name: string) => boolean} test */
const pick = (texts, test) => Object.fromEntries(Object.entries(texts).filter(([name]) => test(name)));
