//! Which of some issues need no more work.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;

use super::Linear;
use super::snapshot::{Connection, State};
use crate::http::VendorError;
use domain::ids::IssueId;
use domain::issue::IssueRef;

/// How many issues are asked about at once?
const BATCH: usize = 100;

/// Archived and deleted issues are left out of the answer.
const STATES: &str = "\
query($first: Int!, $ids: [ID!]!) {
  issues(first: $first, filter: { id: { in: $ids } }) { nodes { id state { name type } } }
}";

pub(super) async fn find(
    linear: &Linear,
    issues: &[IssueRef],
) -> Result<HashSet<IssueId>, VendorError> {
    let mut closed = HashSet::new();
    for batch in issues.chunks(BATCH) {
        let ids: Vec<&IssueId> = batch.iter().map(|issue| &issue.id).collect();
        let variables = json!({ "first": ids.len(), "ids": ids });
        let found: Found = linear
            .execute(linear.query("asking for the issues' states", STATES, variables))
            .await?;
        let open = found.issues.nodes.into_iter();
        let open: HashSet<IssueId> = open
            .filter(|issue| issue.state.is_open())
            .map(|issue| issue.id)
            .collect();
        closed.extend(ids.into_iter().filter(|id| !open.contains(*id)).cloned());
    }
    Ok(closed)
}

#[derive(Deserialize)]
struct Found {
    issues: Connection<Issue>,
}

#[derive(Deserialize)]
struct Issue {
    id: IssueId,
    state: State,
}
