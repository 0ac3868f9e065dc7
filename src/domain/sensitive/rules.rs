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
mod vendors;

use super::Category;

/// One kind of secret.
#[derive(Debug)]
pub(super) struct Rule {
    /// What a person reads: never the secret.
    pub what: &'static str,
    pub category: Category,
    pub kind: Kind,
    /// Words that must stand beside the secret; none for formats that give themselves away.
    pub names: &'static [&'static str],
    /// The formats; none where any random value will do.
    pub shapes: &'static [&'static str],
    /// Only files whose path ends so are judged; empty means all.
    pub files: &'static [&'static str],
}

/// How a rule is found, and how far it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Key material by its shape. No allow list permits it.
    PrivateKey,
    /// An armoured private key.
    Armor,
    /// The private half of a JSON web key.
    WebKey,
    /// The manifest of a Kubernetes Secret.
    Manifest,
    /// A password before the host of a driver's address.
    Driver,
    /// A format of its own, found wherever it stands.
    Format,
    /// The same, of keys that are public in a web page's configuration.
    MaybePublic,
    /// The same, of keys that work on made-up data only.
    Trial,
    /// A value that only the vendor's name and a word such as "token" beside it give away.
    Named,
    /// The same, of capital and small letters: a hash is none.
    Mixed,
    /// A value under a name that is a word as well, such as `linear_token`.
    Prefixed,
    /// A signed token, which may be a sample.
    Jwt,
    /// The value of a setting: no placeholder.
    Setting,
    /// A password in a URL of a database or broker.
    Url,
    /// The same of web addresses, where passwords are made up more often: no plain word either.
    WebUrl,
    /// A password between the parts of a connection string.
    Connection,
    /// The value of an `Authorization` header.
    Header,
    /// A password among the arguments of a command.
    Argument,
    /// A password or a random value under a name that says so.
    Generic,
    /// Something random under a telling name. A warning, nothing more.
    Random,
}

/// How many kinds there are.
pub(super) const KINDS: usize = Kind::Random as usize + 1;

impl Kind {
    /// Keys, which no allow list permits.
    pub fn is_key(self) -> bool {
        matches!(self, Kind::PrivateKey | Kind::Armor | Kind::WebKey)
    }

    /// Formats that are found by their own letters.
    pub fn is_format(self) -> bool {
        matches!(
            self,
            Kind::PrivateKey | Kind::Format | Kind::MaybePublic | Kind::Trial | Kind::Jwt
        )
    }
}

const fn rule(
    kind: Kind,
    category: Category,
    what: &'static str,
    names: &'static [&'static str],
    shapes: &'static [&'static str],
) -> Rule {
    Rule {
        what,
        category,
        kind,
        names,
        shapes,
        files: &[],
    }
}

const fn format(category: Category, what: &'static str, shapes: &'static [&'static str]) -> Rule {
    rule(Kind::Format, category, what, &[], shapes)
}

const fn named(
    category: Category,
    what: &'static str,
    names: &'static [&'static str],
    shapes: &'static [&'static str],
) -> Rule {
    rule(Kind::Named, category, what, names, shapes)
}

const fn setting(
    category: Category,
    what: &'static str,
    names: &'static [&'static str],
    files: &'static [&'static str],
) -> Rule {
    Rule {
        what,
        category,
        kind: Kind::Setting,
        names,
        shapes: &[],
        files,
    }
}

/// All rules, in their order.
pub(super) const TABLES: [&[Rule]; 7] = [
    keys::RULES,
    cloud::RULES,
    database::RULES,
    tokens::RULES,
    services::RULES,
    vendors::RULES,
    general::RULES,
];

/// How many rules there are.
pub(super) const COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < TABLES.len() {
        count += TABLES[table].len();
        table += 1;
    }
    count
};

/// Every rule with its place in the order.
pub(super) fn all() -> impl Iterator<Item = (usize, &'static Rule)> {
    TABLES.into_iter().flatten().enumerate()
}
