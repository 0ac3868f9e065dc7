//! The automaton of all keywords, and what each of them is for.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;

use super::matchers::KEY_BOUNDARY_KEYWORDS;
use super::rules::{self, RULE_KIND_COUNT, Rule, RuleKind};
use super::token_format::TokenFormat;
use super::word_automaton::WordAutomaton;

/// What a keyword is for, beside formats.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeywordRole {
    /// A vendor's name.
    Vendor(usize),
    /// A rule with a matcher of its own.
    CustomRule(usize),
    /// A word that says that a secret follows.
    SecretWord,
    /// A part of a connection string.
    ConnectionString,
    /// A format that only texts for people are cleaned of.
    LooseFormat(usize),
    /// A part of the first or the last line of a key.
    KeyBoundary,
}

/// A word that rules look for.
#[derive(Debug, Default)]
pub(super) struct Keyword {
    /// Formats that it is a part of: the rule and the format.
    pub formats: Vec<(usize, usize)>,
    pub roles: Vec<KeywordRole>,
}

/// Rules and keywords, ready for use.
pub(super) struct Scanner {
    words: WordAutomaton,
    keywords: Vec<Keyword>,
    #[cfg(test)]
    pub keyword_texts: Vec<Vec<u8>>,
    pub rules: Vec<&'static Rule>,
    pub formats: Vec<TokenFormat>,
    /// The shapes of each rule.
    owned: Vec<Range<usize>>,
    /// The first rule of each kind.
    firsts: [usize; RULE_KIND_COUNT],
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

/// Credentials of looser shape than a file would be blocked for, which are hidden from people.
const LOOSE: [&str; 23] = [
    "gho_{dot:20-}",
    "ghp_{dot:20-}",
    "ghs_{dot:20-}",
    "ghu_{dot:20-}",
    "ghr_{dot:20-}",
    "github_pat_{word:20-}",
    "lin_api_{word:16-}",
    "lin_oauth_{word:16-}",
    "lin_wh_{word:16-}",
    "sk-{url:20-}",
    "AKIA{upper:16}",
    "ASIA{upper:16}",
    "xox{lower:1}-{slack:10-}",
    "ATATT{tail:20-}",
    "AIza{url:35-}",
    "fm1_{tail:20-}",
    "fm2_{tail:20-}",
    "fm1{lower:1}_{tail:20-}",
    "fm2{lower:1}_{tail:20-}",
    "https://hooks.slack.com/{path:1-}",
    "https://hooks.slack-gov.com/{path:1-}",
    "eyJ{url:8-}.{url:4-}.{url:4-}",
    "://{user:0-}:{password:1-}@",
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
    let mut keywords = Keywords::default();
    for (index, rule) in rules.iter().enumerate() {
        let first = shapes.len();
        shapes.extend(
            rule.formats
                .iter()
                .map(|shape| TokenFormat::parse(shape).unwrap()),
        );
        owned.push(first..shapes.len());
        if rule.kind.is_format() {
            for (shape, read) in shapes.iter().enumerate().skip(first) {
                keywords.of(read.keyword()).formats.push((index, shape));
            }
        }
        let role = match rule.kind {
            RuleKind::VendorKeyword | RuleKind::VendorMixedCase | RuleKind::VendorPrefix => {
                KeywordRole::Vendor(index)
            }
            RuleKind::DatabaseUrl
            | RuleKind::WebUrl
            | RuleKind::ConnectionString
            | RuleKind::Generic
            | RuleKind::Random => continue,
            _ => KeywordRole::CustomRule(index),
        };
        keywords.add(rule.keywords, role);
    }
    for notation in LOOSE {
        keywords.add(
            &[TokenFormat::parse(notation).unwrap().keyword()],
            KeywordRole::LooseFormat(shapes.len()),
        );
        shapes.push(TokenFormat::parse(notation).unwrap());
    }
    let url = rules
        .iter()
        .position(|rule| rule.kind == RuleKind::DatabaseUrl);
    keywords.add(&["://"], KeywordRole::CustomRule(url.unwrap()));
    keywords.add(&TELLING, KeywordRole::SecretWord);
    keywords.add(&CONNECTION, KeywordRole::ConnectionString);
    keywords.add(&KEY_BOUNDARY_KEYWORDS, KeywordRole::KeyBoundary);

    let mut firsts = [rules.len() - 1; RULE_KIND_COUNT];
    for (order, rule) in rules.iter().enumerate().rev() {
        firsts[rule.kind as usize] = order;
    }
    Scanner {
        words: WordAutomaton::new(&keywords.texts),
        keywords: keywords.read,
        #[cfg(test)]
        keyword_texts: keywords.texts,
        rules,
        formats: shapes,
        owned,
        firsts,
    }
});

/// Keywords, each of them once.
#[derive(Default)]
struct Keywords {
    texts: Vec<Vec<u8>>,
    read: Vec<Keyword>,
    known: HashMap<Vec<u8>, usize>,
}

impl Keywords {
    fn of(&mut self, text: &[u8]) -> &mut Keyword {
        let text = text.to_ascii_lowercase();
        let at = *self.known.entry(text.clone()).or_insert_with(|| {
            self.texts.push(text);
            self.read.push(Keyword::default());
            self.read.len() - 1
        });
        &mut self.read[at]
    }

    fn add(&mut self, texts: &[impl AsRef<[u8]>], role: KeywordRole) {
        for text in texts {
            self.of(text.as_ref()).roles.push(role);
        }
    }
}

impl Scanner {
    /// Calls back for every keyword in a text, with its place, until told to break.
    pub fn for_each_keyword(
        &self,
        text: &[u8],
        mut found: impl FnMut(&Keyword, Range<usize>) -> ControlFlow<()>,
    ) {
        self.words
            .for_each_match(text, |word, place| found(&self.keywords[word], place));
    }

    /// The place in the order of the first rule of a kind.
    pub fn first_rule_of(&self, kind: RuleKind) -> usize {
        self.firsts[kind as usize]
    }

    /// The shapes of a rule.
    pub fn formats_of(&self, order: usize) -> &[TokenFormat] {
        &self.formats[self.owned[order].clone()]
    }
}
