//! Fields of many issues with one request.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Jira;
use crate::http::{Method, VendorError};
use domain::ids::IssueId;

/// Maximum number of issues per request (Jira's limit).
pub(super) const BULK_FETCH_SIZE: usize = 100;

impl Jira {
    /// Reads fields of issues by their ids. Deleted issues are missing in the answer.
    ///
    /// # Errors
    /// Fails if the issues cannot be read.
    pub(super) async fn bulk_fetch<F: DeserializeOwned>(
        &self,
        action: &'static str,
        ids: &[&IssueId],
        fields: &[&str],
    ) -> Result<FetchedIssues<F>, VendorError> {
        let body = json!({"issueIdsOrKeys": ids, "fields": fields});
        let request = self
            .request(action, Method::POST, "/issue/bulkfetch")
            .json(&body);
        self.client.send(&request.safe()).await?.json()
    }
}

#[derive(Deserialize)]
pub(super) struct FetchedIssues<F> {
    #[serde(default = "Vec::new")]
    pub(super) issues: Vec<FetchedIssue<F>>,
    #[serde(default, rename = "issueErrors")]
    pub(super) errors: Vec<FetchError>,
}

#[derive(Deserialize)]
pub(super) struct FetchedIssue<F> {
    pub(super) id: String,
    pub(super) fields: F,
}

/// Issue that Jira could not read.
#[derive(Deserialize)]
pub(super) struct FetchError {
    pub(super) id: String,
}
