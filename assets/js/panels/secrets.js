import { get } from "../api.js";
import { h } from "../dom.js";
import { empty, rows, section } from "../parts/ui.js";
import { asideUrl, panelUrl } from "../router.js";

export const about = "Environment variables for session machines. Values are encrypted and never shown.";

export const load = async () => Object.values(await get("/api/mappings"));

export const view = (mappings) => [
	section("Project secrets", { note: "available to runs of the project only", actions: h("a", { href: panelUrl("projects") }, "Projects") },
		mappings.length ? rows(mappings, ({ teamKey, owner, repo }) => h("li", { key: teamKey }, h("span", { class: "grow" }, h("b", {}, teamKey), ` ${owner}/${repo}`), h("a", { class: "button small", href: asideUrl("secrets", teamKey), "aria-label": `Manage the secrets of ${teamKey}` }, "Manage")))
			: empty("No projects yet", "Secrets belong to one project or to all projects.")),
	section("Global secrets", {}, h("p", { class: "muted" }, "Available to every session. Manage them in the ", h("a", { href: panelUrl("settings") }, "settings"), ".")),
	section("Runs on GitHub Actions", {}, h("p", { class: "muted" }, "These runs use the Actions secrets of their repository: ANTHROPIC_API_KEY for the Anthropic API, CLOUD_ROLE_ARN for Amazon Bedrock.")),
];
