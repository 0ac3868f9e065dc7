// @ts-check
import { get, remove } from "../api.js";
import { h } from "../dom.js";
import { confirm } from "../parts/dialog.js";
import { table } from "../parts/table.js";
import { duration } from "../parts/time.js";
import { badge, button, toast } from "../parts/ui.js";
import { RUNNERS, name } from "../parts/words.js";
import { aside } from "../router.js";

export const title = "Sessions";
export const about = "Machines and containers that runs live in.";
export const watch = ["job", "poll"];

export const load = () => get("/api/sessions");

/** @param {any[]} rows @param {import("../shell.js").Context} ctx */
export const view = (rows, ctx) => table({
  id: "sessions", label: "Sessions", rows, key: (row) => row.machineId, filter: "Filter sessions",
  columns: [
    { label: "Session", cell: (row) => h("span", { class: "two-lines" }, h("span", { class: "title" }, row.name), h("code", { class: "sub" }, row.machineId)), sort: (row) => row.name, text: (row) => `${row.name} ${row.machineId}` },
    { label: "State", width: "s", cell: (row) => badge(row.state), sort: (row) => row.state, text: (row) => row.state },
    { label: "Kind", width: "m", hide: "md", cell: (row) => h("span", { class: "two-lines" }, h("span", {}, name(RUNNERS, row.kind)), h("span", { class: "sub" }, row.region ?? "")), sort: (row) => row.kind },
    { label: "Issue", width: "m", hide: "sm", cell: (row) => row.jobId ? h("a", { href: aside("job", row.jobId) }, row.issueIdentifier ?? "Run") : row.issueIdentifier ?? "–", sort: (row) => row.issueIdentifier, text: (row) => row.issueIdentifier ?? "" },
    { label: "Repository", width: "m", hide: "md", cell: (row) => row.repo ?? "–", text: (row) => row.repo ?? "" },
    { label: "Uptime", width: "s", hide: "sm", right: true, cell: (row) => duration(row.uptimeSeconds * 1000), sort: (row) => row.uptimeSeconds },
  ],
  actions: (row) => button("Destroy", () => confirm({
    title: `Destroy ${row.name}?`,
    text: row.issueIdentifier ? `Its run of ${row.issueIdentifier} ends and unpushed work is lost. The issue's marker and dedup entry are cleared, so it may be picked up again at the next poll.` : "What it is doing ends, and unpushed work is lost.",
    action: "Destroy session",
    run: async () => {
      await remove(`/api/sessions/${encodeURIComponent(row.machineId)}`);
      toast(`${row.name} is destroyed.`);
      await ctx.reload();
    },
  }), { kind: "small danger", title: `Destroy ${row.name}` }),
  empty: { title: "No sessions", text: "Runs on Fly Machines and in local containers appear here while they live." },
});
