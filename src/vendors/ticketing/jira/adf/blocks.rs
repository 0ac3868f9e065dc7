//! Conversion of Markdown events to blocks: paragraphs, headings, lists, code, quotes, rules, collapsible
//! sections.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use serde_json::{Value, json};

use super::containers::{ContainerKind, Containers};
use super::inline::{Inline, NOT_A_DEFINITION};
use super::paragraph;
use domain::sanitize::strip_invisible;

/// Parses a text to block nodes. Stops early when they are larger than `limit` characters, because the
/// address of a link is repeated with each piece of its text.
///
/// Link definitions (`[name]: address`) stay text. Otherwise text that only looks like one would be hidden.
pub(super) fn parse(text: &str, limit: usize) -> Vec<Value> {
    let text = text.replace("]:", NOT_A_DEFINITION);
    let mut builder = Builder::new(&text);
    let events = Parser::new_ext(&text, Options::ENABLE_STRIKETHROUGH).into_offset_iter();
    for (event, range) in events {
        if builder.size() > limit {
            break;
        }
        builder.handle(event, range);
    }
    builder.close_block();
    builder.containers.finish()
}

/// Paragraph, or heading with its level.
#[derive(Default)]
struct TextBlock {
    level: Option<HeadingLevel>,
    inline: Inline,
}

/// Block whose text is not parsed.
enum RawBlock {
    FencedCode {
        language: String,
        code: String,
    },
    IndentedCode(String),
    Html(String),
    /// Title or end of a collapsible section. Its text is ignored.
    Fold,
}

struct Builder<'a> {
    source: &'a str,
    containers: Containers,
    /// Text block that is being built.
    text: Option<TextBlock>,
    /// Other block that is being built.
    raw: Option<RawBlock>,
    /// Size of the complete text blocks. See [`Inline::size`].
    size: usize,
}

impl<'a> Builder<'a> {
    fn new(source: &'a str) -> Self {
        Self {
            source,
            containers: Containers::new(),
            text: None,
            raw: None,
            size: 0,
        }
    }

    /// Returns a lower bound of the size of all blocks, in characters.
    fn size(&self) -> usize {
        self.size + self.text.as_ref().map_or(0, |text| text.inline.size())
    }

