//! Parser for Markdown inside a paragraph: emphasis, code, links, line breaks.
//!
//! Failed searches for a closing mark are remembered, so that a text of many opening marks is parsed in
//! linear time. A mark does not nest in itself, so the recursion depth is at most the number of marks.

use serde_json::{Value, json};

use super::links::{BracketPairs, MAX_URL_BYTES, floor_char_boundary, is_url, parse_link};

/// Parses the text of a paragraph to nodes.
pub(super) fn parse(text: &str) -> Vec<Value> {
    let mut nodes = Vec::new();
    Run::new(text, Marks::default()).read(&mut nodes);
    while nodes.last().is_some_and(|node| node["type"] == "hardBreak") {
        nodes.pop();
    }
    nodes
}

/// Removes characters that a document cannot contain: control characters, and the word joiner that the
/// sanitizer puts into mentions. In a document only a mention node is a mention.
pub(super) fn strip_invisible(text: &str) -> String {
    let is_kept = |c: &char| (!c.is_control() || matches!(c, '\n' | '\t')) && *c != '\u{2060}';
    text.chars().filter(is_kept).collect()
}

#[derive(Clone, Copy, Default)]
struct Marks<'a> {
    strong: bool,
    em: bool,
    strike: bool,
    link: Option<&'a str>,
}

impl Marks<'_> {
    fn link(&self) -> Option<Value> {
        self.link
            .map(|href| json!({"type": "link", "attrs": {"href": href}}))
    }

    fn all(&self) -> Vec<Value> {
        let plain = [
            ("strong", self.strong),
            ("em", self.em),
            ("strike", self.strike),
        ];
        plain
            .into_iter()
            .filter(|(_, is_on)| *is_on)
            .map(|(name, _)| json!({"type": name}))
            .chain(self.link())
            .collect()
    }
}

/// Emphasis: a pair of marks around a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Emphasis {
    Strong(&'static str),
    Strike,
    Em(char),
}

impl Emphasis {
    fn at(rest: &str) -> Option<Self> {
        if rest.starts_with("**") {
            Some(Self::Strong("**"))
        } else if rest.starts_with("__") {
            Some(Self::Strong("__"))
        } else if rest.starts_with("~~") {
            Some(Self::Strike)
        } else {
            let first = rest.chars().next()?;
            matches!(first, '*' | '_').then_some(Self::Em(first))
        }
    }

    fn token(self) -> &'static str {
        match self {
            Self::Strong(token) => token,
            Self::Strike => "~~",
            Self::Em('_') => "_",
            Self::Em(_) => "*",
        }
    }

    /// Adds this emphasis to the marks. `None` if it is already set.
    fn on<'a>(self, marks: Marks<'a>) -> Option<Marks<'a>> {
        match self {
            Self::Strong(_) => (!marks.strong).then_some(Marks {
                strong: true,
                ..marks
            }),
            Self::Strike => (!marks.strike).then_some(Marks {
                strike: true,
                ..marks
            }),
            Self::Em(_) => (!marks.em).then_some(Marks { em: true, ..marks }),
        }
    }
}

/// Parser of a text inside the same marks.
struct Run<'a> {
    text: &'a str,
    marks: Marks<'a>,
    at: usize,
    plain: String,
    /// Closing marks that do not occur in the rest of the text.
    absent: Vec<String>,
    /// Bracket pairs of the text, computed at the first possible link.
    pairs: Option<BracketPairs>,
}

