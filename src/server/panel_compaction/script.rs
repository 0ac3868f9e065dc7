//! Compaction of scripts: comments, spaces between tokens, line breaks where no statement can end, and parentheses around
//! the only parameter of an arrow function are left out. Strings, templates and regular expressions stay as they are.
//!
//! The compactor knows tokens and brackets, not the grammar. It never guesses: a script with a token whose meaning
//! depends on more is not compacted at all. Such a token is a slash after a closing brace of an expression, for example.

use super::{end_of_literal, string_length};

/// Words after which a slash begins a regular expression.
const BEFORE_REGEX: [&str; 13] = [
    "await",
    "case",
    "default",
    "delete",
    "do",
    "else",
    "in",
    "instanceof",
    "new",
    "return",
    "throw",
    "typeof",
    "void",
];

/// Words before a condition in parentheses, after which a statement begins.
const BEFORE_CONDITION: [&str; 6] = ["catch", "for", "if", "switch", "while", "with"];

/// Words before a block.
const BEFORE_BLOCK: [&str; 4] = ["do", "else", "finally", "try"];

/// Words whose statement ends by a line break, whatever follows.
const ENDED_BY_LINE_BREAK: [&str; 5] = ["break", "continue", "return", "throw", "yield"];

/// Characters after which no statement ends by a line break.
const OPENING: &str = "{([,;:?=&|<>";

/// Characters before which no line break is needed to end a statement, or none can.
const CLOSING: &str = ")]},;.:?&|";

/// Compacts a script. `None` if its meaning could change.
pub(crate) fn compact_script(source: &str) -> Option<String> {
    let mut compactor = Compactor::new(source, Token::Start);
    compactor.copy_all()?;
    compactor.rest.is_empty().then_some(compactor.compact)
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Before the first token of a script.
    Start,
    /// Before the first token of an expression in a template.
    StartOfExpression,
    /// Name, keyword, number, or flags of a regular expression.
    Word,
    /// String or template.
    Text,
    Regex,
    /// End of a condition, before a statement.
    EndOfCondition,
    /// End of a block, before a statement.
    EndOfBlock,
    /// End of an object, of a function or of a class.
    EndOfBraces,
    Other,
}

/// What an open bracket contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Condition,
    Block,
    /// Object, body of a function or of a class.
    Braces,
    Parentheses,
    Square,
}

struct Compactor<'a> {
    rest: &'a str,
    compact: String,
    /// Whether spaces or a comment were left out since the last token.
    has_space: bool,
    /// Whether a line break was left out since the last token.
    has_line_break: bool,
    /// Open brackets, the innermost last.
    open: Vec<Bracket>,
    /// The token before the last one, and the last one.
    last: [Token; 2],
}

impl<'a> Compactor<'a> {
    fn new(rest: &'a str, start: Token) -> Self {
        Self {
            rest,
            compact: String::with_capacity(rest.len()),
            has_space: false,
            has_line_break: false,
            open: Vec::new(),
            last: [start; 2],
        }
    }

    /// Copies all tokens, up to a closing brace that was not opened. `None` if a token is unknown, or if a bracket stays
    /// open.
    fn copy_all(&mut self) -> Option<()> {
        while let Some(first) = self.rest.chars().next() {
            if first == '}' && self.open.is_empty() {
                return Some(());
            }
            self.copy_next(first)?;
        }
        self.open.is_empty().then_some(())
    }

    fn copy_next(&mut self, first: char) -> Option<()> {
        match first {
            ' ' | '\t' => self.skip(1),
            '\n' => {
                self.has_line_break = true;
                self.skip(1);
            }
            '/' if self.rest.starts_with("//") => {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            }
            '/' if self.rest.starts_with("/*") => {
                let end = self.rest.find("*/")? + 2;
                self.has_line_break |= self.rest[..end].contains('\n');
                self.skip(end);
            }
            '/' if self.begins_regex()? => self.copy(regex_length(self.rest)?, Token::Regex),
            '"' | '\'' => self.copy(string_length(self.rest, first as u8)?, Token::Text),
            '`' => self.copy_template()?,
            '(' | '[' | '{' => self.open(first),
            ')' | ']' | '}' => self.close(first)?,
            '=' if self.rest.starts_with("=>") => {
                self.drop_parentheses();
                self.copy(2, Token::Other);
            }
            _ if is_word(first) => {
                let end = self.rest.find(|c| !is_word(c));
                self.copy(end.unwrap_or(self.rest.len()), Token::Word);
            }
            // Further spaces and line breaks, and escapes in names.
            _ if first == '\\' || !first.is_ascii_graphic() => return None,
            _ => self.copy(1, Token::Other),
        }
        Some(())
    }

