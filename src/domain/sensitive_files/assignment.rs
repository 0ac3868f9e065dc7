//! Names and what they are set to, in whatever language.

use std::ops::Range;

use super::text_stats::{ByteSet, LETTER};
use super::token_format::{CharClass, RunCache, is_in_class};

/// How long a name may be?
pub(super) const LONGEST_NAME: usize = 64;

/// The longest value that is looked at.
const LONGEST_VALUE: usize = 512;

/// A name with its value.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub name: Range<usize>,
    pub value: Range<usize>,
    pub is_quoted: bool,
    /// What stands between both; a comma for all that separates the arguments of a call.
    pub operator: u8,
}

/// Reads what follows a name, of which the tail is given: `NAME=…`, `"name": "…"`, `name => …`,
/// `ENV NAME …`, `const NAME: &str = …`, `<name>…`, `name: NAME`, `value: …` and the like.
pub(super) fn parse_assignment(
    runs: &mut RunCache<'_>,
    text: &[u8],
    tail: Range<usize>,
) -> Option<Assignment> {
    let end = tail.end;
    let before = runs.run_length_before(CharClass::SettingName, tail.start, LONGEST_NAME);
    if before > LONGEST_NAME || tail.len() > LONGEST_NAME {
        return None;
    }
    let name = tail.start - before..end;
    let is_tag = text[..name.start].ends_with(b"<");
    let (after, operator) = operator(text, end, is_tag)?;
    let (value, is_quoted) = value(runs, text, after, operator)?;
    Some(Assignment {
        operator,
        name,
        value,
        is_quoted,
    })
}

/// Where the value begins, and what stands before it.
fn operator(text: &[u8], end: usize, is_tag: bool) -> Option<(usize, u8)> {
    let closing = |at: usize| {
        matches!(
            text.get(at),
            Some(b'"' | b'\'' | b'`' | b']' | b')' | b'\\')
        )
    };
    let mut at = end;
    while at < end + 4 && closing(at) {
        at += 1;
    }
    let closed = at > end;
    if is_tag && text.get(at) == Some(&b'>') {
        return Some((at + 1, b'>'));
    }
    let spaces = white(text, at, 24);
    let next = at + spaces;
    if let Some(after) = value_word(text, next) {
        return Some((after, b':'));
    }
    match &text[next.min(text.len())..] {
        [b'=' | b'!', b'=', ..] => None,
        [b':', b'=', ..] | [b'=', b'>', ..] | [b'?', b'=', ..] => Some((next + 2, b'=')),
        [b':', b':', ..] => None,
        [b':', ..] => Some(typed(text, next + 1).map_or((next + 1, b':'), |at| (at, b'='))),
        [b'=', ..] => Some((next + 1, b'=')),
        [b',' | b'|' | b'(', ..] => Some((next + 1, b',')),
        // `ENV NAME value`, `--token value`, `var name string = "…"`.
        _ if spaces > 0 && !closed => Some(typed(text, next).map_or((next, b' '), |at| (at, b'='))),
        _ => None,
    }
}

/// `: &'static str = `, ` string = `: where the value begins.
fn typed(text: &[u8], at: usize) -> Option<usize> {
    let at = at + white(text, at, 4);
    const TYPE: ByteSet = LETTER.with(ByteSet::of(b"&' <>?"));
    let is_type = |byte: &&u8| TYPE.contains(**byte);
    let length = text[at.min(text.len())..]
        .iter()
        .take(28)
        .take_while(is_type)
        .count();
    let end = at + length;
    (length > 2 && text.get(end) == Some(&b'=') && text.get(end + 1) != Some(&b'='))
        .then_some(end + 1)
}

/// `value="`, `value: `: settings that say name and value apart.
fn value_word(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at.min(text.len())..];
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    let rest = &rest[white(rest, 0, 24)..];
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    let word = rest
        .get(..5)
        .filter(|word| word.eq_ignore_ascii_case(b"value"))?;
    let rest = &rest[word.len()..];
    let rest = rest
        .strip_prefix(b"\"")
        .or(rest.strip_prefix(b"'"))
        .unwrap_or(rest);
    let rest = rest.strip_prefix(b":").or(rest.strip_prefix(b"="))?;
    Some(text.len() - rest.len())
}

fn white(text: &[u8], at: usize, most: usize) -> usize {
    let rest = &text[at.min(text.len())..];
    rest.iter()
        .take(most)
        .take_while(|byte| byte.is_ascii_whitespace())
        .count()
}

/// The value that begins after an operator.
fn value(
    runs: &mut RunCache<'_>,
    text: &[u8],
    after: usize,
    operator: u8,
) -> Option<(Range<usize>, bool)> {
    let mut at = after + white(text, after, 24);
    let gap = &text[after.min(text.len())..at.min(text.len())];
    let is_next_line = gap.contains(&b'\n');
    let mut quote = None;
    for _ in 0..4 {
        match text.get(at) {
            Some(b'\\' | b'(' | b'[' | b'@' | b'$')
                if text.get(at + 1).is_some_and(|next| b"\"'`(".contains(next)) =>
            {
                at += 1
            }
            Some(mark @ (b'"' | b'\'' | b'`')) if quote.is_none_or(|quote| quote == *mark) => {
                quote = Some(*mark);
                at += 1;
            }
            Some(b'b' | b'r' | b'f')
                if quote.is_none()
                    && text.get(at + 1).is_some_and(|next| b"\"'".contains(next)) =>
            {
                at += 1
            }
            _ => break,
        }
    }
    let Some(quote) = quote else {
        if is_next_line && operator != b'>' {
            return None;
        }
        let length = runs.run_length_after(CharClass::UnquotedValue, at, LONGEST_VALUE);
        let mut end = at + length;
        while end < at + length + 2 && text.get(end) == Some(&b'=') {
            end += 1;
        }
        let is_whole = length > 0 && length <= LONGEST_VALUE;
        return is_whole.then_some((at..end, false));
    };
    let rest = &text[at..text.len().min(at + LONGEST_VALUE + 1)];
    let length = rest
        .iter()
        .position(|byte| *byte == quote || *byte == b'\n')?;
    let escaped = rest[..length].ends_with(b"\\") && rest[length] != b'\n';
    let value = at..at + length - usize::from(escaped);
    (!value.is_empty()).then_some((value, true))
}

