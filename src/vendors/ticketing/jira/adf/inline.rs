//! Content of a paragraph or heading: texts with marks, line breaks, links.

use std::ops::Range;

use pulldown_cmark::{LinkType, Tag};
use serde_json::{Value, json};

use super::links::{find_bare_url, is_url};
use domain::sanitize::strip_invisible;

/// `]:` with an invisible character, so that it does not begin the address of a link definition.
pub(super) const NOT_A_DEFINITION: &str = "]\u{2060}:";

/// Open emphasis, link or image.
struct Span {
    /// Number of marks outside of it.
    outer_marks: usize,
    /// Number of nodes before it.
    start: usize,
    /// Position in the source at which its content ends.
    inner_end: usize,
    /// Address that stands for an empty content.
    href: Option<String>,
    /// Literal text at its end, if it is not a permitted link.
    closing: String,
}

/// Builder of the content of a paragraph or heading.
#[derive(Default)]
pub(super) struct Inline {
    nodes: Vec<Value>,
    /// Text that is not yet a node.
    plain: String,
    marks: Vec<Value>,
    spans: Vec<Span>,
    /// End of the last address without markup. The events inside it are skipped.
    url_end: usize,
    /// Characters of the texts and addresses in the nodes.
    size: usize,
}

impl Inline {
    /// Returns a lower bound of the content's size, in characters.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.plain.is_empty()
    }

    pub(super) fn finish(mut self) -> Vec<Value> {
        self.flush();
        while self
            .nodes
            .last()
            .is_some_and(|node| node["type"] == "hardBreak")
        {
            self.nodes.pop();
        }
        self.nodes
    }

    /// Appends text in which nothing is an address.
    pub(super) fn push_plain(&mut self, text: &str) {
        self.plain.push_str(text);
    }

    pub(super) fn push_code(&mut self, code: &str) {
        self.flush();
        // The schema permits no other mark on code than a link.
        let link = self.marks.iter().find(|mark| mark["type"] == "link");
        let marks = std::iter::once(json!({"type": "code"})).chain(link.cloned());
        self.push_node(code, marks.collect());
    }

    fn is_link(&self) -> bool {
        self.marks.iter().any(|mark| mark["type"] == "link")
    }

    pub(super) fn break_line(&mut self) {
        self.plain.truncate(self.plain.trim_end_matches(' ').len());
        self.flush();
        self.nodes.push(json!({"type": "hardBreak"}));
    }

    /// Appends text of the source. Addresses in it become links.
    ///
    /// An address may be longer than the text, because a part such as `__init__` looks like markup. It is
    /// read from the source, and the events inside it are skipped.
    pub(super) fn push_text(&mut self, text: &str, source: &str, range: Range<usize>) {
        if source.get(range.clone()) != Some(text) {
            // An entity.
            if range.start >= self.url_end {
                self.plain.push_str(text);
            }
            return;
        }
        let mut at = range.start.max(self.url_end);
        let limit = self
            .spans
            .last()
            .map_or(source.len(), |span| span.inner_end);
        while at < range.end && !self.is_link() {
            let Some(url) = find_bare_url(source, at..range.end, limit) else {
                break;
            };
            self.plain.push_str(&source[at..url.start]);
            self.flush();
            // Without the escapes of Markdown.
            self.plain = source[url.clone()].replace('\\', "");
            self.marks.push(link_mark(&self.plain));
            self.flush();
            self.marks.pop();
            at = url.end;
            self.url_end = url.end;
        }
        if at < range.end {
            self.plain.push_str(&source[at..range.end]);
        }
    }

    /// Opens an emphasis, link or image.
    pub(super) fn open(&mut self, tag: &Tag<'_>, source: &str, range: Range<usize>) {
        let (mark, delimiter) = match tag {
            Tag::Strong => ("strong", 2),
            Tag::Emphasis => ("em", 1),
            Tag::Strikethrough if source[range.clone()].starts_with("~~") => ("strike", 2),
            Tag::Strikethrough => ("strike", 1),
            _ => ("", 0),
        };
        let mut span = Span {
            outer_marks: self.marks.len(),
            start: self.nodes.len(),
            inner_end: range.end - delimiter,
            href: None,
            closing: String::new(),
        };
        match tag {
            _ if range.start < self.url_end => {
                // Looks like markup, but is part of an address. What stands behind the address is text.
                let rest = span.inner_end.max(self.url_end)..range.end;
                span.closing = source.get(rest).unwrap_or_default().to_owned();
            }
            Tag::Link {
                link_type,
                dest_url,
                ..
            } => self.open_link(&mut span, "[", *link_type, dest_url),
            Tag::Image {
                link_type,
                dest_url,
                ..
            } => self.open_link(&mut span, "![", *link_type, dest_url),
            _ if self.marks.iter().any(|outer| outer["type"] == mark) => {}
            _ => {
                self.flush();
                self.marks.push(json!({"type": mark}));
            }
        }
        self.spans.push(span);
    }

    /// Opens a link, or an image, which becomes a link to its address. A link that is not permitted stays
    /// as it was written.
    fn open_link(&mut self, span: &mut Span, opening: &str, link_type: LinkType, dest: &str) {
        let dest = dest.replace(NOT_A_DEFINITION, "]:");
        let href = match link_type {
            LinkType::Email => format!("mailto:{dest}"),
            _ => dest.clone(),
        };
        if is_url(&href) {
            self.flush();
            span.start = self.nodes.len();
            // An image in a link belongs to that link.
            if !self.is_link() {
                self.marks.push(link_mark(&href));
            }
            span.href = Some(href);
        } else if matches!(link_type, LinkType::Autolink | LinkType::Email) {
            self.plain.push('<');
            span.closing = ">".to_owned();
        } else {
            self.plain.push_str(opening);
            span.closing = format!("]({dest})");
        }
    }

    /// Closes the innermost emphasis, link or image.
    pub(super) fn close(&mut self) {
        let Some(span) = self.spans.pop() else {
            return;
        };
        if let Some(href) = span.href
            && self.nodes.len() == span.start
            && self.plain.trim().is_empty()
        {
            self.plain = href;
        }
        if self.marks.len() > span.outer_marks {
            self.flush();
            self.marks.truncate(span.outer_marks);
        }
        self.plain.push_str(&span.closing);
    }

    /// Makes the collected text a node.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.plain);
        self.push_node(&text, self.marks.clone());
    }

    fn push_node(&mut self, text: &str, marks: Vec<Value>) {
        // A document cannot contain control characters. It needs no word joiners either: only a mention node
        // is a mention.
        let text = strip_invisible(text);
        if text.is_empty() {
            return;
        }
        let addresses = marks
            .iter()
            .filter_map(|mark| mark["attrs"]["href"].as_str());
        let texts = addresses.chain([text.as_ref()]);
        self.size += texts.map(|text| text.chars().count()).sum::<usize>();
        let mut node = json!({"type": "text", "text": text});
        if !marks.is_empty() {
            node["marks"] = Value::Array(marks);
        }
        self.nodes.push(node);
    }
}

fn link_mark(href: &str) -> Value {
    json!({"type": "link", "attrs": {"href": href}})
}
