//! Content scan: finds secrets by format, by name and by context.
//!
//! One pass of a keyword automaton finds the places where a rule may match. A rule then reads a bounded
//! number of bytes, or reuses what was read for an earlier keyword. The cost per byte is therefore constant
//! for any content, and line length is not limited. Known formats, random values next to a vendor's name,
//! and values of settings whose name indicates a secret block a push. In source code, randomness alone never
//! blocks.

use std::borrow::Cow;
use std::ops::Range;

use super::decoded_view;
use super::matchers::KeyBoundary;
use super::rules::{Rule, RuleKind};
use super::scan_pass::{ScanMode, ScanPass};
use super::scanner::SCANNER;

/// Minimum length, in bytes, of a text whose decoded views are scanned on a second thread.
const PARALLEL_THRESHOLD: usize = 64 << 10;

/// Secret found by a rule.
#[derive(Debug, Clone)]
pub(super) struct SecretMatch<'t> {
    /// Rule that matched.
    pub rule: &'static Rule,
    /// Range of the secret in the scanned text, or of the text that encodes it.
    pub range: Range<usize>,
    /// Decoded secret.
    pub secret: Cow<'t, [u8]>,
    /// Confidence that the match is a secret.
    pub confidence: Confidence,
    /// Index of the rule in the order of all rules. Lower indexes are reported first.
    pub rule_index: usize,
}

/// Confidence that a match is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Confidence {
    /// Produces a warning.
    Possible,
    /// Blocks, except in test files.
    Likely,
    /// Blocks in all files.
    Certain,
}

/// Finds all secrets in a file: in plain text, behind escapes, and in base64.
pub(super) fn scan<'t>(path: &'t str, text: &'t [u8]) -> Vec<SecretMatch<'t>> {
    scan_until(path, text, |_| false)
}

/// Like [`scan`], but stops shortly after the first match that `enough` accepts.
pub(super) fn scan_until<'t>(
    path: &'t str,
    text: &'t [u8],
    enough: impl Fn(&SecretMatch<'_>) -> bool + Sync,
) -> Vec<SecretMatch<'t>> {
    let scan_plain = || ScanPass::run(path, text, ScanMode::File, &enough).matches;
    let decoded = || {
        let mut found = Vec::new();
        scan_decoded(path, text, |finding, range| {
            found.push(SecretMatch {
                // Borrow when the view contains an unchanged copy of the source.
                secret: match &text[range.clone()] {
                    copied if *copied == *finding.secret => Cow::Borrowed(copied),
                    _ => Cow::Owned(finding.secret.into_owned()),
                },
                range,
                rule: finding.rule,
                confidence: finding.confidence,
                rule_index: finding.rule_index,
            });
        });
        found
    };
    if text.len() < PARALLEL_THRESHOLD {
        let mut found = scan_plain();
        if !found.iter().any(&enough) {
            found.extend(decoded());
        }
        return found;
    }
    let (mut found, decoded) = run_in_parallel(scan_plain, decoded);
    found.extend(decoded);
    found
}

/// Result of a scan for redaction.
pub(super) struct RedactionScan {
    /// Secrets that the guard would report in a file.
    pub secrets: Vec<SecretRange>,
    /// Matches of the looser credential formats.
    pub loose_matches: Vec<Range<usize>>,
    /// First and last lines of private keys.
    pub key_boundaries: Vec<KeyBoundary>,
}

/// Range of a secret in the scanned text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SecretRange {
    /// Whether the secret is a private key in PEM armor.
    pub is_armored_key: bool,
    /// First byte.
    pub start: usize,
    /// Byte after the last one.
    pub end: usize,
}

/// Finds the secrets to redact in a text. Matches with [`Confidence::Possible`] are left out.
pub(super) fn scan_for_redaction(text: &[u8]) -> RedactionScan {
    let to_range = |finding: &SecretMatch<'_>, range: Range<usize>| {
        (finding.confidence != Confidence::Possible).then_some(SecretRange {
            is_armored_key: finding.rule.kind == RuleKind::ArmoredKey,
            start: range.start,
            end: range.end,
        })
    };
    let scan_plain = || ScanPass::run("", text, ScanMode::Redaction, |_| false);
    let decoded = || {
        let mut found = Vec::new();
        scan_decoded("", text, |finding, range| {
            found.extend(to_range(&finding, range))
        });
        found
    };
    let (pass, decoded) = match text.len() < PARALLEL_THRESHOLD {
        true => (scan_plain(), decoded()),
        false => run_in_parallel(scan_plain, decoded),
    };
    let mut found: Vec<SecretRange> = pass
        .matches
        .iter()
        .filter_map(|finding| to_range(finding, finding.range.clone()))
        .collect();
    found.extend(decoded);
    RedactionScan {
        secrets: found,
        loose_matches: pass.loose_matches,
        key_boundaries: pass.key_boundaries,
    }
}

/// Runs both closures in parallel, or one after the other if no thread can be started.
fn run_in_parallel<A, B: Send>(one: impl FnOnce() -> A, other: impl Fn() -> B + Sync) -> (A, B) {
    std::thread::scope(|scope| {
        let other = &other;
        let thread = std::thread::Builder::new().spawn_scoped(scope, other);
        let one = one();
        let result = thread.ok().and_then(|thread| thread.join().ok());
        (one, result.unwrap_or_else(other))
    })
}

/// Returns the match whose rule comes first in the order of all rules.
pub(super) fn first_by_rule<'f, 't>(
    found: impl Iterator<Item = &'f SecretMatch<'t>>,
) -> Option<&'f SecretMatch<'t>>
where
    't: 'f,
{
    found.min_by_key(|finding| (finding.rule_index, finding.range.start, finding.range.end))
}

/// Calls `found` for every secret behind escapes or in base64, with its range in the source text.
fn scan_decoded(path: &str, text: &[u8], mut found: impl FnMut(SecretMatch<'_>, Range<usize>)) {
    for view in &decoded_view::decoded_views(text) {
        let matches = ScanPass::run(path, view.text(), ScanMode::Decoded(view), |_| false).matches;
        let keys = view
            .binary_keys()
            .map(|range| SecretMatch::binary_key(range, view.text()));
        let mut last_piece = 0;
        for finding in matches.into_iter().chain(keys) {
            let range = match view.verbatim_source_start(0, &finding.range, &mut last_piece) {
                Some(start) => Some(start..start + finding.range.len()),
                None => view.source_range(&finding.range),
            };
            if let Some(range) = range {
                found(finding, range);
            }
        }
    }
}

impl<'t> SecretMatch<'t> {
    /// Creates a match for binary key material at `range` of a decoded view.
    fn binary_key(range: Range<usize>, text: &'t [u8]) -> Self {
        let rule_index = SCANNER.first_rule_of(RuleKind::ArmoredKey);
        SecretMatch {
            rule: SCANNER.rules[rule_index],
            secret: Cow::Borrowed(&text[range.clone()]),
            range,
            confidence: Confidence::Certain,
            rule_index,
        }
    }
}

/// Returns all keywords, sorted.
#[cfg(test)]
pub(super) fn keywords() -> Vec<Vec<u8>> {
    let mut keywords: Vec<Vec<u8>> = SCANNER.keyword_texts.clone();
    keywords.sort();
    keywords
}

/// Returns the number of bytes that rules read in addition to the automaton.
#[cfg(test)]
pub(super) fn step_count(text: &[u8]) -> usize {
    ScanPass::run("", text, ScanMode::File, |_| false)
        .runs
        .steps
}
