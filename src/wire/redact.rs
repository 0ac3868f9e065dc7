//! Taking secrets out of text before anybody sees it.
//!
//! Two nets: the exact values we know, in the encodings they travel in, and the shapes of
//! credentials that vendors publish. A whole text goes through [`Redactor::redact`]; a stream in
//! chunks through [`RedactStream`], which cuts no secret in two.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use data_encoding::{BASE64, BASE64URL, HEXLOWER};
use regex::Regex;

use super::url_encoded;

/// What stands where a secret stood.
pub const MARK: &str = "[redacted]";

/// How often may a secret be escaped on its way into a line, and still be known?
const NESTED: usize = 4;

/// How many characters of a vendor's words do we keep?
const EXCERPT_CHARS: usize = 500;

/// Shorter values are words of everyday text; taking them out would hide more than it protects.
const SHORTEST_SECRET: usize = 6;

/// How long may a key block stay open before we take its beginning for an accident?
const LONGEST_KEY_BLOCK: usize = 16 << 10;

/// How much unbroken text does a stream hold back at most?
const LONGEST_LINE: usize = 64 << 10;

/// Credentials by shape. Word boundaries are those of ASCII, and there is no group: both would make
/// the search many times slower.
const SHAPES: &str = concat!(
    r"(?s:-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)",
    r"|(?-u:\b)gh[opsur]_[A-Za-z0-9._-]{20,}",
    r"|(?-u:\b)github_pat_[A-Za-z0-9_]{20,}",
    r"|(?-u:\b)lin_(?:api|oauth|wh)_[A-Za-z0-9_]{16,}",
    r"|(?-u:\b)sk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}",
    r"|(?-u:\b)(?:AKIA|ASIA)[A-Z0-9]{16}(?-u:\b)",
    r"|(?-u:\b)xox[a-z]-[A-Za-z0-9-]{10,}",
    r"|(?-u:\b)ATATT[A-Za-z0-9_=-]{20,}",
    r"|(?-u:\b)AIza[A-Za-z0-9_-]{35}",
    r"|(?-u:\b)(?:FlyV1 )?fm[12][a-z]?_[A-Za-z0-9+/=_-]{20,}",
    r"|https://hooks\.slack(?:-gov)?\.com/[A-Za-z0-9/_-]+",
    r"|(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}",
    r"|(?-u:\b)[a-z][a-z0-9+.-]*://[^\s/@:]*:[^\s/@]+@",
);

#[expect(clippy::unwrap_used, reason = "the pattern is a constant and tested")]
static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new(SHAPES).unwrap());

/// Knows what must not be seen. Clones share it.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<Arc<Known>>,
}

struct Known {
    values: AhoCorasick,
    /// Length in bytes of the longest known value that spans lines.
    longest_multiline: usize,
}

