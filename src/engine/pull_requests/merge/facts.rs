//! Reads the facts about a merge from GitHub.

use crate::app::App;
use crate::{permissions, repo_settings};
use domain::feedback::{FeedbackAuthor, PullRequestId};
use domain::mapping::Mapping;
use domain::merge_policy::{CheckOutcome, HeadReview, MergeCheck, MergeFacts};
use vendors::http::VendorError;
use vendors::scm::{CheckRun, GitHub, MergeStatus, OpinionatedReview, PullMergeFacts};

/// Facts about a pull request, with its state at GitHub.
pub(super) struct ReadFacts {
    /// State, and what merges it.
    pub status: MergeStatus,
    /// Facts about its head.
    pub facts: MergeFacts,
}

/// Reads the facts. The error is the reason why they are unknown.
pub(super) async fn read(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    mapping: &Mapping,
) -> Result<ReadFacts, String> {
    let message = |error: VendorError| error.to_string();
    let seen = github.merge_facts(pull).await.map_err(message)?;
    let head = seen.status.head.clone();
    let runs = github.check_runs(&pull.repo, &head).await;
    let mut checks = runs.map_err(message)?;
    let statuses = github.commit_statuses(&pull.repo, &head).await;
    checks.extend(statuses.map_err(message)?);
    let settings = repo_settings::fetch(github, mapping).await?;
    checks.retain(|check| !settings.ci.ignores(&check.name));
    let required_checks = match checks.is_empty() {
        true => {
            let rules = github.branch_rules(&pull.repo, &seen.base).await;
            rules.map_err(message)?.required_checks
        }
        false => Vec::new(),
    };
    let files = github.changed_files(pull).await.map_err(message)?;
    let reviews = reviews(app, github, pull, &seen).await?;
    Ok(ReadFacts {
        facts: MergeFacts {
            head,
            base: seen.base,
            is_from_own_repo: seen.is_from_own_repo,
            is_draft: seen.is_draft,
            is_mergeable: seen.is_mergeable,
            checks: checks.into_iter().map(check).collect(),
            required_checks,
            author: seen.author,
            own_login: seen.status.own_login.clone(),
            reviews,
            unresolved_threads: seen.unresolved_threads,
            is_incomplete: seen.is_incomplete,
            changed_files: seen.changed_files,
            changed_lines: seen.changed_lines,
            files,
        },
        status: seen.status,
    })
}

fn check(run: CheckRun) -> MergeCheck {
    MergeCheck {
        outcome: CheckOutcome::of(run.conclusion.as_deref()),
        name: run.name,
    }
}

/// Returns the reviews with the permission of each author.
async fn reviews(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    seen: &PullMergeFacts,
) -> Result<Vec<HeadReview>, String> {
    let mut reviews = Vec::with_capacity(seen.reviews.len());
    for OpinionatedReview {
        author,
        opinion,
        commit,
    } in seen.reviews.iter().cloned()
    {
        let may_write = match &author {
            FeedbackAuthor::Person { login } => {
                permissions::has_write_permission(app, github, &pull.repo, login).await?
            }
            FeedbackAuthor::App { .. } => false,
        };
        reviews.push(HeadReview {
            author,
            opinion,
            commit,
            may_write,
        });
    }
    Ok(reviews)
}
