//! What only a run needs of an issue: description, labels and siblings.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Connection, GitHubIssues, IssueKeys, Label, RELATED_FIELDS, RelatedIssue};
use crate::http::VendorError;
use domain::ids::IssueId;
use domain::issue::{IssueRef, RunContext};

/// Maximum number of siblings returned per issue.
const SIBLINGS: usize = 20;

const ACTION: &str = "reading issues about to start";

impl GitHubIssues {
    /// Returns the description of each issue, its labels, and its siblings as one line of text each.
    ///
    /// # Errors
    /// Fails if GitHub does not answer. An issue that cannot be read is left out.
    pub async fn run_contexts(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, RunContext>, VendorError> {
        // The issue itself is among the children of its parent.
        let selection = format!(
            "{{ body labels(first: 100) {{ nodes {{ name }} }} \
             parent {{ subIssues(first: 21) {{ nodes {{ id {RELATED_FIELDS} }} }} }} }}"
        );
        let mut contexts = HashMap::new();
        for group in self.group_issues(issues, ACTION)? {
            let ids: Vec<IssueId> = group.iter().map(|(issue, _)| issue.id.clone()).collect();
            let mut answers = self
                .read_nodes::<ContextIssue>(&group[0].1.repo, ACTION, &ids, &selection)
                .await?;
            for (issue, _) in group {
                if let Some(context) = answers.found.remove(&issue.id) {
                    let context = context.translate(&issue.id, &IssueKeys::beside(issue));
                    contexts.insert(issue.id.clone(), context);
                }
            }
        }
        Ok(contexts)
    }
}

#[derive(Deserialize)]
struct ContextIssue {
    body: String,
    labels: Option<Connection<Label>>,
    parent: Option<Parent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parent {
    sub_issues: Connection<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    id: IssueId,
    #[serde(flatten)]
    issue: RelatedIssue,
}

impl ContextIssue {
    fn translate(self, id: &IssueId, keys: &IssueKeys) -> RunContext {
        let labels = self.labels.unwrap_or_default().into_nodes();
        let children = self.parent.map(|parent| parent.sub_issues);
        let children = children.unwrap_or_default().into_nodes();
        let siblings = children.filter(|child| child.id != *id).take(SIBLINGS);
        RunContext {
            siblings: siblings
                .map(|child| child.issue.summary_line(keys))
                .collect(),
            labels: Some(labels.map(|label| label.name).collect()),
            description: Some(self.body),
        }
    }
}
