//! Parser of assignments of a value to a name in any language or file format.

use std::ops::Range;

use super::text_stats::{ByteSet, LETTER};
use super::token_format::{CharClass, RunCache, is_in_class};

/// Maximum length of a name, in bytes.
pub(super) const MAX_NAME_LEN: usize = 64;

/// Maximum length of a value, in bytes.
const MAX_VALUE_LEN: usize = 512;

/// Name with its value.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    /// Range of the name.
    pub name: Range<usize>,
    /// Range of the value, without quotes.
    pub value: Range<usize>,
    /// Whether the value is in quotes.
    pub is_quoted: bool,
    /// Operator between name and value; a comma for any separator of call arguments.
    pub operator: u8,
}

/// Parses the assignment whose name ends with `tail`: `NAME=…`, `"name": "…"`, `name => …`,
/// `ENV NAME …`, `const NAME: &str = …`, `<name>…`, `name: NAME`, `value: …` and the like.
pub(super) fn parse_assignment(
    runs: &mut RunCache<'_>,
    text: &[u8],
    tail: Range<usize>,
) -> Option<Assignment> {
    let end = tail.end;
    let before = runs.run_length_before(CharClass::SettingName, tail.start, MAX_NAME_LEN);
    if before > MAX_NAME_LEN || tail.len() > MAX_NAME_LEN {
        return None;
    }
    let name = tail.start - before..end;
    let is_tag = text[..name.start].ends_with(b"<");
    let (after, operator) = parse_operator(text, end, is_tag)?;
    let (value, is_quoted) = parse_value(runs, text, after, operator)?;
    Some(Assignment {
        operator,
        name,
        value,
        is_quoted,
    })
}

/// Returns the start of the text after the operator, and the operator.
fn parse_operator(text: &[u8], end: usize, is_tag: bool) -> Option<(usize, u8)> {
    let is_closing = |at: usize| {
        matches!(
            text.get(at),
            Some(b'"' | b'\'' | b'`' | b']' | b')' | b'\\')
        )
    };
    let mut at = end;
    while at < end + 4 && is_closing(at) {
        at += 1;
    }
    let is_closed = at > end;
    if is_tag && text.get(at) == Some(&b'>') {
        return Some((at + 1, b'>'));
    }
    let spaces = whitespace_len(text, at, 24);
    let next = at + spaces;
    if let Some(after) = skip_value_keyword(text, next) {
        return Some((after, b':'));
    }
    match &text[next.min(text.len())..] {
        [b'=' | b'!', b'=', ..] => None,
        [b':', b'=', ..] | [b'=', b'>', ..] | [b'?', b'=', ..] => Some((next + 2, b'=')),
        [b':', b':', ..] => None,
        [b':', ..] => Some(skip_type(text, next + 1).map_or((next + 1, b':'), |at| (at, b'='))),
        [b'=', ..] => Some((next + 1, b'=')),
        [b',' | b'|' | b'(', ..] => Some((next + 1, b',')),
        // `ENV NAME value`, `--token value`, `var name string = "…"`.
        _ if spaces > 0 && !is_closed => {
            Some(skip_type(text, next).map_or((next, b' '), |at| (at, b'=')))
        }
        _ => None,
    }
}