    fn handle(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.end(tag),
            Event::InlineHtml(html) if html.starts_with("<!--") => {}
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.push_text(&text, range);
            }
            Event::Code(code) if self.raw.is_none() => self.inline().push_code(&code),
            Event::SoftBreak | Event::HardBreak => self.inline().break_line(),
            Event::Rule => {
                self.close_block();
                if self.containers.is_top_level() {
                    self.containers.push(json!({"type": "rule"}));
                }
            }
            // In the title of a section, or not enabled in the parser.
            Event::Code(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Paragraph => {
                self.close_block();
                if self.containers.apply_fold(&self.source[range]) {
                    self.raw = Some(RawBlock::Fold);
                } else {
                    self.text = Some(TextBlock::default());
                }
            }
            Tag::Heading { level, .. } => {
                self.close_block();
                self.text = Some(TextBlock {
                    level: Some(level).filter(|_| self.containers.is_top_level()),
                    inline: Inline::default(),
                });
            }
            Tag::CodeBlock(kind) => {
                self.close_block();
                self.raw = Some(code_block(&kind));
            }
            Tag::HtmlBlock => {
                self.close_block();
                self.raw = Some(RawBlock::Html(String::new()));
            }
            Tag::List(first) => self.open(ContainerKind::List(first)),
            Tag::Item => self.open(ContainerKind::Item),
            Tag::BlockQuote(_) => self.open(ContainerKind::Quote),
            Tag::Emphasis
            | Tag::Strong
            | Tag::Strikethrough
            | Tag::Link { .. }
            | Tag::Image { .. } => {
                let source = self.source;
                if self.raw.is_none() {
                    self.inline().open(&tag, source, range);
                }
            }
            // Not enabled in the parser.
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::CodeBlock | TagEnd::HtmlBlock => {
                self.close_block();
            }
            TagEnd::List(_) | TagEnd::Item | TagEnd::BlockQuote(_) => {
                if !self.containers.continues_text() {
                    self.close_block();
                }
                self.containers.close();
            }
            TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Link
            | TagEnd::Image => {
                if let Some(text) = &mut self.text {
                    text.inline.close();
                }
            }
            // Not enabled in the parser.
            _ => {}
        }
    }

    fn open(&mut self, kind: ContainerKind) {
        if !self.containers.flattens(&kind) {
            self.close_block();
        }
        self.containers.open(kind);
    }

    fn push_text(&mut self, text: &str, range: Range<usize>) {
        let source = self.source;
        match &mut self.raw {
            None => self.inline().push_text(text, source, range),
            Some(RawBlock::FencedCode { code: raw, .. })
            | Some(RawBlock::IndentedCode(raw))
            | Some(RawBlock::Html(raw)) => raw.push_str(text),
            Some(RawBlock::Fold) => {}
        }
    }

    /// Returns the text that is being built. In a list without blank lines, text has no paragraph event.
    fn inline(&mut self) -> &mut Inline {
        let inline = &mut self.text.get_or_insert_default().inline;
        if let Some(marker) = self.containers.take_marker() {
            if !inline.is_empty() {
                inline.break_line();
            }
            inline.push_plain(&marker);
        }
        inline
    }

    /// Appends the block that is being built.
    fn close_block(&mut self) {
        self.size = self.size();
        if let Some(TextBlock { level, inline }) = self.text.take() {
            let content = inline.finish();
            if !content.is_empty() {
                self.containers.push(text_node(level, content));
            }
        }
        match self.raw.take() {
            None | Some(RawBlock::Fold) => {}
            Some(RawBlock::FencedCode { language, code }) => self.push_code(&language, &code),
            // Indented plain text is code, too. The sanitizer has escaped this character in it.
            Some(RawBlock::IndentedCode(code)) => self.push_code("", &code.replace("&lt;", "<")),
            Some(RawBlock::Html(html)) => {
                self.push_lines(without_comments(&html).trim(), Inline::push_plain);
            }
        }
    }

    /// Appends a code block. In a quote, which must not contain one, it is a paragraph.
    fn push_code(&mut self, language: &str, code: &str) {
        let code = strip_invisible(code.strip_suffix('\n').unwrap_or(code));
        if self.containers.is_in_quote() {
            return self.push_lines(&code, Inline::push_code);
        }
        let mut block = json!({"type": "codeBlock"});
        if !language.is_empty() {
            block["attrs"] = json!({"language": language});
        }
        if !code.is_empty() {
            block["content"] = json!([{"type": "text", "text": code}]);
        }
        self.containers.push(block);
    }

    /// Appends a paragraph of lines.
    fn push_lines(&mut self, lines: &str, push: impl Fn(&mut Inline, &str)) {
        for (at, line) in lines.lines().enumerate() {
            let inline = self.inline();
            if at > 0 {
                inline.break_line();
            }
            push(inline, line);
        }
        self.close_block();
    }
}

fn code_block(kind: &CodeBlockKind<'_>) -> RawBlock {
    match kind {
        CodeBlockKind::Indented => RawBlock::IndentedCode(String::new()),
        CodeBlockKind::Fenced(info) => RawBlock::FencedCode {
            language: strip_invisible(info.split_whitespace().next().unwrap_or_default())
                .into_owned(),
            code: String::new(),
        },
    }
}

/// Builds a paragraph, or a heading of a level.
fn text_node(level: Option<HeadingLevel>, content: Vec<Value>) -> Value {
    let mut node = paragraph(content);
    if let Some(level) = level {
        node["type"] = json!("heading");
        node["attrs"] = json!({"level": level as usize});
    }
    node
}

/// Removes comments from HTML, which is otherwise shown as text.
fn without_comments(html: &str) -> String {
    let mut kept = String::new();
    let mut rest = html;
    while let Some((before, comment)) = rest.split_once("<!--") {
        let Some((_, after)) = comment.split_once("-->") else {
            break;
        };
        kept.push_str(before);
        rest = after;
    }
    kept.push_str(rest);
    kept
}
