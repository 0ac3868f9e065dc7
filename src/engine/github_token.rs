//! Checks of a plain GitHub token. Every run gets the whole token, so its permissions should be
//! narrow.

use crate::app::{App, Vendors};
use crate::config::GitHubAuthConfig;
use domain::check_result::CheckResult;
use vendors::http::VendorError;

/// OAuth scope that allows changes of workflows.
const WORKFLOW_SCOPE: &str = "workflow";

/// Error for a token that may change workflows.
pub const REFUSAL_MESSAGE: &str = "GITHUB_TOKEN may change workflows, and each run gets the whole token: use a \
    GitHub App, a fine-grained token, or one without the scope \"workflow\" (ALLOW_WORKFLOW_TOKEN=true allows it)";

/// Whether the token may change workflows although the configuration does not allow it.
///
/// # Errors
/// Fails if GitHub cannot be reached.
pub async fn is_refused(app: &App) -> Result<bool, VendorError> {
    Ok(!app.core.config.allow_workflow_token && may_change_workflows(&app.vendors).await?)
}

async fn may_change_workflows(vendors: &Vendors) -> Result<bool, VendorError> {
    let scopes = match &vendors.github {
        Some(github) => github.token_scopes().await?,
        None => None,
    };
    Ok(scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == WORKFLOW_SCOPE)))
}

/// Checks a plain token. Returns `None` for a GitHub App, and if GitHub does not respond, which the
/// connection check reports.
pub(super) async fn examine(app: &App) -> Option<CheckResult> {
    let credentials = app
        .vendors
        .credentials
        .github
        .as_ref()
        .map(|github| &github.credentials);
    let Some(GitHubAuthConfig::Token(_)) = credentials else {
        return None;
    };
    let check = "github-token";
    let remedy = "Use a GitHub App, whose runs get a token for their own repository only. Otherwise use a fine-grained \
        token for the target repositories only.";
    let found = if !may_change_workflows(&app.vendors).await.ok()? {
        CheckResult::warning(check, "each run gets the whole GITHUB_TOKEN").with_impact(
            "The agent of a run can use it on every repository that the token can access.",
        )
    } else if app.core.config.allow_workflow_token {
        CheckResult::warning(check, "each run gets a GITHUB_TOKEN that may change workflows, as ALLOW_WORKFLOW_TOKEN allows")
            .with_impact("A workflow that a run changes can read the secrets of the repository.")
    } else {
        CheckResult::error(check, REFUSAL_MESSAGE)
            .with_impact("A workflow that a run changes can read the secrets of the repository.")
    };
    Some(found.with_remedy(remedy))
}