/// Skips a type and the equals sign, as in `: &'static str = ` and ` string = `.
fn skip_type(text: &[u8], at: usize) -> Option<usize> {
    let at = at + whitespace_len(text, at, 4);
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

/// Skips `value="` or `value: ` of formats that store name and value separately.
fn skip_value_keyword(text: &[u8], at: usize) -> Option<usize> {
    let rest = &text[at.min(text.len())..];
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    let rest = &rest[whitespace_len(rest, 0, 24)..];
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

/// Returns the number of whitespace bytes at a position, up to `max`.
fn whitespace_len(text: &[u8], at: usize, max: usize) -> usize {
    let rest = &text[at.min(text.len())..];
    rest.iter()
        .take(max)
        .take_while(|byte| byte.is_ascii_whitespace())
        .count()
}

/// Returns the range of the value after an operator, and whether it is quoted.
fn parse_value(
    runs: &mut RunCache<'_>,
    text: &[u8],
    after: usize,
    operator: u8,
) -> Option<(Range<usize>, bool)> {
    let mut at = after + whitespace_len(text, after, 24);
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
            Some(byte @ (b'"' | b'\'' | b'`')) if quote.is_none_or(|quote| quote == *byte) => {
                quote = Some(*byte);
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
        let length = runs.run_length_after(CharClass::UnquotedValue, at, MAX_VALUE_LEN);
        let mut end = at + length;
        while end < at + length + 2 && text.get(end) == Some(&b'=') {
            end += 1;
        }
        let is_whole = length > 0 && length <= MAX_VALUE_LEN;
        return is_whole.then_some((at..end, false));
    };
    let rest = &text[at..text.len().min(at + MAX_VALUE_LEN + 1)];
    let length = rest
        .iter()
        .position(|byte| *byte == quote || *byte == b'\n')?;
    let escaped = rest[..length].ends_with(b"\\") && rest[length] != b'\n';
    let value = at..at + length - usize::from(escaped);
    (!value.is_empty()).then_some((value, true))
}

impl Assignment {
    /// Returns whether the operator is `=`.
    pub(super) fn has_equals_operator(&self) -> bool {
        self.operator == b'='
    }

    /// Returns whether an unquoted value is not the start of a call, an index or a path.
    pub(super) fn is_plain_value(&self, text: &[u8]) -> bool {
        let next = text.get(self.value.end).copied().unwrap_or(b'\n');
        !matches!(next, b'(' | b'[' | b'{' | b'<' | b':')
    }

    /// Returns whether an unquoted value ends like a value and is not part of an expression.
    pub(super) fn is_terminated(&self, text: &[u8]) -> bool {
        let next = text.get(self.value.end).copied().unwrap_or(b'\n');
        let value = &text[self.value.clone()];
        // Output of `sha256sum`.
        let is_digest =
            || value.iter().all(u8::is_ascii_hexdigit) && text[self.value.end..].starts_with(b"  ");
        self.operator != b','
            && (next.is_ascii_whitespace() || b"\"'`<&;,|\\".contains(&next))
            && !value.starts_with(b"$")
            && !is_digest()
    }

    /// Returns whether the assignment looks like a line of a configuration file or a command: `NAME=value`,
    /// `- name: value`, `ENV NAME value`, `--name value`, `<name>value<`.
    pub(super) fn is_config_line(&self, text: &[u8]) -> bool {
        const MAX_PREFIX: usize = 48;
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
        const LINE_PREFIXES: [&[u8]; 6] =
            [b"- ", b"`", b"-e ", b"--env ", b"-passin ", b"-passout "];
        let before = &text[self.name.start.saturating_sub(MAX_PREFIX)..self.name.start];
        let from = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let prefix = before[from..].trim_ascii_start();
        let name = &text[self.name.clone()];
        let is_command = COMMANDS
            .iter()
            .any(|word| prefix.eq_ignore_ascii_case(word));
        let has_known_prefix = prefix.is_empty()
            || is_command
            || LINE_PREFIXES.iter().any(|word| prefix.ends_with(word));
        let is_option = name.starts_with(b"-") || prefix.ends_with(b"-");
        let is_upper_case = self.is_quoted && name.iter().all(|byte| !byte.is_ascii_lowercase());
        let is_adjacent = self.value.start <= self.name.end + 2;
        match self.operator {
            b'>' => true,
            b'=' => is_option || is_adjacent || (has_known_prefix && self.ends_line(text)),
            b':' => has_known_prefix && self.ends_line(text),
            b' ' => {
                is_option
                    || is_command
                    || is_upper_case
                    || name.eq_ignore_ascii_case(b"requirepass")
            }
            _ => false,
        }
    }

    /// Returns whether only a comment follows on the line of the value.
    fn ends_line(&self, text: &[u8]) -> bool {
        const MAX_LEN: usize = 64;
        let rest = &text[self.value.end..text.len().min(self.value.end + MAX_LEN)];
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

/// Returns whether the path is one of source code, by its extension.
pub(super) fn is_source_file(path: &str) -> bool {
    const EXTENSIONS: [&str; 37] = [
        "ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs", "vue", "svelte", "py", "pyi", "rb",
        "go", "rs", "java", "kt", "kts", "scala", "groovy", "clj", "cs", "fs", "vb", "php", "c",
        "cc", "cpp", "h", "hpp", "m", "swift", "dart", "ex", "exs", "lua", "pl",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.')
        .is_some_and(|(_, extension)| EXTENSIONS.contains(&extension))
}

/// Returns whether the path is one of a configuration file, where values need no quotes.
pub(super) fn is_config_file(path: &str) -> bool {
    const SUFFIXES: [&str; 12] = [
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
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || name.starts_with(".env")
        || name.starts_with("dockerfile")
        || name.ends_with("dockerfile")
        || name.starts_with("env.")
}

/// Returns whether a vendor's name is a separate word, unlike `box` in `checkbox`.
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
