//! Secrets by their shape, wherever in a file they stand.
//!
//! One pass of a keyword automaton finds where a rule may match at all; what a rule then looks at is
//! bounded, or remembered from the keyword before. So a file costs the same per byte, whatever it
//! holds, and no line is too long. In a program a mere "this looks random" never blocks; formats do, random
//! values under a vendor's name, and what settings call a secret.

use std::borrow::Cow;
use std::ops::Range;

use super::decoded_view;
use super::matchers::KeyBoundary;
use super::rules::{Rule, RuleKind};
use super::scan_pass::{ScanMode, ScanPass};
use super::scanner::SCANNER;

/// What was decoded is read on a thread of its own in texts of so many bytes.
const LARGE: usize = 64 << 10;

/// A secret that was found.
#[derive(Debug, Clone)]
pub(super) struct SecretMatch<'t> {
    pub rule: &'static Rule,
    /// Where it stands in the text that was read: itself, or what it is encoded in.
    pub range: Range<usize>,
    /// The secret in plain letters.
    pub secret: Cow<'t, [u8]>,
    pub confidence: Confidence,
    /// The place of its rule in the order of reasons.
    pub rule_index: usize,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Confidence {
    /// Worth a person's look.
    Possible,
    /// Blocks, but for files of tests.
    Likely,
    /// Blocks.
    Certain,
}

/// All secrets that a file holds: as they stand there, behind escapes and in base64.
pub(super) fn scan<'t>(path: &'t str, text: &'t [u8]) -> Vec<SecretMatch<'t>> {
    scan_until(path, text, |_| false)
}

/// The same up to shortly behind the first that is `enough`.
pub(super) fn scan_until<'t>(
    path: &'t str,
    text: &'t [u8],
    enough: impl Fn(&SecretMatch<'_>) -> bool + Sync,
) -> Vec<SecretMatch<'t>> {
    let as_it_stands = || ScanPass::run(path, text, ScanMode::File, &enough).matches;
    let decoded = || {
        let mut found = Vec::new();
        read_decoded(path, text, |finding, range| {
            found.push(SecretMatch {
                // What was copied letter for letter needs no place of its own.
                secret: match &text[range.clone()] {
                    letters if *letters == *finding.secret => Cow::Borrowed(letters),
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
    if text.len() < LARGE {
        let mut found = as_it_stands();
        if !found.iter().any(&enough) {
            found.extend(decoded());
        }
        return found;
    }
    let (mut found, decoded) = side_by_side(as_it_stands, decoded);
    found.extend(decoded);
    found
}

/// What is found in a text that people read.
pub(super) struct RedactionScan {
    /// What a file would be judged by.
    pub secrets: Vec<SecretRange>,
    /// What has the looser format of a credential.
    pub loose_matches: Vec<Range<usize>>,
    /// First and last lines of keys.
    pub key_boundaries: Vec<KeyBoundary>,
}

/// Where a secret stands.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SecretRange {
    /// The body of a key in letters.
    pub is_armored_key: bool,
    pub start: usize,
    pub end: usize,
}

/// The same of a text that people read. What is merely possible stays.
pub(super) fn scan_for_redaction(text: &[u8]) -> RedactionScan {
    let place = |finding: &SecretMatch<'_>, range: Range<usize>| {
        (finding.confidence != Confidence::Possible).then_some(SecretRange {
            is_armored_key: finding.rule.kind == RuleKind::ArmoredKey,
            start: range.start,
            end: range.end,
        })
    };
    let as_it_stands = || ScanPass::run("", text, ScanMode::Redaction, |_| false);
    let decoded = || {
        let mut found = Vec::new();
        read_decoded("", text, |finding, range| {
            found.extend(place(&finding, range))
        });
        found
    };
    let (look, decoded) = match text.len() < LARGE {
        true => (as_it_stands(), decoded()),
        false => side_by_side(as_it_stands, decoded),
    };
    let standing = look.matches.iter();
    let mut found: Vec<SecretRange> = standing
        .filter_map(|finding| place(finding, finding.range.clone()))
        .collect();
    found.extend(decoded);
    RedactionScan {
        secrets: found,
        loose_matches: look.loose_matches,
        key_boundaries: look.key_boundaries,
    }
}

/// Does two things at once, or one after the other where no thread is to be had.
fn side_by_side<A, B: Send>(one: impl FnOnce() -> A, other: impl Fn() -> B + Sync) -> (A, B) {
    std::thread::scope(|scope| {
        let other = &other;
        let beside = std::thread::Builder::new().spawn_scoped(scope, other);
        let one = one();
        let done = beside.ok().and_then(|beside| beside.join().ok());
        (one, done.unwrap_or_else(other))
    })
}

/// The finding whose rule comes first in the order of reasons.
pub(super) fn first_by_rule<'f, 't>(
    found: impl Iterator<Item = &'f SecretMatch<'t>>,
) -> Option<&'f SecretMatch<'t>>
where
    't: 'f,
{
    found.min_by_key(|finding| (finding.rule_index, finding.range.start, finding.range.end))
}

/// Calls back for every secret behind escapes and in base64, with where it stands in the text.
fn read_decoded(path: &str, text: &[u8], mut found: impl FnMut(SecretMatch<'_>, Range<usize>)) {
    for view in &decoded_view::decoded_views(text) {
        let inside = ScanPass::run(path, view.text(), ScanMode::Decoded(view), |_| false).matches;
        let keys = view
            .binary_keys()
            .map(|place| SecretMatch::key(place, view.text()));
        let mut piece = 0;
        for finding in inside.into_iter().chain(keys) {
            let range = match view.verbatim_source_start(0, &finding.range, &mut piece) {
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
    /// Key material in binary, of which the view tells the place.
    fn key(place: Range<usize>, text: &'t [u8]) -> Self {
        let rule_index = SCANNER.first_rule_of(RuleKind::ArmoredKey);
        SecretMatch {
            rule: SCANNER.rules[rule_index],
            secret: Cow::Borrowed(&text[place.clone()]),
            range: place,
            confidence: Confidence::Certain,
            rule_index,
        }
    }
}

/// All keywords, for tests that make files of them.
#[cfg(test)]
pub(super) fn keywords() -> Vec<Vec<u8>> {
    let mut keywords: Vec<Vec<u8>> = SCANNER.keyword_texts.clone();
    keywords.sort();
    keywords
}

/// How many bytes were looked at beside those that the automaton read.
#[cfg(test)]
pub(super) fn step_count(text: &[u8]) -> usize {
    ScanPass::run("", text, ScanMode::File, |_| false)
        .runs
        .steps
}
