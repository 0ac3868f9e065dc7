//! Taking secrets out of text before anybody sees it.
//!
//! Two nets: the exact values we know, in the encodings they travel in, and everything that the
//! sensitive-file guard would block by its content ([`secrets_in`]). A text goes through
//! [`Redactor::redact`]; lines that come one by one through [`RedactLines`], which knows of a private
//! key that began in an earlier one.

use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use data_encoding::{BASE64, BASE64URL, HEXLOWER};

use super::percent_encode;
use domain::sensitive_files::{PrivateKeyTracker, REDACTED, find_secrets, redact_ranges};

/// How often may a secret be escaped on its way into a line, and still be known?
const NESTED: usize = 4;

/// How many characters of a vendor's words do we keep?
const EXCERPT_CHARS: usize = 500;

/// Shorter values are words of everyday text; taking them out would hide more than it protects.
const SHORTEST_SECRET: usize = 6;

/// Shorter lines of a known value of many lines are not looked for by themselves.
const SHORTEST_LINE: usize = 16;

/// Knows what must not be seen. Clones share it.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<Arc<AhoCorasick>>,
}

impl Redactor {
    /// Knows these values, and the same in base64, hexadecimal, URL encoding and as JSON text.
    /// Of a value of many lines each line is known as well. Values of fewer than 6 bytes are left
    /// alone.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms: Vec<String> = secrets
            .into_iter()
            .map(str::trim)
            .filter(|secret| secret.len() >= SHORTEST_SECRET)
            .flat_map(|secret| forms(secret).into_iter().chain(lines(secret)))
            .collect();
        forms.sort();
        forms.dedup();
        let values = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            // Of one private key, a table of all states would be eleven megabytes.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&forms);
        match values {
            Ok(values) if !forms.is_empty() => Self {
                known: Some(Arc::new(values)),
            },
            _ => Self::default(),
        }
    }

    /// Whether one of the known values stands in the text, in any of its encodings.
    pub fn contains_known_secret(&self, text: &[u8]) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.is_match(text))
    }

    /// Whether there is nothing to be taken out of a text.
    pub fn is_clean(&self, text: &str) -> bool {
        self.spans(text).is_empty()
    }

    /// The text with every secret replaced by [`MARK`].
    pub fn redact(&self, text: &str) -> String {
        redact_ranges(text, &self.spans(text))
    }

    /// The same of a text that is given away, which is mostly the text itself.
    pub fn redact_owned(&self, text: String) -> String {
        match self.spans(&text) {
            spans if spans.is_empty() => text,
            spans => redact_ranges(&text, &spans),
        }
    }

    /// The first line or two of what a vendor said: redacted, folded to one line, cut.
    pub fn excerpt(&self, text: &str) -> String {
        // Redaction comes first: a cut token has no shape any more.
        let folded = self
            .redact(text)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        match folded.char_indices().nth(EXCERPT_CHARS) {
            Some((end, _)) => format!("{}…", &folded[..end]),
            None => folded,
        }
    }

    /// Text that comes line by line.
    pub fn line_redactor(&self) -> LineRedactor {
        LineRedactor {
            redactor: self.clone(),
            key: PrivateKeyTracker::default(),
        }
    }

    /// Where secrets stand, in order and without overlap.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        if text.len() < SHORTEST_SECRET {
            return Vec::new();
        }
        let mut spans = find_secrets(text);
        let known = self.known.iter().flat_map(|known| known.find_iter(text));
        spans.extend(known.map(|found| found.range()));
        spans.sort_by_key(|span| span.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        merged
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

/// Redacts text that comes line by line, at the cost of each line alone.
pub struct LineRedactor {
    redactor: Redactor,
    key: PrivateKeyTracker,
}

impl LineRedactor {
    /// The next line, without its end. A line of a private key is hidden whole.
    pub fn redact(&mut self, line: &str) -> String {
        if self.key.feed_line(line) {
            return REDACTED.to_owned();
        }
        self.redactor.redact(line)
    }
}

/// The lines of a value that has several: a log shows them one by one. The frame of a key is no secret.
fn lines(secret: &str) -> impl Iterator<Item = String> {
    let lines = secret.lines().map(str::trim);
    lines
        .filter(|line| line.len() >= SHORTEST_LINE && !line.starts_with("-----"))
        .map(str::to_owned)
}

/// The encodings in which a secret may show up.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![
        secret.to_owned(),
        HEXLOWER.encode(secret.as_bytes()),
        percent_encode(secret),
    ];
    // What a shell or JSON makes of line breaks and quotes, and JSON of JSON: a vendor's answer in a
    // line of the log.
    let mut escaped = secret.to_owned();
    for _ in 0..NESTED {
        escaped = in_json(&escaped);
        forms.push(escaped.clone());
    }
    for shift in 0..3 {
        forms.push(base64_core(secret, shift, &BASE64));
        forms.push(base64_core(secret, shift, &BASE64URL));
    }
    forms.retain(|form| form.len() >= SHORTEST_SECRET);
    forms
}

/// A text as it stands between the quotes of a JSON string.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.get(1..quoted.len() - 1);
    inner.unwrap_or_default().to_owned()
}

/// The part of the base64 of a longer text that depends on the secret only, when the secret
/// stands at an offset of `shift` modulo 3 in it.
fn base64_core(secret: &str, shift: usize, encoding: &data_encoding::Encoding) -> String {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(secret.as_bytes());
    let whole = encoding.encode(&bytes);
    let whole = whole.trim_end_matches('=');
    let start = [0, 2, 3][shift];
    // The last character carries bits of what follows, unless the bytes fill it.
    let end = whole.len() - usize::from(!bytes.len().is_multiple_of(3));
    whole.get(start..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
