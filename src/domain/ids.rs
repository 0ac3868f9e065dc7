//! The names things go by. Each is a string of its own type, so that no call can mix two up.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

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
    /// One run we asked for. A ULID: sorts by the time it was reserved.
    ///
    /// It is the dispatch id as well: the name that the run carries outside (run name, machine
    /// metadata, container label), by which it is found again after a crash. One dispatch is one
    /// job, so a second id could only disagree with the first.
    JobId
);
string_id!(
    /// Key of a project mapping. On system A it is the team's key.
    TeamKey
);
string_id!(
    /// The ticketing system's own id of an issue; stable when the issue moves.
    IssueId
);
string_id!(
    /// What people call an issue, such as `ENG-42`.
    IssueKey
);

impl IssueKey {
    /// Reads a key as a stranger gave it: letters, digits and `_`, a `-` and a number. Nothing else
    /// is a key in any system, or may get into a query.
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

/// A repository on the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Repo {
    pub owner: String,
    pub name: String,
}

impl Repo {
    pub fn new(owner: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            name: name.into(),
        }
    }

    /// Reads `owner/name`.
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
    fn only_what_looks_like_a_key_is_one() {
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
