// New project in eight steps. Steps are validated by the service where possible. An error of the final request leads
// back to the step of the field.

import { ApiError, get, post, projectPath } from "../api.js";
import { $, h, island, render } from "../dom.js";
import { navigate, panelUrl } from "../router.js";
import { fields } from "./form.js";
import { BLANK, FIELDS, fieldOfError, toBody } from "./mapping.js";
import { synced, syncing } from "./sync.js";
import { busy, button, empty, facts, messageOf, rows } from "./ui.js";
import { EXECUTION, PROVIDERS, RUNNERS, SYSTEMS, labelOf } from "./words.js";

const STEPS = [
	["system", "Ticketing system"], ["source", "Source"], ["repository", "Repository"], ["runner", "Runner"],
	["provider", "Provider"], ["capacity", "Capacity"], ["secrets", "Secrets"], ["review", "Review"],
];
const DONE = STEPS.length;

/** Validation error of one field. */
class FieldError extends ApiError {
	constructor(text, field) {
		super(0, text);
		this.field = field;
	}
}

export const stepper = () => island("stepper", null, mount);

function mount(el) {
	/** @type {Record<string, any>} */
	const values = { ...BLANK, secretName: "", secretValue: "" };
	/** Secrets to store once the project is created. @type {{name: string, value: string}[]} */
	const secrets = [];
	let [at, furthest] = [0, 0];
	let error = { step: "", field: "", text: "" };
	/** @type {any} */
	let [created, syncResult, config, mode] = [null, null, null, null];
	const field = fields(values, () => draw());

	const show = (next) => {
		at = next;
		furthest = Math.max(furthest, at);
		draw();
		$(el, ".step-panel h2")?.focus();
	};
	/** Shows an error at the step of its field. */
	const showError = (thrown) => {
		const text = messageOf(thrown);
		const location = thrown instanceof FieldError ? { step: STEPS[at][0], field: thrown.field } : fieldOfError(text, values);
		error = { ...location, step: location.step || STEPS[at][0], text };
		at = STEPS.findIndex(([step]) => step === error.step);
		draw();
		($(el, "[aria-invalid=true]") ?? $(el, ".step-panel .error"))?.focus();
	};
	const attempt = (work) => busy(async () => {
		error = { step: "", field: "", text: "" };
		try {
			await work();
		} catch (thrown) {
			showError(thrown);
		}
	});

	const next = (event) => {
		event.preventDefault();
		attempt(async () => {
			const [step] = STEPS[at];
			const missing = FIELDS[step]?.(values).find((one) => one.required && !String(values[one.name] ?? "").trim());
			if (missing) throw new FieldError(`${missing.label} is required.`, missing.name);
			if (step === "source") await checkSource(values);
			if (step === "secrets") addSecret();
			if (step === "review") created = await post("/api/mappings", toBody(values));
			if (created) await storeSecrets();
			else show(at + 1);
		});
	};
	const addSecret = () => {
		if (!values.secretName && !values.secretValue) return;
		if (!values.secretName.trim() || !values.secretValue) throw new FieldError("Enter both a name and a value, or neither.", "secretName");
		secrets.push({ name: values.secretName.trim(), value: values.secretValue });
		[values.secretName, values.secretValue] = ["", ""];
	};
	const storeSecrets = async () => {
		while (secrets.length) {
			try {
				await post(projectPath(created.teamKey, "/secrets"), secrets[0]);
			} catch (thrown) {
				at = STEPS.findIndex(([step]) => step === "secrets");
				const { name, value } = /** @type {any} */ (secrets.shift());
				[values.secretName, values.secretValue] = [name, value];
				throw new FieldError(`Created the project, but could not store the secret ${name}: ${messageOf(thrown)}`, "secretName");
			}
			secrets.shift();
		}
		show(DONE);
	};

	const draw = () => {
		const [step, title] = STEPS[at] ?? ["done", "Created"];
		const stepItem = (index) => h("li", { class: index === at ? "now" : index < at || created ? "past" : "", "aria-current": index === at ? "step" : null },
			h("button", { disabled: created || index > furthest, onclick: () => show(index) }, h("span", { class: "step-number" }, index + 1), STEPS[index][1]));
		const back = created ? ["Skip the secret", () => show(DONE)] : at > 0 && ["Back", () => show(at - 1)];
		render(el, h("ol", { class: "rail" }, STEPS.map((_, index) => stepItem(index))),
			h("form", { class: "step-panel", onsubmit: next, novalidate: true, key: step }, h("h2", { tabindex: "-1" }, title), at === DONE ? done() : [body(step), h("div", { class: "step-foot" },
				back && h("button", { class: "button", onclick: back[1] }, back[0]),
				h("button", { type: "submit", class: "button primary" }, created ? "Retry" : step === "review" ? "Create project" : "Continue"))]));
	};

	const body = (step) => {
		const stepError = error.step === step ? error : null;
		let isShownAtField = false;
		const renderField = (description) => {
			const mine = stepError?.field === description.name;
			isShownAtField ||= mine;
			return field(description, mine ? stepError?.text : undefined);
		};
		const drawn = step === "review" ? review() : [FIELDS[step](values).map(renderField), step === "secrets" ? secretPart(renderField) : connectionHints(step)];
		return [stepError && !isShownAtField && h("p", { class: "error", role: "alert", tabindex: "-1" }, stepError.text), drawn];
	};

	/** Hints about the connection that the step needs. */
	const connectionHints = (step) => {
		const required = { system: `ticketing-${values.ticketingProvider.toLowerCase()}`, runner: values.executionMode === "vm-machines" ? "vm-sessions" : "repo-host" }[step];
		const found = config?.checks.find((one) => one.name === required);
		return [
			found && found.status !== "ok" && h("p", { class: "hint warn-text", role: "status" }, `This connection is not ready: ${found.detail}`),
			step === "runner" && mode && mode.mode !== "default" && h("p", { class: "hint" }, `The runner mode of the service is “${labelOf(RUNNERS, mode.mode)}” and overrides this choice.`),
		];
	};

	const secretPart = (renderField) => h("fieldset", { class: "form-part" }, h("legend", {}, "Secrets of this project"),
		secrets.length > 0 && rows(secrets, (secret) => h("li", {}, h("code", { class: "grow" }, secret.name), button("Remove", () => { secrets.splice(secrets.indexOf(secret), 1); draw(); }, { kind: "small", title: `Remove ${secret.name}` }))),
		h("div", { class: "form-grid" }, renderField({ name: "secretName", label: "Name", placeholder: "NPM_TOKEN" }), renderField({ name: "secretValue", label: "Value", type: "password" })),
		!created && button("Add another", () => attempt(async () => { addSecret(); draw(); }), { kind: "small" }),
		h("p", { class: "hint" }, "For Fly Machines and local containers. Runs on GitHub Actions use the Actions secrets of the repository."));

	const review = () => facts([
		["Tickets", `${labelOf(SYSTEMS, values.ticketingProvider)}, ${values.teamKey}`],
		["Query", values.ticketingProvider === "B" && h("code", {}, values.jql)],
		["Repository", `${values.owner}/${values.repo}, ${values.defaultBranch}`],
		["Runner", `${labelOf(EXECUTION, values.executionMode)}${values.planningEnabled ? ", with planning" : ""}`],
		["Provider", `${labelOf(PROVIDERS, values.provider)} ${values.provider === "cloud" ? values.cloudRegion : ""}`],
		["Concurrent issues", values.maxInProgressAiIssues],
		["Run caps", `${values.maxTurns || 50} turns, ${values.maxIterations || (values.provider === "cloud" ? 2 : 3)} iterations, ${values.maxJobMinutes || 90} minutes`],
		["Secrets", secrets.map((one) => one.name).join(", ") || "none"],
	]);

	const done = () => {
		const sync = async () => {
			syncResult = syncing();
			draw();
			syncResult = await synced(created.teamKey);
			draw();
		};
		return [
			empty(`${created.teamKey} is mapped to ${created.owner}/${created.repo}`, "Next, add the workflows to the repository. Syncing opens a pull request with them.",
				h("div", { class: "actions" }, button("Sync workflows", sync, { kind: "primary" }), button("Go to projects", () => navigate(panelUrl("projects"))))),
			syncResult,
		];
	};

	draw();
	const load = (path, store) => get(path).then((content) => { store(content); draw(); }, () => {});
	load("/api/admin/config-status", (content) => { config = content; });
	load("/api/runner-mode", (content) => { mode = content; });
	return () => {};
}

async function checkSource(values) {
	if (values.ticketingProvider === "B") {
		await post("/api/ticketing-b/validate-query", { jql: values.jql }).catch((error) => {
			throw new FieldError(error.message, "jql");
		});
	}
	const existing = (await get("/api/mappings"))[values.teamKey.trim()];
	if (existing) throw new FieldError(`${values.teamKey} is already mapped to ${existing.owner}/${existing.repo}. Edit that project instead.`, "teamKey");
}
