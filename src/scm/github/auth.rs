use crate::domain::ids::Repo;
use crate::domain::secret::Secret;
use crate::domain::time::Timestamp;
use crate::wire::VendorError;

use super::GitHub;

/// A token for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoToken {
    pub token: Secret,
    pub expires_at: Timestamp,
}

impl GitHub {
    /// A token to hand to a run.
    pub async fn repo_token(&self, repo: &Repo) -> Result<RepoToken, VendorError> {
        todo!("{repo}")
    }
}
