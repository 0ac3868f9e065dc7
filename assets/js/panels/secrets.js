import { get } from "../api.js";
import { h } from "../dom.js";
import { empty, rows, section } from "../parts/ui.js";
import { aside, to } from "../router.js";

export const about = "Values that session machines get in their environment. They are sealed, and never shown.";

export const load = async () => Object.values(await get("/api/mappings"));

export const view = (mappings) => [
	section("Of one project", { note: "managed with their project; only its runs get them", actions: h("a", { href: to("projects") }, "Projects") },
		mappings.length ? rows(mappings, ({ teamKey, owner, repo }) => h("li", { key: teamKey }, h("span", { class: "grow" }, h("b", {}, teamKey), ` ${owner}/${repo}`), h("a", { class: "button small", href: aside("secrets", teamKey), "aria-label": `Manage the secrets of ${teamKey}` }, "Manage")))
			: empty("No projects yet", "Secrets belong to a project, or to all of them.")),
	section("Of every session", {}, h("p", { class: "muted" }, "Global secrets are managed in the ", h("a", { href: to("settings") }, "settings"), ".")),
	section("Of runs on GitHub Actions", {}, h("p", { class: "muted" }, "They use the secrets of their repository, set at GitHub: ANTHROPIC_API_KEY for the Anthropic API, CLOUD_ROLE_ARN for Amazon Bedrock.")),
];
