//! Conversion of a document to Markdown, for the prompts of runs. Of nodes without a Markdown counterpart
//! only the text is kept.

use serde_json::Value;

/// Converts a document to Markdown. Returns a plain string unchanged.
pub(in super::super) fn to_markdown(document: &Value) -> String {
    match document {
        Value::String(text) => text.clone(),
        _ => blocks(children(document)),
    }
}

fn children(node: &Value) -> &[Value] {
    node["content"].as_array().map_or(&[], Vec::as_slice)
}

fn blocks(nodes: &[Value]) -> String {
    let parts = nodes
        .iter()
        .map(block)
        .filter(|part| !part.trim().is_empty());
    parts.collect::<Vec<String>>().join("\n\n")
}

fn block(node: &Value) -> String {
    let attrs = &node["attrs"];
    match node["type"].as_str().unwrap_or_default() {
        "paragraph" => inlines(children(node)),
        "heading" => {
            let level = attrs["level"].as_u64().unwrap_or(1).clamp(1, 6);
            let marks = "#".repeat(usize::try_from(level).unwrap_or(1));
            format!("{marks} {}", inlines(children(node)))
        }
        "codeBlock" => {
            let code: String = children(node).iter().map(plain).collect();
            let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            let language = attrs["language"].as_str().unwrap_or_default();
            format!("{fence}{language}\n{code}\n{fence}")
        }
        "bulletList" | "decisionList" => list(node, |_| "- ".to_owned()),
        "orderedList" => {
            let first = attrs["order"].as_u64().unwrap_or(1);
            list(node, |at| format!("{}. ", first + at as u64))
        }
        "taskList" => list(node, |at| {
            let is_done = children(node)[at]["attrs"]["state"] == "DONE";
            if is_done { "- [x] " } else { "- [ ] " }.to_owned()
        }),
        "blockquote" | "panel" => {
            let inner = blocks(children(node));
            let lines = inner.lines().map(|line| format!("> {line}"));
            lines.collect::<Vec<String>>().join("\n")
        }
        "rule" => "---".to_owned(),
        "table" => table(node),
        "expand" | "nestedExpand" => {
            let title = attrs["title"].as_str().unwrap_or_default();
            let inner = blocks(children(node));
            if title.is_empty() {
                inner
            } else {
                format!("**{title}**\n\n{inner}")
            }
        }
        "mediaSingle" | "mediaGroup" | "media" => "[attachment]".to_owned(),
        "blockCard" | "embedCard" => attrs["url"].as_str().unwrap_or_default().to_owned(),
        // An unknown node, or an inline node outside of a paragraph.
        _ if children(node).is_empty() => inline(node),
        _ => blocks(children(node)),
    }
}

fn list(node: &Value, marker: impl Fn(usize) -> String) -> String {
    let items = children(node).iter().enumerate().map(|(at, item)| {
        // A task contains its text directly, without a paragraph.
        let content = match item["type"].as_str() {
            Some("taskItem" | "decisionItem") => inlines(children(item)),
            Some("taskList") => return block(item),
            _ => item_blocks(children(item)),
        };
        let marker = marker(at);
        let indent = " ".repeat(marker.len());
        let mut lines = content.lines();
        let mut text = format!("{marker}{}", lines.next().unwrap_or_default());
        for line in lines {
            text.push('\n');
            if !line.is_empty() {
                text.push_str(&indent);
                text.push_str(line);
            }
        }
        text
    });
    items.collect::<Vec<String>>().join("\n")
}

/// Converts the blocks of a list item. A nested list follows the text without a blank line.
fn item_blocks(nodes: &[Value]) -> String {
    let mut text = String::new();
    for node in nodes {
        if !text.is_empty() {
            let is_list = node["type"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("List"));
            text.push_str(if is_list { "\n" } else { "\n\n" });
        }
        text.push_str(&block(node));
    }
    text
}

fn table(node: &Value) -> String {
    let mut lines = Vec::new();
    for (at, row) in children(node).iter().enumerate() {
        let cells: Vec<String> = children(row)
            .iter()
            .map(|cell| {
                blocks(children(cell))
                    .replace('\n', " ")
                    .replace('|', "\\|")
            })
            .collect();
        lines.push(format!("| {} |", cells.join(" | ")));
        if at == 0 {
            lines.push(format!("|{}", " --- |".repeat(cells.len())));
        }
    }
    lines.join("\n")
}

fn inlines(nodes: &[Value]) -> String {
    nodes.iter().map(inline).collect()
}

fn inline(node: &Value) -> String {
    let attrs = &node["attrs"];
    let attr = |name: &str| attrs[name].as_str().unwrap_or_default().to_owned();
    match node["type"].as_str().unwrap_or_default() {
        "text" => marked_text(node),
        "hardBreak" => "\n".to_owned(),
        "mention" | "status" => attr("text"),
        "emoji" if attrs["text"].is_string() => attr("text"),
        "emoji" => attr("shortName"),
        "inlineCard" => attr("url"),
        "date" => {
            let millis = attrs["timestamp"]
                .as_str()
                .and_then(|text| text.parse().ok());
            let day = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
            day.map_or_else(String::new, |day| day.strftime("%Y-%m-%d").to_string())
        }
        _ => inlines(children(node)),
    }
}

fn plain(node: &Value) -> String {
    node["text"].as_str().unwrap_or_default().to_owned()
}

fn marked_text(node: &Value) -> String {
    let mut text = plain(node);
    let marks = node["marks"].as_array().map_or(&[][..], Vec::as_slice);
    let has = |name: &str| marks.iter().any(|mark| mark["type"] == name);
    if has("code") {
        text = format!("`{text}`");
    }
    for (name, token) in [("strike", "~~"), ("em", "*"), ("strong", "**")] {
        if has(name) && !text.trim().is_empty() {
            text = format!("{token}{text}{token}");
        }
    }
    let href = marks
        .iter()
        .find(|mark| mark["type"] == "link")
        .and_then(|mark| mark["attrs"]["href"].as_str());
    match href {
        Some(href) if href == text => text,
        Some(href) => format!("[{text}]({href})"),
        None => text,
    }
}
