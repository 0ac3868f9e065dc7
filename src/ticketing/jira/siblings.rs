//! The other children of an issue's parent: two searches, however many issues are asked about.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Jira;
use super::snapshot::Other;
use crate::domain::ids::IssueId;
use crate::domain::issue::IssueRef;
use crate::wire::{Method, VendorError};

const ACTION: &str = "reading sibling issues";

/// How many siblings of an issue does a run hear of?
const SIBLINGS: usize = 20;

/// How many issues does one search answer with? Beyond it, a run hears of fewer siblings.
const MOST: usize = 1_000;

pub(super) async fn read(
    jira: &Jira,
    issues: &[IssueRef],
) -> Result<HashMap<IssueId, Vec<String>>, VendorError> {
    let keys: Vec<&str> = issues.iter().map(|issue| issue.key.as_str()).collect();
    let asked: Vec<Child> =
        search(jira, &format!("issuekey in ({})", list(&keys)), &["parent"]).await?;
    let parents: HashMap<&str, &str> = asked
        .iter()
        .filter_map(|child| {
            Some((
                child.key.as_str(),
                child.fields.parent.as_ref()?.key.as_str(),
            ))
        })
        .collect();
    if parents.is_empty() {
        return Ok(HashMap::new());
    }
    let mut wanted: Vec<&str> = parents.values().copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let query = format!("parent in ({}) ORDER BY created ASC", list(&wanted));
    let children: Vec<Sibling> = search(jira, &query, &["parent", "summary", "status"]).await?;
    let siblings = |issue: &IssueRef| {
        let parent = parents.get(issue.key.as_str())?;
        let others = children
            .iter()
            .filter(|child| child.is_of(parent) && child.issue.key != issue.key.as_str());
        Some((
            issue.id.clone(),
            others
                .take(SIBLINGS)
                .map(|child| child.issue.line())
                .collect(),
        ))
    };
    Ok(issues.iter().filter_map(siblings).collect())
}

/// Keys are the vendor's own; quoted, because a project may be called like a word of the language.
fn list(keys: &[&str]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    quoted.join(", ")
}

async fn search<T: DeserializeOwned>(
    jira: &Jira,
    query: &str,
    fields: &[&str],
) -> Result<Vec<T>, VendorError> {
    let body = json!({"jql": query, "maxResults": MOST, "fields": fields});
    let request = jira.request(ACTION, Method::POST, "/search/jql");
    let page: Page<T> = jira.wire.send(&request.json(&body).safe()).await?.json()?;
    Ok(page.issues)
}

#[derive(Deserialize)]
struct Page<T> {
    issues: Vec<T>,
}

#[derive(Deserialize)]
struct Child {
    key: String,
    fields: ChildFields,
}

#[derive(Deserialize)]
struct ChildFields {
    parent: Option<Parent>,
}

#[derive(Deserialize)]
struct Parent {
    key: String,
}

struct Sibling {
    parent: Option<String>,
    issue: Other,
}

impl Sibling {
    fn is_of(&self, parent: &str) -> bool {
        self.parent.as_deref() == Some(parent)
    }
}

impl<'de> Deserialize<'de> for Sibling {
    /// The same object read twice: as a child, for its parent, and as an issue beside ours.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let child = Child::deserialize(&value).map_err(serde::de::Error::custom)?;
        let issue = Other::deserialize(&value).map_err(serde::de::Error::custom)?;
        Ok(Self {
            parent: child.fields.parent.map(|parent| parent.key),
            issue,
        })
    }
}
