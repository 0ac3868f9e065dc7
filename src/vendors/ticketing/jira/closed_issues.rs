//! Detection of closed issues.

use std::collections::HashSet;

use super::Jira;
use super::bulk_fetch::{BULK_FETCH_SIZE, FetchedIssue};
use super::issue::{RelatedIssueFields, Status};
use crate::http::VendorError;
use domain::ids::IssueId;
use domain::issue::IssueRef;

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
        for batch in issues.chunks(BULK_FETCH_SIZE) {
            let ids: Vec<&IssueId> = batch.iter().map(|issue| &issue.id).collect();
            let fetched = self.bulk_fetch(ACTION, &ids, &["status"]).await?;
            let open = fetched.issues.into_iter().filter(is_open);
            // The state of an issue with an error is unknown. An issue without entry was deleted.
            let unknown = fetched.errors.into_iter().map(|error| error.id);
            let not_closed: HashSet<String> = open.map(|issue| issue.id).chain(unknown).collect();
            let is_closed = |id: &&IssueId| !not_closed.contains(id.as_str());
            closed.extend(ids.into_iter().filter(is_closed).cloned());
        }
        Ok(closed)
    }
}

fn is_open(issue: &FetchedIssue<RelatedIssueFields>) -> bool {
    !issue.fields.status.as_ref().is_some_and(Status::is_done)
}
