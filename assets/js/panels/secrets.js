import { get } from "../api.js";
import { h } from "../dom.js";
import { empty, linkButton, rows, section } from "../parts/ui.js";
import { asideUrl } from "../router.js";

export const about = "Environment variables for session machines. Values are encrypted and never shown.";

export const load = async () => Object.values(await get("/api/mappings"));

export const view = (mappings) => [
	section("Project secrets", { note: "available to runs of the project only", actions: h("a", { href: "/admin/projects" }, "Projects") },
		mappings.length ? rows(mappings, ({ teamKey, owner, repo }) => h("li", { key: teamKey }, h("span.grow", h("b", teamKey), ` ${owner}/${repo}`), linkButton(asideUrl("secrets", teamKey), "Manage", `Manage the secrets of ${teamKey}`)))
			: empty("No projects yet", "Secrets belong to one project or to all projects.")),
	section("Global secrets", {}, h("p.muted", "Available to every session. Manage them in the ", h("a", { href: "/admin/settings" }, "settings"), ".")),
	section("Runs on GitHub Actions", {}, h("p.muted", "These runs use the Actions secrets of their repository.")),
];
