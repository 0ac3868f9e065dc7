//! Conversion between Markdown and Jira's rich text (Atlassian Document Format).
//!
//! Jira must accept the document of any text, because a rejected document would be a lost comment.
//! Therefore every node follows the published schema (no empty text, no mark on code except a link, list
//! items that begin with a paragraph or code), and the document stays below Jira's size limit.
//!
//! `pulldown-cmark` parses the Markdown. Its time is at most the length of the text times the depth of its
//! lists and quotes, so the text is cut before it is parsed.

mod blocks;
mod containers;
mod inline;
mod links;
mod size;
mod to_markdown;

use serde_json::{Value, json};

pub(super) use to_markdown::to_markdown;

/// Maximum size of a document, in characters of its JSON. Jira limits the text, which is shorter than its
/// JSON.
const LIMIT: usize = 32_767;

/// Last paragraph of a truncated document.
const CUT_MARK: &str = "[… cut: the comment was too long]";

/// Converts Markdown to a document. Truncates a text that is too long.
pub(super) fn from_markdown(markdown: &str) -> Value {
    let end = markdown.char_indices().nth(LIMIT).map(|(at, _)| at);
    let mut content = blocks::parse(&markdown[..end.unwrap_or(markdown.len())], LIMIT);
    if content.is_empty() {
        content.push(paragraph(Vec::new()));
    }
    let all = document(content);
    if end.is_none() && size::of(&all) <= LIMIT {
        return all;
    }
    let notice = paragraph(vec![json!({"type": "text", "text": CUT_MARK})]);
    let mut content = size::truncate(all, LIMIT - size::of(&notice) - 1)
        .map_or_else(Vec::new, |mut kept| take_content(&mut kept));
    content.push(notice);
    document(content)
}

fn document(content: Vec<Value>) -> Value {
    let mut document = node("doc", content);
    document["version"] = json!(1);
    document
}

fn paragraph(content: Vec<Value>) -> Value {
    node("paragraph", content)
}

/// Builds a node. `json!` would copy the content at every level.
fn node(kind: &str, content: Vec<Value>) -> Value {
    let mut node = json!({"type": kind});
    node["content"] = Value::Array(content);
    node
}

/// Removes and returns the content of a node.
fn take_content(node: &mut Value) -> Vec<Value> {
    let content = node.get_mut("content").and_then(Value::as_array_mut);
    content.map(std::mem::take).unwrap_or_default()
}

#[cfg(test)]
mod tests;
