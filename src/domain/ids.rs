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
