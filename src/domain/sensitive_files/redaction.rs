//! Secrets in text that people read: logs, comments, titles, pull requests.
//!
//! Whatever the guard blocks by content is found here too, by the same rules. Beside them stand
//! looser shapes: what is published by mistake cannot be taken back, and a cut or invented token that
//! is hidden costs nothing. Everything is linear in the length of the text.

use std::collections::HashSet;
use std::ops::Range;

use super::content_scan::{self, Confidence, RedactionScan, SecretRange};
use super::matchers::{self, KeyBoundary};
use super::{GuardReason, text_encoding};

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Shorter texts hold no secret.
const SHORTEST: usize = 6;

/// Longest private key, in bytes. A header without an end before that is followed line by line.
const LONGEST_KEY: usize = 16 << 10;

/// Least length of a run of base64 that is taken for a part of a key.
const KEY_RUN: usize = 32;

/// Finds the secrets of a text, in order and without overlap.
pub fn find_secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = secrets_in_bytes(text.as_bytes());
    for range in &mut found {
        // A rule of bytes may have stopped inside a character.
        *range = text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
    }
    found
}

/// The text with [`MARK`] in the place of these ranges, which are in order and do not overlap.
pub fn redact_ranges(text: &str, ranges: &[Range<usize>]) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        clean.push_str(&text[from..range.start]);
        clean.push_str(REDACTED);
        from = range.end;
    }
    clean.push_str(&text[from..]);
    clean
}

/// Judges a name or the target of a symbolic link as a content: whole, and each of its parts.
pub fn check_name(words: &str) -> Option<GuardReason> {
    let parts = std::iter::once(words).chain(words.split('/'));
    let mut firsts = parts.filter_map(|part| {
        let found = content_scan::scan("", part.as_bytes());
        let blocks = found
            .iter()
            .filter(|finding| finding.confidence != Confidence::Possible);
        content_scan::first_by_rule(blocks).map(|finding| finding.rule)
    });
    let rule = firsts.next()?;
    Some(GuardReason::Content(rule.category, rule.label))
}

/// The line of the first secret that a file is judged by, counted from 1. None of a reason that no
/// line has.
pub fn finding_line(
    path: &str,
    before: &[u8],
    after: &[u8],
    reason: &GuardReason,
) -> Option<usize> {
    let GuardReason::Content(_, what) = reason else {
        return None;
    };
    let (before, after) = (
        text_encoding::decode_text(before),
        text_encoding::decode_text(after),
    );
    let before = content_scan::scan(path, &before);
    let known: HashSet<&[u8]> = before.iter().map(|finding| &*finding.secret).collect();
    let found = content_scan::scan(path, &after);
    let finding = content_scan::first_by_rule(
        found
            .iter()
            .filter(|finding| finding.rule.label == *what && !known.contains(&*finding.secret)),
    )?;
    let newlines = after[..finding.range.start]
        .iter()
        .filter(|byte| **byte == b'\n');
    Some(newlines.count() + 1)
}

fn secrets_in_bytes(text: &[u8]) -> Vec<Range<usize>> {
    if text.len() < SHORTEST {
        return Vec::new();
    }
    let RedactionScan {
        secrets: mut places,
        loose_matches: mut found,
        key_boundaries: frames,
    } = content_scan::scan_for_redaction(text);
    // All that stands in one stretch of base64 has the same range, which is read once. Stretches are
    // in order already.
    places.sort();
    places.dedup();
    for SecretRange {
        is_armored_key: is_armor,
        start,
        end,
    } in places
    {
        if is_armor {
            // Followed below, run by run: what the rule takes in may hold the quotes of JSON.
            key_runs(text, start..end, &mut found);
        } else {
            found.push(within_quotes(text, start..end));
        }
    }
    for range in &mut found {
        // The scheme of a URL stays visible.
        range.start += if text[range.clone()].starts_with(b"://") {
            3
        } else {
            0
        };
    }
    keys(text, &frames, &mut found);
    merged(text, found)
}

/// Private keys from their first line to their last; of one without a last line, what follows.
fn keys(text: &[u8], frames: &[KeyBoundary], found: &mut Vec<Range<usize>>) {
    let mut ends = frames.iter().filter(|frame| !frame.is_begin).peekable();
    let mut done = 0;
    for begin in frames.iter().filter(|frame| frame.is_begin) {
        let Range { start, end } = begin.range;
        if start < done {
            continue;
        }
        while ends.next_if(|last| last.range.start < end).is_some() {}
        let limit = start + LONGEST_KEY;
        done = match ends.peek().filter(|last| last.range.start < limit) {
            Some(last) => {
                found.push(start..last.range.end);
                last.range.end
            }
            None => {
                let rest = end..limit.min(text.len());
                let next = matchers::find(&text[rest.clone()], b"-----");
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
    found.sort_by_key(|range| range.start);
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
pub struct PrivateKeyTracker {
    /// Bytes for which the key may still go on.
    left: usize,
}

impl PrivateKeyTracker {
    /// Whether the next line is a part of a key that began before.
    pub fn feed_line(&mut self, line: &str) -> bool {
        let bytes = line.as_bytes();
        let is_part = self.left > 0 && is_key_line(bytes);
        self.left = self.left.saturating_sub(bytes.len() + 1);
        match matchers::last_key_boundary(bytes) {
            Some(KeyBoundary { is_begin: true, .. }) => self.left = LONGEST_KEY,
            Some(_) => self.left = 0,
            None => {}
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
        let ranges = find_secrets(text);
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
        assert_eq!(hidden(&random), [drawn(32)]);
        let guess = format!("row_key = \"{}\"", drawn(32));
        assert!(hidden(&guess).is_empty(), "a guess hides nothing");
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
        let mut key = PrivateKeyTracker::default();
        let shown: Vec<&str> = text.lines().filter(|line| !key.feed_line(line)).collect();
        assert_eq!(shown, [begin.as_str(), "and so on"]);
    }
}
