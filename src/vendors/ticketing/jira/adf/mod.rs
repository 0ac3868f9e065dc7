//! Conversion between Markdown and Jira's rich text (Atlassian Document Format).
//!
//! Jira must accept the document of any text, because a rejected document would be a lost comment.
//! Therefore every node follows the published schema (no empty text, no mark on code except a link, list
//! items that begin with a paragraph or code), and the document stays below Jira's size limit.

mod blocks;
mod inline;
mod links;
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
    let length = markdown.chars().count();
    let document_of = |keep| {
        let document = truncated_document(markdown, keep, length);
        let size = document.to_string().chars().count();
        (size <= LIMIT).then_some(document)
    };
    let all = (length <= LIMIT).then(|| document_of(length)).flatten();
    all.or_else(|| last_fitting(length.min(LIMIT + 1), document_of))
        .unwrap_or_else(|| truncated_document("", 0, length))
}

/// Returns the result of `fit` for the largest number below `end` for which it returns one, found by
/// binary search. The size of a document cannot be computed from the length of its text.
fn last_fitting<T>(mut end: usize, mut fit: impl FnMut(usize) -> Option<T>) -> Option<T> {
    let (mut begin, mut last) = (0, None);
    while begin < end {
        let middle = usize::midpoint(begin, end);
        match fit(middle) {
            Some(found) => {
                last = Some(found);
                begin = middle + 1;
            }
            None => end = middle,
        }
    }
    last
}

/// Builds the document of the first `keep` characters of a text with `length` characters.
fn truncated_document(markdown: &str, keep: usize, length: usize) -> Value {
    let end = markdown.char_indices().nth(keep).map(|(at, _)| at);
    let kept = &markdown[..end.unwrap_or(markdown.len())];
    let mut content = blocks::parse(kept);
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

/// Builds a node. `json!` would copy the content at every level.
fn node(kind: &str, content: Vec<Value>) -> Value {
    let mut node = json!({"type": kind});
    node["content"] = Value::Array(content);
    node
}

#[cfg(test)]
mod tests;
