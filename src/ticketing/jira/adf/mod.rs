//! Jira's rich text (Atlassian Document Format): written from Markdown, read into Markdown.
//!
//! What we write must be accepted whatever the text: a refused document would be a lost comment.
//! So every node follows the published schema (no empty text, code marked with nothing but a link,
//! list items that begin with a paragraph), and the whole keeps below Jira's limit.

mod address;
mod blocks;
mod inline;
mod read;

use serde_json::{Value, json};

pub(super) use read::markdown;

/// Longest document, in characters of its JSON. Jira's limit is on the text; its JSON is longer,
/// so this is on the safe side.
const LIMIT: usize = 32_767;

/// Stands where a text was cut.
const CUT_MARK: &str = "[… cut: the comment was too long]";

/// Markdown as a document.
pub(super) fn document(markdown: &str) -> Value {
    let length = markdown.chars().count();
    let mut keep = length.min(LIMIT);
    loop {
        let document = whole(markdown, keep, length);
        let size = document.to_string().chars().count();
        if size <= LIMIT || keep == 0 {
            return document;
        }
        keep = (keep * LIMIT / size).min(keep - 1);
    }
}

fn whole(markdown: &str, keep: usize, length: usize) -> Value {
    let end = markdown.char_indices().nth(keep).map(|(at, _)| at);
    let kept = &markdown[..end.unwrap_or(markdown.len())];
    let mut content = blocks::read(kept);
    if keep < length {
        content.push(paragraph(vec![json!({"type": "text", "text": CUT_MARK})]));
    }
    if content.is_empty() {
        content.push(paragraph(Vec::new()));
    }
    let mut document = node("doc", content);
    document["version"] = json!(1);
    document
}

fn paragraph(content: Vec<Value>) -> Value {
    node("paragraph", content)
}

/// A node and all that is in it, which `json!` would copy at every level.
fn node(kind: &str, content: Vec<Value>) -> Value {
    let mut node = json!({"type": kind});
    node["content"] = Value::Array(content);
    node
}

#[cfg(test)]
mod tests;
