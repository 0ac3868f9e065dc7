//! Siblings of issues: other children of the same parent.
//!
//! Search returns no siblings, so the parents are read first: two searches per 100 issues. Only the first
//! page of each search is read, because a run gets few siblings only.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;

use super::Jira;
use super::issue::{RelatedIssueFields, summary_line};
use crate::http::{Method, VendorError};
use domain::ids::IssueId;
use domain::issue::IssueRef;

const ACTION: &str = "reading sibling issues";

/// Maximum number of siblings returned per issue.
const SIBLINGS: usize = 20;

/// Maximum number of issues per search.
const BATCH: usize = 100;

/// Maximum number of children read per search.
const PAGE_SIZE: usize = 1_000;

impl Jira {
    /// Returns the siblings of each issue, as one line of text each.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub async fn siblings(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, Vec<String>>, VendorError> {
        let mut siblings = HashMap::new();
        for batch in issues.chunks(BATCH) {
            let ids = batch.iter().map(|issue| issue.id.as_str());
            let own_issues = search(self, "id", ids, &["parent"]).await?;
            let parent_of: HashMap<&str, &str> = own_issues
                .iter()
                .filter_map(|issue| {
                    Some((issue.id.as_str(), issue.fields.parent.as_ref()?.id.as_str()))
                })
                .collect();
            let mut parents: Vec<&str> = parent_of.values().copied().collect();
            parents.sort_unstable();
            parents.dedup();
            if parents.is_empty() {
                continue;
            }
            let requested_fields = ["parent", "summary", "status"];
            let children = search(self, "parent", parents.into_iter(), &requested_fields).await?;
            for issue in batch {
                let Some(parent) = parent_of.get(issue.id.as_str()) else {
                    continue;
                };
                let other_children = children.iter().filter(|child| {
                    let is_child = child
                        .fields
                        .parent
                        .as_ref()
                        .is_some_and(|own| own.id == *parent);
                    is_child && child.id != issue.id.as_str()
                });
                let lines = other_children
                    .take(SIBLINGS)
                    .map(Child::summary_line)
                    .collect();
                siblings.insert(issue.id.clone(), lines);
            }
        }
        Ok(siblings)
    }
}

async fn search(
    jira: &Jira,
    field: &str,
    ids: impl Iterator<Item = &str>,
    requested_fields: &[&str],
) -> Result<Vec<Child>, VendorError> {
    let ids: Vec<&str> = ids.collect();
    let query = format!("{field} in ({}) ORDER BY created ASC", ids.join(", "));
    let body = json!({"jql": query, "maxResults": PAGE_SIZE, "fields": requested_fields});
    let request = jira
        .request(ACTION, Method::POST, "/search/jql")
        .json(&body);
    let found: SearchPage = jira.client.send(&request.safe()).await?.json()?;
    Ok(found.issues)
}

#[derive(Deserialize)]
struct SearchPage {
    #[serde(default)]
    issues: Vec<Child>,
}

#[derive(Deserialize)]
struct Child {
    id: String,
    key: String,
    fields: ChildFields,
}

#[derive(Deserialize)]
struct ChildFields {
    parent: Option<Parent>,
    #[serde(flatten)]
    details: RelatedIssueFields,
}

#[derive(Deserialize)]
struct Parent {
    id: String,
}

impl Child {
    fn summary_line(&self) -> String {
        summary_line(&self.key, &self.fields.details)
    }
}
