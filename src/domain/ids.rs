//! Identifiers. Each has its own string type, so that they cannot be mixed up.

use std::borrow::Borrow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Creates an identifier from text.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// Returns the text of the identifier.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

string_id!(
    /// Identifier of a job. A ULID, which sorts by time of reservation.
    ///
    /// It is also the dispatch id: the run name, machine metadata or container label by which the
    /// run is found again after a crash.
    JobId
);
string_id!(
    /// Key of a project mapping. In Linear it is the key of the team.
    TeamKey
);
string_id!(
    /// Id of an issue at its ticketing system. It does not change when the issue moves.
    IssueId
);
string_id!(
    /// Key of an issue as shown to people, such as `ENG-42`.
    IssueKey
);

impl IssueKey {
    /// Parses untrusted text as a key: letters, digits and `_`, then `-` and a number, or a
    /// repository and the number of its issue, such as `shop#12` or `acme/shop#12`. Anything else is
    /// rejected, because the key becomes part of queries.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((repo, number)) = parse_repo_key(text) {
            return Some(Self(format!("{repo}#{number}")));
        }
        let (project, number) = text.rsplit_once('-')?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_key = project.starts_with(|c: char| c.is_ascii_alphabetic())
            && project.chars().all(is_word)
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit());
        is_key.then(|| Self(format!("{project}-{number}")))
    }

    /// Returns the key of an issue of a repository, with its owner: `acme/shop#12`.
    pub fn of_repo_issue(repo: &Repo, number: u64) -> Self {
        Self(format!("{repo}#{number}"))
    }

    /// Returns the repository, with its owner if the key names it, and the number of an issue of
    /// GitHub. `None` for keys of other systems.
    pub fn repo_and_number(&self) -> Option<(Option<&str>, &str, u64)> {
        let (repo, number) = parse_repo_key(&self.0)?;
        Some(match repo.split_once('/') {
            Some((owner, name)) => (Some(owner), name, number),
            None => (None, repo, number),
        })
    }

    /// Returns the key without the owner of its repository: `shop#12` of `acme/shop#12`. `None` if it
    /// names no owner.
    pub fn without_owner(&self) -> Option<Self> {
        match self.repo_and_number()? {
            (Some(_), name, number) => Some(Self(format!("{name}#{number}"))),
            (None, ..) => None,
        }
    }
}

/// Maximum length of an account or repository name at GitHub.
const MAX_REPO_NAME: usize = 100;

/// Splits `name#number` or `owner/name#number` at its `#`.
fn parse_repo_key(text: &str) -> Option<(&str, u64)> {
    let (repo, number) = text.rsplit_once('#')?;
    let is_number = (1..=9).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !number.starts_with('0');
    let is_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_name = |part: &str| {
        (1..=MAX_REPO_NAME).contains(&part.len())
            && part.chars().all(is_char)
            && part.chars().any(|c| c != '.')
    };
    let mut parts = repo.split('/');
    let is_repo = parts.clone().count() <= 2 && parts.all(is_name);
    (is_number && is_repo).then(|| Some((repo, number.parse().ok()?)))?
}

/// Repository at the repository host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Repo {
    /// Account that owns it.
    pub owner: String,
    /// Name without the owner.
    pub name: String,
}

impl Repo {
    /// Creates a repository from its owner and name.
    pub fn new(owner: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            name: name.into(),
        }
    }

    /// Parses `owner/name`.
    pub fn parse(full_name: &str) -> Option<Self> {
        let (owner, name) = full_name.split_once('/')?;
        let plain = |part: &str| !part.is_empty() && !part.contains('/');
        (plain(owner) && plain(name)).then(|| Self::new(owner, name))
    }
}

impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_only_valid_keys() {
        for (text, key) in [
            ("ENG-1", "ENG-1"),
            (" eng-42 ", "eng-42"),
            ("A_B2-7", "A_B2-7"),
            ("shop#12", "shop#12"),
            (" acme/shop.js_2-x#7 ", "acme/shop.js_2-x#7"),
        ] {
            assert_eq!(IssueKey::parse(text), Some(key.into()));
        }
        for text in [
            "",
            "ENG",
            "ENG-",
            "-1",
            "1-1",
            "ENG-1a",
            "ENG--1",
            "E NG-1",
            "ENG-1 OR 1",
            "É-1",
            "ENG-1\" OR key = \"X-1",
            "shop#",
            "shop#0",
            "shop#01",
            "shop#1a",
            "shop#9999999999",
            "#1",
            "a/b/c#1",
            "/shop#1",
            "acme/#1",
            "../shop#1",
            "sh op#1",
            "shop#1#2",
            "shöp#1",
        ] {
            assert_eq!(IssueKey::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn keys_of_github_name_repository_and_number() {
        let read = |text: &str| {
            let key = IssueKey::from(text);
            let (owner, name, number) = key.repo_and_number()?;
            Some((owner.map(str::to_owned), name.to_owned(), number))
        };
        assert_eq!(read("shop#12"), Some((None, "shop".into(), 12)));
        let with_owner = Some((Some("acme".into()), "shop".into(), 12));
        assert_eq!(read("acme/shop#12"), with_owner);
        assert_eq!(read("ENG-12"), None);
        let short = IssueKey::from("acme/shop#12").without_owner();
        assert_eq!(short, Some("shop#12".into()));
        assert_eq!(IssueKey::from("shop#12").without_owner(), None);
    }
}
