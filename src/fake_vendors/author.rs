//! Accounts that write comments and change tickets.

use serde::{Deserialize, Serialize};

/// Account at a ticketing system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FakeAuthor {
    /// Account of the service.
    Service,
    /// Member of the organization, by short name. At GitHub, the permission of the login decides what it may do.
    Person(String),
    /// App or bot, by name.
    App(String),
    /// Person outside of the organization, by name: an external user at Linear, a customer at Jira.
    External(String),
}

impl FakeAuthor {
    /// Returns the member with this short name.
    pub fn person(name: &str) -> Self {
        Self::Person(name.to_owned())
    }

    /// Returns the app or bot with this name.
    pub fn app(name: &str) -> Self {
        Self::App(name.to_owned())
    }

    /// Returns the outside person with this name.
    pub fn external(name: &str) -> Self {
        Self::External(name.to_owned())
    }

    pub(crate) fn is_service(&self) -> bool {
        *self == Self::Service
    }

    /// Returns the name as a page shows it.
    pub(crate) fn display_name(&self) -> &str {
        match self {
            Self::Service => "Agent Implement",
            Self::Person(name) if name == "robin" => "Robin Example",
            Self::Person(name) | Self::App(name) | Self::External(name) => name,
        }
    }
}

/// Robin, who does everything for which a story names nobody.
impl Default for FakeAuthor {
    fn default() -> Self {
        Self::person("robin")
    }
}
