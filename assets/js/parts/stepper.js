// A new project in eight steps. The service judges each before the next, as far as it can be asked;
// what only the whole is refused for leads back to the step that it is about.

import { ApiError, get, ofProject, post } from "../api.js";
import { $, h, island, render } from "../dom.js";
import { go, to } from "../router.js";
import { fields } from "./form.js";
import { BLANK, FIELDS, placeOf, toBody } from "./mapping.js";
import { synced, syncing } from "./sync.js";
import { busy, button, empty, facts, messageOf, rows } from "./ui.js";
import { EXECUTION, PROVIDERS, SYSTEMS, name } from "./words.js";

const STEPS = [
	["system", "Ticketing system"], ["source", "Source"], ["repository", "Repository"], ["runner", "Runner"],
	["provider", "Provider"], ["capacity", "Capacity"], ["secrets", "Secrets"], ["review", "Review"],
];
const DONE = STEPS.length;

/** What is refused before the service is asked. */
class Refusal extends ApiError {
	constructor(text, field) {
		super(0, text);
		this.field = field;
	}
}

export const stepper = () => island("stepper", null, mount);

function mount(el) {
	/** @type {Record<string, any>} */
	const values = { ...BLANK, secretName: "", secretValue: "" };
	/** Secrets that wait for their project to be created. @type {{name: string, value: string}[]} */
	const secrets = [];
	let [at, furthest] = [0, 0];
	let error = { step: "", field: "", text: "" };
	/** @type {any} */
	let [created, after, config, mode] = [null, null, null, null];
	const field = fields(values, () => draw());

	const show = (next) => {
		at = next;
		furthest = Math.max(furthest, at);
		draw();
		$(el, ".step-panel h2")?.focus();
	};
	/** Says what was refused, at the step that it is about. */
	const refuse = (thrown) => {
		const text = messageOf(thrown);
		const place = thrown instanceof Refusal ? { step: STEPS[at][0], field: thrown.field } : placeOf(text, values);
		error = { ...place, step: place.step || STEPS[at][0], text };
		at = STEPS.findIndex(([step]) => step === error.step);
		draw();
		($(el, "[aria-invalid=true]") ?? $(el, ".step-panel .error"))?.focus();
	};
	const attempt = (work) => busy(async () => {
		error = { step: "", field: "", text: "" };
		try {
			await work();
		} catch (thrown) {
			refuse(thrown);
		}
	});

	const next = (event) => {
		event.preventDefault();
		attempt(async () => {
			const [step] = STEPS[at];
			const missing = FIELDS[step]?.(values).find((one) => one.required && !String(values[one.name] ?? "").trim());
			if (missing) throw new Refusal(`${missing.label} is required.`, missing.name);
			if (step === "source") await checkSource(values);
			if (step === "secrets") keepSecret();
			if (step === "review") created = await post("/api/mappings", toBody(values));
			if (created) await storeSecrets();
			else show(at + 1);
		});
	};
	const keepSecret = () => {
		if (!values.secretName && !values.secretValue) return;
		if (!values.secretName.trim() || !values.secretValue) throw new Refusal("Give both a name and a value, or neither.", "secretName");
		secrets.push({ name: values.secretName.trim(), value: values.secretValue });
		[values.secretName, values.secretValue] = ["", ""];
	};
	const storeSecrets = async () => {
		while (secrets.length) {
			try {
				await post(ofProject(created.teamKey, "/secrets"), secrets[0]);
			} catch (thrown) {
				at = STEPS.findIndex(([step]) => step === "secrets");
				const { name, value } = /** @type {any} */ (secrets.shift());
				[values.secretName, values.secretValue] = [name, value];
				throw new Refusal(`The project is created. Its secret ${name} was refused: ${messageOf(thrown)}`, "secretName");
			}
			secrets.shift();
		}
		show(DONE);
	};

	const draw = () => {
		const [step, title] = STEPS[at] ?? ["done", "Created"];
		const stop = (index) => h("li", { class: index === at ? "now" : index < at || created ? "past" : "", "aria-current": index === at ? "step" : null },
			h("button", { disabled: created || index > furthest, onclick: () => show(index) }, h("span", { class: "step-number" }, index + 1), STEPS[index][1]));
		const back = created ? ["Go on without", () => show(DONE)] : at > 0 && ["Back", () => show(at - 1)];
		render(el, h("ol", { class: "rail" }, STEPS.map((_, index) => stop(index))),
			h("form", { class: "step-panel", onsubmit: next, novalidate: true, key: step }, h("h2", { tabindex: "-1" }, title), at === DONE ? done() : [body(step), h("div", { class: "step-foot" },
				back && h("button", { class: "button", onclick: back[1] }, back[0]),
				h("button", { type: "submit", class: "button primary" }, created ? "Try again" : step === "review" ? "Create project" : "Continue"))]));
	};

	const body = (step) => {
		const wrong = error.step === step ? error : null;
		let placed = false;
		const one = (description) => {
			const mine = wrong?.field === description.name;
			placed ||= mine;
			return field(description, mine ? wrong?.text : undefined);
		};
		const drawn = step === "review" ? review() : [FIELDS[step](values).map(one), step === "secrets" ? secretPart(one) : ready(step)];
		return [wrong && !placed && h("p", { class: "error", role: "alert", tabindex: "-1" }, wrong.text), drawn];
	};

	/** What is known of the connection that a choice needs. */
	const ready = (step) => {
		const needs = { system: `ticketing-${values.ticketingProvider.toLowerCase()}`, runner: values.executionMode === "vm-machines" ? "vm-sessions" : "repo-host" }[step];
		const found = config?.checks.find((one) => one.name === needs);
		return [
			found && found.status !== "ok" && h("p", { class: "hint warn-text", role: "status" }, `This connection is not ready: ${found.detail}`),
			step === "runner" && mode && mode.mode !== "default" && h("p", { class: "hint" }, `The runner mode of the service is “${mode.mode}” and overrides this choice.`),
		];
	};

	const secretPart = (one) => h("fieldset", { class: "form-part" }, h("legend", {}, "Secrets of this project"),
		secrets.length > 0 && rows(secrets, (secret) => h("li", {}, h("code", { class: "grow" }, secret.name), button("Remove", () => { secrets.splice(secrets.indexOf(secret), 1); draw(); }, { kind: "small", title: `Remove ${secret.name}` }))),
		h("div", { class: "form-grid" }, one({ name: "secretName", label: "Name", placeholder: "NPM_TOKEN" }), one({ name: "secretValue", label: "Value", type: "password" })),
		!created && button("Add another", () => attempt(async () => { keepSecret(); draw(); }), { kind: "small" }),
		h("p", { class: "hint" }, "For Fly Machines and local containers. Runs on GitHub Actions use the repository's own secrets."));

	const review = () => facts([
		["Tickets", `${name(SYSTEMS, values.ticketingProvider)}, ${values.teamKey}`],
		["Query", values.ticketingProvider === "B" && h("code", {}, values.jql)],
		["Repository", `${values.owner}/${values.repo}, ${values.defaultBranch}`],
		["Runner", `${name(EXECUTION, values.executionMode)}${values.planningEnabled ? ", with planning" : ""}`],
		["Provider", `${name(PROVIDERS, values.provider)} ${values.provider === "cloud" ? values.cloudRegion : ""}`],
		["Issues at once", values.maxInProgressAiIssues],
		["Run caps", `${values.maxTurns || 50} turns, ${values.maxIterations || (values.provider === "cloud" ? 2 : 3)} iterations, ${values.maxJobMinutes || 90} minutes`],
		["Secrets", secrets.map((one) => one.name).join(", ") || "none"],
	]);

	const done = () => {
		const sync = async () => {
			after = syncing();
			draw();
			after = await synced(created.teamKey);
			draw();
		};
		return [
			empty(`${created.teamKey} is mapped to ${created.owner}/${created.repo}`, "One thing is left: the repository needs the workflows that runs start with. Syncing opens a pull request with them.",
				h("div", { class: "actions" }, button("Sync workflows", sync, { kind: "primary" }), button("Go to projects", () => go(to("projects"))))),
			after,
		];
	};

	draw();
	const know = (path, keep) => get(path).then((found) => { keep(found); draw(); }, () => {});
	know("/api/admin/config-status", (found) => { config = found; });
	know("/api/runner-mode", (found) => { mode = found; });
	return () => {};
}

async function checkSource(values) {
	if (values.ticketingProvider === "B") {
		await post("/api/ticketing-b/validate-query", { jql: values.jql }).catch((error) => {
			throw new Refusal(error.message, "jql");
		});
	}
	const taken = (await get("/api/mappings"))[values.teamKey.trim()];
	if (taken) throw new Refusal(`${values.teamKey} is mapped to ${taken.owner}/${taken.repo} already. Edit that project instead.`, "teamKey");
}
