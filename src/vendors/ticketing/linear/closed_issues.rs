//! Detection of closed issues.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;

use super::Linear;
use super::snapshot::{Connection, State};
use crate::http::VendorError;
use domain::ids::IssueId;
use domain::issue::IssueRef;

/// Maximum number of issues per request.
const BATCH: usize = 100;

/// Query for the states of issues. The response does not contain archived and deleted issues.
const STATES: &str = "\
query($first: Int!, $ids: [ID!]!) {
  issues(first: $first, filter: { id: { in: $ids } }) { nodes { id state { name type } } }
}";

impl Linear {
    /// Returns those of the issues that are completed, cancelled or deleted.
    ///
    /// # Errors
    /// Fails if the states cannot be read.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        let mut closed = HashSet::new();
        for batch in issues.chunks(BATCH) {
            let ids: Vec<&IssueId> = batch.iter().map(|issue| &issue.id).collect();
            let variables = json!({ "first": ids.len(), "ids": ids });
            let page: Page = self
                .execute(self.query("reading the states of issues", STATES, variables))
                .await?;
            let open = page.issues.nodes.into_iter();
            let open: HashSet<IssueId> = open
                .filter(|issue| issue.state.is_open())
                .map(|issue| issue.id)
                .collect();
            closed.extend(ids.into_iter().filter(|id| !open.contains(*id)).cloned());
        }
        Ok(closed)
    }
}

#[derive(Deserialize)]
struct Page {
    issues: Connection<Issue>,
}

#[derive(Deserialize)]
struct Issue {
    id: IssueId,
    state: State,
}
