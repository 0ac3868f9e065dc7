//! Linear: GraphQL, labels as markers.
//!
//! Labels are added and removed one by one and never written as a list, so that a person's
//! change at the same moment is not undone.

mod auth;
mod closed_issues;
mod context;
mod find_issue;
mod snapshot;
mod stage_labels;

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{Client, Method, Quota, Request, Response, VendorError};
use domain::crypto::deterministic_uuid;
use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueLookup, IssueRef, PollResult};
use domain::mapping::Mapping;
use domain::stage::Stage;

use auth::Auth;
pub use auth::LinearCredentials;

/// How much of an answer do we read? A page of issues carries their descriptions.
const MAX_BODY: usize = 64 << 20;

/// An account at Linear.
#[derive(Clone)]
pub struct Linear {
    client: Client,
    endpoint: String,
    auth: Auth,
}

impl Linear {
    /// `api_url` is the address without `/graphql`.
    pub fn new(client: Client, api_url: &str, credentials: LinearCredentials) -> Self {
        let api_url = api_url.trim_end_matches('/');
        Self {
            auth: Auth::new(client.clone(), api_url, credentials),
            client,
            endpoint: format!("{api_url}/graphql"),
        }
    }

    /// Every open issue that carries a marker, in any team: what no mapping covers must be seen
    /// to be explained, and it takes no more requests.
    ///
    /// # Errors
    /// When any page could not be read.
    pub async fn snapshot(&self, _mappings: &[&Mapping]) -> Result<PollResult, VendorError> {
        let issues = snapshot::read(self).await?;
        Ok(PollResult {
            issues,
            failed_teams: Vec::new(),
        })
    }