impl<'a> Run<'a> {
    fn new(text: &'a str, marks: Marks<'a>) -> Self {
        Self {
            text,
            marks,
            at: 0,
            plain: String::new(),
            absent: Vec::new(),
            pairs: None,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn before(&self) -> Option<char> {
        self.text[..self.at].chars().next_back()
    }

    fn read(mut self, out: &mut Vec<Value>) {
        while let Some(next) = self.rest().chars().next() {
            let is_consumed = match next {
                '\\' => self.escape(out),
                '`' => self.code(out),
                '*' | '_' | '~' => self.emphasis(out),
                '!' | '[' => self.link(out),
                '<' => self.angle(out),
                '&' => self.entity(),
                'h' => self.bare_url(out),
                '\n' => self.line_break(out),
                _ => false,
            };
            if !is_consumed {
                self.plain.push(next);
                self.at += next.len_utf8();
            }
        }
        self.flush(out);
    }

    /// Writes the collected plain text as a node.
    fn flush(&mut self, out: &mut Vec<Value>) {
        let text = strip_invisible(&std::mem::take(&mut self.plain));
        if !text.is_empty() {
            out.push(text_node(&text, self.marks.all()));
        }
    }

    fn escape(&mut self, out: &mut Vec<Value>) -> bool {
        match self.rest()[1..].chars().next() {
            Some('\n') => {
                self.at += 1;
                self.line_break(out)
            }
            Some(escaped) if escaped.is_ascii_punctuation() => {
                self.plain.push(escaped);
                self.at += 2;
                true
            }
            _ => false,
        }
    }

    fn line_break(&mut self, out: &mut Vec<Value>) -> bool {
        self.plain.truncate(self.plain.trim_end_matches(' ').len());
        self.flush(out);
        out.push(json!({"type": "hardBreak"}));
        let after = &self.rest()[1..];
        self.at += 1 + after.len() - after.trim_start_matches(' ').len();
        true
    }

    fn code(&mut self, out: &mut Vec<Value>) -> bool {
        let rest = self.rest();
        let after = rest.trim_start_matches('`');
        let fence = &rest[..rest.len() - after.len()];
        let closing = self.find_exact_row(after, fence, '`');
        let Some(length) = closing else {
            // The whole fence is text. Its last marks must not be parsed as a shorter fence.
            self.plain.push_str(fence);
            self.at += fence.len();
            return true;
        };
        let mut code = after[..length].replace('\n', " ");
        if code.len() > 2 && code.starts_with(' ') && code.ends_with(' ') && code.trim() != "" {
            code = code[1..code.len() - 1].to_owned();
        }
        self.flush(out);
        let code = strip_invisible(&code);
        if !code.is_empty() {
            // The schema permits no other mark on code than a link.
            let marks = std::iter::once(json!({"type": "code"})).chain(self.marks.link());
            out.push(text_node(&code, marks.collect()));
        }
        self.at += 2 * fence.len() + length;
        true
    }

    /// Returns the position of a row of exactly as many marks.
    fn find_exact_row(&mut self, text: &str, row: &str, mark: char) -> Option<usize> {
        if self.absent.iter().any(|absent| absent == row) {
            return None;
        }
        let mut at = 0;
        while let Some(found) = text[at..].find(row) {
            let begin = at + found;
            let length = text[begin..].len() - text[begin..].trim_start_matches(mark).len();
            if length == row.len() {
                return Some(begin);
            }
            at = begin + length;
        }
        self.absent.push(row.to_owned());
        None
    }

    fn emphasis(&mut self, out: &mut Vec<Value>) -> bool {
        let Some(emphasis) = Emphasis::at(self.rest()) else {
            return false;
        };
        let token = emphasis.token();
        let inner = &self.rest()[token.len()..];
        let opens = inner.chars().next().is_some_and(|c| !c.is_whitespace())
            && !(token.starts_with('_') && self.before().is_some_and(char::is_alphanumeric));
        let Some(marks) = emphasis.on(self.marks).filter(|_| opens) else {
            self.plain.push_str(token);
            self.at += token.len();
            return true;
        };
        let Some(length) = self.find_closing(inner, token) else {
            self.plain.push_str(token);
            self.at += token.len();
            return true;
        };
        self.flush(out);
        Run::new(&inner[..length], marks).read(out);
        self.at += 2 * token.len() + length;
        true
    }

    /// Returns the position of the closing mark: after a visible character and, for underscores, at the end
    /// of a word.
    fn find_closing(&mut self, text: &str, token: &str) -> Option<usize> {
        if self.absent.iter().any(|absent| absent == token) {
            return None;
        }
        let mark = token.chars().next()?;
        let mut at = 0;
        while let Some(found) = text[at..].find(token) {
            let begin = at + found;
            let row = text[begin..].len() - text[begin..].trim_start_matches(mark).len();
            let after = text[begin + token.len()..].chars().next();
            let closes = text[..begin]
                .chars()
                .next_back()
                .is_some_and(|c| !c.is_whitespace())
                && (row == token.len() || (token.len() == 2 && row == 3))
                && !(mark == '_' && after.is_some_and(char::is_alphanumeric));
            if closes {
                // Of three marks, the first closes the inner emphasis.
                return Some(begin + row - token.len());
            }
            at = begin + row;
        }
        self.absent.push(token.to_owned());
        None
    }

    /// Parses a link or an image. An image becomes a link to its address.
    fn link(&mut self, out: &mut Vec<Value>) -> bool {
        let rest = self.rest();
        let open = if rest.starts_with("![") { 2 } else { 1 };
        if self.marks.link.is_some() || (rest.starts_with('!') && open == 1) {
            return false;
        }
        let text = self.text;
        let pairs = self.pairs.get_or_insert_with(|| BracketPairs::scan(text));
        let Some((label, href, end)) = parse_link(text, self.at + open - 1, pairs) else {
            return false;
        };
        self.flush(out);
        let marks = Marks {
            link: Some(href),
            ..self.marks
        };
        let label = if label.trim().is_empty() { href } else { label };
        Run::new(label, marks).read(out);
        self.at = end;
        true
    }

    /// Parses an HTML comment, which is dropped, or an address in angle brackets.
    fn angle(&mut self, out: &mut Vec<Value>) -> bool {
        let rest = self.rest();
        if rest.starts_with("<!--") {
            if self.absent.iter().any(|absent| absent == "-->") {
                return false;
            }
            let Some(end) = rest.find("-->") else {
                self.absent.push("-->".to_owned());
                return false;
            };
            self.at += end + 3;
            return true;
        }
        let window = &rest[1..floor_char_boundary(rest, MAX_URL_BYTES)];
        match window.find(['<', '>', ' ', '\n']) {
            Some(end) if window[end..].starts_with('>') && is_url(&window[..end]) => {
                self.push_url(&rest[1..=end], out);
                self.at += end + 2;
                true
            }
            _ => false,
        }
    }

    fn entity(&mut self) -> bool {
        const ENTITIES: [(&str, char); 6] = [
            ("&lt;", '<'),
            ("&gt;", '>'),
            ("&amp;", '&'),
            ("&quot;", '"'),
            ("&#39;", '\''),
            ("&nbsp;", '\u{a0}'),
        ];
        let rest = self.rest();
        let found = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
        if let Some((entity, character)) = found {
            self.plain.push(*character);
            self.at += entity.len();
        }
        found.is_some()
    }

    /// Parses an address without brackets.
    fn bare_url(&mut self, out: &mut Vec<Value>) -> bool {
        let rest = self.rest();
        let begins = rest.starts_with("http://") || rest.starts_with("https://");
        if !begins || self.before().is_some_and(char::is_alphanumeric) {
            return false;
        }
        let ends = |c: char| c.is_whitespace() || c.is_control() || "<>\"`*[]\u{2060}".contains(c);
        let window = &rest[..floor_char_boundary(rest, MAX_URL_BYTES)];
        let mut bare_url = &window[..window.find(ends).unwrap_or(window.len())];
        bare_url = bare_url.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'']);
        if bare_url.ends_with(')') && !bare_url.contains('(') {
            bare_url = bare_url.trim_end_matches(')');
        }
        if !is_url(bare_url) {
            return false;
        }
        self.push_url(bare_url, out);
        self.at += bare_url.len();
        true
    }

    fn push_url(&mut self, url: &'a str, out: &mut Vec<Value>) {
        self.flush(out);
        let link = self.marks.link.or(Some(url));
        let marks = Marks { link, ..self.marks };
        out.push(text_node(url, marks.all()));
    }
}

fn text_node(text: &str, marks: Vec<Value>) -> Value {
    if marks.is_empty() {
        json!({"type": "text", "text": text})
    } else {
        json!({"type": "text", "text": text, "marks": marks})
    }
}
