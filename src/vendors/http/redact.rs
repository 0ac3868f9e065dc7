//! Redaction of secrets in text.
//!
//! Two kinds of secrets are redacted: known values in all common encodings, and everything that the
//! sensitive-file guard would block by content ([`find_secrets`]). Use [`Redactor::redact`] for a whole text
//! and [`LineRedactor`] for a stream of lines, because a private key may span several lines.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use data_encoding::{BASE64, BASE64URL, HEXLOWER};
use memchr::memmem;

use super::percent_encode;
use domain::evidence::EvidenceRedactor;
use domain::sanitize;
use domain::sensitive_files::{PrivateKeyTracker, REDACTED, find_secrets, redact_ranges};

/// Maximum number of nested JSON escapes in which a known value is recognized.
const MAX_ESCAPE_DEPTH: usize = 4;

/// Maximum length of an excerpt, in characters.
const EXCERPT_CHARS: usize = 500;

/// Minimum length, in bytes, of a known value. Shorter values occur in ordinary text.
const MIN_SECRET_LEN: usize = 6;

/// Minimum length, in bytes, of a line of a multi-line value that is redacted by itself.
const MIN_LINE_LEN: usize = 16;

/// Redactor of known values and detected secrets. Clones share the known values, also those learned later.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<KnownValues>>,
}

/// Known values in all encodings.
#[derive(Clone, Default)]
struct KnownValues {
    forms: BTreeSet<String>,
    /// Secrets that their issuer replaces, by a name: the current value and the one before it.
    replaceable: BTreeMap<&'static str, [String; 2]>,
    matcher: Option<Arc<AhoCorasick>>,
}

impl KnownValues {
    fn add<'a>(&mut self, secrets: impl IntoIterator<Item = &'a str>) {
        let count = self.forms.len();
        self.forms.extend(secrets.into_iter().flat_map(forms));
        if self.forms.len() != count {
            self.build_matcher();
        }
    }

    fn is_current(&self, name: &str, value: &str) -> bool {
        let known = self.replaceable.get(name);
        known.is_some_and(|[current, _]| current == value)
    }

    fn replace(&mut self, name: &'static str, value: &str) {
        let [current, before] = self.replaceable.entry(name).or_default();
        *before = std::mem::replace(current, value.to_owned());
        self.build_matcher();
    }

    fn build_matcher(&mut self) {
        let replaceable: Vec<String> = { self.replaceable.values().flatten() }
            .flat_map(|secret| forms(secret))
            .collect();
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            // A DFA for one private key would take 11 MB.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(self.forms.iter().chain(&replaceable));
        self.matcher = built.ok().map(Arc::new);
    }
}

/// Returns the forms in which a secret is recognized. None if it is too short.
fn forms(secret: &str) -> Vec<String> {
    let secret = secret.trim();
    match secret.len() >= MIN_SECRET_LEN {
        true => { encoded_forms(secret).into_iter() }
            .chain(long_lines(secret))
            .collect(),
        false => Vec::new(),
    }
}

impl Redactor {
    /// Creates a redactor for these values, also in base64, hexadecimal, percent-encoding and JSON escapes.
    /// Each line of a multi-line value is redacted as well. Values of fewer than 6 bytes are ignored.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Adds known values to this redactor and all its clones. Values are never removed.
    pub fn learn<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.add(secrets);
    }

    /// Adds the current value of a secret that its issuer replaces, such as an hourly token. The value before it stays
    /// known. Earlier ones have expired and are forgotten, so that the redactor does not grow.
    pub fn learn_current(&self, name: &'static str, value: &str) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_current(name, value) {
            return;
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !known.is_current(name, value) {
            known.replace(name, value);
        }
    }

    /// Creates a separate redactor for the values of this one and for further ones.
    pub fn with<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut known = KnownValues::clone(&known);
        known.add(secrets);
        Self {
            known: Arc::new(RwLock::new(known)),
        }
    }

    fn matcher(&self) -> Option<Arc<AhoCorasick>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.matcher.clone()
    }

    /// Returns whether the text contains a known value in any of its encodings.
    pub fn contains_known_secret(&self, text: &[u8]) -> bool {
        self.matcher().is_some_and(|known| known.is_match(text))
    }

    /// Returns whether a change adds a known value, in any of its encodings, to a text that did not contain it.
    pub fn adds_known_secret(&self, before: &[u8], after: &[u8]) -> bool {
        let Some(known) = self.matcher() else {
            return false;
        };
        let mut values_before = HashSet::new();
        let mut from = 0;
        // The search continues within a match, because a new value may overlap one that is not new.
        while let Some(found) = known.find(Input::new(after).range(from..)) {
            let value = &after[found.range()];
            if values_before.insert(value) && memmem::find(before, value).is_none() {
                return true;
            }
            from = found.start() + 1;
        }
        false
    }

    /// Returns whether the text contains no secret.
    pub fn is_clean(&self, text: &str) -> bool {
        self.spans(text).is_empty()
    }

    /// Replaces every secret in a text with [`REDACTED`].
    pub fn redact(&self, text: &str) -> String {
        redact_ranges(text, &self.spans(text))
    }

    /// Like [`Redactor::redact`], without a copy if the text contains no secret.
    pub fn redact_owned(&self, text: String) -> String {
        match self.spans(&text) {
            spans if spans.is_empty() => text,
            spans => redact_ranges(&text, &spans),
        }
    }

    /// Returns a redacted excerpt on one line, at most 500 characters long.
    pub fn excerpt(&self, text: &str) -> String {
        // Redact before cutting: a cut token no longer matches its format.
        let line = self.sanitize_with(text, sanitize::single_line);
        sanitize::truncate_chars(line, EXCERPT_CHARS, sanitize::ELLIPSIS).into_owned()
    }

    /// Redacts secrets and removes invisible characters.
    pub fn sanitize(&self, text: &str) -> String {
        self.sanitize_with(text, sanitize::strip_invisible)
    }

    /// Redacts secrets and applies a sanitizer. Without invisible characters, the halves of a secret may form
    /// the secret again, so the result is redacted as well.
    pub fn sanitize_with(&self, text: &str, sanitizer: fn(&str) -> Cow<'_, str>) -> String {
        let redacted = self.redact(text);
        let sanitized = match sanitizer(&redacted) {
            Cow::Owned(sanitized) => Some(sanitized),
            Cow::Borrowed(part) if part.len() < redacted.len() => Some(part.to_owned()),
            Cow::Borrowed(_) => None,
        };
        sanitized.map_or(redacted, |text| self.redact_owned(text))
    }

    /// Creates a redactor for a stream of lines.
    pub fn line_redactor(&self) -> LineRedactor {
        LineRedactor::resume(self, PrivateKeyTracker::default())
    }

    /// Finds all secrets. The ranges are in order and do not overlap.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        if text.len() < MIN_SECRET_LEN {
            return Vec::new();
        }
        let mut spans = find_secrets(text);
        if let Some(known) = self.matcher() {
            spans.extend(known.find_iter(text).map(|found| found.range()));
        }
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

