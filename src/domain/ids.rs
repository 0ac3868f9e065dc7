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
    /// Parses untrusted text as a key: letters, digits and `_`, then `-` and a number. Anything
    /// else is rejected, because the key becomes part of queries.
    pub fn parse(text: &str) -> Option<Self> {
        let (project, number) = text.trim().rsplit_once('-')?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_key = project.starts_with(|c: char| c.is_ascii_alphabetic())
            && project.chars().all(is_word)
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit());
        is_key.then(|| Self(format!("{project}-{number}")))
    }
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
        ] {
            assert_eq!(IssueKey::parse(text), None, "{text:?}");
        }
    }
}
