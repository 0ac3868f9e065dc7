//! Secrets by their shape, wherever in a file they stand.
//!
//! One pass of a keyword automaton finds where a rule may match at all; what a rule then looks at is
//! bounded, or remembered from the keyword before. So a file costs the same per byte, whatever it
//! holds, and no line is too long. In a program a mere "this looks random" never blocks; formats do, random
//! values under a vendor's name, and what settings call a secret.

use std::borrow::Cow;
use std::ops::Range;

use super::decode;
use super::look::{Look, Reading};
use super::rules::{Kind, Rule};
use super::scanner::SCANNER;
use super::special::Frame;

/// A secret that was found.
#[derive(Debug, Clone)]
pub(super) struct Finding<'t> {
    pub rule: &'static Rule,
    /// Where it stands in the text that was read: itself, or what it is encoded in.
    pub range: Range<usize>,
    /// The secret in plain letters.
    pub secret: Cow<'t, [u8]>,
    pub strength: Strength,
    /// The place of its rule in the order of reasons.
    pub order: usize,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// Worth a person's look.
    Possible,
    /// Blocks, but for files of tests.
    Likely,
    /// Blocks.
    Certain,
}

/// All secrets that a file holds: as they stand there, behind escapes and in base64.
pub(super) fn scan<'t>(path: &'t str, text: &'t [u8]) -> Vec<Finding<'t>> {
    scan_until(path, text, |_| false)
}

/// The same up to shortly behind the first that is `enough`.
pub(super) fn scan_until<'t>(
    path: &'t str,
    text: &'t [u8],
    enough: impl Fn(&Finding<'_>) -> bool,
) -> Vec<Finding<'t>> {
    let mut found = Look::over(path, text, Reading::File, &enough).found;
    if !found.iter().any(&enough) {
        add_decoded(path, text, &mut found);
    }
    found
}

/// What is found in a text that people read.
pub(super) struct Prose<'t> {
    pub found: Vec<Finding<'t>>,
    /// What has the looser format of a credential.
    pub loose: Vec<Range<usize>>,
    /// First and last lines of keys.
    pub frames: Vec<Frame>,
}

/// The same of a text that people read.
pub(super) fn scan_prose(text: &[u8]) -> Prose<'_> {
    let Look {
        mut found,
        loose,
        frames,
        ..
    } = Look::over("", text, Reading::Prose, |_| false);
    add_decoded("", text, &mut found);
    Prose {
        found,
        loose,
        frames,
    }
}

/// The finding whose rule comes first in the order of reasons.
pub(super) fn first<'f, 't>(found: impl Iterator<Item = &'f Finding<'t>>) -> Option<&'f Finding<'t>>
where
    't: 'f,
{
    found.min_by_key(|finding| (finding.order, finding.range.start, finding.range.end))
}

fn add_decoded<'t>(path: &str, text: &'t [u8], found: &mut Vec<Finding<'t>>) {
    for view in &decode::views(text) {
        let inside = Look::over(path, view.text(), Reading::Decoded(view), |_| false).found;
        let keys = view.keys().map(|place| Finding::key(place, view.text()));
        let mut piece = 0;
        for finding in inside.into_iter().chain(keys) {
            let range = match view.copied(0, &finding.range, &mut piece) {
                Some(start) => Some(start..start + finding.range.len()),
                None => view.origin(&finding.range),
            };
            found.extend(range.map(|range| Finding {
                // What was copied letter for letter needs no place of its own.
                secret: match &text[range.clone()] {
                    letters if *letters == *finding.secret => Cow::Borrowed(letters),
                    _ => Cow::Owned(finding.secret.into_owned()),
                },
                range,
                ..finding
            }));
        }
    }
}

impl<'t> Finding<'t> {
    /// Key material in binary, of which the view tells the place.
    fn key(place: Range<usize>, text: &'t [u8]) -> Self {
        let order = SCANNER.first(Kind::Armor);
        Finding {
            rule: SCANNER.rules[order],
            secret: Cow::Borrowed(&text[place.clone()]),
            range: place,
            strength: Strength::Certain,
            order,
        }
    }
}

/// All keywords, for tests that make files of them.
#[cfg(test)]
pub(super) fn keywords() -> Vec<Vec<u8>> {
    let mut keywords: Vec<Vec<u8>> = SCANNER.texts.clone();
    keywords.sort();
    keywords
}

/// How many bytes were looked at beside those that the automaton read.
#[cfg(test)]
pub(super) fn steps(text: &[u8]) -> usize {
    Look::over("", text, Reading::File, |_| false).runs.steps
}
