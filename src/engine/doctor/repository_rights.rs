//! Check of what the credentials of GitHub may do in a repository.

use crate::app::App;
use domain::check_result::CheckResult;
use domain::github_app::PERMISSIONS;
use domain::ids::Repo;
use domain::issue::System;
use domain::job::RunnerKind;
use vendors::http::VendorError;
use vendors::scm::{GitHub, TokenGaps, TokenPermission};

const CHECK: &str = "project-rights";

/// Returns the permissions that a plain token needs in the repository of a project.
pub fn token_permissions(runner: RunnerKind, tickets: System) -> Vec<TokenPermission> {
    let is_needed = |permission: &TokenPermission| match permission {
        TokenPermission::Actions => runner == RunnerKind::Ci,
        TokenPermission::Issues => tickets == System::GitHub,
        TokenPermission::Contents | TokenPermission::PullRequests => true,
    };
    TokenPermission::ALL.into_iter().filter(is_needed).collect()
}

/// Checks what the credentials of GitHub may do in a repository. A plain token must have the `needed` permissions, an
/// App all of its own. `None` if GitHub is not configured.
pub async fn repository_rights(
    app: &App,
    repo: &Repo,
    needed: &[TokenPermission],
) -> Option<CheckResult> {
    let github = app.vendors.github.as_ref()?;
    let checked = match github.token_gaps(repo, needed).await {
        Ok(Some(gaps)) => Ok(token_result(github, repo, &gaps)),
        Ok(None) => app_result(github, repo).await,
        Err(error) if error.is_not_found() => Ok(CheckResult::error(
            CHECK,
            format!("GitHub shows no repository {repo} to the token"),
        )
        .with_impact("No run of the project can start.")
        .with_remedy(format!(
            "Give the token access to the repository ({}), or correct the repository of the project.",
            token_page(github)
        ))),
        Err(error) => Err(error),
    };
    Some(checked.unwrap_or_else(|error| {
        CheckResult::error(CHECK, app.secrets.redactor.redact(&error.to_string()))
            .with_impact("The permissions could not be checked.")
            .with_remedy("See the check of the repository host above.")
    }))
}

fn token_result(github: &GitHub, repo: &Repo, gaps: &TokenGaps) -> CheckResult {
    let impact = "Starting runs, pushing or commenting fails there.";
    if gaps.is_push_denied {
        let what = format!("the account of the token may not push to {repo}");
        return CheckResult::error(CHECK, what)
            .with_impact(impact)
            .with_remedy(format!(
                "Give the account write access ({}/{repo}/settings/access), or use the token of an account that has it.",
                github.server_url()
            ));
    }
    if gaps.permissions.is_empty() {
        return CheckResult::ok(
            CHECK,
            format!(
                "the token can read what it needs in {repo}, and its account may push; whether the token may write shows \
                 only when it does"
            ),
        );
    }
    let titles = |separator: &str| {
        let titles: Vec<&str> = gaps.permissions.iter().map(|one| one.title()).collect();
        titles.join(separator)
    };
    let noun = match gaps.permissions.len() {
        1 => "permission",
        _ => "permissions",
    };
    CheckResult::error(
        CHECK,
        format!("the token lacks the {noun} {} in {repo}", titles(", ")),
    )
    .with_impact(impact)
    .with_remedy(format!(
        "Edit the token at {}: select the repository, and set the repository permissions {} to read and write. A classic \
         token needs the scope repo.",
        token_page(github),
        titles(", ")
    ))
}

/// Page of GitHub on which a person edits fine-grained tokens.
fn token_page(github: &GitHub) -> String {
    format!("{}/settings/personal-access-tokens", github.server_url())
}

async fn app_result(github: &GitHub, repo: &Repo) -> Result<CheckResult, VendorError> {
    if let Ok(Some(present)) = github.present_name(repo).await {
        return Ok(
            CheckResult::error(CHECK, format!("the repository {repo} is now {present}"))
                .with_impact(
                    "No run of the project can start: tokens for runs name the repository.",
                )
                .with_remedy("Correct the repository of the project."),
        );
    }
    let missing = match github.missing_permissions(repo, &PERMISSIONS).await {
        Ok(missing) => missing.unwrap_or_default(),
        Err(error) if error.is_not_found() => {
            return Ok(
                CheckResult::error(CHECK, format!("the App is not installed on {repo}"))
                    .with_impact("No run of the project can start.")
                    .with_remedy(
                        "Install the App on the repository, or correct the repository of the project in the panel (Projects, Edit).",
                    ),
            );
        }
        Err(error) => return Err(error),
    };
    if missing.is_empty() {
        return Ok(CheckResult::ok(
            CHECK,
            format!("the App has all permissions that it needs on {repo}"),
        ));
    }
    let noun = match missing.len() {
        1 => "permission",
        _ => "permissions",
    };
    let what = format!("the App lacks the {noun} {} on {repo}", missing.join(", "));
    Ok(CheckResult::error(CHECK, what)
        .with_impact("Starting runs, pushing, commenting or syncing workflows fails there.")
        .with_remedy(
            "Add it on the App's settings page (Permissions & events) if the check github-app names it, too. Then accept it for the installation: GitHub, Settings, GitHub Apps, Configure, Review request.",
        ))
}
