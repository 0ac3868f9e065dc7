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
    let newest = newest(jira, "looking for the comment", path).await?;
    let is_ours = |comment: &Comment| match &comment.properties {
        Some(_) => comment.effect() == Some(effect_id),
        // A server that does not show properties: the same words after the first try are the proof.
        None => comment.created >= since && adf::markdown(&comment.body) == adf::markdown(body),
    };
    Ok(newest.iter().any(is_ours))
}

/// The comments that were written for these effects, as they stand now, in the order asked for.
pub(super) async fn of_effects(
    jira: &Jira,
    issue: &IssueRef,
    effect_ids: &[String],
) -> Result<Vec<String>, VendorError> {
    let path = format!("/issue/{}/comment", url_encoded(issue.id.as_str()));
    let newest = newest(jira, "reading our comments", &path).await?;
    let of = |effect: &String| {
        newest
            .iter()
            .find(|comment| comment.effect() == Some(effect))
    };
    let found = effect_ids.iter().filter_map(of);
    Ok(found.map(|comment| adf::markdown(&comment.body)).collect())
}

async fn newest(
    jira: &Jira,
    action: &'static str,
    path: &str,
) -> Result<Vec<Comment>, VendorError> {
    let query = format!("?orderBy=-created&maxResults={LOOKED_THROUGH}&expand=properties");
    let request = jira.get(action, &format!("{path}{query}"));
    let page: Page = jira.wire.send(&request).await?.json()?;
    Ok(page.comments)
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

impl Comment {
    /// The effect it was written for, if it is ours.
    fn effect(&self) -> Option<&str> {
        let ours = self
            .properties
            .iter()
            .flatten()
            .find(|one| one.key == PROPERTY)?;
        ours.value["effect"].as_str()
    }
}

#[derive(Deserialize)]
struct Property {
    key: String,
    #[serde(default)]
    value: Value,
}
