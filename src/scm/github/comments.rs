use crate::domain::ids::Repo;
use crate::wire::VendorError;

use super::GitHub;

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrComment {
    pub id: u64,
    pub body: String,
    pub url: String,
}

impl GitHub {
    /// The comment that carries `marker`, if there is one.
    pub async fn find_comment(
        &self,
        repo: &Repo,
        number: u64,
        marker: &str,
    ) -> Result<Option<PrComment>, VendorError> {
        todo!("{repo}{number}{marker}")
    }
    pub async fn create_comment(
        &self,
        repo: &Repo,
        number: u64,
        body: &str,
    ) -> Result<PrComment, VendorError> {
        todo!("{repo}{number}{body}")
    }
    pub async fn update_comment(
        &self,
        repo: &Repo,
        id: u64,
        body: &str,
    ) -> Result<PrComment, VendorError> {
        todo!("{repo}{id}{body}")
    }
    /// Updates the comment that carries `marker`, else creates it. `body` must contain the marker.
    pub async fn upsert_comment(
        &self,
        repo: &Repo,
        number: u64,
        marker: &str,
        body: &str,
    ) -> Result<PrComment, VendorError> {
        todo!("{repo}{number}{marker}{body}")
    }
}
