//! Comments of effects, made idempotent on a system without client-side ids.
//!
//! A comment has the effect id in a hidden comment property. The property is looked up only before an
//! attempt that follows a lost response.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Account, Jira, adf};
use crate::http::{Method, Response, VendorError, percent_encode};
use domain::ids::IssueId;
use domain::issue::IssueRef;
use domain::ticket_comment::{AuthorKind, TicketComment};
use domain::time::Timestamp;

/// Name of the comment property with the effect id.
const PROPERTY: &str = "agent-implement";

/// Maximum number of comments per page, newest first.
const PAGE_SIZE: usize = 100;

/// Maximum number of comments of people that are read per issue.
const MAX_READ: usize = 50;

/// Maximum number of pages read per issue.
const MAX_PAGES: usize = 20;

impl Jira {
    /// Creates a comment in Markdown. Call [`Jira::has_comment`] before repeating a call whose response was
    /// lost.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn create_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        let properties = json!([{"key": PROPERTY, "value": {"effect": effect_id}}]);
        let request = self
            .request("writing the comment", Method::POST, &path_of(issue))
            .json(&json!({"body": adf::from_markdown(body), "properties": properties}));
        self.client.send(&request).await.map(drop)
    }

    /// Returns whether the issue has the comment of this effect, created at `since` or later.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn has_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
        since: Timestamp,
    ) -> Result<bool, VendorError> {
        let (comments, _) = newest(self, "looking up the comment", &path_of(issue), 0).await?;
        let expected = adf::to_markdown(&adf::from_markdown(body));
        let is_ours = |comment: &Comment| match comment.effect() {
            Some(effect) => effect == effect_id,
            // Without properties in the response, an equal text after the first attempt identifies the comment.
            None => comment.created >= since && adf::to_markdown(&comment.body) == expected,
        };
        Ok(comments.iter().any(is_ours))
    }

    /// Replaces the text of the comment of an effect.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn edit_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        let path = own_path(self, issue, effect_id).await?;
        let request = self
            .request("updating the comment", Method::PUT, &path)
            .json(&json!({"body": adf::from_markdown(body)}));
        self.client.send(&request).await.map(drop)
    }

    /// Deletes the comment of an effect.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn delete_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
    ) -> Result<(), VendorError> {
        let path = own_path(self, issue, effect_id).await?;
        let request = self.request("deleting the comment", Method::DELETE, &path);
        self.client.send(&request).await.map(drop)
    }

    /// Returns the newest comments of an issue, newest first.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub(super) async fn newest_comments(
        &self,
        issue: &IssueRef,
    ) -> Result<Vec<TicketComment>, VendorError> {
        let path = path_of(issue);
        let query = format!("?orderBy=-created&maxResults={MAX_READ}&expand=properties");
        let request = self.get("reading comments", &format!("{path}{query}"));
        let page: Page = self.client.send(&request).await?.json()?;
        let own_account = self.own_account().await?;
        let comments = page.comments.into_iter();
        Ok(comments
            .map(|comment| comment.translate(&issue.id, &own_account))
            .collect())
    }

    /// Returns the current texts of the comments of these effects, in the given order. Reads the newest comments
    /// first, and further pages only while a comment is missing.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        const ACTION: &str = "reading our comments";
        let path = path_of(issue);
        let mut found: HashMap<String, String> = HashMap::new();
        let mut missing_properties = None;
        for page in 0..MAX_PAGES {
            let (comments, response) = newest(self, ACTION, &path, page * PAGE_SIZE).await?;
            for comment in &comments {
                match comment.effect() {
                    Some(effect) if effect_ids.iter().any(|wanted| wanted == effect) => {
                        found.insert(effect.to_owned(), adf::to_markdown(&comment.body));
                    }
                    Some(_) => {}
                    None => {
                        const MESSAGE: &str = "comments lack their properties";
                        missing_properties.get_or_insert_with(|| response.decode_error(MESSAGE));
                    }
                }
            }
            if found.len() == effect_ids.len() || comments.len() < PAGE_SIZE {
                break;
            }
        }
        if let Some(error) = missing_properties
            && found.len() < effect_ids.len()
        {
            return Err(error);
        }
        let in_order = effect_ids.iter().filter_map(|effect| found.remove(effect));
        Ok(in_order.collect())
    }
}

fn path_of(issue: &IssueRef) -> String {
    format!("/issue/{}/comment", percent_encode(issue.id.as_str()))
}

/// Returns the API path of the comment of an effect.
async fn own_path(jira: &Jira, issue: &IssueRef, effect_id: &str) -> Result<String, VendorError> {
    let path = path_of(issue);
    let (comments, response) = newest(jira, "looking up the comment", &path, 0).await?;
    let own = comments
        .iter()
        .find(|comment| comment.effect() == Some(effect_id));
    let own = own.ok_or_else(|| {
        response.status_error(404, "the comment was not found among the newest 100")
    })?;
    Ok(format!("{path}/{}", percent_encode(&own.id)))
}

/// Reads a page of comments, newest first.
async fn newest(
    jira: &Jira,
    action: &'static str,
    path: &str,
    start: usize,
) -> Result<(Vec<Comment>, Response), VendorError> {
    let query =
        format!("?orderBy=-created&startAt={start}&maxResults={PAGE_SIZE}&expand=properties");
    let request = jira.get(action, &format!("{path}{query}"));
    let response = jira.client.send(&request).await?;
    let page: Page = response.json()?;
    Ok((page.comments, response))
}

impl Comment {
    /// Returns the effect id, empty for a comment of others. `None` if the response lacks the properties.
    fn effect(&self) -> Option<&str> {
        let properties = self.properties.as_ref()?;
        let own = properties.iter().find(|property| property.key == PROPERTY);
        Some(
            own.and_then(|own| own.value["effect"].as_str())
                .unwrap_or_default(),
        )
    }
}

impl Comment {
    /// Converts a comment. One with our property by another account is of an earlier account of the service, or forged.
    /// Without properties in the response, ours look like those of a person, so nobody's count.
    fn translate(self, issue: &IssueId, own_account: &str) -> TicketComment {
        let mut author = self
            .author
            .as_ref()
            .map_or_else(Account::deleted, Account::author);
        let effect = match self.effect() {
            Some("") => None,
            Some(effect) if author.id == own_account => {
                author.kind = AuthorKind::Service;
                Some(effect.to_owned())
            }
            Some(_) | None => {
                author.kind = AuthorKind::Other;
                None
            }
        };
        TicketComment {
            id: self.id,
            issue: issue.clone(),
            author,
            created_at: self.created,
            updated_at: self.updated.unwrap_or(self.created),
            body: adf::to_markdown(&self.body),
            effect_id: effect,
        }
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
    updated: Option<Timestamp>,
    author: Option<Account>,
    properties: Option<Vec<Property>>,
}

#[derive(Deserialize)]
struct Property {
    key: String,
    #[serde(default)]
    value: Value,
}
