//! Check of who set the trigger of issues, on repositories in which strangers may file issues.

use std::collections::BTreeMap;

use crate::app::App;
use crate::permissions;
use domain::decision::{SchedulingState, trigger_refusal, unchecked_trigger};
use domain::ids::{IssueId, Repo};
use domain::issue::{FlaggedIssue, TriggerAuthor};
use store::{StoreResult, operator_retries};

/// Maximum number of people whose permission is read per poll. Issues of further people wait for a later one.
const MAX_LOOKUPS: usize = 50;

/// Returns the issues that wait for a run but may not start one, with the reason. An operator who requested
/// another run has decided already, unless a person has set the trigger again since.
pub(super) async fn untrusted_issues(
    app: &App,
    view: &SchedulingState,
    issues: &[FlaggedIssue],
) -> StoreResult<BTreeMap<IssueId, String>> {
    let is_checked = |issue: &&FlaggedIssue| {
        issue.trigger_author != TriggerAuthor::Trusted && issue.stage.requires_run()
    };
    let mut checked: Vec<&FlaggedIssue> = issues.iter().filter(is_checked).collect();
    if checked.is_empty() {
        return Ok(BTreeMap::new());
    }
    let retried = app.core.store.read(operator_retries::all)?;
    checked.retain(|issue| {
        let is_of_person = matches!(issue.trigger_author, TriggerAuthor::Person(_));
        is_of_person || !retried.contains(&issue.issue.id)
    });
    // Answers are known for a few polls only. In a fixed order, the first people would be read again before the last.
    fastrand::shuffle(&mut checked);
    let (mut writers, mut untrusted) = (BTreeMap::new(), BTreeMap::new());
    for issue in checked {
        let Some(mapping) = view.mappings.get(&issue.team) else {
            continue;
        };
        let repo = mapping.target_repo();
        let is_writer = match &issue.trigger_author {
            TriggerAuthor::Person(login) => is_writer(app, &repo, login, &mut writers).await,
            _ => Some(false),
        };
        let refusal = match (is_writer, &issue.trigger_author) {
            (Some(is_writer), author) => trigger_refusal(author, &repo, is_writer),
            (None, TriggerAuthor::Person(login)) => Some(unchecked_trigger(login, &repo)),
            (None, _) => None,
        };
        if let Some(refusal) = refusal {
            untrusted.insert(issue.issue.id.clone(), refusal);
        }
    }
    Ok(untrusted)
}

/// Returns whether a person has write access; `None` if that is unknown. `known` holds the answers that
/// this poll has read.
async fn is_writer(
    app: &App,
    repo: &Repo,
    login: &str,
    known: &mut BTreeMap<(Repo, String), Option<bool>>,
) -> Option<bool> {
    let key = (repo.clone(), login.to_owned());
    if let Some(known) = known.get(&key) {
        return *known;
    }
    if let Some(is_writer) = permissions::known_write_permission(app, repo, login) {
        return Some(is_writer);
    }
    let github = app.vendors.github.as_ref();
    let github = github.filter(|_| known.len() < MAX_LOOKUPS)?;
    let read = permissions::has_write_permission(app, github, repo, login).await;
    if let Err(reason) = &read {
        tracing::warn!(%repo, login, reason, "Failed to read the permission of who set a trigger.");
    }
    let is_writer = read.ok();
    known.insert(key, is_writer);
    is_writer
}
