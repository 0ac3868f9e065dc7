//! Requests to the host's GraphQL API.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{Method, Request, VendorError};
use domain::ids::Repo;

use super::GitHub;
use super::auth::AccessToken;

impl GitHub {
    /// Sends a GraphQL request. All queries and mutations of this client are idempotent, so a request may be
    /// repeated.
    pub(super) async fn graphql<T: DeserializeOwned>(
        &self,
        repo: &Repo,
        action: &'static str,
        query: &str,
        variables: &Value,
    ) -> Result<T, VendorError> {
        // Enterprise servers have the REST API at /api/v3 and GraphQL at /api/graphql.
        let base = self.inner.api_url.trim_end_matches("/v3");
        let request = Request::new(action, Method::POST, format!("{base}/graphql"))
            .json(&json!({ "query": query, "variables": variables }))
            .safe();
        let response = self
            .send_authorized(repo, request, AccessToken::authorize_graphql)
            .await?;
        let body: GraphQlAnswer = response.json()?;
        match body.errors.first() {
            None => serde_json::from_value(body.data).map_err(|error| response.decode_error(error)),
            Some(error) if error.kind.as_deref() == Some("RATE_LIMITED") => {
                Err(self.inner.client.record_rate_limit(&response))
            }
            Some(error) => Err(response.status_error(error.status(), &error.message)),
        }
    }
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
    extensions: Value,
}

impl GraphQlError {
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
