//! Secrets in text that people read: logs, comments, titles, pull requests.
//!
//! Whatever the guard blocks by content is found here too, by the same rules. Beside them stand
//! looser shapes: what is published by mistake cannot be taken back, and a cut or invented token that
//! is hidden costs nothing. Everything is linear in the length of the text.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::contents::{self, Strength};
use super::rules::Kind;
use super::{Reason, text};

/// What stands where a secret stood.
pub const MARK: &str = "[redacted]";

/// Credentials by prefix, and of looser shape than a file would be blocked for. One expression each:
/// a search for any of them would look for the end of one to the end of the text, and would do so
/// again after each other match.
const LOOSE: [&str; 11] = [
    r"\bgh[opsur]_[A-Za-z0-9._-]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\blin_(?:api|oauth|wh)_[A-Za-z0-9_]{16,}",
    r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"\bATATT[A-Za-z0-9_=-]{20,}",
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\b(?:FlyV1 )?fm[12][a-z]?_[A-Za-z0-9+/=_-]{20,}",
    r"https://hooks\.slack(?:-gov)?\.com/[A-Za-z0-9/_-]+",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}",
];

/// A password in a URL, whatever its host is. Its scheme stays visible.
const URL: &str = r#"\b[a-z][a-z0-9+.-]*://[^\s/@:"]*:[^\s/@"]+@"#;

const KEY_BEGINS: &str =
    r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[23]: ";
const KEY_ENDS: &str = r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----";

/// Longest private key, in bytes. A header without an end before that is followed line by line.
const LONGEST_KEY: usize = 16 << 10;

/// Least length of a run of base64 that is taken for a part of a key.
const KEY_RUN: usize = 32;

struct Shapes {
    loose: Vec<Regex>,
    url: Regex,
    key_begins: Regex,
    key_ends: Regex,
}

#[expect(clippy::unwrap_used, reason = "the patterns are constants and tested")]
static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let compiled = |pattern: &str| Regex::new(&format!("(?-u:{pattern})")).unwrap();
    Shapes {
        loose: LOOSE.map(compiled).into(),
        url: compiled(URL),
        key_begins: compiled(KEY_BEGINS),
        key_ends: compiled(KEY_ENDS),
    }
});

/// Finds the secrets of a text, in order and without overlap.
pub fn secrets_in(text: &str) -> Vec<Range<usize>> {
    let mut found = secrets_in_bytes(text.as_bytes());
    for range in &mut found {
        // A rule of bytes may have stopped inside a character.
        *range = text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
    }
    found
}

/// The text with [`MARK`] in the place of these ranges, which are in order and do not overlap.
pub fn without(text: &str, ranges: &[Range<usize>]) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        clean.push_str(&text[from..range.start]);
        clean.push_str(MARK);
        from = range.end;
    }
    clean.push_str(&text[from..]);
    clean
}

/// Judges a name or the target of a symbolic link as a content: whole, and each of its parts.
pub fn judge_words(words: &str) -> Option<Reason> {
    let parts = std::iter::once(words).chain(words.split('/'));
    let mut found = parts.flat_map(|part| contents::scan("", part.as_bytes()));
    let blocking = found.find(|finding| finding.strength != Strength::Possible)?;
    Some(Reason::Content(blocking.rule.category, blocking.rule.what))
}

/// The line of the first secret that a file is judged by, counted from 1. None of a reason that no
/// line has.
pub fn line_of(path: &str, before: &[u8], after: &[u8], reason: &Reason) -> Option<usize> {
    let Reason::Content(_, what) = reason else {
        return None;
    };
    let (before, after) = (text::decoded(before), text::decoded(after));
    let known: HashSet<Vec<u8>> = contents::scan(path, &before)
        .into_iter()
        .map(|finding| finding.secret)
        .collect();
    let found = contents::scan(path, &after).into_iter();
    let mut of_rule = found.filter(|finding| finding.rule.what == *what);
    let finding = of_rule.find(|finding| !known.contains(&finding.secret))?;
    let newlines = after[..finding.range.start]
        .iter()
        .filter(|byte| **byte == b'\n');
    Some(newlines.count() + 1)
}

fn secrets_in_bytes(text: &[u8]) -> Vec<Range<usize>> {
    let shapes = &*SHAPES;
    let mut found = Vec::new();
    for finding in contents::scan("", text) {
        match finding.strength {
            // Only warned about in files.
            Strength::Possible => {}
            // Followed below, run by run: what the rule takes in may hold the quotes of JSON.
            _ if finding.rule.kind == Kind::Armor => {
                key_runs(text, finding.range, &mut found);
            }
            _ => found.push(within_quotes(text, finding.range)),
        }
    }
    for shape in &shapes.loose {
        found.extend(shape.find_iter(text).map(|found| found.range()));
    }
    found.extend(shapes.url.find_iter(text).map(|url| {
        let scheme = url.as_bytes().windows(3).position(|three| three == b"://");
        url.start() + scheme.map_or(0, |at| at + 3)..url.end()
    }));
    keys(text, &mut found);
    merged(text, found)
}

/// Private keys from their first line to their last; of one without a last line, what follows.
fn keys(text: &[u8], found: &mut Vec<Range<usize>>) {
    let shapes = &*SHAPES;
    let mut ends = shapes.key_ends.find_iter(text).peekable();
    let mut done = 0;
    for begin in shapes.key_begins.find_iter(text) {
        if begin.start() < done {
            continue;
        }
        while ends.next_if(|end| end.start() < begin.end()).is_some() {}
        let limit = begin.start() + LONGEST_KEY;
        done = match ends.peek().filter(|end| end.start() < limit) {
            Some(end) => {
                found.push(begin.start()..end.end());
                end.end()
            }
            None => {
                let rest = begin.end()..limit.min(text.len());
                let next = text[rest.clone()]
                    .windows(5)
                    .position(|five| five == b"-----");
                let end = next.map_or(rest.end, |next| rest.start + next);
                key_runs(text, rest.start..end, found);
                end
            }
        };
    }
}

