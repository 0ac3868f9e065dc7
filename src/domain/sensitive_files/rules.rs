//! Rules of the guard: formats of secrets as published by their vendors.
//!
//! A rule has keywords and [`TokenFormat`](super::token_format::TokenFormat)s; `{alnum:36}` is a run of 36
//! characters of a class. The order of the rules is the order of precedence: if a file contains several
//! secrets, the message names the first rule.

mod cloud;
mod database;
mod general;
mod keys;
mod services;
mod tokens;
mod vendor_keywords;

use super::SecretCategory;

/// Rule for one kind of secret.
#[derive(Debug)]
pub(super) struct Rule {
    /// Description in messages, such as `GitHub token`.
    pub label: &'static str,
    /// Category of the secret.
    pub category: SecretCategory,
    /// Matching method.
    pub kind: RuleKind,
    /// Words that must occur near the secret. Empty for formats that are unique by themselves.
    pub keywords: &'static [&'static str],
    /// Formats of the secret. Empty if any random value matches.
    pub formats: &'static [&'static str],
    /// Path suffixes of the files that the rule applies to. Empty means all files.
    pub path_suffixes: &'static [&'static str],
}

/// Kind of rule, which defines the matching method and the reliability of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleKind {
    /// Key material with a fixed format. Allow lists do not apply.
    PrivateKey,
    /// Private key in PEM armor. Allow lists do not apply.
    ArmoredKey,
    /// Private member of a JSON web key. Allow lists do not apply.
    JsonWebKey,
    /// Password in the manifest of a Kubernetes Secret.
    KubernetesSecret,
    /// Password before the host of a driver address.
    DriverDsn,
    /// Unique format, matched anywhere.
    Format,
    /// Unique format of keys that are public in web client configuration.
    MaybePublic,
    /// Unique format of keys that only work with test data. Produces a warning.
    TestKey,
    /// Value near the vendor's name in a setting whose name contains a word such as "token".
    VendorKeyword,
    /// Like [`RuleKind::VendorKeyword`], for values with letters of both cases, which excludes hashes.
    VendorMixedCase,
    /// Like [`RuleKind::VendorKeyword`], for vendor names that are also common words. The name of the setting
    /// must contain the vendor's name, such as `linear_token`.
    VendorPrefix,
    /// JSON Web Token, which may be an example.
    Jwt,
    /// Value of a setting with a known name, unless it is a placeholder.
    Setting,
    /// Password in the URL of a database or message broker.
    DatabaseUrl,
    /// Password in a web URL. Plain words are excluded, because they are usually invented.
    WebUrl,
    /// Password in a connection string.
    ConnectionString,
    /// Value of an `Authorization` header.
    AuthorizationHeader,
    /// Password in the arguments of a command.
    CommandArgument,
    /// Password or random value of a setting whose name indicates a secret.
    Generic,
    /// Random value of a setting whose name indicates a secret, in a context with many false positives.
    /// Produces a warning.
    Random,
}

/// Number of rule kinds.
pub(super) const RULE_KIND_COUNT: usize = RuleKind::Random as usize + 1;

impl RuleKind {
    /// Returns whether the rule is for key material, to which allow lists do not apply.
    pub(super) fn is_key_material(self) -> bool {
        matches!(
            self,
            RuleKind::PrivateKey | RuleKind::ArmoredKey | RuleKind::JsonWebKey
        )
    }

    /// Returns whether the rule is matched by the keyword of its format.
    pub(super) fn is_format(self) -> bool {
        matches!(
            self,
            RuleKind::PrivateKey
                | RuleKind::Format
                | RuleKind::MaybePublic
                | RuleKind::TestKey
                | RuleKind::Jwt
        )
    }
}

/// Creates a rule for all files.
const fn rule(
    kind: RuleKind,
    category: SecretCategory,
    label: &'static str,
    keywords: &'static [&'static str],
    formats: &'static [&'static str],
) -> Rule {
    Rule {
        label,
        category,
        kind,
        keywords,
        formats,
        path_suffixes: &[],
    }
}

/// Creates a rule for a unique format.
const fn format(
    category: SecretCategory,
    label: &'static str,
    formats: &'static [&'static str],
) -> Rule {
    rule(RuleKind::Format, category, label, &[], formats)
}

/// Creates a rule for values near a vendor's name.
const fn vendor_keyword(
    category: SecretCategory,
    label: &'static str,
    keywords: &'static [&'static str],
    formats: &'static [&'static str],
) -> Rule {
    rule(RuleKind::VendorKeyword, category, label, keywords, formats)
}

/// Creates a rule for a setting in files with one of these path suffixes.
const fn setting(
    category: SecretCategory,
    label: &'static str,
    keywords: &'static [&'static str],
    path_suffixes: &'static [&'static str],
) -> Rule {
    Rule {
        label,
        category,
        kind: RuleKind::Setting,
        keywords,
        formats: &[],
        path_suffixes,
    }
}

/// All rules in order of precedence.
pub(super) const RULE_TABLES: [&[Rule]; 7] = [
    keys::RULES,
    cloud::RULES,
    database::RULES,
    tokens::RULES,
    services::RULES,
    vendor_keywords::RULES,
    general::RULES,
];

/// Number of rules.
pub(super) const RULE_COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < RULE_TABLES.len() {
        count += RULE_TABLES[table].len();
        table += 1;
    }
    count
};

/// Returns every rule with its index.
pub(super) fn all() -> impl Iterator<Item = (usize, &'static Rule)> {
    RULE_TABLES.into_iter().flatten().enumerate()
}
