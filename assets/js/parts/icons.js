// Line icons on a 24 × 24 grid.

import { s } from "../dom.js";

/** @type {Record<string, string>} */
const PATHS = {
	overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
	issues: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 8v5M12 16v.5",
	pipelines: "M4 6h9M4 12h16M4 18h12M17 4l3 2-3 2",
	pulls: "M7 8v8M7 4a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM7 16a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM17 16a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM17 16V9a3 3 0 0 0-3-3h-3M13 3.5 10.5 6 13 8.5",
	questions: "M4 5h16v11H9l-5 4z",
	blockers: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM6 6l12 12",
	scoreboard: "M4 20h16M7 16v-5M12 16V5M17 16V9",
	projects: "M3 7a2 2 0 0 1 2-2h4l2 2h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2z",
	steps: "M5 4h6v5H5zM13 15h6v5h-6zM8 9v5a3 3 0 0 0 3 3h2",
	models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM12 12l8-4.5M12 12v9M12 12L4 7.5",
	connections: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
	runners: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.5M8 16h.5",
	sessions: "M4 5h16v11H4zM9 20h6M12 16v4",
	reaper: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
	secrets: "M8 14a4 4 0 1 1 3.5-6H20v4h-2v3h-3v-3h-3.5A4 4 0 0 1 8 14z",
	settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
	audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
	customizations: "M4 20l4-1L19 8l-3-3L5 16zM14 7l3 3",
	views: "M7 4h10v16l-5-4-5 4z",
	copy: "M9 9h10v11H9zM5 15V4h10",
	menu: "M4 7h16M4 12h16M4 17h16",
	more: "M6 12h.01M12 12h.01M18 12h.01",
	close: "M6 6l12 12M18 6L6 18",
	out: "M14 5h5v5M19 5l-9 9M11 6H6v12h12v-5",
	search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l4 4",
	sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4",
	moon: "M19 14.5A8 8 0 0 1 9.5 5 7.5 7.5 0 1 0 19 14.5z",
	auto: "M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 4v16",
	refresh: "M19 8a8 8 0 1 0 1 4M20 4v4h-4",
	leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
};

/** @param {string} name */
export const icon = (name) =>
	s("svg.icon", { viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: PATHS[name] ?? "" }));

/** Logo of the product. */
export const logo = () =>
	s("svg.logo", { viewBox: "0 0 32 32", "aria-hidden": "true" },
		s("rect", { width: 32, height: 32, rx: 8 }), s("path", { d: "M9 22l7-13 7 13M12 18h8" }));
