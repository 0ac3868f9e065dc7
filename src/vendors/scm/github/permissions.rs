//! Permissions of people in a repository.

use serde::{Deserialize, Serialize};

use crate::http::{VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// Permission level of a person in a repository, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepoPermission {
    /// No permission, or unknown account.
    None,
    /// Read.
    Read,
    /// Triage: manages issues and pull requests without write permission.
    Triage,
    /// Write.
    Write,
    /// Maintain: manages the repository without access to destructive actions.
    Maintain,
    /// Admin.
    Admin,
}

impl GitHub {
    /// Returns the permission of `login`. [`RepoPermission::None`] for unknown accounts.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
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
    /// Role name. More precise than `permission`, but may be a custom role of the organization.
    #[serde(default)]
    role_name: Option<String>,
}

impl Collaborator {
    fn translate(&self) -> RepoPermission {
        let role = self.role_name.as_deref().and_then(parse);
        role.or_else(|| parse(&self.permission))
            .unwrap_or(RepoPermission::None)
    }
}

fn parse(role: &str) -> Option<RepoPermission> {
    Some(match role {
        "admin" => RepoPermission::Admin,
        "maintain" => RepoPermission::Maintain,
        "write" => RepoPermission::Write,
        "triage" => RepoPermission::Triage,
        "read" => RepoPermission::Read,
        "none" => RepoPermission::None,
        _ => return None,
    })
}