impl EvidenceRedactor for Redactor {
    fn sanitize(&self, text: &str) -> String {
        Redactor::sanitize(self, text)
    }

    fn contains_secret(&self, bytes: &[u8]) -> bool {
        self.contains_known_secret(bytes)
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

/// Redactor of a stream of lines. Tracks private keys that span several lines.
pub struct LineRedactor {
    redactor: Redactor,
    key: PrivateKeyTracker,
}

/// Redacted line of program output, without invisible characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedLine {
    /// Text without colors.
    pub plain: String,
    /// Text with its colors (SGR sequences).
    pub styled: String,
}

impl LineRedactor {
    /// Continues the stream of another redactor.
    pub fn resume(redactor: &Redactor, key: PrivateKeyTracker) -> Self {
        Self {
            redactor: redactor.clone(),
            key,
        }
    }

    /// Private key that the next line may continue.
    pub fn private_key(&self) -> PrivateKeyTracker {
        self.key
    }

    /// Redacts and sanitizes the next line of program output, given without its line break.
    pub fn redact_output(&mut self, line: &str) -> RedactedLine {
        let redacted = self.redact(line);
        let plain = self.redactor.sanitize_with(&redacted, sanitize::log_line);
        // A color between the halves of a secret hides it from the redactor, but not from the reader.
        let styled = sanitize::styled_log_line(&redacted);
        let styled = match sanitize::log_line(&styled) == plain {
            true => styled.into_owned(),
            false => plain.clone(),
        };
        RedactedLine { plain, styled }
    }

    /// Redacts the next line, given without its line break. A line inside a private key is redacted
    /// completely.
    pub fn redact(&mut self, line: &str) -> String {
        if self.key.feed_line(line) {
            return REDACTED.to_owned();
        }
        self.redactor.redact(line)
    }
}

/// Returns the lines of a multi-line value, which a log shows separately. PEM boundaries are not secret.
fn long_lines(secret: &str) -> impl Iterator<Item = String> {
    let lines = secret.lines().map(str::trim);
    lines
        .filter(|line| line.len() >= MIN_LINE_LEN && !line.starts_with("-----"))
        .map(str::to_owned)
}

/// Returns the secret in the encodings in which it may occur.
fn encoded_forms(secret: &str) -> Vec<String> {
    let mut forms = vec![
        secret.to_owned(),
        HEXLOWER.encode(secret.as_bytes()),
        percent_encode(secret),
    ];
    // JSON escapes of line breaks and quotes, also nested: a log line may contain a vendor's response.
    let mut escaped = secret.to_owned();
    for _ in 0..MAX_ESCAPE_DEPTH {
        escaped = json_escape(&escaped);
        forms.push(escaped.clone());
    }
    for shift in 0..3 {
        forms.push(base64_core(secret, shift, &BASE64));
        forms.push(base64_core(secret, shift, &BASE64URL));
    }
    forms.retain(|form| form.len() >= MIN_SECRET_LEN);
    forms
}

/// Escapes a text as in a JSON string, without the quotes.
fn json_escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.get(1..quoted.len() - 1);
    inner.unwrap_or_default().to_owned()
}

/// Returns the part of the base64 encoding of a longer text that depends on the secret only, for a secret at
/// an offset of `shift` modulo 3.
fn base64_core(secret: &str, shift: usize, encoding: &data_encoding::Encoding) -> String {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(secret.as_bytes());
    let whole = encoding.encode(&bytes);
    let whole = whole.trim_end_matches('=');
    let start = [0, 2, 3][shift];
    // The last character includes bits of the text that follows, unless the bytes fill it.
    let end = whole.len() - usize::from(!bytes.len().is_multiple_of(3));
    whole.get(start..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
