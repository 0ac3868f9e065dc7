//! Linear client (GraphQL API), with labels as markers.
//!
//! Labels are added and removed one by one and never written as a list, so that a concurrent change by a
//! person is kept.
//!
//! Rightly ours: Linear publishes no client for Rust. `graphql_client` would need the schema of 1 MB in the
//! repository, and cannot build the queries with a field per issue.

mod auth;
mod closed_issues;
mod comments;
mod context;
mod find_issue;
mod match_names;
mod matched_labels;
mod relations;
mod snapshot;
mod stage_labels;
mod teams;
mod ticket;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{Availability, Client, Method, Quota, Request, Response, VendorError};
use domain::crypto::{deterministic_uuid, hashed_uuid};
use domain::issue::IssueRef;

use super::attachments::UploadHost;
use auth::Auth;
pub use auth::LinearCredentials;

/// Maximum size of a response, in bytes. A page of issues contains their descriptions.
const MAX_BODY: usize = 64 << 20;

/// Address below which files that people upload are.
const UPLOADS_URL: &str = "https://uploads.linear.app";

/// Client of an account at Linear. Clones share the token and what polls have learned.
#[derive(Clone)]
pub struct Linear {
    client: Client,
    endpoint: String,
    auth: Auth,
    uploads: UploadHost,
    /// Number of issues that the first page of a poll asks for.
    first_page_size: Arc<AtomicUsize>,
}

impl Linear {
    /// Creates a client. `api_url` is the API address without `/graphql`.
    pub fn new(client: Client, api_url: &str, credentials: LinearCredentials) -> Self {
        let api_url = api_url.trim_end_matches('/');
        Self {
            auth: Auth::new(client.clone(), api_url, credentials),
            client,
            endpoint: format!("{api_url}/graphql"),
            uploads: UploadHost::new(UPLOADS_URL),
            first_page_size: Arc::new(AtomicUsize::new(snapshot::PAGE_SIZE)),
        }
    }

