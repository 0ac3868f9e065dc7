// An app of Probot that handles the delivery and does nothing about it. It checks signatures and keeps nothing.
import { createServer } from "node:http";
import { Probot, createNodeMiddleware } from "probot";

const probot = new Probot({
  appId: 1,
  privateKey: process.env.PRIVATE_KEY,
  secret: process.env.WEBHOOK_SECRET,
  logLevel: "fatal",
});
const app = (robot) => robot.on("pull_request.labeled", () => {});
const middleware = await createNodeMiddleware(app, { probot, webhooksPath: "/api/repo-host/webhook" });
createServer(middleware).listen(Number(process.argv[2]), "127.0.0.1");
