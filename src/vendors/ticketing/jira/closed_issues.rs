//! Detection of closed issues.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;

use super::Jira;
use super::issue::{RelatedIssueFields, Status};
use crate::http::{Method, VendorError};
use domain::ids::IssueId;
use domain::issue::IssueRef;

/// Maximum number of issues per request (Jira's limit).
const BATCH: usize = 100;

impl Jira {
    /// Returns those of the issues that are done or deleted.
    ///
    /// # Errors
    /// Fails if the states cannot be read.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        const ACTION: &str = "reading the states of issues";
        let mut closed = HashSet::new();
        for batch in issues.chunks(BATCH) {
            let ids: Vec<&IssueId> = batch.iter().map(|issue| &issue.id).collect();
            let body = json!({"issueIdsOrKeys": ids, "fields": ["status"]});
            let request = self
                .request(ACTION, Method::POST, "/issue/bulkfetch")
                .json(&body);
            let fetched: BulkFetchPage = self.client.send(&request.safe()).await?.json()?;
            let open = fetched.issues.into_iter().filter(Issue::is_open);
            // The state of an issue with an error is unknown. An issue without entry was deleted.
            let unknown = fetched.errors.into_iter().map(|error| error.id);
            let not_closed: HashSet<String> = open.map(|issue| issue.id).chain(unknown).collect();
            let is_closed = |id: &&IssueId| !not_closed.contains(id.as_str());
            closed.extend(ids.into_iter().filter(is_closed).cloned());
        }
        Ok(closed)
    }
}

#[derive(Deserialize)]
struct BulkFetchPage {
    #[serde(default)]
    issues: Vec<Issue>,
    #[serde(default, rename = "issueErrors")]
    errors: Vec<IssueError>,
}

#[derive(Deserialize)]
struct IssueError {
    id: String,
}

#[derive(Deserialize)]
struct Issue {
    id: String,
    fields: RelatedIssueFields,
}

impl Issue {
    fn is_open(&self) -> bool {
        !self.fields.status.as_ref().is_some_and(Status::is_done)
    }
}