    /// Creates a comment in Markdown. Idempotent, because the id of the comment is derived from `effect_id`.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn create_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($input: CommentCreateInput!) { \
            commentCreate(input: $input) { success } }";
        let id = deterministic_uuid(effect_id);
        let input = json!({"id": id, "issueId": issue.id, "body": body});
        let result: Result<Value, _> = self
            .execute(self.mutation("writing the comment", QUERY, json!({ "input": input })))
            .await;
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() && !error.is_not_found() => {
                // The error of a duplicate id is not documented. The existing comment is the proof.
                match self.comment_exists(&id, issue).await {
                    Ok(true) => Ok(()),
                    // It is unknown whether the comment exists. The permanent error would stop the retries.
                    Err(transient) if !transient.is_permanent() => Err(transient),
                    Ok(false) | Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the comment that [`create_comment`](Self::create_comment) created for an effect.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn delete_comment(&self, effect_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: String!) { commentDelete(id: $id) { success } }";
        let delete = async |id: String| {
            let request = self.mutation("deleting the comment", QUERY, json!({ "id": id }));
            self.execute::<Value>(request).await.map(drop)
        };
        match delete(deterministic_uuid(effect_id)).await {
            Err(error) if error.is_not_found() => delete(hashed_uuid(effect_id)).await,
            outcome => outcome,
        }
    }

    /// Replaces the text of the comment that [`create_comment`](Self::create_comment) created for an effect.
    ///
    /// # Errors
    /// `is_not_found()` if the comment does not exist.
    pub async fn edit_comment(&self, effect_id: &str, body: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: String!, $input: CommentUpdateInput!) { \
            commentUpdate(id: $id, input: $input) { success } }";
        let update = async |id: String| {
            let variables = json!({"id": id, "input": {"body": body}});
            let request = self.mutation("updating the comment", QUERY, variables);
            self.execute::<Value>(request).await.map(drop)
        };
        match update(deterministic_uuid(effect_id)).await {
            Err(error) if error.is_not_found() => update(hashed_uuid(effect_id)).await,
            outcome => outcome,
        }
    }

    /// Links a pull request to the issue. Idempotent per URL.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn link_pull_request(
        &self,
        issue: &IssueRef,
        title: &str,
        url: &str,
    ) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($input: AttachmentCreateInput!) { \
            attachmentCreate(input: $input) { success } }";
        let input = json!({"issueId": issue.id, "title": title, "url": url});
        self.execute::<Value>(self.mutation(
            "linking the pull request",
            QUERY,
            json!({ "input": input }),
        ))
        .await
        .map(drop)
    }

    /// Returns what keeps Linear from answering at the moment.
    pub fn availability(&self) -> Availability {
        self.client.availability()
    }

    /// Returns the rate limit with the least remaining share.
    pub fn quota(&self) -> Quota {
        self.client.quota()
    }

    /// Returns all rate limits.
    pub fn quotas(&self) -> Vec<Quota> {
        self.client.quotas()
    }

    /// Returns the name of the account and of its organization.
    ///
    /// # Errors
    /// 401 if the credential is rejected.
    pub async fn probe(&self) -> Result<String, VendorError> {
        const QUERY: &str = "query { viewer { name } organization { name } }";
        let account: Viewer = self
            .execute(self.query("checking the Linear credentials", QUERY, json!({})))
            .await?;
        Ok(format!(
            "{} in {}",
            account.viewer.name, account.organization.name
        ))
    }

    /// Returns whether a team with this key exists and is visible to the account.
    ///
    /// # Errors
    /// Fails if Linear rejects the request or does not respond.
    pub async fn has_team(&self, key: &str) -> Result<bool, VendorError> {
        const QUERY: &str = "query($key: String!) { \
            teams(first: 1, filter: { key: { eq: $key } }) { nodes { id } } }";
        let found: Teams = self
            .execute(self.query("looking up the team", QUERY, json!({ "key": key })))
            .await?;
        Ok(!found.teams.nodes.is_empty())
    }

    async fn comment_exists(&self, id: &str, issue: &IssueRef) -> Result<bool, VendorError> {
        const QUERY: &str = "query($id: String!) { comment(id: $id) { issue { id } } }";
        let found: CommentData = self
            .execute(self.query("looking up the comment", QUERY, json!({ "id": id })))
            .await?;
        let comment_issue = found.comment.issue.map(|issue| issue.id);
        Ok(comment_issue.as_deref() == Some(issue.id.as_str()))
    }

    /// Builds a query. It may be repeated.
    fn query(&self, action: &'static str, query: &str, variables: Value) -> Request {
        self.mutation(action, query, variables).safe()
    }

    /// Builds a mutation. It is sent at most once.
    fn mutation(&self, action: &'static str, query: &str, variables: Value) -> Request {
        Request::new(action, Method::POST, &self.endpoint)
            .json(&json!({ "query": query, "variables": variables }))
            .accept_status(400)
            .max_body(MAX_BODY)
    }

    /// Sends a request and returns its data. Errors may come with any status. Partial data next to errors is
    /// dropped.
    ///
    /// After a 401 the request is sent once more with a new token, because a request with status 401 had no
    /// effect.
    async fn execute<T: DeserializeOwned>(&self, request: Request) -> Result<T, VendorError> {
        let header = self.auth.authorization_header().await?;
        let result = self
            .exchange(request.clone().authorization(header.expose()))
            .await;
        match result {
            Err(error) if error.status() == Some(401) && self.auth.invalidate(&header) => {
                let header = self.auth.authorization_header().await?;
                self.exchange(request.authorization(header.expose())).await
            }
            result => result,
        }
    }

    async fn exchange<T: DeserializeOwned>(&self, request: Request) -> Result<T, VendorError> {
        let response = self.client.send(&request).await?;
        let body: GraphQlResponse<T> = match response.json() {
            // A proxy or gateway rejected the request. Its body is not GraphQL.
            Err(_) if response.status() == 400 => {
                return Err(response.status_error(400, &response.text()));
            }
            body => body?,
        };
        match (body.errors.first(), body.data) {
            (Some(error), _) => Err(self.vendor_error(&response, error)),
            (None, Some(data)) if response.status() == 200 => Ok(data),
            (None, _) => Err(response.decode_error("the response has neither data nor errors")),
        }
    }

    fn vendor_error(&self, response: &Response, error: &GraphQlError) -> VendorError {
        let Extensions { code, kind, .. } = &error.extensions;
        if code == "RATELIMITED" || kind == "ratelimited" {
            return self.client.record_rate_limit(response);
        }
        response.status_error(error.status(response.status()), &error.full_message())
    }
}

#[derive(Deserialize)]
struct GraphQlResponse<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<GraphQlError>,
}

#[derive(Deserialize)]
struct GraphQlError {
    #[serde(default)]
    message: String,
    #[serde(default)]
    extensions: Extensions,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Extensions {
    code: String,
    #[serde(rename = "type")]
    kind: String,
    user_error: bool,
    user_presentable_message: String,
}

impl GraphQlError {
    /// Returns the equivalent HTTP status.
    fn status(&self, http_status: u16) -> u16 {
        let Extensions {
            code,
            kind,
            user_error,
            ..
        } = &self.extensions;
        let code = code.to_lowercase();
        let message = self.full_message().to_lowercase();
        if code.contains("authentication") || kind.contains("authentication") {
            401
        } else if code.contains("forbidden") || kind == "forbidden" || code.contains("accessible") {
            403
        } else if message.contains("not found") || message.contains("could not find") {
            404
        } else if *user_error || http_status == 400 || kind.contains("invalid") {
            422
        } else {
            500
        }
    }

    fn full_message(&self) -> String {
        let presentable = &self.extensions.user_presentable_message;
        if presentable.is_empty() || self.message.contains(presentable.as_str()) {
            self.message.clone()
        } else {
            format!("{}: {presentable}", self.message)
        }
    }
}

#[derive(Deserialize)]
struct Viewer {
    viewer: Named,
    organization: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Teams {
    teams: Nodes,
}

#[derive(Deserialize)]
struct Nodes {
    nodes: Vec<Id>,
}

#[derive(Deserialize)]
struct CommentData {
    comment: CommentIssue,
}

#[derive(Deserialize)]
struct CommentIssue {
    issue: Option<Id>,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[cfg(test)]
mod conversation_tests;
#[cfg(test)]
mod tests;
