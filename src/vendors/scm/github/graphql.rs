//! Requests to the host's GraphQL API.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{Client, Method, Request, Response, VendorError};
use domain::ids::Repo;

use super::GitHub;
use super::auth::AccessToken;

impl GitHub {
    /// Sends a GraphQL request. All queries and mutations of this client are idempotent, so a request may be
    /// repeated.
    pub(crate) async fn graphql<T: DeserializeOwned>(
        &self,
        repo: &Repo,
        action: &'static str,
        query: &str,
        variables: &Value,
    ) -> Result<T, VendorError> {
        let (response, body) = self.post_graphql(repo, action, query, variables).await?;
        match body.errors.first() {
            None => serde_json::from_value(body.data).map_err(|error| response.decode_error(error)),
            Some(error) => Err(response.status_error(error.status(), &error.message)),
        }
    }

    /// Sends a query about several objects, some of which the credentials may not see. Returns the data, in
    /// which those are null, with the errors.
    ///
    /// # Errors
    /// Fails if there is no data.
    pub(crate) async fn graphql_partial<T: DeserializeOwned>(
        &self,
        repo: &Repo,
        action: &'static str,
        query: &str,
        variables: &Value,
    ) -> Result<(T, Vec<PartialError>), VendorError> {
        let (response, body) = self.post_graphql(repo, action, query, variables).await?;
        if let (true, Some(error)) = (body.data.is_null(), body.errors.first()) {
            return Err(response.status_error(error.status(), &error.message));
        }
        let data =
            serde_json::from_value(body.data).map_err(|error| response.decode_error(error))?;
        let errors = body.errors.into_iter().map(|error| PartialError {
            path: error.path(),
            status: error.status(),
            message: error.message,
        });
        Ok((data, errors.collect()))
    }

    /// Returns these fields of one pull request. Takes one request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub(super) async fn pull_by_number<T: DeserializeOwned>(
        &self,
        repo: &Repo,
        action: &'static str,
        number: u64,
        fields: &str,
    ) -> Result<T, VendorError> {
        #[derive(Deserialize)]
        struct Data<T> {
            repository: Repository<T>,
        }
        #[derive(Deserialize)]
        struct Repository<T> {
            #[serde(rename = "pullRequest")]
            pull: T,
        }
        let query = format!(
            "query($owner: String!, $name: String!, $number: Int!) {{ \
             repository(owner: $owner, name: $name) {{ \
             pullRequest(number: $number) {{ {fields} }} }} }}"
        );
        let variables = json!({"owner": repo.owner, "name": repo.name, "number": number});
        let data: Data<T> = self.graphql(repo, action, &query, &variables).await?;
        Ok(data.repository.pull)
    }

    /// Returns whether the credentials can read a repository, as far as known without reading it: an App
    /// must be installed on it.
    pub(crate) async fn check_access(
        &self,
        repo: &Repo,
        action: &'static str,
    ) -> Result<(), VendorError> {
        self.access_token(repo, action).await.map(drop)
    }

    /// Returns the HTTP client, for requests beside the API.
    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Adds the credentials for a repository to a request beside the API.
    pub(crate) async fn authorized(
        &self,
        repo: &Repo,
        request: Request,
    ) -> Result<Request, VendorError> {
        let access = self.access_token(repo, request.action()).await?;
        Ok(access.authorize(request))
    }

    /// Sends a GraphQL request.
    async fn post_graphql(
        &self,
        repo: &Repo,
        action: &'static str,
        query: &str,
        variables: &Value,
    ) -> Result<(Response, GraphQlAnswer), VendorError> {
        // Enterprise servers have the REST API at /api/v3 and GraphQL at /api/graphql.
        let base = self.inner.api_url.trim_end_matches("/v3");
        let request = Request::new(action, Method::POST, format!("{base}/graphql"))
            .json(&json!({ "query": query, "variables": variables }))
            .max_body(MAX_BODY)
            .safe();
        let response = self
            .send_authorized(repo, request, AccessToken::authorize_graphql)
            .await?;
        let body: GraphQlAnswer = response.json()?;
        if body.errors.iter().any(GraphQlError::is_rate_limit) {
            return Err(self.inner.client.record_rate_limit(&response));
        }
        Ok((response, body))
    }
}

/// Maximum size of a response, in bytes. A page of issues of many repositories contains their titles.
const MAX_BODY: usize = 64 << 20;

/// Error about one part of a response.
#[derive(Debug)]
pub(crate) struct PartialError {
    /// Response keys from the root to the field that is null, joined by dots.
    pub(crate) path: String,
    /// Equivalent HTTP status.
    pub(crate) status: u16,
    pub(crate) message: String,
}

#[derive(Deserialize)]
struct GraphQlAnswer {
    #[serde(default)]
    data: Value,
    #[serde(default)]
    errors: Vec<GraphQlError>,
}

#[derive(Deserialize)]
struct GraphQlError {
    #[serde(rename = "type")]
    kind: Option<String>,
    message: String,
    #[serde(default)]
    path: Vec<Value>,
    #[serde(default)]
    extensions: Value,
}

impl GraphQlError {
    fn path(&self) -> String {
        let keys = self.path.iter().map(|key| match key {
            Value::String(name) => name.clone(),
            position => position.to_string(),
        });
        keys.collect::<Vec<_>>().join(".")
    }

    /// Returns whether a primary or secondary rate limit is exhausted. The type of the primary one has two spellings, and
    /// the secondary one has none. Errors with another type may quote texts of people.
    fn is_rate_limit(&self) -> bool {
        match self.kind.as_deref() {
            Some(kind) => matches!(kind, "RATE_LIMITED" | "RATE_LIMIT"),
            None => self.message.contains("rate limit"),
        }
    }

    /// Returns the equivalent HTTP status. An error without a type is an internal failure of the host.
    fn status(&self) -> u16 {
        match (self.kind.as_deref(), self.extensions["code"].as_str()) {
            (Some("NOT_FOUND"), _) => 404,
            (Some("FORBIDDEN" | "INSUFFICIENT_SCOPES"), _) => 403,
            (Some("INTERNAL" | "SERVICE_UNAVAILABLE"), _) | (None, None) => 502,
            _ => 422,
        }
    }
}
