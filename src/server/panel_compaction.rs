//! Removal of what a browser does not need from scripts and style sheets: comments, indentation and spaces between
//! tokens.
//!
//! Lines keep their numbers, so that errors in a browser name the line of the source, and no statement ends
//! elsewhere. Strings, templates and regular expressions stay as they are. A test of the panel compares the
//! syntax trees of all scripts before and after.

/// Characters after which a slash begins a regular expression. After any other character it divides.
const BEFORE_REGEX: &[u8] = b"(,=:[!&|?{};+-*%<>~^\n";

/// Compacts a script.
pub(super) fn compact_script(source: &str) -> String {
    let mut compactor = Compactor {
        rest: source,
        compact: String::with_capacity(source.len()),
        has_space: false,
    };
    while let Some(first) = compactor.rest.bytes().next() {
        compactor.copy_next(first);
    }
    compactor.compact
}

struct Compactor<'a> {
    rest: &'a str,
    compact: String,
    /// Whether spaces or a comment were left out since the last character.
    has_space: bool,
}

impl Compactor<'_> {
    fn copy_next(&mut self, first: u8) {
        match first {
            b' ' | b'\t' => self.skip(1),
            b'\n' => {
                self.has_space = false;
                self.copy(1);
            }
            b'/' if self.rest.starts_with("//") => {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            }
            b'/' if self.rest.starts_with("/*") => {
                let end = self.rest.find("*/").map_or(self.rest.len(), |at| at + 2);
                let lines = self.rest[..end].matches('\n').count();
                self.skip(end);
                self.compact.extend(std::iter::repeat_n('\n', lines));
            }
            b'/' if self.begins_regex() => self.copy(regex_length(self.rest)),
            b'"' | b'\'' => self.copy(string_length(self.rest, first)),
            b'`' => self.copy(template_length(self.rest)),
            _ => self.copy(self.rest.chars().next().map_or(1, char::len_utf8)),
        }
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
        self.has_space = true;
    }

    fn copy(&mut self, length: usize) {
        let (token, rest) = self.rest.split_at(length);
        if self.has_space && needs_space(&self.compact, token) {
            self.compact.push(' ');
        }
        self.has_space = false;
        self.compact.push_str(token);
        self.rest = rest;
    }

    fn begins_regex(&self) -> bool {
        let before = self.compact.trim_end_matches('\n');
        let last = before.bytes().next_back().unwrap_or(b'\n');
        BEFORE_REGEX.contains(&last) || before.ends_with("return")
    }
}

/// Whether two tokens would join without the space between them.
fn needs_space(before: &str, after: &str) -> bool {
    let (Some(last), Some(next)) = (before.chars().next_back(), after.chars().next()) else {
        return false;
    };
    let is_word = |one: char| one.is_alphanumeric() || one == '_' || one == '$';
    (is_word(last) && is_word(next)) || (last == next && "+-/".contains(last))
}

/// Length of the string at the start of `text`, with its quotes.
fn string_length(text: &str, quote: u8) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the regular expression at the start of `text`, without its flags.
fn regex_length(text: &str) -> usize {
    let (mut is_escaped, mut in_class) = (false, false);
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'/' if !in_class => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the template at the start of `text`, with the expressions in it.
fn template_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    // Open braces of each expression that the position is in.
    let mut expressions: Vec<u32> = Vec::new();
    while at < bytes.len() {
        let byte = bytes[at];
        match expressions.last_mut() {
            None => match byte {
                b'\\' => at += 1,
                b'`' => return at + 1,
                b'$' if bytes.get(at + 1) == Some(&b'{') => {
                    at += 1;
                    expressions.push(0);
                }
                _ => {}
            },
            Some(open) => match byte {
                b'{' => *open += 1,
                b'}' if *open == 0 => {
                    expressions.pop();
                }
                b'}' => *open -= 1,
                b'"' | b'\'' => at += string_length(&text[at..], byte) - 1,
                b'`' => at += template_length(&text[at..]) - 1,
                _ => {}
            },
        }
        at += 1;
    }
    text.len()
}

/// Compacts a style sheet.
pub(super) fn compact_styles(source: &str) -> String {
    let mut compact = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("/*") {
        let end = rest[begin..]
            .find("*/")
            .map_or(rest.len(), |at| begin + at + 2);
        compact.push_str(&rest[..begin]);
        compact.extend(rest[begin..end].matches('\n'));
        rest = &rest[end..];
    }
    compact.push_str(rest);
    let lines = compact.lines().map(|line| line.trim().to_owned() + "\n");
    // Spaces around these parts of a rule mean nothing. A colon within a selector has no space behind it.
    let parts = [
        (" { ", "{"),
        (" {\n", "{\n"),
        (": ", ":"),
        ("; ", ";"),
        (", ", ","),
        (" }", "}"),
    ];
    parts
        .iter()
        .fold(lines.collect(), |text: String, (part, shorter)| {
            text.replace(part, shorter)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacts_scripts_without_moving_their_lines() {
        for (source, expected) in [
            (
                "// Head.\n/**\n * Doc.\n */\nexport function f() {\n\treturn 1; // one\n}\n",
                "\n\n\n\nexport function f(){\nreturn 1;\n}\n",
            ),
            (
                "/** @type {any} */ (x).y = \"// no  /* no */\";",
                "(x).y=\"// no  /* no */\";",
            ),
            (
                "const a = `x  ${ b ? `{ ${c} }` : \"}\" }  y` + d;",
                "const a=`x  ${ b ? `{ ${c} }` : \"}\" }  y`+d;",
            ),
            (
                "x = a / b / c; y = z.replace(/[/ ]  \\/\"/g, \" \")",
                "x=a/b/c;y=z.replace(/[/ ]  \\/\"/g,\" \")",
            ),
            ("return /a  b/.test(c)", "return/a  b/.test(c)"),
            (
                "a + +b - -c; a++ + b; typeof x in y",
                "a+ +b- -c;a++ +b;typeof x in y",
            ),
            ("const ä = é of x", "const ä=é of x"),
            ("\"an unended string", "\"an unended string"),
            ("`${ unended", "`${ unended"),
            ("/* unended\n", "\n"),
        ] {
            assert_eq!(compact_script(source), expected, "{source}");
        }
    }

    #[test]
    fn compacts_styles_without_changing_their_meaning() {
        let source = "/* One.\n Two. */\n.a, .b :is(c) {\n\ttop: calc(1px + 2px); content: \" x\"; /* y */\n}\n.c { d: e }\n";
        let expected = "\n\n.a,.b :is(c){\ntop:calc(1px + 2px);content:\" x\";\n}\n.c{d:e }\n";
        assert_eq!(compact_styles(source), expected.replace("e }", "e}"));
    }
}