/// Long runs of base64. A letter after a backslash belongs to the escape before it.
fn key_runs(text: &[u8], range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut start = range.start;
    for part in text[range].split(|byte| !is_base64(*byte)) {
        let end = start + part.len();
        let escaped = usize::from(start > 0 && text[start - 1] == b'\\');
        if part.len() >= KEY_RUN + escaped {
            found.push(start + escaped..end);
        }
        start = end + 1;
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// The range up to a quote: in a line of JSON the next field is no part of the secret.
fn within_quotes(text: &[u8], range: Range<usize>) -> Range<usize> {
    let secret = &text[range.clone()];
    match secret.iter().position(|byte| *byte == b'"') {
        Some(quote) => {
            let inside = secret[..quote].iter().rposition(|byte| *byte != b'\\');
            range.start..range.start + inside.map_or(0, |last| last + 1)
        }
        None => range,
    }
}

/// Sorts ranges, joins those that overlap, and extends each to the end of its word: rules look at a
/// bounded stretch only.
fn merged(text: &[u8], mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    found.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found.into_iter().filter(|range| !range.is_empty()) {
        let mut end = range.end;
        if let Some(last) = merged.last_mut()
            && range.start < last.end
        {
            if range.end <= last.end {
                continue;
            }
            end = last.end.max(range.end);
        }
        if text[..end].last().is_some_and(is_word) {
            end += text[end..].iter().take_while(|byte| is_word(byte)).count();
        }
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = end,
            _ => merged.push(range.start..end),
        }
    }
    merged
}

/// A private key that is printed line by line.
#[derive(Debug, Clone, Default)]
pub struct OpenKey {
    /// Bytes for which the key may still go on.
    left: usize,
}

impl OpenKey {
    /// Whether the next line is a part of a key that began before.
    pub fn continues(&mut self, line: &str) -> bool {
        let (shapes, bytes) = (&*SHAPES, line.as_bytes());
        let is_part = self.left > 0 && is_key_line(bytes);
        self.left = self.left.saturating_sub(bytes.len() + 1);
        let last = |shape: &Regex| shape.find_iter(bytes).last().map(|found| found.start());
        match (last(&shapes.key_begins), last(&shapes.key_ends)) {
            (Some(begin), end) if end.is_none_or(|end| end < begin) => self.left = LONGEST_KEY,
            (_, Some(_)) => self.left = 0,
            (_, None) => {}
        }
        is_part
    }
}

/// A line with a long run of base64, or of nothing else.
fn is_key_line(line: &[u8]) -> bool {
    let mut parts = line.split(|byte| !is_base64(*byte));
    let whole = line.trim_ascii();
    let is_last =
        !whole.is_empty() && whole.len().is_multiple_of(4) && whole.iter().copied().all(is_base64);
    is_last || parts.any(|part| part.len() >= KEY_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> Vec<&str> {
        let ranges = secrets_in(text);
        ranges.into_iter().map(|range| &text[range]).collect()
    }

    /// Characters that vary as those of a token do.
    fn drawn(length: usize) -> String {
        let word = "Zq7LkT9mWx2Vr8NpYc5HdJfBsGhAuEiC3oDy6Xt1";
        word.chars().cycle().take(length).collect()
    }

    #[test]
    fn what_the_guard_blocks_by_content_is_found_in_text() {
        let hex = "0a9f8e7d6c5b4a39281706f5e4d3c2b1";
        for secret in [
            format!("sk_live_{}", drawn(24)),
            format!("glpat-{}", drawn(20)),
            format!("npm_{}", drawn(36)),
            format!("hf_{}", drawn(34)),
            format!("SG.{}.{}", drawn(22), drawn(43)),
            format!("dop_v1_{hex}{hex}"),
        ] {
            let text = format!("The key is {secret}, as asked.");
            assert_eq!(hidden(&text), [secret.as_str()], "{text}");
        }
        let random = format!("password = \"{}\"", drawn(32));
        assert!(hidden(&random).is_empty(), "a guess hides nothing");
    }

    #[test]
    fn a_token_is_hidden_to_its_end_and_json_stays_json() {
        let long = drawn(4_000);
        let text = format!("machine api.shop.net login me password {long} and more");
        assert_eq!(hidden(&text), [long.as_str()]);
        let line = format!(
            r#"machine api.shop.net login me password {0}","b":"-----BEGIN PRIVATE KEY-----\n{1}\n{1}","c":1}}"#,
            drawn(12),
            drawn(64)
        );
        assert_eq!(hidden(&line), [drawn(12), drawn(64), drawn(64)]);
    }

    #[test]
    fn a_key_without_an_end_is_hidden_as_far_as_it_goes() {
        let begin = ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat();
        let body = vec![drawn(64); 200].join("\n");
        let text = format!("{begin}\n{body}\nand so on");
        let hidden = hidden(&text);
        assert_eq!(hidden.len(), 200);
        let mut key = OpenKey::default();
        let shown: Vec<&str> = text.lines().filter(|line| !key.continues(line)).collect();
        assert_eq!(shown, [begin.as_str(), "and so on"]);
    }
}
