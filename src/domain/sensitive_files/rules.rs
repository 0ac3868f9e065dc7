//! The formats of secrets, as their vendors publish them.
//!
//! A rule is a keyword and a [`Shape`](super::shape::Shape); `{alnum:36}` is a run of 36 characters of
//! a class. Rules stand in the order in which reasons are given: of several secrets in one file the
//! first rule's is named.

mod cloud;
mod database;
mod general;
mod keys;
mod services;
mod tokens;
mod vendor_keywords;

use super::SecretCategory;

/// One kind of secret.
#[derive(Debug)]
pub(super) struct Rule {
    /// What a person reads: never the secret.
    pub label: &'static str,
    pub category: SecretCategory,
    pub kind: RuleKind,
    /// Words that must stand beside the secret; none for formats that give themselves away.
    pub keywords: &'static [&'static str],
    /// The formats; none where any random value will do.
    pub formats: &'static [&'static str],
    /// Only files whose path ends so are judged; empty means all.
    pub path_suffixes: &'static [&'static str],
}

/// How a rule is found, and how far it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleKind {
    /// Key material by its shape. No allow list permits it.
    PrivateKey,
    /// An armoured private key.
    ArmoredKey,
    /// The private half of a JSON web key.
    JsonWebKey,
    /// The manifest of a Kubernetes Secret.
    KubernetesSecret,
    /// A password before the host of a driver's address.
    DriverDsn,
    /// A format of its own, found wherever it stands.
    Format,
    /// The same, of keys that are public in a web page's configuration.
    MaybePublic,
    /// The same, of keys that work on made-up data only.
    TestKey,
    /// A value that only the vendor's name and a word such as "token" beside it give away.
    VendorKeyword,
    /// The same, of capital and small letters: a hash is none.
    VendorMixedCase,
    /// A value under a name that is a word as well, such as `linear_token`.
    VendorPrefix,
    /// A signed token, which may be a sample.
    Jwt,
    /// The value of a setting: no placeholder.
    Setting,
    /// A password in a URL of a database or broker.
    DatabaseUrl,
    /// The same of web addresses, where passwords are made up more often: no plain word either.
    WebUrl,
    /// A password between the parts of a connection string.
    ConnectionString,
    /// The value of an `Authorization` header.
    AuthorizationHeader,
    /// A password among the arguments of a command.
    CommandArgument,
    /// A password or a random value under a name that says so.
    Generic,
    /// Something random under a telling name. A warning, nothing more.
    Random,
}

/// How many kinds there are.
pub(super) const RULE_KIND_COUNT: usize = RuleKind::Random as usize + 1;

impl RuleKind {
    /// Keys, which no allow list permits.
    pub fn is_key_material(self) -> bool {
        matches!(
            self,
            RuleKind::PrivateKey | RuleKind::ArmoredKey | RuleKind::JsonWebKey
        )
    }

    /// Formats that are found by their own letters.
    pub fn is_format(self) -> bool {
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

const fn rule(
    kind: RuleKind,
    category: SecretCategory,
    what: &'static str,
    names: &'static [&'static str],
    shapes: &'static [&'static str],
) -> Rule {
    Rule {
        label: what,
        category,
        kind,
        keywords: names,
        formats: shapes,
        path_suffixes: &[],
    }
}

const fn format(
    category: SecretCategory,
    what: &'static str,
    shapes: &'static [&'static str],
) -> Rule {
    rule(RuleKind::Format, category, what, &[], shapes)
}

const fn vendor_keyword(
    category: SecretCategory,
    what: &'static str,
    names: &'static [&'static str],
    shapes: &'static [&'static str],
) -> Rule {
    rule(RuleKind::VendorKeyword, category, what, names, shapes)
}

const fn setting(
    category: SecretCategory,
    what: &'static str,
    names: &'static [&'static str],
    files: &'static [&'static str],
) -> Rule {
    Rule {
        label: what,
        category,
        kind: RuleKind::Setting,
        keywords: names,
        formats: &[],
        path_suffixes: files,
    }
}

/// All rules, in their order.
pub(super) const RULE_TABLES: [&[Rule]; 7] = [
    keys::RULES,
    cloud::RULES,
    database::RULES,
    tokens::RULES,
    services::RULES,
    vendor_keywords::RULES,
    general::RULES,
];

/// How many rules there are.
pub(super) const RULE_COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < RULE_TABLES.len() {
        count += RULE_TABLES[table].len();
        table += 1;
    }
    count
};

/// Every rule with its place in the order.
pub(super) fn all() -> impl Iterator<Item = (usize, &'static Rule)> {
    RULE_TABLES.into_iter().flatten().enumerate()
}