    fn open(&mut self, first: char) {
        let bracket = match (first, self.last[1]) {
            ('(', Token::Word) if BEFORE_CONDITION.contains(&self.keyword()) => Bracket::Condition,
            ('(', Token::Word) if self.compact.ends_with("for await") => Bracket::Condition,
            ('{', Token::Start | Token::EndOfCondition | Token::EndOfBlock) => Bracket::Block,
            ('{', Token::Word) if BEFORE_BLOCK.contains(&self.keyword()) => Bracket::Block,
            ('{', Token::Other) if self.compact.ends_with([';', '{']) => Bracket::Block,
            ('{', _) => Bracket::Braces,
            ('(', _) => Bracket::Parentheses,
            _ => Bracket::Square,
        };
        self.copy(1, Token::Other);
        self.open.push(bracket);
    }

    fn close(&mut self, first: char) -> Option<()> {
        let token = match (first, self.open.pop()?) {
            (')', Bracket::Condition) => Token::EndOfCondition,
            (')', Bracket::Parentheses) | (']', Bracket::Square) => Token::Other,
            ('}', Bracket::Block) => Token::EndOfBlock,
            ('}', Bracket::Braces) => Token::EndOfBraces,
            _ => return None,
        };
        let is_redundant = match token {
            Token::EndOfBlock | Token::EndOfBraces if self.compact.ends_with(';') => {
                self.ends_statement()
            }
            Token::EndOfBraces => self.compact.ends_with(','),
            // The last comma of a list, unless an element is left out before it.
            Token::Other if first == ']' => {
                let list = self.compact.strip_suffix(',');
                list.is_some_and(|list| !list.ends_with(['[', ',']))
            }
            _ => false,
        };
        if is_redundant {
            self.compact.pop();
        }
        self.copy(1, token);
        Some(())
    }

    /// Whether the last token is a semicolon that ends a statement and is not one itself. A closing brace ends it as well.
    fn ends_statement(&self) -> bool {
        let Some(before) = self.compact.strip_suffix(';') else {
            return false;
        };
        match self.last[0] {
            Token::Word => !["do", "else"].contains(&keyword_at_end(before)),
            Token::Other => !before.ends_with(['{', ';', ':']),
            Token::Text | Token::Regex | Token::EndOfBraces => true,
            Token::Start | Token::StartOfExpression | Token::EndOfCondition | Token::EndOfBlock => {
                false
            }
        }
    }

    /// Copies a template with compacted expressions.
    fn copy_template(&mut self) -> Option<()> {
        let (mut template, mut rest) = ("`".to_owned(), &self.rest[1..]);
        loop {
            let (length, is_end) = template_part(rest)?;
            template.push_str(&rest[..length]);
            rest = &rest[length..];
            if is_end {
                break;
            }
            let mut expression = Compactor::new(rest, Token::StartOfExpression);
            expression.copy_all()?;
            template.push_str(&expression.compact);
            rest = expression.rest;
        }
        self.copy_as(self.rest.len() - rest.len(), &template, Token::Text);
        Some(())
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

    fn copy(&mut self, length: usize, token: Token) {
        self.copy_as(length, &self.rest[..length], token);
    }

    /// Copies the next token in another form.
    fn copy_as(&mut self, length: usize, text: &str, token: Token) {
        if self.has_line_break && self.needs_line_break() {
            self.compact.push('\n');
        } else if self.has_space && self.needs_space() {
            self.compact.push(' ');
        }
        [self.has_space, self.has_line_break] = [false, false];
        self.compact.push_str(text);
        self.rest = &self.rest[length..];
        self.last = [self.last[1], token];
    }

    /// Whether a slash begins a regular expression, and does not divide. `None` if that is unknown.
    fn begins_regex(&self) -> Option<bool> {
        match self.last[1] {
            Token::Start | Token::StartOfExpression | Token::EndOfCondition | Token::EndOfBlock => {
                Some(true)
            }
            Token::Text | Token::Regex => Some(false),
            Token::Word => match self.keyword() {
                "of" | "yield" => None,
                word => Some(BEFORE_REGEX.contains(&word)),
            },
            Token::Other if self.compact.ends_with("++") || self.compact.ends_with("--") => None,
            Token::Other => Some(!self.compact.ends_with([')', ']'])),
            Token::EndOfBraces => None,
        }
    }

    /// Whether a statement may end by the line break before the next token.
    fn needs_line_break(&self) -> bool {
        let next = self.rest.chars().next().unwrap_or(';');
        let is_fraction = next == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit());
        match self.last[1] {
            Token::Start | Token::StartOfExpression | Token::EndOfBlock => false,
            Token::Word if ENDED_BY_LINE_BREAK.contains(&self.keyword()) => {
                !matches!(next, '}' | ';')
            }
            Token::Other if self.compact.ends_with(|last| OPENING.contains(last)) => false,
            _ => is_fraction || !CLOSING.contains(next),
        }
    }

