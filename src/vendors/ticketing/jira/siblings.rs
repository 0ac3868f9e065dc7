//! The issues beside an issue: other children of its parent.
//!
//! Search names no siblings, so the parents are asked for first: two searches for a hundred issues.
//! They are one page each, because a run hears of few siblings only.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;

use super::Jira;
use super::issue::{RelatedIssueFields, summary_line};
use crate::http::{Method, VendorError};
use domain::ids::IssueId;
use domain::issue::IssueRef;

const ACTION: &str = "reading sibling issues";

/// How many siblings of an issue does a run hear of?
const SIBLINGS: usize = 20;

/// How many issues are asked about at once?
const BATCH: usize = 100;

/// How many children of their parents do we look at?
const PAGE_SIZE: usize = 1_000;

pub(super) async fn read(
    jira: &Jira,
    issues: &[IssueRef],
) -> Result<HashMap<IssueId, Vec<String>>, VendorError> {
    let mut siblings = HashMap::new();
    for batch in issues.chunks(BATCH) {
        let ids = batch.iter().map(|issue| issue.id.as_str());
        let ours = search(jira, "id", ids, &["parent"]).await?;
        let parent_of: HashMap<&str, &str> = ours
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
        let shown = ["parent", "summary", "status"];
        let children = search(jira, "parent", parents.into_iter(), &shown).await?;
        for issue in batch {
            let Some(parent) = parent_of.get(issue.id.as_str()) else {
                continue;
            };
            let beside = children.iter().filter(|child| {
                let is_child = child
                    .fields
                    .parent
                    .as_ref()
                    .is_some_and(|own| own.id == *parent);
                is_child && child.id != issue.id.as_str()
            });
            let lines = beside.take(SIBLINGS).map(Child::line).collect();
            siblings.insert(issue.id.clone(), lines);
        }
    }
    Ok(siblings)
}

async fn search(
    jira: &Jira,
    field: &str,
    ids: impl Iterator<Item = &str>,
    shown: &[&str],
) -> Result<Vec<Child>, VendorError> {
    let ids: Vec<&str> = ids.collect();
    let query = format!("{field} in ({}) ORDER BY created ASC", ids.join(", "));
    let body = json!({"jql": query, "maxResults": PAGE_SIZE, "fields": shown});
    let request = jira
        .request(ACTION, Method::POST, "/search/jql")
        .json(&body);
    let found: Found = jira.client.send(&request.safe()).await?.json()?;
    Ok(found.issues)
}

#[derive(Deserialize)]
struct Found {
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
    shown: RelatedIssueFields,
}

#[derive(Deserialize)]
struct Parent {
    id: String,
}

impl Child {
    fn line(&self) -> String {
        summary_line(&self.key, &self.fields.shown)
    }
}
