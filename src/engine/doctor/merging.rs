//! Check of what a merge by policy needs: settings of the repository, rules of the default branch, permissions.

use crate::app::App;
use domain::check_result::CheckResult;
use domain::mapping::Mapping;
use domain::merge_policy::{MergeMethod, MergeMode};
use vendors::http::VendorError;
use vendors::scm::{BranchRules, GitHub, MergeSettings};

const CHECK: &str = "project-merge";

/// Permissions of the App for merges.
const PERMISSIONS: [(&str, &str); 2] = [("contents", "write"), ("pull_requests", "write")];

/// Checks a project. Empty if people merge in it, or if GitHub is not configured.
pub(super) async fn examine(app: &App, mapping: &Mapping) -> Vec<CheckResult> {
    let Some(github) = app
        .vendors
        .github
        .as_ref()
        .filter(|_| mapping.merge.mode != MergeMode::Never)
    else {
        return Vec::new();
    };
    let found = match read(github, mapping).await {
        Ok(found) => found,
        Err(error) => vec![
            CheckResult::error(CHECK, app.secrets.redactor.redact(&error.to_string()))
                .with_impact("What a merge by policy needs could not be checked.")
                .with_remedy("See the check of the repository host above."),
        ],
    };
    let found = match found.is_empty() {
        true => vec![CheckResult::ok(
            CHECK,
            "repository and default branch are set up for merges by policy",
        )],
        false => found,
    };
    let team = mapping.team_key.as_str();
    found.into_iter().map(|one| one.for_subject(team)).collect()
}

async fn read(github: &GitHub, mapping: &Mapping) -> Result<Vec<CheckResult>, VendorError> {
    let repo = mapping.target_repo();
    let settings = github.merge_settings(&repo).await?;
    let rules = github.branch_rules(&repo, &mapping.default_branch).await?;
    let page = format!("{}/{repo}/settings", github.server_url());
    let mut found = Vec::new();
    let missing = github.missing_permissions(&repo, &PERMISSIONS).await?;
    if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
        let what = format!(
            "the App may not merge in {repo}: it lacks {}",
            missing.join(", ")
        );
        let result = CheckResult::error(CHECK, what)
            .with_impact("GitHub refuses every merge by policy.")
            .with_remedy("Grant the App these permissions, and accept them for its installation.");
        found.push(result);
    }
    found.extend(wrong_method(mapping, &settings, &page));
    found.extend(wrong_mode(mapping, &settings, &rules, &page));
    if !rules.is_protected {
        let what = format!("{} of {repo} is not protected", mapping.default_branch);
        let result = CheckResult::warning(CHECK, what)
            .with_impact(
                "GitHub itself requires neither reviews nor checks: only the policy of the project does.",
            )
            .with_remedy(format!(
                "Add a rule that requires pull requests, reviews and checks ({page}/branches)."
            ));
        found.push(result);
    }
    Ok(found)
}

fn wrong_method(mapping: &Mapping, settings: &MergeSettings, page: &str) -> Option<CheckResult> {
    let method = mapping.merge.method;
    // The queue merges by its own method.
    if mapping.merge.mode == MergeMode::Queue || settings.allows(method) {
        return None;
    }
    let (field, setting) = match method {
        MergeMethod::Squash => ("allow_squash_merge", "Allow squash merging"),
        MergeMethod::Merge => ("allow_merge_commit", "Allow merge commits"),
        MergeMethod::Rebase => ("allow_rebase_merge", "Allow rebase merging"),
    };
    let (repo, name) = (mapping.target_repo(), method.as_str());
    let what = format!("{repo} does not allow the method {name} ({field})");
    Some(
        CheckResult::error(CHECK, what)
            .with_impact("GitHub refuses every merge by policy.")
            .with_remedy(format!(
                "Turn on {setting} ({page}), or set merge.method of the project to an allowed method."
            )),
    )
}

fn wrong_mode(
    mapping: &Mapping,
    settings: &MergeSettings,
    rules: &BranchRules,
    page: &str,
) -> Option<CheckResult> {
    let (repo, branch) = (mapping.target_repo(), &mapping.default_branch);
    let refused = "GitHub refuses every merge by policy.";
    Some(match (mapping.merge.mode, rules.has_merge_queue) {
        (MergeMode::Queue, false) => {
            CheckResult::error(CHECK, format!("{branch} of {repo} has no merge queue"))
                .with_impact(refused)
                .with_remedy(format!(
                    "Add a rule that requires the merge queue ({page}/rules), or set merge.mode of the project to auto."
                ))
        }
        (MergeMode::Auto, true) => CheckResult::error(
            CHECK,
            format!("{branch} of {repo} requires the merge queue"),
        )
        .with_impact(refused)
        .with_remedy("Set merge.mode of the project to queue."),
        (MergeMode::Auto, false) if !settings.allows_auto_merge => CheckResult::warning(
            CHECK,
            format!("{repo} does not allow auto-merge (allow_auto_merge)"),
        )
        .with_impact(
            "While GitHub's own requirements are not met, a merge is refused. It is tried again every 10 minutes.",
        )
        .with_remedy(format!("Turn on Allow auto-merge ({page}).")),
        _ => return None,
    })
}
