//! Markdown's blocks: paragraphs, headings, lists, code, quotes, rules.

use serde_json::{Value, json};

use super::inline;
use super::{node, paragraph};

/// How deep do lists stand inside each other? Deeper ones are read as text.
const MAX_DEPTH: usize = 5;

/// The blocks of a text.
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

/// A line that opens a block of code, and how it must be closed.
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

    /// The line that closes it; one that is never closed holds the rest of the text.
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

/// Title of a part that readers unfold, `+++ Title`. A line `+++` ends the part.
fn fold_title(line: &str) -> Option<&str> {
    let title = line.strip_prefix("+++ ")?.trim();
    Some(title).filter(|title| !title.is_empty())
}

/// A fold that is never closed holds the rest of the text.
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
    let mut part = node("expand", content);
    part["attrs"] = json!({"title": inline::strip_invisible(title)});
    found.push(part);
    end + 1
}

fn code(lines: &[&str], start: usize, fence: &Fence<'_>, found: &mut Vec<Value>) -> usize {
    let end = fence.end(lines, start);
    let body: Vec<&str> = lines[start + 1..end]
        .iter()
        .map(|line| dedented(line, fence.indent))
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

fn dedented(line: &str, indent: usize) -> &str {
    let blanks = line.len() - line.trim_start_matches(' ').len();
    &line[blanks.min(indent)..]
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start();
    let title = text.trim_start_matches('#');
    let level = text.len() - title.len();
    let is_one = (1..=6).contains(&level) && (title.is_empty() || title.starts_with([' ', '\t']));
    is_one.then(|| (level, title.trim().trim_end_matches('#').trim_end()))
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

/// A quote holds paragraphs only; older renderers know nothing else in it.
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

/// The first line of a list's item.
struct Item<'a> {
    /// The number it begins with; None in a bullet list.
    number: Option<u64>,
    indent: usize,
    /// Where its text begins.
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

    /// Whether another item belongs to the same list.
    fn is_beside(&self, other: &Item<'_>) -> bool {
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
        if first.as_ref().is_some_and(|first| !first.is_beside(&item)) {
            break;
        }
        let end = item_end(lines, at, &item);
        let inner: Vec<&str> = std::iter::once(item.text)
            .chain(
                lines[at + 1..end]
                    .iter()
                    .map(|line| dedented(line, item.inner)),
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

/// The line after an item: what is indented as its text belongs to it, and so does a line that
/// goes on with its paragraph.
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

/// Whether a line that is not indented ends the item above it.
fn ends_item(line: &str) -> bool {
    Item::begin(line).is_some() || begins_block(line, 0)
}

/// An item holds paragraphs, lists and code, and a paragraph or code first.
fn list_item(blocks: Vec<Value>) -> Value {
    let mut content = Vec::new();
    for mut block in blocks {
        match block["type"].as_str() {
            Some("heading") => content.push(paragraph(content_of(&mut block))),
            Some("blockquote") => content.extend(content_of(&mut block)),
            Some("rule") => {}
            _ => content.push(block),
        }
    }
    let begins_well = content
        .first()
        .is_some_and(|first| matches!(first["type"].as_str(), Some("paragraph" | "codeBlock")));
    if !begins_well {
        content.insert(0, paragraph(Vec::new()));
    }
    node("listItem", content)
}

fn content_of(block: &mut Value) -> Vec<Value> {
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

/// Whether a line ends the paragraph before it.
fn begins_block(line: &str, depth: usize) -> bool {
    Fence::open(line).is_some()
        || heading(line).is_some()
        || is_rule(line)
        || line.trim_start().starts_with('>')
        || (depth < MAX_DEPTH
            && Item::begin(line).is_some_and(|item| item.number.is_none_or(|n| n == 1)))
}
