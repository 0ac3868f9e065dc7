//! Detection of closed issues.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{GitHubIssues, IssueState};
use crate::http::VendorError;
use domain::ids::IssueId;
use domain::issue::IssueRef;

/// Maximum number of issues per request.
const BATCH: usize = 100;

const ACTION: &str = "reading the states of issues";

impl GitHubIssues {
    /// Returns those of the issues that are closed, deleted or transferred to another repository.
    ///
    /// # Errors
    /// Fails if GitHub does not answer. An issue whose repository cannot be read never counts as closed.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        let mut closed = HashSet::new();
        for group in self.group_issues(issues, ACTION)? {
            for batch in group.chunks(BATCH) {
                let (mut parameters, mut fields) = (Vec::new(), String::new());
                let mut variables = Map::new();
                for (at, (_, address)) in batch.iter().enumerate() {
                    parameters.push(format!("$o{at}: String!, $n{at}: String!, $i{at}: Int!"));
                    fields += &format!(
                        "r{at}: repository(owner: $o{at}, name: $n{at}) {{ \
                         issue(number: $i{at}) {{ id state }} }}\n"
                    );
                    variables.insert(format!("o{at}"), address.repo.owner.as_str().into());
                    variables.insert(format!("n{at}"), address.repo.name.as_str().into());
                    variables.insert(format!("i{at}"), address.number.into());
                }
                let query = format!("query({}) {{\n{fields}}}", parameters.join(", "));
                let (mut data, errors) = self
                    .github
                    .graphql_partial::<HashMap<String, Option<RepoNode>>>(
                        &batch[0].1.repo,
                        ACTION,
                        &query,
                        &Value::Object(variables),
                    )
                    .await?;
                for (at, (issue, _)) in batch.iter().enumerate() {
                    let Some(Some(repo)) = data.remove(&format!("r{at}")) else {
                        continue;
                    };
                    let is_missing = || {
                        let path = format!("r{at}.issue");
                        let mut errors = errors.iter();
                        errors.any(|error| error.path == path && error.status == 404)
                    };
                    let is_closed = match repo.issue {
                        Some(found) => found.state == IssueState::Closed || found.id != issue.id,
                        None => is_missing(),
                    };
                    if is_closed {
                        closed.insert(issue.id.clone());
                    }
                }
            }
        }
        Ok(closed)
    }
}

#[derive(Deserialize)]
struct RepoNode {
    issue: Option<StateNode>,
}

#[derive(Deserialize)]
struct StateNode {
    id: IssueId,
    state: IssueState,
}