impl Redactor {
    /// Knows these values, and the same in base64, hexadecimal, URL encoding and as JSON text.
    /// Values of fewer than 6 bytes are left alone.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms: Vec<String> = secrets
            .into_iter()
            .map(str::trim)
            .filter(|secret| secret.len() >= SHORTEST_SECRET)
            .flat_map(forms)
            .collect();
        forms.sort();
        forms.dedup();
        let longest_multiline = forms
            .iter()
            .filter(|form| form.contains('\n'))
            .map(String::len)
            .max()
            .unwrap_or_default();
        let values = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            // Of one private key, a table of all states would be eleven megabytes.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&forms);
        match values {
            Ok(values) if !forms.is_empty() => Self {
                known: Some(Arc::new(Known {
                    values,
                    longest_multiline,
                })),
            },
            _ => Self::default(),
        }
    }

    /// Whether one of the known values stands in the text, in any of its encodings.
    pub fn finds_known(&self, text: &[u8]) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.values.is_match(text))
    }

    /// Whether there is nothing to be taken out of a text.
    pub fn is_clean(&self, text: &str) -> bool {
        self.spans(text).is_empty()
    }

    /// The text with every secret replaced by [`MARK`].
    pub fn redact(&self, text: &str) -> String {
        replace(text, &self.spans(text))
    }

    /// The same of a text that is given away, which is mostly the text itself.
    pub fn redacted(&self, text: String) -> String {
        match self.spans(&text) {
            spans if spans.is_empty() => text,
            spans => replace(&text, &spans),
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

    /// A stream of text that is redacted as it comes.
    pub fn stream(&self) -> RedactStream {
        RedactStream {
            redactor: self.clone(),
            held: String::new(),
        }
    }

    /// Where secrets stand, in order and without overlap.
    fn spans(&self, text: &str) -> Vec<Range<usize>> {
        let shapes = PATTERN
            .find_iter(text)
            .map(|found| found.start() + scheme(found.as_str())..found.end());
        let known = self
            .known
            .iter()
            .flat_map(|known| known.values.find_iter(text))
            .map(|found| found.range());
        let mut spans: Vec<Range<usize>> = shapes.chain(known).collect();
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

/// Redacts text that comes in chunks. It holds back an unfinished line, and an unfinished key
/// block, until it is known what they are.
pub struct RedactStream {
    redactor: Redactor,
    held: String,
}

impl RedactStream {
    /// Takes a chunk and gives back what is safe to show already.
    pub fn push(&mut self, chunk: &str) -> String {
        self.held.push_str(chunk);
        let spans = self.redactor.spans(&self.held);
        let mut cut = self.safe_cut();
        for span in &spans {
            if span.contains(&cut) {
                cut = span.start;
            }
        }
        let spans: Vec<_> = spans.into_iter().filter(|span| span.end <= cut).collect();
        let shown = replace(&self.held[..cut], &spans);
        self.held.drain(..cut);
        shown
    }

    /// Gives back the rest.
    pub fn finish(self) -> String {
        let open_key = open_key_block(&self.held);
        let rest = self.redactor.redact(&self.held[..open_key]);
        if open_key < self.held.len() {
            // The end never came: a key that was cut is still a key.
            rest + MARK
        } else {
            rest
        }
    }

    fn safe_cut(&self) -> usize {
        let multiline = self
            .redactor
            .known
            .as_ref()
            .map_or(0, |known| known.longest_multiline);
        let end = self
            .held
            .floor_char_boundary(self.held.len().saturating_sub(multiline));
        let line_end = self.held[..end].rfind('\n').map_or(0, |at| at + 1);
        let unbroken = self.held.len() - line_end;
        let cut = if unbroken > LONGEST_LINE + multiline {
            self.held
                .floor_char_boundary(end.saturating_sub(LONGEST_LINE / 2))
        } else {
            line_end
        };
        cut.min(open_key_block(&self.held))
    }
}

/// How much of a credential may stay visible: the scheme of a URL that holds a password. No other
/// shape ends as it does.
fn scheme(credential: &str) -> usize {
    const END: &str = "://";
    match credential.find(END) {
        Some(at) if credential.ends_with('@') => at + END.len(),
        _ => 0,
    }
}

/// Where a private key begins that has not ended yet; the text's end if there is none.
fn open_key_block(text: &str) -> usize {
    let Some(begin) = text.rfind("-----BEGIN ") else {
        return text.len();
    };
    let block = &text[begin..];
    let is_key = block
        .lines()
        .next()
        .is_some_and(|line| line.contains("PRIVATE KEY"));
    let is_closed = block
        .split_once("-----END ")
        .is_some_and(|(_, end)| end.contains("-----"));
    if is_key && !is_closed && block.len() < LONGEST_KEY_BLOCK {
        begin
    } else {
        text.len()
    }
}

fn replace(text: &str, spans: &[Range<usize>]) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut from = 0;
    for span in spans {
        clean.push_str(&text[from..span.start]);
        clean.push_str(MARK);
        from = span.end;
    }
    clean.push_str(&text[from..]);
    clean
}

/// The encodings in which a secret may show up.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![
        secret.to_owned(),
        HEXLOWER.encode(secret.as_bytes()),
        url_encoded(secret),
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
