//! Size of a document, and its truncation to a size.

use serde_json::Value;

use super::take_content;

/// Returns the size of a node, in characters of its JSON.
pub(super) fn of(node: &Value) -> usize {
    node.to_string().chars().count()
}

/// Truncates a node to at most `limit` characters of JSON. Returns `None` if no valid node is so small.
///
/// Of the nodes in it, the first one that does not fit is truncated and all after it are dropped. A node
/// that would lose all of its content is dropped, because most nodes must not be empty.
pub(super) fn truncate(mut node: Value, limit: usize) -> Option<Value> {
    if node["type"] == "text" {
        return truncate_text(node, limit);
    }
    let children = take_content(&mut node);
    if children.is_empty() {
        return (of(&node) <= limit).then_some(node);
    }
    node["content"] = Value::Array(Vec::new());
    let mut left = limit.checked_sub(of(&node))?;
    let mut kept = Vec::new();
    for child in children {
        let separator = usize::from(!kept.is_empty());
        let size = of(&child);
        if size + separator <= left {
            left -= size + separator;
            kept.push(child);
            continue;
        }
        kept.extend(truncate(child, left.saturating_sub(separator)));
        break;
    }
    if kept.is_empty() {
        return None;
    }
    node["content"] = Value::Array(kept);
    Some(node)
}

fn truncate_text(mut node: Value, limit: usize) -> Option<Value> {
    let Value::String(text) = node["text"].take() else {
        return None;
    };
    node["text"] = Value::String(String::new());
    let mut left = limit.checked_sub(of(&node))?;
    let fits = |c: &char| {
        let size = if matches!(c, '"' | '\\' | '\n' | '\t') {
            2
        } else {
            1
        };
        let rest = left.checked_sub(size);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let kept: String = text.chars().take_while(fits).collect();
    let is_empty = kept.is_empty();
    node["text"] = Value::String(kept);
    (!is_empty).then_some(node)
}
