//! Detection and redaction of secrets in logs, comments, titles and pull requests.
//!
//! The rules are those of the guard. In addition, looser formats are redacted: a published secret cannot be
//! taken back, while redacting an incomplete or invented token does no harm. The cost is linear in the
//! length of the text.

use std::collections::HashSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::content_scan::{self, Confidence, RedactionScan, SecretRange};
use super::matchers::{self, KeyBoundary};
use super::{GuardReason, text_encoding};

/// Replacement text for a secret.
pub const REDACTED: &str = "[redacted]";

/// Minimum length, in bytes, of a text that can contain a secret.
const MIN_TEXT_LEN: usize = 6;

/// Maximum length of a private key, in bytes. If no last line follows within it, each base64 run is redacted
/// separately.
const MAX_KEY_LEN: usize = 16 << 10;

/// Minimum length, in bytes, of a run of base64 that is treated as part of a key.
const MIN_KEY_RUN: usize = 32;

/// Finds the secrets in a text. The ranges are in order and do not overlap.
pub fn find_secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = secrets_in_bytes(text.as_bytes());
    for range in &mut found {
        // Rules match bytes, so a range may end inside a character.
        *range = text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
    }
    found
}

/// Replaces each range with [`REDACTED`]. The ranges must be in order and must not overlap.
pub fn redact_ranges(text: &str, ranges: &[Range<usize>]) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        redacted.push_str(&text[from..range.start]);
        redacted.push_str(REDACTED);
        from = range.end;
    }
    redacted.push_str(&text[from..]);
    redacted
}

/// Checks a path or the target of a symbolic link for secrets: the whole text, and each of its parts.
pub fn check_name(name: &str) -> Option<GuardReason> {
    let parts = std::iter::once(name).chain(name.split('/'));
    let mut rules = parts.filter_map(|part| {
        let found = content_scan::scan("", part.as_bytes());
        let blocks = found
            .iter()
            .filter(|finding| finding.confidence != Confidence::Possible);
        content_scan::first_by_rule(blocks).map(|finding| finding.rule)
    });
    let rule = rules.next()?;
    Some(GuardReason::Content(rule.category, rule.label))
}

/// Returns the line, counted from 1, of the secret that `reason` reports. Returns `None` for reasons that do
/// not refer to a line.
pub fn finding_line(
    path: &str,
    before: &[u8],
    after: &[u8],
    reason: &GuardReason,
) -> Option<usize> {
    let GuardReason::Content(_, label) = reason else {
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
            .filter(|finding| finding.rule.label == *label && !known.contains(&*finding.secret)),
    )?;
    let newlines = after[..finding.range.start]
        .iter()
        .filter(|byte| **byte == b'\n');
    Some(newlines.count() + 1)
}

