// @ts-check
import { get } from "../api.js";
import { h } from "../dom.js";
import { table } from "../parts/table.js";
import { ago } from "../parts/time.js";
import { badge } from "../parts/ui.js";
import { say } from "../parts/words.js";

export const title = "Customizations";
export const about = "Files of your own that replace or add to what is built in.";

export const load = () => get("/api/customizations");

/** @param {number} bytes */
const size = (bytes) => (bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`);

/** @param {any} data */
export const view = ({ root, customizations }) => [
  h("p", { class: "muted" }, "Read from ", h("code", {}, root)),
  table({
    id: "customizations", label: "Customizations", rows: customizations, key: (row) => row.path, filter: "Filter files",
    columns: [
      { label: "Path", cell: (row) => h("span", { class: "two-lines" }, h("code", {}, row.path), h("span", { class: "sub" }, row.upstreamPath ? `instead of ${row.upstreamPath}` : "")), sort: (row) => row.path, text: (row) => `${row.path} ${row.upstreamPath ?? ""}` },
      { label: "Category", width: "m", hide: "sm", cell: (row) => say(row.category), sort: (row) => row.category, text: (row) => row.category },
      { label: "Status", width: "s", cell: (row) => badge(row.status), sort: (row) => row.status, text: (row) => row.status ?? "" },
      { label: "Size", width: "s", hide: "md", right: true, cell: (row) => size(row.size), sort: (row) => row.size },
      { label: "Modified", width: "s", hide: "sm", right: true, cell: (row) => ago(row.modifiedAt), sort: (row) => row.modifiedAt },
    ],
    empty: { title: "Nothing is customized", text: "Put pipelines into custom/pipelines and steps into custom/steps to change what runs do." },
  }),
];
