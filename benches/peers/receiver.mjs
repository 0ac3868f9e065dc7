// What a careful receiver in Node does: it keeps each delivery in SQLite, and answers when the disk has it.
import { createServer } from "node:http";
import Database from "better-sqlite3";

const [port, file] = process.argv.slice(2);
const database = new Database(file);
database.pragma("journal_mode = WAL");
database.pragma("synchronous = FULL");
database.exec("CREATE TABLE deliveries (id TEXT PRIMARY KEY, body TEXT NOT NULL, taken_at INTEGER NOT NULL) WITHOUT ROWID");
const keep = database.prepare("INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?)");

createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const payload = JSON.parse(Buffer.concat(chunks).toString());
    keep.run(request.headers["x-github-delivery"], JSON.stringify({ action: payload.action, number: payload.number }), Date.now());
    response.setHeader("content-type", "application/json");
    response.end('{"acknowledged":true}');
  });
}).listen(Number(port), "127.0.0.1");
