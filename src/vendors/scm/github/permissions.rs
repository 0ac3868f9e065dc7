//! What a person may do in a repository.

use serde::{Deserialize, Serialize};

use crate::http::{VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// How much a repository trusts somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepoPermission {
    None,
    Read,
    Triage,
    Write,
    Maintain,
    Admin,
}

impl GitHub {
    /// What `login` may do; somebody unknown may do nothing.
    ///
    /// # Errors
    /// What the call failed with.
    pub async fn permission(
        &self,
        repo: &Repo,
        login: &str,
    ) -> Result<RepoPermission, VendorError> {
        let url = self.repo_url(
            repo,
            &format!("/collaborators/{}/permission", percent_encode(login)),
        );
        match self
            .read::<Collaborator>(repo, "reading a commenter's permission", url)
            .await
        {
            Ok(page) => Ok(page.value.translate()),
            Err(error) if error.is_not_found() => Ok(RepoPermission::None),
            Err(error) => Err(error),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Collaborator {
    permission: String,
    /// More exact than `permission`, but may be a role of the organization's own making.
    #[serde(default)]
    role_name: Option<String>,
}

impl Collaborator {
    fn translate(&self) -> RepoPermission {
        let role = self.role_name.as_deref().and_then(read);
        role.or_else(|| read(&self.permission))
            .unwrap_or(RepoPermission::None)
    }
}

fn read(word: &str) -> Option<RepoPermission> {
    Some(match word {
        "admin" => RepoPermission::Admin,
        "maintain" => RepoPermission::Maintain,
        "write" => RepoPermission::Write,
        "triage" => RepoPermission::Triage,
        "read" => RepoPermission::Read,
        "none" => RepoPermission::None,
        _ => return None,
    })
}
