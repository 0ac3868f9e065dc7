//! Rights of a plain token in a repository, as far as reading shows them. No API lists the permissions of a
//! fine-grained token, and whether it may write shows only by writing.

use serde::Deserialize;

use crate::http::{Request, VendorError};
use domain::ids::Repo;

use super::{GitHub, ScmCredentials};

const ACTION: &str = "checking the rights of the token";

/// Permission of a fine-grained token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPermission {
    /// Workflows and their runs.
    Actions,
    /// Files and branches.
    Contents,
    /// Issues.
    Issues,
    /// Pull requests.
    PullRequests,
}

impl TokenPermission {
    /// All permissions, in the order of their names.
    pub const ALL: [Self; 4] = [
        Self::Actions,
        Self::Contents,
        Self::Issues,
        Self::PullRequests,
    ];

    /// Name of the permission on GitHub's page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Actions => "Actions",
            Self::Contents => "Contents",
            Self::Issues => "Issues",
            Self::PullRequests => "Pull requests",
        }
    }

    /// Path of a list that the permission allows to read.
    fn list(self) -> &'static str {
        match self {
            Self::Actions => "/actions/workflows",
            Self::Contents => "/branches",
            Self::Issues => "/issues",
            Self::PullRequests => "/pulls",
        }
    }
}

/// What a plain token lacks in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenGaps {
    /// Permissions without which reading is refused.
    pub permissions: Vec<TokenPermission>,
    /// Whether the account of the token may not push to the repository.
    pub is_push_denied: bool,
}

impl GitHub {
    /// Returns which of the `needed` permissions a plain token lacks in a repository, and whether its account may
    /// push. `None` for an App.
    ///
    /// # Errors
    /// `is_not_found()` if the repository does not exist or is not visible to the token.
    pub async fn token_gaps(
        &self,
        repo: &Repo,
        needed: &[TokenPermission],
    ) -> Result<Option<TokenGaps>, VendorError> {
        let ScmCredentials::Token(_) = &self.inner.credentials else {
            return Ok(None);
        };
        let request = Request::get(ACTION, self.repo_url(repo, ""));
        let shown: ShownRepository = self.send(repo, request).await?.json()?;
        let mut gaps = TokenGaps {
            permissions: Vec::new(),
            // Tokens of installations, which are plain tokens, too, have no account.
            is_push_denied: shown.permissions.is_some_and(|role| !role.push),
        };
        for permission in needed {
            let url = self.repo_url(repo, &format!("{}?per_page=1", permission.list()));
            match self.send(repo, Request::get(ACTION, url)).await {
                Ok(_) => {}
                Err(error) if error.is_rate_limited() => return Err(error),
                Err(error) if matches!(error.status(), Some(403 | 404)) => {
                    gaps.permissions.push(*permission);
                }
                // Issues are turned off in the repository.
                Err(error) if error.status() == Some(410) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(gaps))
    }
}

#[derive(Deserialize)]
struct ShownRepository {
    permissions: Option<Role>,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    push: bool,
}
