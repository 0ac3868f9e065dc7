//! Labels of a repository and of its issues.

use serde_json::json;

use crate::http::{Method, Request, VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// Label to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewLabel {
    pub(crate) name: &'static str,
    /// Six hexadecimal digits.
    pub(crate) color: &'static str,
    pub(crate) description: &'static str,
}

impl GitHub {
    /// Creates a label. Succeeds if it exists already.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub(crate) async fn create_label(
        &self,
        repo: &Repo,
        label: &NewLabel,
    ) -> Result<(), VendorError> {
        let url = self.repo_url(repo, "/labels");
        let body = json!({
            "name": label.name, "color": label.color, "description": label.description,
        });
        let created = self
            .send_json(repo, "creating the label", Method::POST, url, &body)
            .await;
        match created {
            Ok(_) => Ok(()),
            Err(error) if error.status() == Some(422) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds a label to an issue. Idempotent.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub(crate) async fn add_label(
        &self,
        repo: &Repo,
        number: u64,
        name: &str,
    ) -> Result<(), VendorError> {
        let url = self.repo_url(repo, &format!("/issues/{number}/labels"));
        let request = Request::new("adding a label", Method::POST, url)
            .json(&json!({ "labels": [name] }))
            .safe();
        self.send(repo, request).await.map(drop)
    }

    /// Removes a label from an issue. Succeeds if the issue does not have it.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub(crate) async fn remove_label(
        &self,
        repo: &Repo,
        number: u64,
        name: &str,
    ) -> Result<(), VendorError> {
        let name = percent_encode(name);
        let url = self.repo_url(repo, &format!("/issues/{number}/labels/{name}"));
        let request = Request::new("removing a label", Method::DELETE, url).safe();
        match self.send(repo, request).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
