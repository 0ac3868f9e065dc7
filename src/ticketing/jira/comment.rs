//! Writing a comment once, on a system that takes no id from us.
//!
//! A comment carries the effect's id in a property of its own, which no reader sees. It is looked
//! for only before a try that follows one whose answer was lost.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Tried;
use super::{Jira, adf};
use crate::domain::issue::IssueRef;
use crate::domain::time::Timestamp;
use crate::wire::{Method, VendorError, url_encoded};

/// The property that holds the effect's id.
const PROPERTY: &str = "agent-implement";

/// How many of the newest comments are looked through? Ours was written moments ago.
const LOOKED_THROUGH: usize = 100;

pub(super) async fn write(
    jira: &Jira,
    issue: &IssueRef,
    effect_id: &str,
    body: &str,
    tried: Tried,
) -> Result<(), VendorError> {
    let body = adf::document(body);
    let path = format!("/issue/{}/comment", url_encoded(issue.id.as_str()));
    if let Tried::Perhaps { since } = tried
        && is_there(jira, &path, effect_id, &body, since).await?
    {
        return Ok(());
    }
    let properties = json!([{"key": PROPERTY, "value": {"effect": effect_id}}]);
    let request = jira
        .request("writing the comment", Method::POST, &path)
        .json(&json!({"body": body, "properties": properties}));
    jira.wire.send(&request).await.map(drop)
}

async fn is_there(
    jira: &Jira,
    path: &str,
    effect_id: &str,
    body: &Value,
    since: Timestamp,
) -> Result<bool, VendorError> {
    let query = format!("?orderBy=-created&maxResults={LOOKED_THROUGH}&expand=properties");
    let request = jira.get("looking for the comment", &format!("{path}{query}"));
    let page: Page = jira.wire.send(&request).await?.json()?;
    let is_ours = |comment: &Comment| match &comment.properties {
        Some(properties) => properties
            .iter()
            .any(|one| one.key == PROPERTY && one.value["effect"] == effect_id),
        // A server that does not show properties: the same words after the first try are the proof.
        None => comment.created >= since && adf::markdown(&comment.body) == adf::markdown(body),
    };
    Ok(page.comments.iter().any(is_ours))
}

#[derive(Deserialize)]
struct Page {
    comments: Vec<Comment>,
}

#[derive(Deserialize)]
struct Comment {
    body: Value,
    created: Timestamp,
    properties: Option<Vec<Property>>,
}

#[derive(Deserialize)]
struct Property {
    key: String,
    #[serde(default)]
    value: Value,
}