impl Assignment {
    /// What stands between name and value is `=`.
    pub fn has_equals_operator(&self) -> bool {
        self.operator == b'='
    }

    /// What follows an unquoted value does not make it a call or the name of something.
    pub fn is_plain_value(&self, text: &[u8]) -> bool {
        let next = text.get(self.value.end).copied().unwrap_or(b'\n');
        !matches!(next, b'(' | b'[' | b'{' | b'<' | b':')
    }

    /// Whether a value without quotes ends as one does, and is no call or part of an expression.
    pub fn is_terminated(&self, text: &[u8]) -> bool {
        let next = text.get(self.value.end).copied().unwrap_or(b'\n');
        let value = &text[self.value.clone()];
        // What `sha256sum` prints.
        let is_digest =
            || value.iter().all(u8::is_ascii_hexdigit) && text[self.value.end..].starts_with(b"  ");
        self.operator != b','
            && (next.is_ascii_whitespace() || b"\"'`<&;,|\\".contains(&next))
            && !value.starts_with(b"$")
            && !is_digest()
    }

    /// Whether name and value stand as on the lines of settings and commands: `NAME=value`,
    /// `- name: value`, `ENV NAME value`, `--name value`, `<name>value<`.
    pub fn is_config_line(&self, text: &[u8]) -> bool {
        const LONGEST: usize = 48;
        const COMMANDS: [&[u8]; 8] = [
            b"env ",
            b"arg ",
            b"set ",
            b"setx ",
            b"set -gx ",
            b"set -x ",
            b"export ",
            b"requirepass ",
        ];
        const LEADS: [&[u8]; 6] = [b"- ", b"`", b"-e ", b"--env ", b"-passin ", b"-passout "];
        let before = &text[self.name.start.saturating_sub(LONGEST)..self.name.start];
        let from = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let lead = before[from..].trim_ascii_start();
        let name = &text[self.name.clone()];
        let is_command = COMMANDS.iter().any(|word| lead.eq_ignore_ascii_case(word));
        let is_led = lead.is_empty() || is_command || LEADS.iter().any(|word| lead.ends_with(word));
        let is_option = name.starts_with(b"-") || lead.ends_with(b"-");
        let is_loud = self.is_quoted && name.iter().all(|byte| !byte.is_ascii_lowercase());
        let is_adjacent = self.value.start <= self.name.end + 2;
        match self.operator {
            b'>' => true,
            b'=' => is_option || is_adjacent || (is_led && self.ends_line(text)),
            b':' => is_led && self.ends_line(text),
            b' ' => is_option || is_command || is_loud || name.eq_ignore_ascii_case(b"requirepass"),
            _ => false,
        }
    }

    /// Whether nothing but a comment follows the word that the value is or begins.
    fn ends_line(&self, text: &[u8]) -> bool {
        const LONGEST: usize = 64;
        let rest = &text[self.value.end..text.len().min(self.value.end + LONGEST)];
        let word = rest
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(rest.len());
        let line = rest[word..]
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"#")
    }
}

/// Files that hold a program.
pub(super) fn is_source_file(path: &str) -> bool {
    const ENDINGS: [&str; 37] = [
        "ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs", "vue", "svelte", "py", "pyi", "rb",
        "go", "rs", "java", "kt", "kts", "scala", "groovy", "clj", "cs", "fs", "vb", "php", "c",
        "cc", "cpp", "h", "hpp", "m", "swift", "dart", "ex", "exs", "lua", "pl",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.')
        .is_some_and(|(_, ending)| ENDINGS.contains(&ending))
}

/// Files that hold settings, where values need no quotes.
pub(super) fn is_config_file(path: &str) -> bool {
    const ENDINGS: [&str; 12] = [
        ".properties",
        ".conf",
        ".cfg",
        ".ini",
        ".toml",
        ".yml",
        ".yaml",
        ".env",
        ".tfvars",
        ".envrc",
        ".cnf",
        ".sh",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        || name.starts_with(".env")
        || name.starts_with("dockerfile")
        || name.ends_with("dockerfile")
        || name.starts_with("env.")
}

/// Whether a vendor's name is a word of its own: not `box` in `checkbox`.
pub(super) fn is_whole_word(text: &[u8], name: &Range<usize>) -> bool {
    let word = &text[name.clone()];
    let previous = text[..name.start].last().copied().unwrap_or(b' ');
    let next = text.get(name.end).copied().unwrap_or(b' ');
    let begins = !previous.is_ascii_alphabetic()
        || (previous.is_ascii_lowercase() && word[0].is_ascii_uppercase());
    let last = word[word.len() - 1];
    let ends = !next.is_ascii_alphabetic()
        || !last.is_ascii_alphabetic()
        || (last.is_ascii_lowercase() && next.is_ascii_uppercase())
        || word.len() >= 6;
    begins && ends && !is_in_class(CharClass::Digit, previous)
}