    /// The issue of this key, when its team is one of these mappings'.
    ///
    /// # Errors
    /// When it could not be read.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        find_issue::read(self, mappings, key).await
    }

    /// Makes the issue's labels show this stage, and its state that work has begun. One read and
    /// at most one write, unless the label has to be made first.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone or archived.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        stage_labels::set_stage(self, issue, stage).await
    }

    /// Writes a comment once, however often it is asked for: its id is made from `effect_id`.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
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
        let written: Result<Value, _> = self
            .execute(self.mutation("writing the comment", QUERY, json!({ "input": input })))
            .await;
        match written {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() && !error.is_not_found() => {
                // The words of a refused second creation are the vendor's; the comment is proof.
                match self.comment_is_there(&id, issue).await {
                    Ok(true) => Ok(()),
                    // Not known yet; the refusal alone would end the tries.
                    Err(passing) if !passing.is_permanent() => Err(passing),
                    Ok(false) | Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes what [`comment`](Self::comment) wrote for an effect.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn delete_comment(&self, effect_id: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: String!) { commentDelete(id: $id) { success } }";
        let variables = json!({"id": deterministic_uuid(effect_id)});
        self.execute::<Value>(self.mutation("deleting the comment", QUERY, variables))
            .await
            .map(drop)
    }

    /// Replaces the text of what [`comment`](Self::comment) wrote for an effect.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn edit_comment(&self, effect_id: &str, body: &str) -> Result<(), VendorError> {
        const QUERY: &str = "mutation($id: String!, $input: CommentUpdateInput!) { \
            commentUpdate(id: $id, input: $input) { success } }";
        let variables = json!({"id": deterministic_uuid(effect_id), "input": {"body": body}});
        self.execute::<Value>(self.mutation("changing the comment", QUERY, variables))
            .await
            .map(drop)
    }

    /// What [`comment`](Self::comment) wrote for these effects, as it stands now, in that order.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        context::comments(self, issue, effect_ids).await
    }

    /// The other children of each issue's parent.
    ///
    /// # Errors
    /// When any of the issues cannot be read.
    pub async fn siblings(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, Vec<String>>, VendorError> {
        context::siblings(self, issues).await
    }

    /// Those of the issues that are completed, cancelled or gone.
    ///
    /// # Errors
    /// When their states cannot be read.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        closed_issues::find(self, issues).await
    }

    /// Links a pull request to the issue. The same URL is linked once.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
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

    /// What is left of the account's allowance.
    pub fn quota(&self) -> Quota {
        self.client.quota()
    }

    /// Asks who we are.
    ///
    /// # Errors
    /// 401 when the key is refused.
    pub async fn probe(&self) -> Result<String, VendorError> {
        const QUERY: &str = "query { viewer { name } organization { name } }";
        let who: Who = self
            .execute(self.query("asking Linear who we are", QUERY, json!({})))
            .await?;
        Ok(format!("{} in {}", who.viewer.name, who.organization.name))
    }

    /// Whether there is a team of this key that we may see.
    ///
    /// # Errors
    /// When Linear could not be asked.
    pub async fn has_team(&self, key: &str) -> Result<bool, VendorError> {
        const QUERY: &str = "query($key: String!) { \
            teams(first: 1, filter: { key: { eq: $key } }) { nodes { id } } }";
        let found: Teams = self
            .execute(self.query("looking for the team", QUERY, json!({ "key": key })))
            .await?;
        Ok(!found.teams.nodes.is_empty())
    }

    async fn comment_is_there(&self, id: &str, issue: &IssueRef) -> Result<bool, VendorError> {
        const QUERY: &str = "query($id: String!) { comment(id: $id) { issue { id } } }";
        let found: CommentOf = self
            .execute(self.query("looking for the comment", QUERY, json!({ "id": id })))
            .await?;
        let of = found.comment.issue.map(|issue| issue.id);
        Ok(of.as_deref() == Some(issue.id.as_str()))
    }

    /// A query, which may be repeated.
    fn query(&self, action: &'static str, query: &str, variables: Value) -> Request {
        self.mutation(action, query, variables).safe()
    }

    /// A mutation, sent at most once.
    fn mutation(&self, action: &'static str, query: &str, variables: Value) -> Request {
        Request::new(action, Method::POST, &self.endpoint)
            .json(&json!({ "query": query, "variables": variables }))
            .accept_status(400)
            .max_body(MAX_BODY)
    }

    /// Sends a request and reads its data. Errors may come with any status; a part of the data
    /// beside them is of no use to us.
    ///
    /// A token that was refused is fetched anew, once: what was asked with it was surely not done.
    async fn execute<T: DeserializeOwned>(&self, request: Request) -> Result<T, VendorError> {
        let header = self.auth.authorization_header().await?;
        let answer = self
            .exchange(request.clone().authorization(header.expose()))
            .await;
        match answer {
            Err(error) if error.status() == Some(401) && self.auth.invalidate(&header) => {
                let header = self.auth.authorization_header().await?;
                self.exchange(request.authorization(header.expose())).await
            }
            answer => answer,
        }
    }

    async fn exchange<T: DeserializeOwned>(&self, request: Request) -> Result<T, VendorError> {
        let response = self.client.send(&request).await?;
        let answer: Answer<T> = match response.json() {
            // Something between us and Linear refused, in words of its own.
            Err(_) if response.status() == 400 => {
                return Err(response.status_error(400, &response.text()));
            }
            answer => answer?,
        };
        match (answer.errors.first(), answer.data) {
            (Some(error), _) => Err(self.refusal(&response, error)),
            (None, Some(data)) if response.status() == 200 => Ok(data),
            (None, _) => Err(response.decode_error("it holds neither data nor errors")),
        }
    }

    fn refusal(&self, response: &Response, error: &GraphQlError) -> VendorError {
        let Extensions { code, kind, .. } = &error.extensions;
        if code == "RATELIMITED" || kind == "ratelimited" {
            return self.client.record_rate_limit(response);
        }
        response.status_error(error.status(response.status()), &error.words())
    }
}

#[derive(Deserialize)]
struct Answer<T> {
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
    /// The HTTP status that says the same.
    fn status(&self, http_status: u16) -> u16 {
        let Extensions {
            code,
            kind,
            user_error,
            ..
        } = &self.extensions;
        let code = code.to_lowercase();
        let words = self.words().to_lowercase();
        if code.contains("authentication") || kind.contains("authentication") {
            401
        } else if code.contains("forbidden") || kind == "forbidden" || code.contains("accessible") {
            403
        } else if words.contains("not found") || words.contains("could not find") {
            404
        } else if *user_error || http_status == 400 || kind.contains("invalid") {
            422
        } else {
            500
        }
    }

    fn words(&self) -> String {
        let presentable = &self.extensions.user_presentable_message;
        if presentable.is_empty() || self.message.contains(presentable.as_str()) {
            self.message.clone()
        } else {
            format!("{}: {presentable}", self.message)
        }
    }
}

#[derive(Deserialize)]
struct Who {
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
struct CommentOf {
    comment: InIssue,
}

#[derive(Deserialize)]
struct InIssue {
    issue: Option<Id>,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[cfg(test)]
mod tests;
