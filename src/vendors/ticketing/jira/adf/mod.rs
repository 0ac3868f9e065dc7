//! Jira's rich text (Atlassian Document Format): written from Markdown, read into Markdown.
//!
//! What we write must be accepted whatever the text: a refused document would be a lost comment.
//! So every node follows the published schema (no empty text, code marked with nothing but a link,
//! list items that begin with a paragraph), and the whole keeps below Jira's limit.

mod blocks;
mod inline;
mod links;
mod to_markdown;

use serde_json::{Value, json};

pub(super) use to_markdown::to_markdown;

/// Longest document, in characters of its JSON. Jira's limit is on the text; its JSON is longer,
/// so this is on the safe side.
const LIMIT: usize = 32_767;

/// Stands where a text was cut.
const CUT_MARK: &str = "[… cut: the comment was too long]";

/// Markdown as a document: as much of it as fits.
pub(super) fn from_markdown(markdown: &str) -> Value {
    let length = markdown.chars().count();
    let fitting = |keep| {
        let document = whole(markdown, keep, length);
        let size = document.to_string().chars().count();
        (size <= LIMIT).then_some(document)
    };
    let all = (length <= LIMIT).then(|| fitting(length)).flatten();
    all.or_else(|| last_fitting(length.min(LIMIT + 1), fitting))
        .unwrap_or_else(|| whole("", 0, length))
}

/// What comes of the largest number below `end` that fits, when the smaller ones do. Found by halves: how
/// much one character takes, only the document around it tells.
fn last_fitting<T>(mut end: usize, mut fitting: impl FnMut(usize) -> Option<T>) -> Option<T> {
    let (mut begin, mut last) = (0, None);
    while begin < end {
        let middle = usize::midpoint(begin, end);
        match fitting(middle) {
            Some(found) => {
                last = Some(found);
                begin = middle + 1;
            }
            None => end = middle,
        }
    }
    last
}

fn whole(markdown: &str, keep: usize, length: usize) -> Value {
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

/// A node and all that is in it, which `json!` would copy at every level.
fn node(kind: &str, content: Vec<Value>) -> Value {
    let mut node = json!({"type": kind});
    node["content"] = Value::Array(content);
    node
}

#[cfg(test)]
mod tests;
