//! Parser for Markdown blocks: paragraphs, headings, lists, code, quotes, rules, folds.

use serde_json::{Value, json};

use super::inline;
use super::{node, paragraph};

/// Maximum nesting depth of lists. Deeper lists are parsed as text.
const MAX_DEPTH: usize = 5;

/// Parses a text to block nodes.
pub(super) fn parse(text: &str) -> Vec<Value> {
    let lines: Vec<&str> = text.lines().collect();
    blocks(&lines, 0)
}

fn blocks(lines: &[&str], depth: usize) -> Vec<Value> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.trim().is_empty() {
            at += 1;
        } else if let Some(fence) = Fence::open(line) {
            at = code(lines, at, &fence, &mut found);
        } else if let Some(title) = fold_title(line).filter(|_| depth == 0) {
            at = fold(lines, at, title, &mut found);
        } else if let Some((level, title)) = heading(line) {
            let mut heading = node("heading", inline::parse(title));
            heading["attrs"] = json!({"level": level});
            found.push(heading);
            at += 1;
        } else if is_rule(line) {
            found.push(json!({"type": "rule"}));
            at += 1;
        } else if line.trim_start().starts_with('>') {
            at = quote(lines, at, &mut found);
        } else if depth < MAX_DEPTH && Item::begin(line).is_some() {
            at = list(lines, at, depth, &mut found);
        } else {
            at = text(lines, at, depth, &mut found);
        }
    }
    found
}

/// Opening line of a code block.
struct Fence<'a> {
    mark: char,
    length: usize,
    indent: usize,
    language: &'a str,
}

impl<'a> Fence<'a> {
    fn open(line: &'a str) -> Option<Self> {
        let text = line.trim_start();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let after = text.trim_start_matches(mark);
        let length = text.len() - after.len();
        let is_fence = length >= 3 && !(mark == '`' && after.contains('`'));
        is_fence.then(|| Self {
            mark,
            length,
            indent: line.len() - text.len(),
            language: after.split_whitespace().next().unwrap_or_default(),
        })
    }

    /// Returns the index of the closing line. An unclosed block contains the rest of the text.
    fn end(&self, lines: &[&str], start: usize) -> usize {
        (start + 1..lines.len())
            .find(|at| self.is_closed_by(lines[*at]))
            .unwrap_or(lines.len())
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let text = line.trim();
        text.len() >= self.length && text.chars().all(|c| c == self.mark)
    }
}

/// Parses the title line of a collapsible section, `+++ Title`. A line `+++` ends the section.
fn fold_title(line: &str) -> Option<&str> {
    let title = line.strip_prefix("+++ ")?.trim();
    Some(title).filter(|title| !title.is_empty())
}

/// Parses a collapsible section. An unclosed section contains the rest of the text.
fn fold(lines: &[&str], start: usize, title: &str, found: &mut Vec<Value>) -> usize {
    let mut end = start + 1;
    while end < lines.len() && lines[end].trim_end() != "+++" {
        end = match Fence::open(lines[end]) {
            Some(fence) => fence.end(lines, end) + 1,
            None => end + 1,
        };
    }
    let end = end.min(lines.len());
    let mut content = blocks(&lines[start + 1..end], 1);
    if content.is_empty() {
        content.push(paragraph(Vec::new()));
    }
    let mut section = node("expand", content);
    section["attrs"] = json!({"title": inline::strip_invisible(title)});
    found.push(section);
    end + 1
}

fn code(lines: &[&str], start: usize, fence: &Fence<'_>, found: &mut Vec<Value>) -> usize {
    let end = fence.end(lines, start);
    let body: Vec<&str> = lines[start + 1..end]
        .iter()
        .map(|line| dedent(line, fence.indent))
        .collect();
    let text = inline::strip_invisible(&body.join("\n"));
    let mut block = json!({"type": "codeBlock"});
    if !fence.language.is_empty() {
        block["attrs"] = json!({"language": inline::strip_invisible(fence.language)});
    }
    if !text.is_empty() {
        block["content"] = json!([{"type": "text", "text": text}]);
    }
    found.push(block);
    end + 1
}

fn dedent(line: &str, indent: usize) -> &str {
    let blanks = line.len() - line.trim_start_matches(' ').len();
    &line[blanks.min(indent)..]
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start();
    let title = text.trim_start_matches('#');
    let level = text.len() - title.len();
    let is_heading =
        (1..=6).contains(&level) && (title.is_empty() || title.starts_with([' ', '\t']));
    is_heading.then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| !c.is_whitespace());
    let Some(first) = marks.next().filter(|c| matches!(c, '-' | '*' | '_')) else {
        return false;
    };
    let mut count = 1;
    for mark in marks {
        if mark != first {
            return false;
        }
        count += 1;
    }
    count >= 3
}

/// Parses a quote. It contains only paragraphs, because older renderers support nothing else in it.
fn quote(lines: &[&str], start: usize, found: &mut Vec<Value>) -> usize {
    let is_quoted = |line: &&str| line.trim_start().starts_with('>');
    let end = (start..lines.len())
        .find(|at| !is_quoted(&lines[*at]))
        .unwrap_or(lines.len());
    let inner: Vec<&str> = lines[start..end]
        .iter()
        .map(|line| {
            let text = line.trim_start().trim_start_matches('>');
            text.strip_prefix(' ').unwrap_or(text)
        })
        .collect();
    let paragraphs: Vec<Value> = inner
        .split(|line| line.trim().is_empty())
        .filter(|part| !part.is_empty())
        .map(|part| paragraph(inline::parse(&part.join("\n"))))
        .collect();
    if !paragraphs.is_empty() {
        found.push(node("blockquote", paragraphs));
    }
    end
}

