//! Atlassian document format: validation, and conversion to plain text.

use serde_json::{Value, json};

/// Maximum characters of a text.
const MAX_TEXT: usize = 32_767;

/// Converts plain text to a document.
pub(crate) fn from_plain_text(text: &str) -> Value {
    let paragraph = |line: &str| {
        let content = if line.is_empty() {
            json!([])
        } else {
            json!([{"type": "text", "text": line}])
        };
        json!({"type": "paragraph", "content": content})
    };
    let content: Vec<Value> = text.split("\n\n").map(paragraph).collect();
    json!({"type": "doc", "version": 1, "content": content})
}

/// Returns the error with which Jira rejects a document; `None` if it is valid.
pub(crate) fn validation_error(document: &Value) -> Option<String> {
    if document["type"] != "doc" || document["version"] != 1 || !document["content"].is_array() {
        return Some("Comment body is not valid!".into());
    }
    if plain_text(document).trim().is_empty() {
        return Some("Comment body can not be empty!".into());
    }
    if plain_text(document).chars().count() > MAX_TEXT {
        return Some(
            "The entered text is too long. It exceeds the allowed limit of 32,767 characters."
                .into(),
        );
    }
    let blocks = document["content"].as_array().into_iter().flatten();
    blocks
        .filter_map(node_error)
        .next()
        .map(|problem| format!("INVALID_INPUT: {problem}"))
}

fn node_error(node: &Value) -> Option<String> {
    let kind = node["type"].as_str().unwrap_or_default();
    let children = node["content"].as_array().cloned().unwrap_or_default();
    let allowed: &[&str] = match kind {
        "paragraph" | "heading" => &["text", "hardBreak", "mention", "emoji", "inlineCard"],
        "codeBlock" => &["text"],
        "bulletList" | "orderedList" => &["listItem"],
        "listItem" => &["paragraph", "bulletList", "orderedList", "codeBlock"],
        "blockquote" => &["paragraph"],
        "expand" if !node["attrs"]["title"].is_string() => {
            return Some("expand without title".into());
        }
        "expand" => &[
            "paragraph",
            "heading",
            "bulletList",
            "orderedList",
            "codeBlock",
            "blockquote",
            "rule",
        ],
        "text" => {
            let marks = node["marks"].as_array().cloned().unwrap_or_default();
            let is_code = marks.iter().any(|mark| mark["type"] == "code");
            let is_mixed = marks
                .iter()
                .any(|mark| mark["type"] != "code" && mark["type"] != "link");
            let is_bad = node["text"].as_str().is_none_or(str::is_empty) || (is_code && is_mixed);
            return is_bad.then(|| format!("text {node}"));
        }
        "rule" | "hardBreak" => &[],
        _ => return Some(format!("unknown node {kind}")),
    };
    let is_empty = matches!(
        kind,
        "bulletList" | "orderedList" | "listItem" | "blockquote" | "expand"
    ) && children.is_empty();
    let misplaced = children
        .iter()
        .find(|child| !allowed.contains(&child["type"].as_str().unwrap_or_default()));
    match misplaced {
        _ if is_empty => Some(format!("empty {kind}")),
        Some(child) => Some(format!("{} in {kind}", child["type"])),
        None => children.iter().find_map(node_error),
    }
}

/// Returns the text of a document, one line per paragraph.
pub(crate) fn plain_text(node: &Value) -> String {
    let own_text = match node["type"].as_str() {
        Some("text") => node["text"].as_str().unwrap_or_default(),
        Some("hardBreak") => "\n",
        Some("expand") => node["attrs"]["title"].as_str().unwrap_or_default(),
        _ => "",
    };
    let mut text = own_text.to_owned();
    for child in node["content"].as_array().into_iter().flatten() {
        let is_block = !matches!(child["type"].as_str(), Some("text" | "hardBreak"));
        if is_block && !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&plain_text(child));
    }
    text
}
