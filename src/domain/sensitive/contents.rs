//! Secrets by their shape, wherever in a file they stand.
//!
//! One pass of a keyword automaton finds where a rule may match at all; its expression looks only at
//! the surroundings of those places. So a file costs what its keywords cost, whatever its size, and
//! no line is too long. A generic "this looks random" never blocks; only formats do.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex::bytes::{Captures, Regex, RegexBuilder};

use super::plausible;
use super::rules::{Kind, RULES, Rule};

/// A secret that was found.
pub(super) struct Finding<'t> {
    pub rule: &'static Rule,
    pub secret: &'t [u8],
    /// Where the secret stands in the text.
    pub range: Range<usize>,
}

/// A keyword, and the rules that ask for it.
struct Keyword {
    text: &'static str,
    rules: Vec<usize>,
}

struct Scanner {
    automaton: AhoCorasick,
    keywords: Vec<Keyword>,
    /// Compiled when the first file needs them.
    patterns: Vec<LazyLock<Regex, Box<dyn FnOnce() -> Regex + Send>>>,
}

#[expect(
    clippy::unwrap_used,
    reason = "the rules are constants and a test compiles them all"
)]
static SCANNER: LazyLock<Scanner> = LazyLock::new(|| {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut keywords: Vec<Keyword> = Vec::new();
    for (index, rule) in RULES.iter().enumerate() {
        for keyword in rule.keywords {
            let at = *known.entry((*keyword).to_owned()).or_insert_with(|| {
                keywords.push(Keyword {
                    text: keyword,
                    rules: Vec::new(),
                });
                keywords.len() - 1
            });
            keywords[at].rules.push(index);
        }
    }
    Scanner {
        automaton: AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(keywords.iter().map(|keyword| keyword.text))
            .unwrap(),
        keywords,
        patterns: RULES.iter().map(compiled_later).collect(),
    }
});

#[expect(
    clippy::unwrap_used,
    reason = "the rules are constants and a test compiles them all"
)]
fn compiled_later(rule: &'static Rule) -> LazyLock<Regex, Box<dyn FnOnce() -> Regex + Send>> {
    LazyLock::new(Box::new(|| {
        RegexBuilder::new(rule.pattern)
            .unicode(false)
            .build()
            .unwrap()
    }))
}

/// All secrets that the text holds, in the order of rules.
pub(super) fn scan<'t>(path: &str, text: &'t [u8]) -> Vec<Finding<'t>> {
    let mut found: Vec<(usize, Range<usize>)> = Vec::new();
    for (rule, zone) in zones(path, text) {
        search(rule, text, zone, &mut found);
    }
    found.sort_by_key(|(rule, _)| *rule);
    found
        .into_iter()
        .map(|(rule, range)| Finding {
            rule: &RULES[rule],
            secret: &text[range.clone()],
            range,
        })
        .collect()
}

/// Where which rule has to look. The zones of one rule never overlap, so that a text of keywords
/// alone is read once by each rule and no more.
pub(super) fn zones(path: &str, text: &[u8]) -> Vec<(usize, Range<usize>)> {
    let scanner = &*SCANNER;
    let concerned: Vec<bool> = RULES.iter().map(|rule| concerns(rule, path)).collect();
    let mut open: Vec<Option<Range<usize>>> = vec![None; RULES.len()];
    let mut zones = Vec::new();
    for hit in scanner.automaton.find_overlapping_iter(text) {
        let keyword = &scanner.keywords[hit.pattern().as_usize()];
        let is_exact = &text[hit.range()] == keyword.text.as_bytes();
        for index in &keyword.rules {
            let rule = &RULES[*index];
            if !concerned[*index] || !(is_exact || rule.keywords_in_any_case()) {
                continue;
            }
            let (before, after) = rule.reach();
            let start = hit.start().saturating_sub(before);
            let end = hit.end().saturating_add(after).min(text.len());
            match &mut open[*index] {
                Some(zone) if start <= zone.end => zone.end = end.max(zone.end),
                zone => zones.extend(zone.replace(start..end).map(|due| (*index, due))),
            }
        }
    }
    let left = open.into_iter().enumerate();
    zones.extend(left.filter_map(|(index, zone)| Some((index, zone?))));
    zones
}

fn concerns(rule: &Rule, path: &str) -> bool {
    rule.files.is_empty() || rule.files.iter().any(|ending| path.ends_with(ending))
}

/// Matches one rule in one stretch of the text.
fn search(index: usize, text: &[u8], zone: Range<usize>, found: &mut Vec<(usize, Range<usize>)>) {
    let rule = &RULES[index];
    let Some(part) = text.get(zone.clone()).filter(|part| !part.is_empty()) else {
        return;
    };
    for captures in SCANNER.patterns[index].captures_iter(part) {
        let Some(secret) = captures.get(1).or_else(|| captures.get(0)) else {
            continue;
        };
        let range = zone.start + secret.start()..zone.start + secret.end();
        if stands_apart(rule, text, &range) && is_plausible(rule, &captures, secret.as_bytes()) {
            found.push((index, range));
        }
    }
}

fn is_plausible(rule: &Rule, captures: &Captures<'_>, secret: &[u8]) -> bool {
    match rule.kind {
        Kind::PrivateKey => !plausible::is_no_key(&secret[..secret.len().min(64)]),
        Kind::Format => !plausible::is_filler(secret),
        Kind::Named => plausible::is_random(secret),
        Kind::Mixed => plausible::is_random(secret) && plausible::is_mixed(secret),
        Kind::Jwt => !plausible::is_sample_jwt(secret),
        Kind::Setting => !plausible::is_placeholder(secret),
        Kind::Url | Kind::WebUrl => {
            let host = captures.get(2).map_or(&b""[..], |host| host.as_bytes());
            let is_word = rule.kind == Kind::WebUrl && plausible::is_word(secret);
            !is_word && !plausible::is_placeholder(secret) && plausible::is_remote(host)
        }
        Kind::Random => plausible::is_suspicious(secret),
    }
}

/// Whether a token is a word of its own, and not a piece of a longer one such as an encoded image.
fn stands_apart(rule: &Rule, text: &[u8], place: &Range<usize>) -> bool {
    if rule.kind != Kind::Format {
        return true;
    }
    let before = &text[..place.start];
    let previous = before.last().copied().unwrap_or(b' ');
    let next = text.get(place.end).copied().unwrap_or(b' ');
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    // A keyword of letters alone may come by chance where something is encoded.
    let is_telling = rule
        .keywords
        .iter()
        .all(|keyword| keyword.bytes().any(|byte| !byte.is_ascii_alphanumeric()));
    let joins = |byte: u8| is_word(byte) || (!is_telling && b"+-".contains(&byte));
    let is_in_path = previous == b'/' && !before.ends_with(b"://");
    let begins = !joins(previous) && (is_telling || !is_in_path);
    (begins || ends_in_escape(before)) && !joins(next)
}

/// `\n`, `\t`, `\u0022` or `%3D`: the last letter belongs to what is before.
fn ends_in_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', one, two] => [one, two].iter().all(|byte| byte.is_ascii_hexdigit()),
        [.., b'\\', b'u', _, _, _, _] => true,
        _ => false,
    }
}
