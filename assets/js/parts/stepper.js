// @ts-check
// A new project in eight steps. The service judges each before the next, as far as it can be asked;
// what only the whole is refused for leads back to the step that it is about.

import { ApiError, get, maybe, post } from "../api.js";
import { h, island, render } from "../dom.js";
import { go, to } from "../router.js";
import { fields } from "./form.js";
import { BLANK, FIELDS, placeOf, toBody } from "./mapping.js";
import { synced } from "./sync.js";
import { busy, empty, facts, messageOf } from "./ui.js";
import { EXECUTION, PROVIDERS, SYSTEMS, name } from "./words.js";

const STEPS = /** @type {const} */ ([
  ["system", "Ticketing system"], ["source", "Source"], ["repository", "Repository"], ["runner", "Runner"],
  ["provider", "Provider"], ["capacity", "Capacity"], ["secrets", "Secrets"], ["review", "Review"],
]);

export const stepper = () => island("stepper", null, mount);

/** @param {HTMLElement} el */
function mount(el) {
  const values = /** @type {Record<string, any>} */ ({ ...BLANK, secretName: "", secretValue: "" });
  /** @type {{name: string, value: string}[]} */
  const secrets = [];
  let at = 0;
  let furthest = 0;
  let error = { step: "", field: "", text: "" };
  /** @type {any} */
  let created = null;
  /** @type {any} */
  let after = null;
  /** @type {any} */
  let config = null;
  /** @type {any} */
  let mode = null;
  const field = fields(values, () => draw());

  const show = (/** @type {number} */ next) => {
    at = next;
    furthest = Math.max(furthest, at);
    draw();
    /** @type {HTMLElement | null} */ (el.querySelector(".step-panel h2"))?.focus();
  };
  const fail = (/** @type {unknown} */ thrown, /** @type {string} */ step) => {
    const text = messageOf(thrown);
    const place = placeOf(text, values);
    error = { step: place.step || step, field: place.field, text };
    const target = STEPS.findIndex(([name]) => name === error.step);
    at = target < 0 ? at : target;
    draw();
    const wrong = /** @type {HTMLElement | null} */ (el.querySelector("[aria-invalid=true]") ?? el.querySelector(".step-panel .error"));
    wrong?.focus();
  };

  const next = (/** @type {Event} */ event) => {
    event.preventDefault();
    busy(async () => {
      const [step] = STEPS[at];
      error = { step: "", field: "", text: "" };
      try {
        const missing = FIELDS[step]?.(values).find((one) => one.required && !String(values[one.name] ?? "").trim());
        if (missing) throw new Refusal(`${missing.label} is required.`, missing.name);
        await check(step, values);
        if (step === "secrets" && values.secretName) keepSecret();
        if (step === "review") return await create();
        show(at + 1);
      } catch (thrown) {
        if (!(thrown instanceof Refusal)) return fail(thrown, step);
        error = { step, field: thrown.field, text: thrown.message };
        draw();
        /** @type {HTMLElement | null} */ (el.querySelector("[aria-invalid=true]"))?.focus();
      }
    });
  };

  const keepSecret = () => {
    if (!values.secretName.trim() || !values.secretValue) throw new Refusal("Give both a name and a value, or neither.", "secretName");
    secrets.push({ name: values.secretName.trim(), value: values.secretValue });
    [values.secretName, values.secretValue] = ["", ""];
  };

  const create = async () => {
    created = await post("/api/mappings", toBody(values));
    await storeSecrets();
  };
  const storeSecrets = async () => {
    while (secrets.length) {
      try {
        await post(`/api/mappings/${encodeURIComponent(created.teamKey)}/secrets`, secrets[0]);
      } catch (thrown) {
        return fail(new Refusal(`The project is created. Its secret ${secrets[0].name} was refused: ${messageOf(thrown)}`, "secretName"), "secrets");
      }
      secrets.shift();
    }
    show(STEPS.length);
  };

  const draw = () => {
    const [step, title] = STEPS[at] ?? ["done", "Created"];
    const rail = h("ol", { class: "rail" }, STEPS.map(([name, text], index) =>
      h("li", { class: index === at ? "now" : index < at || created ? "past" : "", "aria-current": index === at ? "step" : null },
        h("button", { type: "button", disabled: index > furthest || (created && name !== "secrets"), onclick: () => show(index) }, h("span", { class: "step-number" }, index + 1), text, error.step === name && h("span", { class: "sr" }, " (has an error)")))));
    render(el, rail, h("form", { class: "step-panel", onsubmit: next, novalidate: true, key: step }, h("h2", { tabindex: "-1" }, title),
      step === "done" ? done() : body(step), step !== "done" && h("div", { class: "step-foot" },
        at > 0 && !created && h("button", { type: "button", class: "button", onclick: () => show(at - 1) }, "Back"),
        created
          ? [h("button", { type: "button", class: "button", onclick: () => { secrets.length = 0; show(STEPS.length); } }, "Go on without"), h("button", { type: "button", class: "button primary", onclick: again }, "Try again")]
          : h("button", { type: "submit", class: "button primary" }, step === "review" ? "Create project" : "Continue"))));
  };
  const again = () => busy(async () => {
    try {
      if (values.secretName) {
        secrets.shift();
        keepSecret();
      }
      error = { step: "", field: "", text: "" };
      await storeSecrets();
    } catch (thrown) {
      fail(thrown, "secrets");
    }
  });

  const body = (/** @type {string} */ step) => {
    const about = error.step === step ? error : null;
    let placed = false;
    const one = (/** @type {import("./form.js").Field} */ description) => {
      const mine = about?.field === description.name;
      placed ||= Boolean(mine);
      return field(description, mine ? about?.text : undefined);
    };
    const drawn = step === "review" ? review() : FIELDS[step](values).map(one);
    const extra = step === "secrets" ? secretPart(one) : step === "system" || step === "runner" ? state(step) : null;
    return [about && !placed && h("p", { class: "error", role: "alert", tabindex: "-1" }, about.text), drawn, extra];
  };

  /** What is known of the connection that a choice needs. @param {string} step */
  const state = (step) => {
    const wanted = step === "system" ? `ticketing-${values.ticketingProvider.toLowerCase()}` : values.executionMode === "vm-machines" ? "vm-sessions" : "repo-host";
    const found = config?.checks.find((/** @type {any} */ one) => one.name === wanted);
    const overriding = step === "runner" && mode && mode.mode !== "default" && `The runner mode of the service is “${mode.mode}” and overrides this choice.`;
    return [found && found.status !== "ok" && h("p", { class: "hint warn-text", role: "status" }, `This connection is not ready: ${found.detail}`), overriding && h("p", { class: "hint" }, overriding)];
  };

  /** @param {(field: import("./form.js").Field) => any} one */
  const secretPart = (one) => h("fieldset", { class: "form-part" }, h("legend", {}, "Secrets of this project"),
    secrets.length > 0 && h("ul", { class: "plain rows" }, secrets.map((secret, index) => h("li", {}, h("code", {}, secret.name), h("button", { type: "button", class: "button small ghost", onclick: () => { secrets.splice(index, 1); draw(); } }, "Remove")))),
    h("div", { class: "form-grid" }, one({ name: "secretName", label: "Name", placeholder: "NPM_TOKEN" }), one({ name: "secretValue", label: "Value", type: "password" })),
    h("button", { type: "button", class: "button small", onclick: () => { try { keepSecret(); error.text = ""; error.step = ""; } catch (thrown) { error = { step: "secrets", field: "secretName", text: /** @type {Error} */ (thrown).message }; } draw(); } }, "Add another"),
    h("p", { class: "hint" }, "For Fly Machines and local containers. Runs on GitHub Actions use the repository's own secrets."));

  const review = () => facts([
    ["Tickets", `${name(SYSTEMS, values.ticketingProvider)}, ${values.teamKey}`],
    ...(values.ticketingProvider === "B" ? /** @type {[string, any][]} */ ([["Query", h("code", {}, values.jql)], ["Repository field", values.repoFieldValue]]) : []),
    ["Repository", `${values.owner}/${values.repo}, ${values.defaultBranch}`],
    ["Runner", `${name(EXECUTION, values.executionMode)}${values.planningEnabled ? ", with planning" : ""}`],
    ["Provider", `${name(PROVIDERS, values.provider)}${values.provider === "cloud" ? `, ${values.cloudRegion}` : ""}`],
    ["Issues at once", values.maxInProgressAiIssues],
    ["Run caps", `${values.maxTurns || 50} turns, ${values.maxIterations || (values.provider === "cloud" ? 2 : 3)} iterations, ${values.maxJobMinutes || 90} minutes`],
    ["Secrets", secrets.length ? secrets.map((one) => one.name).join(", ") : "none"],
  ]);

  const done = () => {
    const sync = () => busy(async () => {
      after = h("p", { role: "status" }, "Comparing the repository's workflows with this version's…");
      draw();
      after = await synced(created.teamKey);
      draw();
    });
    return [
      empty(`${created.teamKey} is mapped to ${created.owner}/${created.repo}`, "One thing is left: the repository needs the workflows that runs start with. Syncing opens a pull request with them.",
        h("div", { class: "actions" }, h("button", { type: "button", class: "button primary", onclick: sync }, "Sync workflows"), h("button", { type: "button", class: "button", onclick: () => go(to("projects")) }, "Go to projects"))),
      after,
    ];
  };

  draw();
  maybe("/api/admin/config-status").then((found) => { config = found; draw(); }, () => {});
  maybe("/api/runner-mode").then((found) => { mode = found; draw(); }, () => {});
  return () => {};
}

/** What is refused before the service is asked. */
class Refusal extends ApiError {
  /** @param {string} text @param {string} field */
  constructor(text, field) {
    super(0, text);
    this.field = field;
  }
}

/** Asks the service what it can judge at this step. @param {string} step @param {Record<string, any>} values */
async function check(step, values) {
  if (step !== "source") return;
  if (values.ticketingProvider === "B") await post("/api/ticketing-b/validate-query", { jql: values.jql });
  const taken = (await get("/api/mappings"))[values.teamKey.trim()];
  if (taken) throw new Refusal(`${values.teamKey} is mapped to ${taken.owner}/${taken.repo} already. Edit that project instead.`, "teamKey");
}