/// First line of a list item.
struct Item<'a> {
    /// Number of the item. `None` in a bullet list.
    number: Option<u64>,
    indent: usize,
    /// Column in which the text begins.
    inner: usize,
    text: &'a str,
}

impl<'a> Item<'a> {
    fn begin(line: &'a str) -> Option<Self> {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = if (1..=9).contains(&digits) {
            (
                Some(text[..digits].parse().ok()?),
                text[digits..].strip_prefix(['.', ')'])?,
            )
        } else {
            (None, text.strip_prefix(['-', '*', '+'])?)
        };
        if !(after.is_empty() || after.starts_with([' ', '\t'])) || is_rule(line) {
            return None;
        }
        Some(Self {
            number,
            indent,
            inner: line.len() - after.len() + 1,
            text: after.trim(),
        })
    }

    /// Returns whether another item belongs to the same list.
    fn is_in_same_list(&self, other: &Item<'_>) -> bool {
        self.number.is_some() == other.number.is_some() && other.indent < self.inner
    }
}

fn list(lines: &[&str], start: usize, depth: usize, found: &mut Vec<Value>) -> usize {
    let mut items = Vec::new();
    let mut at = start;
    let mut first: Option<Item<'_>> = None;
    while at < lines.len() {
        let Some(item) = Item::begin(lines[at]) else {
            break;
        };
        if first
            .as_ref()
            .is_some_and(|first| !first.is_in_same_list(&item))
        {
            break;
        }
        let end = item_end(lines, at, &item);
        let inner: Vec<&str> = std::iter::once(item.text)
            .chain(
                lines[at + 1..end]
                    .iter()
                    .map(|line| dedent(line, item.inner)),
            )
            .collect();
        items.push(list_item(blocks(&inner, depth + 1)));
        first.get_or_insert(item);
        at = end;
        let next = (at..lines.len()).find(|at| !lines[*at].trim().is_empty());
        if let Some(next) = next.filter(|next| Item::begin(lines[*next]).is_some()) {
            at = next;
        }
    }
    found.push(match first.and_then(|first| first.number) {
        Some(number) => {
            let mut ordered = node("orderedList", items);
            ordered["attrs"] = json!({"order": number});
            ordered
        }
        None => node("bulletList", items),
    });
    at
}

/// Returns the index of the line after an item. Lines indented like its text belong to the item, and so do
/// unindented lines that continue its paragraph.
fn item_end(lines: &[&str], start: usize, item: &Item<'_>) -> usize {
    let is_blank = |at: &usize| lines[*at].trim().is_empty();
    let mut end = start + 1;
    while end < lines.len() {
        let Some(next) = (end..lines.len()).find(|at| !is_blank(at)) else {
            break;
        };
        let line = lines[next];
        let indent = line.len() - line.trim_start_matches(' ').len();
        if indent < item.inner && (next > end || ends_item(line)) {
            break;
        }
        end = next + 1;
    }
    end
}

/// Returns whether an unindented line ends the item above it.
fn ends_item(line: &str) -> bool {
    Item::begin(line).is_some() || begins_block(line, 0)
}

/// Builds a list item. It may contain paragraphs, lists and code, and must begin with a paragraph or code.
fn list_item(blocks: Vec<Value>) -> Value {
    let mut content = Vec::new();
    for mut block in blocks {
        match block["type"].as_str() {
            Some("heading") => content.push(paragraph(take_content(&mut block))),
            Some("blockquote") => content.extend(take_content(&mut block)),
            Some("rule") => {}
            _ => content.push(block),
        }
    }
    let has_valid_start = content
        .first()
        .is_some_and(|first| matches!(first["type"].as_str(), Some("paragraph" | "codeBlock")));
    if !has_valid_start {
        content.insert(0, paragraph(Vec::new()));
    }
    node("listItem", content)
}

fn take_content(block: &mut Value) -> Vec<Value> {
    match block["content"].take() {
        Value::Array(content) => content,
        _ => Vec::new(),
    }
}

fn text(lines: &[&str], start: usize, depth: usize, found: &mut Vec<Value>) -> usize {
    let end = (start + 1..lines.len())
        .find(|at| lines[*at].trim().is_empty() || begins_block(lines[*at], depth))
        .unwrap_or(lines.len());
    let content = inline::parse(lines[start..end].join("\n").trim());
    if !content.is_empty() {
        found.push(paragraph(content));
    }
    end
}

/// Returns whether a line ends the paragraph before it.
fn begins_block(line: &str, depth: usize) -> bool {
    Fence::open(line).is_some()
        || heading(line).is_some()
        || is_rule(line)
        || line.trim_start().starts_with('>')
        || (depth < MAX_DEPTH
            && Item::begin(line).is_some_and(|item| item.number.is_none_or(|n| n == 1)))
}