    /// Whether the last token and the next one would join without the space between them.
    fn needs_space(&self) -> bool {
        let next = self.rest.chars().next();
        let (Some(last), Some(next)) = (self.compact.chars().next_back(), next) else {
            return false;
        };
        let is_open = is_word(last) || self.last[1] == Token::Regex;
        (is_open && is_word(next))
            || (last.is_ascii_digit() && next == '.')
            || (last == next && "+-/".contains(last))
    }

    /// Last token if it is a word and no property; otherwise empty.
    fn keyword(&self) -> &str {
        keyword_at_end(&self.compact)
    }
}

fn keyword_at_end(text: &str) -> &str {
    let begin = text.trim_end_matches(is_word).len();
    match text[..begin].ends_with(['.', '#']) {
        true => "",
        false => &text[begin..],
    }
}

/// Whether a character can be part of a name.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Length of the regular expression at the start of `text`, without its flags. `None` if it does not end.
fn regex_length(text: &str) -> Option<usize> {
    let mut in_class = false;
    let end = end_of_literal(text, |byte| {
        match byte {
            b'[' => in_class = true,
            b']' => in_class = false,
            _ => {}
        }
        byte == b'/' && !in_class
    })?;
    Some(end + 1)
}

/// Length up to the next expression or the end of a template, and whether that is the end. `None` if it does not end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacts_without_changing_the_meaning() {
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
                "`${ a.replace(/[}`\"']/g, \"\") /* } */ } ${ {b: 1}.b }`",
                "`${a.replace(/[}`\"']/g,\"\")} ${{b:1}.b}`",
            ),
            (
                "x = a / b / c; y = z.replace(/[/ ]  \\/\"/g, \" \")",
                "x=a/b/c;y=z.replace(/[/ ]  \\/\"/g,\" \")",
            ),
            ("return /a  b/.test(c)", "return/a  b/.test(c)"),
            ("myreturn / 2  / x", "myreturn/2/x"),
            ("a.return / 2  / x", "a.return/2/x"),
            ("typeof /'  / in x", "typeof/'  / in x"),
            (
                "if (a) /'  /.test(b); f(a) / 2",
                "if(a)/'  /.test(b);f(a)/2",
            ),
            (
                "if (a) { b } /'  /.test(c) ; `a` / 2  / 1",
                "if(a){b}/'  /.test(c);`a`/2/1",
            ),
            (
                "a + +b - -c; a++ + b; typeof x in y; 1 .x; a\n.5",
                "a+ +b- -c;a++ +b;typeof x in y;1 .x;a\n.5",
            ),
            ("`\\${ a } \\` ${ b } ` + c", "`\\${ a } \\` ${b} `+c"),
            ("const ä = é of x", "const ä=é of x"),
            (
                "f((a) => b, (c, d) => e, async (f) => { g; }, () => 1, [(ä) => ä, ])",
                "f(a=>b,(c,d)=>e,async(f)=>{g},()=>1,[ä=>ä])",
            ),
            ("[a, , ]; [, ]; [b, ]; `[,${c}]`", "[a,,];[,];[b];`[,${c}]`"),
            ("for (;;) { a; b(); } x = { c, };", "for(;;){a;b()}x={c};"),
            (
                "f = () => { for (;;); }; g = () => { if (a) b; else ; }; h = () => { ; };",
                "f=()=>{for(;;);};g=()=>{if(a)b;else;};h=()=>{;};",
            ),
            ("a\nb++\n++c\n(d)\n", "a\nb++\n++c\n(d)"),
            (
                "f(\n\ta,\n\tb\n)\n.then()\nx = {\n}\ny",
                "f(a,b).then()\nx={}\ny",
            ),
            (
                "if (a) {\n}\nelse {\n}\nb\nfunction f() {\n}\nc",
                "if(a){}else{}b\nfunction f(){}\nc",
            ),
            ("return // why\n\tx /* one\n two */ y", "return\nx\ny"),
            ("return\n.5\nreturn\n;", "return\n.5\nreturn;"),
        ] {
            assert_eq!(
                compact_script(source).as_deref(),
                Some(expected),
                "{source}"
            );
        }
    }

    /// Scripts that are served as they are.
    #[test]
    fn compacts_nothing_that_it_does_not_know() {
        for source in [
            "x = {} / 2",
            "function f() {} /a/.test(b)",
            "x = y++ / 2",
            "of / 2",
            "\"an unended string",
            "'a string\nof two lines'",
            "/a regex\nof two lines/",
            "`${ unended",
            "`${ a ] }`",
            "/* unended\n",
            "f(a]",
            "f(",
            "}",
            "\\u0061 = 1",
            "a\u{2028}b",
            "a\r\nb",
        ] {
            assert_eq!(compact_script(source), None, "{source}");
        }
    }
}
