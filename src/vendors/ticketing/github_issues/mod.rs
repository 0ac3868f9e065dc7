//! GitHub Issues client, with labels as markers.
//!
//! It shares credentials, rate limits and caches with the client of the repository host. Issues are read
//! with the GraphQL API, many repositories per request; labels and comments are written with the REST
//! API, each label on its own, so that a concurrent change by a person is kept.

mod comments;
mod context;
mod find_issue;
mod keys;
mod matched_labels;
mod nodes;
mod pages;
mod snapshot;
mod stage_labels;
mod states;
mod ticket;
mod tracker;
mod trigger_authors;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::Deserialize;

use crate::http::{Availability, Quota, VendorError, VendorErrorKind};
use crate::scm::GitHub;
use crate::ticketing::read_changes::ReadChanges;
use crate::ticketing::sanitized_title;
use domain::ids::{IssueId, Repo};
use domain::issue::IssueRef;

use keys::IssueKeys;
use matched_labels::KnownLabels;
pub use tracker::IssueTracker;
use trigger_authors::KnownAuthor;

/// Client of the issues of GitHub. Clones share their caches.
#[derive(Clone)]
pub struct GitHubIssues {
    github: GitHub,
    /// Who set the trigger of the issues of the latest poll, by the time of their last update.
    trigger_authors: Arc<Mutex<HashMap<IssueId, KnownAuthor>>>,
    read_changes: Arc<Mutex<ReadChanges>>,
    /// Labels of the issues of the latest poll that mappings match, by the time of their last update.
    matched_labels: Arc<Mutex<HashMap<IssueId, KnownLabels>>>,
}

impl GitHubIssues {
    /// Creates a client that uses the credentials of the repository host.
    pub fn new(github: GitHub) -> Self {
        Self {
            github,
            trigger_authors: Arc::default(),
            read_changes: Arc::default(),
            matched_labels: Arc::default(),
        }
    }

    /// Returns what keeps GitHub from answering at the moment.
    pub fn availability(&self) -> Availability {
        self.github.availability()
    }

    /// Returns the rate limit with the least remaining requests.
    pub fn quota(&self) -> Quota {
        self.github.quota()
    }

    /// Returns all rate limits.
    pub fn quotas(&self) -> Vec<Quota> {
        self.github.quotas()
    }

    /// Returns the name of the authenticated user or App.
    ///
    /// # Errors
    /// 401 if the credential is rejected.
    pub async fn probe(&self) -> Result<String, VendorError> {
        self.github.probe().await
    }
}

/// Repository and number of an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IssueAddress {
    repo: Repo,
    number: u64,
}

impl IssueAddress {
    /// Reads the address of an issue.
    fn of(issue: &IssueRef, action: &'static str) -> Result<Self, VendorError> {
        let read = issue.repo_and_number();
        let (repo, number) = read.ok_or_else(|| {
            let kind = VendorErrorKind::Status {
                status: 422,
                message: format!("{} is not the address of an issue of GitHub", issue.url),
                retry_after: None,
            };
            VendorError::new("GitHub", action, kind)
        })?;
        Ok(Self { repo, number })
    }
}

#[derive(Deserialize)]
struct Connection<T> {
    /// A node that the credentials cannot see is `None`.
    nodes: Vec<Option<T>>,
}

impl<T> Connection<T> {
    fn into_nodes(self) -> impl Iterator<Item = T> {
        self.nodes.into_iter().flatten()
    }
}

impl<T> Default for Connection<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

/// Parent, sibling or blocking issue. In queries: [`RELATED_FIELDS`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RelatedIssue {
    number: u64,
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    state: IssueState,
    state_reason: Option<String>,
    repository: RepositoryName,
}

/// Fields of a [`RelatedIssue`].
const RELATED_FIELDS: &str = "number title state stateReason repository { nameWithOwner }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryName {
    name_with_owner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum IssueState {
    Open,
    #[serde(other)]
    Closed,
}

impl RelatedIssue {
    /// Returns the issue as one line of text.
    fn summary_line(&self, keys: &IssueKeys) -> String {
        let state = match (self.state, self.state_reason.as_deref()) {
            (IssueState::Open, _) => "open",
            (IssueState::Closed, Some("NOT_PLANNED")) => "closed as not planned",
            (IssueState::Closed, Some("DUPLICATE")) => "closed as duplicate",
            (IssueState::Closed, _) => "closed as completed",
        };
        format!("{}: {} ({state})", self.key(keys), self.title)
    }

    fn key(&self, keys: &IssueKeys) -> domain::ids::IssueKey {
        keys.key(&self.repository.name_with_owner, self.number)
    }
}

#[cfg(test)]
mod conversation_tests;
