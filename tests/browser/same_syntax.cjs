// Compares the syntax trees of scripts before and after compaction.
// usage: node same_syntax.cjs TYPESCRIPT SOURCE COMPACTED [SOURCE COMPACTED …]

const fs = require("node:fs");
const [typescript, ...files] = process.argv.slice(2);
const ts = require(typescript);

/** Kinds and texts of all nodes, in order. */
function outline(path) {
	const file = ts.createSourceFile("x.js", fs.readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
	const nodes = [];
	const visit = (node) => {
		const isLeaf = node.getChildCount() === 0;
		nodes.push(ts.SyntaxKind[node.kind] + (isLeaf ? ` ${node.getText()}` : ""));
		ts.forEachChild(node, visit);
	};
	ts.forEachChild(file, visit);
	nodes.push(`${file.parseDiagnostics.length} errors`);
	return nodes;
}

for (let at = 0; at < files.length; at += 2) {
	const [source, compacted] = [outline(files[at]), outline(files[at + 1])];
	const different = source.findIndex((node, index) => node !== compacted[index]);
	if (different >= 0 || source.length !== compacted.length || !source.includes("0 errors")) {
		console.error(`${files[at]}: ${source[different]} became ${compacted[different]}`);
		process.exitCode = 1;
	}
}
