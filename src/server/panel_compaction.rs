//! Removal of what a browser does not need from scripts and style sheets: comments, spaces between tokens, and line
//! breaks where no statement can end.
//!
//! Strings, templates and regular expressions stay as they are. A test of the panel compares the syntax trees of all
//! scripts before and after.

/// Characters after which a slash begins a regular expression. After any other character it divides.
const BEFORE_REGEX: &[u8] = b"(,=:[!&|?{};+-*%<>~^\n";

/// Characters after which no statement ends by a line break. After a closing brace that holds because the scripts end
/// every other statement by a semicolon.
const OPENING: &str = "{}([,;:?=&|<>";

/// Characters before which no line break is needed to end a statement, or none can.
const CLOSING: &str = ")]},;.:?&|";

/// Compacts a script.
pub(super) fn compact_script(source: &str) -> String {
    let mut compactor = Compactor {
        rest: source,
        compact: String::with_capacity(source.len()),
        has_space: false,
        has_line_break: false,
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
    /// Whether a line break was left out since the last character.
    has_line_break: bool,
}

impl Compactor<'_> {
    fn copy_next(&mut self, first: u8) {
        match first {
            b' ' | b'\t' => self.skip(1),
            b'\n' => {
                self.has_line_break = true;
                self.skip(1);
            }
            b'/' if self.rest.starts_with("//") => {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            }
            b'/' if self.rest.starts_with("/*") => {
                let end = self.rest.find("*/").map_or(self.rest.len(), |at| at + 2);
                self.has_line_break |= self.rest[..end].contains('\n');
                self.skip(end);
            }
            b'/' if self.begins_regex() => self.copy(regex_length(self.rest)),
            b'"' | b'\'' => self.copy(string_length(self.rest, first)),
            b'`' => {
                let (length, template) = compact_template(self.rest);
                self.copy_as(length, &template);
            }
            b']' => {
                // The last comma of a list, unless an element is left out before it.
                let is_element = |list: &str| !list.ends_with(['[', ',']);
                if self.compact.strip_suffix(',').is_some_and(is_element) {
                    self.compact.pop();
                }
                self.copy(1);
            }
            b'}' => {
                // A closing brace ends the statement before it as well.
                if self.compact.ends_with([';', ',']) && !self.compact.ends_with("(;;") {
                    self.compact.pop();
                }
                self.copy(1);
            }
            b'=' if self.rest.starts_with("=>") => {
                self.drop_parentheses();
                self.copy(2);
            }
            _ => self.copy(self.rest.chars().next().map_or(1, char::len_utf8)),
        }
    }

    /// Removes the parentheses around the only parameter of an arrow function.
    fn drop_parentheses(&mut self) {
        let Some(list) = self.compact.strip_suffix(')') else {
            return;
        };
        let Some(open) = list.rfind(|c: char| !is_word(c)) else {
            return;
        };
        let is_name = list[open..].starts_with('(') && list.len() > open + 1;
        if is_name && !list[..open].ends_with(is_word) {
            self.compact.pop();
            self.compact.remove(open);
        }
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
        self.has_space = true;
    }

    fn copy(&mut self, length: usize) {
        self.copy_as(length, &self.rest[..length]);
    }

    /// Copies the next token in another form.
    fn copy_as(&mut self, length: usize, token: &str) {
        if self.has_line_break && needs_line_break(&self.compact, token) {
            self.compact.push('\n');
        } else if self.has_space && needs_space(&self.compact, token) {
            self.compact.push(' ');
        }
        [self.has_space, self.has_line_break] = [false, false];
        self.compact.push_str(token);
        self.rest = &self.rest[length..];
    }

    fn begins_regex(&self) -> bool {
        let last = self.compact.bytes().next_back().unwrap_or(b'\n');
        BEFORE_REGEX.contains(&last) || self.compact.ends_with("return")
    }
}

/// Whether a statement may end between two tokens by the line break between them.
fn needs_line_break(before: &str, after: &str) -> bool {
    !before.is_empty()
        && !before.ends_with(|last| OPENING.contains(last))
        && !after.starts_with(|next| CLOSING.contains(next))
}

/// Whether two tokens would join without the space between them.
fn needs_space(before: &str, after: &str) -> bool {
    let (Some(last), Some(next)) = (before.chars().next_back(), after.chars().next()) else {
        return false;
    };
    (is_word(last) && is_word(next)) || (last == next && "+-/".contains(last))
}

