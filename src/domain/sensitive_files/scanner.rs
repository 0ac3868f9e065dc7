//! Automaton of all keywords, and the rules and formats that each keyword triggers.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;

use super::matchers::KEY_BOUNDARY_KEYWORDS;
use super::rules::{self, RULE_KIND_COUNT, Rule, RuleKind};
use super::token_format::TokenFormat;
use super::word_automaton::WordAutomaton;

/// Role of a keyword other than being part of a format.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeywordRole {
    /// Vendor name of the rule with this index.
    Vendor(usize),
    /// Keyword of a rule with its own matcher.
    CustomRule(usize),
    /// Word that indicates a secret in the name of a setting.
    SecretWord,
    /// Part of a connection string.
    ConnectionString,
    /// Keyword of a loose format, which is used for redaction only.
    LooseFormat(usize),
    /// Part of the first or last line of a private key.
    KeyBoundary,
}

/// Keyword that triggers rules.
#[derive(Debug, Default)]
pub(super) struct Keyword {
    /// Formats that contain the keyword, as (rule index, format index).
    pub formats: Vec<(usize, usize)>,
    /// Other roles of the keyword.
    pub roles: Vec<KeywordRole>,
}

/// All rules and formats with the automaton of their keywords.
pub(super) struct Scanner {
    words: WordAutomaton,
    keywords: Vec<Keyword>,
    #[cfg(test)]
    pub keyword_texts: Vec<Vec<u8>>,
    /// All rules in their order.
    pub rules: Vec<&'static Rule>,
    /// Formats of all rules, followed by the loose formats.
    pub formats: Vec<TokenFormat>,
    /// Range of each rule's formats in `formats`.
    formats_by_rule: Vec<Range<usize>>,
    /// Index of the first rule of each kind.
    first_rules: [usize; RULE_KIND_COUNT],
}

/// Words that occur in the names of secrets.
const SECRET_WORDS: [&str; 12] = [
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

/// Formats that are redacted in logs and comments but are too loose to block a file.
const LOOSE_FORMATS: [&str; 23] = [
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

/// Parts of connection strings that precede the password.
const CONNECTION_STRING_PARTS: [&str; 12] = [
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
    reason = "the rules are constants, and a test parses all of them"
)]
/// Scanner for all rules.
pub(super) static SCANNER: LazyLock<Scanner> = LazyLock::new(|| {
    let rules: Vec<&'static Rule> = rules::all().map(|(_, rule)| rule).collect();
    let (mut formats, mut formats_by_rule) = (Vec::new(), Vec::new());
    let mut keywords = Keywords::default();
    for (index, rule) in rules.iter().enumerate() {
        let first = formats.len();
        formats.extend(
            rule.formats
                .iter()
                .map(|notation| TokenFormat::parse(notation).unwrap()),
        );
        formats_by_rule.push(first..formats.len());
        if rule.kind.is_format() {
            for (at, format) in formats.iter().enumerate().skip(first) {
                let keyword = keywords.entry(format.keyword());
                keyword.formats.push((index, at));
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
    for notation in LOOSE_FORMATS {
        keywords.add(
            &[TokenFormat::parse(notation).unwrap().keyword()],
            KeywordRole::LooseFormat(formats.len()),
        );
        formats.push(TokenFormat::parse(notation).unwrap());
    }
    let url = rules
        .iter()
        .position(|rule| rule.kind == RuleKind::DatabaseUrl);
    keywords.add(&["://"], KeywordRole::CustomRule(url.unwrap()));
    keywords.add(&SECRET_WORDS, KeywordRole::SecretWord);
    keywords.add(&CONNECTION_STRING_PARTS, KeywordRole::ConnectionString);
    keywords.add(&KEY_BOUNDARY_KEYWORDS, KeywordRole::KeyBoundary);

    let mut first_rules = [rules.len() - 1; RULE_KIND_COUNT];
    for (index, rule) in rules.iter().enumerate().rev() {
        first_rules[rule.kind as usize] = index;
    }
    Scanner {
        words: WordAutomaton::new(&keywords.texts),
        keywords: keywords.entries,
        #[cfg(test)]
        keyword_texts: keywords.texts,
        rules,
        formats,
        formats_by_rule,
        first_rules,
    }
});

/// Builder of the keyword table. Each keyword is stored once, in lower case.
#[derive(Default)]
struct Keywords {
    texts: Vec<Vec<u8>>,
    entries: Vec<Keyword>,
    indexes: HashMap<Vec<u8>, usize>,
}

impl Keywords {
    /// Returns the entry of a keyword, and adds it if it is new.
    fn entry(&mut self, text: &[u8]) -> &mut Keyword {
        let text = text.to_ascii_lowercase();
        let at = *self.indexes.entry(text.clone()).or_insert_with(|| {
            self.texts.push(text);
            self.entries.push(Keyword::default());
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    /// Adds a role to each of these keywords.
    fn add(&mut self, texts: &[impl AsRef<[u8]>], role: KeywordRole) {
        for text in texts {
            self.entry(text.as_ref()).roles.push(role);
        }
    }
}

impl Scanner {
    /// Calls `found` with every keyword in a text and its range, until `found` returns `Break`.
    pub(super) fn for_each_keyword(
        &self,
        text: &[u8],
        mut found: impl FnMut(&Keyword, Range<usize>) -> ControlFlow<()>,
    ) {
        self.words
            .for_each_match(text, |word, range| found(&self.keywords[word], range));
    }

    /// Returns the index of the first rule of a kind.
    pub(super) fn first_rule_of(&self, kind: RuleKind) -> usize {
        self.first_rules[kind as usize]
    }

    /// Returns the formats of the rule with this index.
    pub(super) fn formats_of(&self, rule_index: usize) -> &[TokenFormat] {
        &self.formats[self.formats_by_rule[rule_index].clone()]
    }
}
