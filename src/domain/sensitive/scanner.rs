//! The automaton of all keywords, and what each of them is for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::rules::{self, KINDS, Kind, Rule};
use super::shape::Shape;

/// What a keyword is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// Part of a format.
    Shape { rule: usize, shape: usize },
    /// A vendor's name.
    Vendor(usize),
    /// A rule with a matcher of its own.
    Special(usize),
    /// A word that says that a secret follows.
    Telling,
    /// A part of a connection string.
    Connection,
}

/// Rules and keywords, ready for use.
pub(super) struct Scanner {
    pub automaton: AhoCorasick,
    /// For each keyword what it is for.
    pub roles: Vec<Vec<Role>>,
    #[cfg(test)]
    pub texts: Vec<Vec<u8>>,
    pub rules: Vec<&'static Rule>,
    pub shapes: Vec<Shape>,
    /// The shapes of each rule.
    owned: Vec<Range<usize>>,
    /// The first rule of each kind.
    firsts: [usize; KINDS],
}

/// Words of which names of secrets are made.
const TELLING: [&str; 12] = [
    "key",
    "token",
    "secret",
    "passw",
    "pwd",
    "passphrase",
    "pass",
    "auth",
    "cred",
    "bearer",
    "jwt",
    "service_role",
];

const CONNECTION: [&str; 12] = [
    "server=",
    "data source=",
    "datasource=",
    "host=",
    "hostname=",
    "jdbc:",
    "user id=",
    "uid=",
    "user=",
    "username=",
    "catalog=",
    "dbname=",
];

#[expect(
    clippy::unwrap_used,
    reason = "the rules are constants and a test reads them all"
)]
pub(super) static SCANNER: LazyLock<Scanner> = LazyLock::new(|| {
    let rules: Vec<&'static Rule> = rules::all().map(|(_, rule)| rule).collect();
    let (mut shapes, mut owned) = (Vec::new(), Vec::new());
    let mut keywords: Vec<(Vec<u8>, Role)> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let first = shapes.len();
        shapes.extend(rule.shapes.iter().map(|shape| Shape::parse(shape).unwrap()));
        owned.push(first..shapes.len());
        if rule.kind.is_format() {
            for (shape, read) in shapes.iter().enumerate().skip(first) {
                keywords.push((read.keyword().to_vec(), Role::Shape { rule: index, shape }));
            }
        }
        let role = match rule.kind {
            Kind::Named | Kind::Mixed | Kind::Prefixed => Role::Vendor(index),
            Kind::Url | Kind::WebUrl | Kind::Connection | Kind::Random => continue,
            _ => Role::Special(index),
        };
        keywords.extend(
            rule.names
                .iter()
                .map(|name| (name.as_bytes().to_vec(), role)),
        );
    }
    let url = rules.iter().position(|rule| rule.kind == Kind::Url);
    keywords.push((b"://".to_vec(), Role::Special(url.unwrap())));
    keywords.extend(TELLING.map(|word| (word.as_bytes().to_vec(), Role::Telling)));
    keywords.extend(CONNECTION.map(|word| (word.as_bytes().to_vec(), Role::Connection)));

    let mut firsts = [rules.len() - 1; KINDS];
    for (order, rule) in rules.iter().enumerate().rev() {
        firsts[rule.kind as usize] = order;
    }
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let (mut texts, mut roles): (Vec<Vec<u8>>, Vec<Vec<Role>>) = (Vec::new(), Vec::new());
    for (mut text, role) in keywords {
        text.make_ascii_lowercase();
        let at = *known.entry(text.clone()).or_insert_with(|| {
            texts.push(text);
            roles.push(Vec::new());
            texts.len() - 1
        });
        roles[at].push(role);
    }
    Scanner {
        automaton: AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&texts)
            .unwrap(),
        roles,
        #[cfg(test)]
        texts,
        rules,
        shapes,
        owned,
        firsts,
    }
});

impl Scanner {
    /// The place in the order of the first rule of a kind.
    pub fn first(&self, kind: Kind) -> usize {
        self.firsts[kind as usize]
    }

    /// The shapes of a rule.
    pub fn shapes_of(&self, order: usize) -> &[Shape] {
        &self.shapes[self.owned[order].clone()]
    }
}