/// Whether a character can be part of a name.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
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
    compact_template(text).0
}

/// Length of the template at the start of `text`, and the template with compacted expressions.
fn compact_template(text: &str) -> (usize, String) {
    let mut compact = "`".to_owned();
    let mut rest = &text[1..];
    while let Some((length, is_end)) = template_part(rest) {
        compact.push_str(&rest[..length]);
        rest = &rest[length..];
        if is_end {
            return (text.len() - rest.len(), compact);
        }
        let expression;
        (expression, rest) = rest.split_at(expression_length(rest));
        compact.push_str(&compact_script(expression));
    }
    (text.len(), text.to_owned())
}

/// Length up to the next expression or the end of a template, and whether that is the end.
fn template_part(text: &str) -> Option<(usize, bool)> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'`' => return Some((at + 1, true)),
            b'$' if text[at..].starts_with("${") => return Some((at + 2, false)),
            _ => {}
        }
    }
    None
}

/// Length of the expression at the start of `text`, up to the brace that ends it.
fn expression_length(text: &str) -> usize {
    let (mut at, mut open) = (0, 0);
    while let Some(&byte) = text.as_bytes().get(at) {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return at,
            b'}' => open -= 1,
            b'"' | b'\'' => at += string_length(&text[at..], byte) - 1,
            b'`' => at += template_length(&text[at..]) - 1,
            _ => {}
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
        rest = &rest[end..];
    }
    compact.push_str(rest);
    let lines = compact.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty()).map(|line| {
        let is_complete = line.ends_with(['{', '}', ';', ',']);
        let separator = if is_complete { "" } else { "\n" };
        format!("{line}{separator}")
    });
    // Spaces around these parts of a rule mean nothing. A colon within a selector has no space behind it.
    let parts = [
        (" {", "{"),
        ("{ ", "{"),
        (" > ", ">"),
        (": ", ":"),
        ("; ", ";"),
        (", ", ","),
        (" }", "}"),
        (";}", "}"),
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
    fn compacts_scripts_without_changing_their_meaning() {
        for (source, expected) in [
            (
                "// Head.\n/**\n * Doc.\n */\nexport function f() {\n\treturn 1; // one\n}\n",
                "export function f(){return 1}",
            ),
            (
                "/** @type {any} */ (x).y = \"// no  /* no */\";",
                "(x).y=\"// no  /* no */\";",
            ),
            (
                "const a = `x  ${ b ? `{ ${c} }` : \"}\" }  y` + d;",
                "const a=`x  ${b?`{ ${c} }`:\"}\"}  y`+d;",
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
            ("`\\${ a } \\` ${ b } ` + c", "`\\${ a } \\` ${b} `+c"),
            ("const ä = é of x", "const ä=é of x"),
            (
                "f((a) => b, (c, d) => e, async (f) => { g; }, () => 1, [(ä) => ä, ])",
                "f(a=>b,(c,d)=>e,async(f)=>{g},()=>1,[ä=>ä])",
            ),
            ("[a, , ]; [, ]; [b, ]", "[a,,];[,];[b]"),
            ("for (;;) { a; b(); } x = { c, };", "for(;;){a;b()}x={c};"),
            ("\"an unended string", "\"an unended string"),
            ("`${ unended", "`${ unended"),
            ("/* unended\n", ""),
            ("a\nb++\n++c\n(d)\n", "a\nb++\n++c\n(d)"),
            (
                "f(\n\ta,\n\tb\n)\n.then()\nx = {\n};\ny",
                "f(a,b).then()\nx={};y",
            ),
            ("return // why\n\tx /* one\n two */ y", "return\nx\ny"),
        ] {
            assert_eq!(compact_script(source), expected, "{source}");
        }
    }

    #[test]
    fn compacts_styles_without_changing_their_meaning() {
        let source = "/* One.\n Two. */\n.a, .b :is(c) {\n\ttop: calc(1px + 2px); content: \" x\"; /* y */\n}\n.c { d: e }\n";
        let expected = ".a,.b :is(c){top:calc(1px + 2px);content:\" x\"}.c{d:e}";
        assert_eq!(compact_styles(source), expected);
    }
}