/// Finds the secrets in a text as byte ranges.
fn secrets_in_bytes(text: &[u8]) -> Vec<Range<usize>> {
    if text.len() < MIN_TEXT_LEN {
        return Vec::new();
    }
    let RedactionScan {
        mut secrets,
        loose_matches: mut found,
        key_boundaries,
    } = content_scan::scan_for_redaction(text);
    // All secrets in one run of base64 have the range of that run.
    secrets.sort();
    secrets.dedup();
    for SecretRange {
        is_armored_key,
        start,
        end,
    } in secrets
    {
        if is_armored_key {
            // Redacted run by run, because the range may include quotes of JSON.
            push_key_runs(text, start..end, &mut found);
        } else {
            found.push(clip_at_quote(text, start..end));
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
    push_private_keys(text, &key_boundaries, &mut found);
    merge_ranges(text, found)
}

/// Adds private keys from their first to their last line. Without a last line, adds the base64 runs that
/// follow.
fn push_private_keys(text: &[u8], boundaries: &[KeyBoundary], found: &mut Vec<Range<usize>>) {
    let mut ends = boundaries
        .iter()
        .filter(|boundary| !boundary.is_begin)
        .peekable();
    let mut done = 0;
    for begin in boundaries.iter().filter(|boundary| boundary.is_begin) {
        let Range { start, end } = begin.range;
        if start < done {
            continue;
        }
        while ends.next_if(|last| last.range.start < end).is_some() {}
        let limit = start + MAX_KEY_LEN;
        done = match ends.peek().filter(|last| last.range.start < limit) {
            Some(last) => {
                found.push(start..last.range.end);
                last.range.end
            }
            None => {
                let rest = end..limit.min(text.len());
                let next = matchers::find(&text[rest.clone()], b"-----");
                let end = next.map_or(rest.end, |next| rest.start + next);
                push_key_runs(text, rest.start..end, found);
                end
            }
        };
    }
}

/// Adds the long runs of base64 in a range. A letter after a backslash belongs to the escape before it.
fn push_key_runs(text: &[u8], range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut start = range.start;
    for part in text[range].split(|byte| !is_base64(*byte)) {
        let end = start + part.len();
        let escaped = usize::from(start > 0 && text[start - 1] == b'\\');
        if part.len() >= MIN_KEY_RUN + escaped {
            found.push(start + escaped..end);
        }
        start = end + 1;
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// Ends the range at a quote, because the next field of a JSON line is not part of the secret.
fn clip_at_quote(text: &[u8], range: Range<usize>) -> Range<usize> {
    let secret = &text[range.clone()];
    match secret.iter().position(|byte| *byte == b'"') {
        Some(quote) => {
            let inside = secret[..quote].iter().rposition(|byte| *byte != b'\\');
            range.start..range.start + inside.map_or(0, |last| last + 1)
        }
        None => range,
    }
}

/// Sorts ranges, merges overlapping ones, and extends each to the end of its word, because rules read a
/// bounded number of bytes only.
fn merge_ranges(text: &[u8], mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
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

/// Tracker of a private key that is printed line by line.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrivateKeyTracker {
    /// Maximum number of bytes left in the current key. 0 outside of a key.
    bytes_left: usize,
}

impl PrivateKeyTracker {
    /// Processes the next line. Returns whether it is part of a key that began in an earlier line.
    pub fn feed_line(&mut self, line: &str) -> bool {
        let bytes = line.as_bytes();
        let is_part = self.bytes_left > 0 && is_key_line(bytes);
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() + 1);
        match matchers::last_key_boundary(bytes) {
            Some(KeyBoundary { is_begin: true, .. }) => self.bytes_left = MAX_KEY_LEN,
            Some(_) => self.bytes_left = 0,
            None => {}
        }
        is_part
    }
}

/// Returns whether the line contains a long run of base64 or consists of base64 only.
fn is_key_line(line: &[u8]) -> bool {
    let mut parts = line.split(|byte| !is_base64(*byte));
    let whole = line.trim_ascii();
    let is_last =
        !whole.is_empty() && whole.len().is_multiple_of(4) && whole.iter().copied().all(is_base64);
    is_last || parts.any(|part| part.len() >= MIN_KEY_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted_parts(text: &str) -> Vec<&str> {
        let ranges = find_secrets(text);
        ranges.into_iter().map(|range| &text[range]).collect()
    }

    /// Returns text that looks like a random token.
    fn random_token(length: usize) -> String {
        let word = "Zq7LkT9mWx2Vr8NpYc5HdJfBsGhAuEiC3oDy6Xt1";
        word.chars().cycle().take(length).collect()
    }

    #[test]
    fn finds_the_secrets_that_the_guard_blocks() {
        let hex = "0a9f8e7d6c5b4a39281706f5e4d3c2b1";
        for secret in [
            format!("sk_live_{}", random_token(24)),
            format!("glpat-{}", random_token(20)),
            format!("npm_{}", random_token(36)),
            format!("hf_{}", random_token(34)),
            format!("SG.{}.{}", random_token(22), random_token(43)),
            format!("dop_v1_{hex}{hex}"),
        ] {
            let text = format!("The key is {secret}, as requested.");
            assert_eq!(redacted_parts(&text), [secret.as_str()], "{text}");
        }
        let random = format!("password = \"{}\"", random_token(32));
        assert_eq!(redacted_parts(&random), [random_token(32)]);
        let possible = format!("row_key = \"{}\"", random_token(32));
        assert!(
            redacted_parts(&possible).is_empty(),
            "a possible secret is not redacted"
        );
    }

    #[test]
    fn redacts_a_token_to_its_end_and_keeps_json_fields() {
        let long = random_token(4_000);
        let text = format!("machine api.shop.net login me password {long} and more");
        assert_eq!(redacted_parts(&text), [long.as_str()]);
        let line = format!(
            r#"machine api.shop.net login me password {0}","b":"-----BEGIN PRIVATE KEY-----\n{1}\n{1}","c":1}}"#,
            random_token(12),
            random_token(64)
        );
        assert_eq!(
            redacted_parts(&line),
            [random_token(12), random_token(64), random_token(64)]
        );
    }

    #[test]
    fn redacts_a_key_without_a_last_line() {
        let begin = ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat();
        let body = vec![random_token(64); 200].join("\n");
        let text = format!("{begin}\n{body}\nand so on");
        let redacted = redacted_parts(&text);
        assert_eq!(redacted.len(), 200);
        let mut key = PrivateKeyTracker::default();
        let shown: Vec<&str> = text.lines().filter(|line| !key.feed_line(line)).collect();
        assert_eq!(shown, [begin.as_str(), "and so on"]);
    }
}
