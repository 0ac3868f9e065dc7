//! Lookup of the team, repository and branch that a mapping names.

use std::time::Duration;

use futures_util::future::join;

use crate::app::Vendors;
use domain::mapping::{Mapping, MappingWarning};
use vendors::http::VendorError;
use vendors::ticketing::TicketingClient;

/// Timeout of each lookup. The response to the write waits for it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns a warning for each name that does not exist at its vendor, or that this service may not
/// see. A vendor that does not respond in time causes no warning. Jira's queries are checked before
/// a mapping is stored.
pub(super) async fn warnings(vendors: &Vendors, mapping: &Mapping) -> Vec<MappingWarning> {
    let lookups = join(
        with_timeout(missing_team(vendors, mapping)),
        with_timeout(missing_repository(vendors, mapping)),
    );
    let (team, repository) = lookups.await;
    team.into_iter().chain(repository).collect()
}

async fn with_timeout(
    lookup: impl Future<Output = Result<Option<MappingWarning>, VendorError>>,
) -> Option<MappingWarning> {
    match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
        Ok(Ok(warning)) => warning,
        Ok(Err(error)) => {
            tracing::warn!(%error, "Failed to look up the names of a mapping.");
            None
        }
        Err(_) => None,
    }
}

async fn missing_team(
    vendors: &Vendors,
    mapping: &Mapping,
) -> Result<Option<MappingWarning>, VendorError> {
    let Some(TicketingClient::Linear(linear)) = vendors.account(mapping.system()) else {
        return Ok(None);
    };
    let key = mapping.team_key.as_str();
    Ok((!linear.has_team(key).await?).then(|| MappingWarning {
        field: "teamKey",
        message: format!("Linear shows no team \"{key}\". Check the key, and that the account of the Linear key is a member of the team."),
    }))
}

async fn missing_repository(
    vendors: &Vendors,
    mapping: &Mapping,
) -> Result<Option<MappingWarning>, VendorError> {
    let Some(github) = &vendors.github else {
        return Ok(None);
    };
    let (repo, branch) = (mapping.target_repo(), &mapping.default_branch);
    match github.default_branch(&repo).await {
        Err(error) if error.is_not_found() => {
            return Ok(Some(MappingWarning {
                field: "repo",
                message: format!(
                    "GitHub shows no repository {repo}. Check owner and repo, and that the GitHub App is installed on it."
                ),
            }));
        }
        found => found?,
    };
    let found = github.branch_sha(&repo, branch).await?;
    Ok(found.is_none().then(|| MappingWarning {
        field: "defaultBranch",
        message: format!("{repo} has no branch \"{branch}\". Check defaultBranch."),
    }))
}
