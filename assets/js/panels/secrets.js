// @ts-check
import { gather } from "../api.js";
import { h } from "../dom.js";
import { section } from "../parts/ui.js";
import { aside, to } from "../router.js";

export const title = "Secrets";
export const about = "Values that session machines get in their environment. They are sealed, and never shown.";

export const load = () => gather("/api/mappings", {});

/** @param {any} data */
export const view = ({ main }) => [
  section("Secrets of one project", {},
    h("p", { class: "muted" }, "They are managed with their project, and only its runs get them."),
    h("ul", { class: "plain rows" }, Object.keys(main).map((team) => h("li", { key: team }, h("span", { class: "grow" }, h("b", {}, team), ` ${main[team].owner}/${main[team].repo}`), h("a", { class: "button small", href: aside("secrets", team), "aria-label": `Secrets of ${team}` }, "Manage")))),
    h("a", { class: "button", href: to("projects") }, "Go to projects")),
  section("Secrets of every session", {},
    h("p", { class: "muted" }, "Global secrets are managed in the settings."),
    h("a", { class: "button", href: to("settings") }, "Go to settings")),
  section("Runs on GitHub Actions", {},
    h("p", { class: "muted" }, "They use the secrets of their repository, set at GitHub: ANTHROPIC_API_KEY for the Anthropic API, CLOUD_ROLE_ARN for Amazon Bedrock.")),
];
