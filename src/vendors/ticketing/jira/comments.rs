//! Writing a comment once, on a system that takes no id from us.
//!
//! A comment carries the effect's id in a property of its own, which no reader sees. It is looked
//! for only before a try that follows one whose answer was lost.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Jira, adf};
use crate::http::{Method, Response, VendorError, percent_encode};
use domain::issue::IssueRef;
use domain::time::Timestamp;

/// The property that holds the effect's id.
const PROPERTY: &str = "agent-implement";

/// How many comments are read at once? One written moments ago is among the first.
const LOOKED_THROUGH: usize = 100;

/// How many pages of a ticket's talk are read?
const MAX_PAGES: usize = 20;

pub(super) async fn create(
    jira: &Jira,
    issue: &IssueRef,
    effect_id: &str,
    body: &str,
) -> Result<(), VendorError> {
    let properties = json!([{"key": PROPERTY, "value": {"effect": effect_id}}]);
    let request = jira
        .request("writing the comment", Method::POST, &path_of(issue))
        .json(&json!({"body": adf::from_markdown(body), "properties": properties}));
    jira.client.send(&request).await.map(drop)
}

pub(super) async fn exists(
    jira: &Jira,
    issue: &IssueRef,
    effect_id: &str,
    body: &str,
    since: Timestamp,
) -> Result<bool, VendorError> {
    let (comments, _) = newest(jira, "looking for the comment", &path_of(issue), 0).await?;
    let words = adf::to_markdown(&adf::from_markdown(body));
    let is_ours = |comment: &Comment| match comment.effect() {
        Some(effect) => effect == effect_id,
        // A server that does not show properties: the same words after the first try are the proof.
        None => comment.created >= since && adf::to_markdown(&comment.body) == words,
    };
    Ok(comments.iter().any(is_ours))
}

fn path_of(issue: &IssueRef) -> String {
    format!("/issue/{}/comment", percent_encode(issue.id.as_str()))
}

/// Replaces the text of our comment of this effect.
pub(super) async fn edit(
    jira: &Jira,
    issue: &IssueRef,
    effect_id: &str,
    body: &str,
) -> Result<(), VendorError> {
    let path = own_path(jira, issue, effect_id).await?;
    let request = jira
        .request("changing the comment", Method::PUT, &path)
        .json(&json!({"body": adf::from_markdown(body)}));
    jira.client.send(&request).await.map(drop)
}

/// Deletes our comment of this effect.
pub(super) async fn delete(
    jira: &Jira,
    issue: &IssueRef,
    effect_id: &str,
) -> Result<(), VendorError> {
    let path = own_path(jira, issue, effect_id).await?;
    let request = jira.request("deleting the comment", Method::DELETE, &path);
    jira.client.send(&request).await.map(drop)
}

/// Where our comment of this effect is found.
async fn own_path(jira: &Jira, issue: &IssueRef, effect_id: &str) -> Result<String, VendorError> {
    let path = path_of(issue);
    let (comments, response) = newest(jira, "looking for the comment", &path, 0).await?;
    let own = comments
        .iter()
        .find(|comment| comment.effect() == Some(effect_id));
    let own =
        own.ok_or_else(|| response.status_error(404, "our comment is not among the newest"))?;
    Ok(format!("{path}/{}", percent_encode(&own.id)))
}

/// Our comments of these effects, in this order. The newest are looked at first; a ticket's whole
/// talk is read only for one that is not there.
pub(super) async fn read_own(
    jira: &Jira,
    issue: &IssueRef,
    effect_ids: &[String],
) -> Result<Vec<String>, VendorError> {
    const ACTION: &str = "reading our comments";
    let path = path_of(issue);
    let mut found: HashMap<String, String> = HashMap::new();
    let mut untold = None;
    for page in 0..MAX_PAGES {
        let (comments, response) = newest(jira, ACTION, &path, page * LOOKED_THROUGH).await?;
        for comment in &comments {
            match comment.effect() {
                Some(effect) if effect_ids.iter().any(|wanted| wanted == effect) => {
                    found.insert(effect.to_owned(), adf::to_markdown(&comment.body));
                }
                Some(_) => {}
                None => {
                    const WHY: &str = "its comments come without their properties";
                    untold.get_or_insert_with(|| response.decode_error(WHY));
                }
            }
        }
        if found.len() == effect_ids.len() || comments.len() < LOOKED_THROUGH {
            break;
        }
    }
    if let Some(misread) = untold
        && found.len() < effect_ids.len()
    {
        return Err(misread);
    }
    let in_order = effect_ids.iter().filter_map(|effect| found.remove(effect));
    Ok(in_order.collect())
}

async fn newest(
    jira: &Jira,
    action: &'static str,
    path: &str,
    start: usize,
) -> Result<(Vec<Comment>, Response), VendorError> {
    let query =
        format!("?orderBy=-created&startAt={start}&maxResults={LOOKED_THROUGH}&expand=properties");
    let request = jira.get(action, &format!("{path}{query}"));
    let response = jira.client.send(&request).await?;
    let page: Page = response.json()?;
    Ok((page.comments, response))
}

impl Comment {
    /// The effect it was written for, empty when it was none of ours; None when the server does
    /// not say.
    fn effect(&self) -> Option<&str> {
        let properties = self.properties.as_ref()?;
        let own = properties.iter().find(|property| property.key == PROPERTY);
        Some(
            own.and_then(|own| own.value["effect"].as_str())
                .unwrap_or_default(),
        )
    }
}

#[derive(Deserialize)]
struct Page {
    comments: Vec<Comment>,
}

#[derive(Deserialize)]
struct Comment {
    id: String,
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
