//! What a plain token of the repository host may do. Each run is handed the whole token, so it should be
//! able to do little.

use crate::app::App;
use crate::config::GitHubAuthConfig;
use domain::check_result::CheckResult;
use vendors::http::VendorError;

/// The right to change workflows, as the host lists it.
const WORKFLOW: &str = "workflow";

/// Why a token that may change workflows is refused.
pub const REFUSAL_MESSAGE: &str = "GITHUB_TOKEN may change workflows, and each run is handed the whole token: use a \
    GitHub App, a fine-grained token, or one without the scope \"workflow\" (ALLOW_WORKFLOW_TOKEN=true allows it)";

/// Whether the token may change workflows and this is not allowed.
///
/// # Errors
/// When the host could not be asked.
pub async fn is_refused(app: &App) -> Result<bool, VendorError> {
    Ok(!app.config.allow_workflow_token && may_change_workflows(app).await?)
}

async fn may_change_workflows(app: &App) -> Result<bool, VendorError> {
    let scopes = match &app.github {
        Some(github) => github.token_scopes().await?,
        None => None,
    };
    Ok(scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == WORKFLOW)))
}

/// What there is to say about a plain token. None when another check says that the host does not answer.
pub(super) async fn examine(app: &App) -> Option<CheckResult> {
    let credentials = app.config.github.as_ref().map(|github| &github.credentials);
    let Some(GitHubAuthConfig::Token(_)) = credentials else {
        return None;
    };
    let check = "github-token";
    let remedy = "Use a GitHub App, whose runs get a token for their one repository; else a fine-grained token for \
        the target repositories alone.";
    let found = if !may_change_workflows(app).await.ok()? {
        CheckResult::warning(check, "each run is handed the whole GITHUB_TOKEN").with_impact(
            "The agent of a run can use it on every repository that the token reaches.",
        )
    } else if app.config.allow_workflow_token {
        CheckResult::warning(check, "each run is handed a GITHUB_TOKEN that may change workflows, as ALLOW_WORKFLOW_TOKEN allows")
            .with_impact("A workflow that a run changes can read the secrets of the repository.")
    } else {
        CheckResult::error(check, REFUSAL_MESSAGE)
            .with_impact("A workflow that a run changes can read the secrets of the repository.")
    };
    Some(found.with_remedy(remedy))
}
