//! What a run needs of its issue and the poll does not return: siblings, labels and description.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::app::App;
use domain::agent_choice::AgentChoice;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::ids::IssueId;
use domain::issue::{FlaggedIssue, IssueRef};
use domain::limits::CHANGE_SETTLED_AFTER;
use domain::string_arena::ArenaStr;
use domain::time::Timestamp;
use vendors::ticketing::TicketingClient;

use super::poll::SharedIssue;

/// Message of an issue whose description could not be read.
const DESCRIPTION_UNREAD: &str = "Its description could not be read. The next poll tries again.";

/// Agents and models that labels choose, with the time of the last update of the issue: a change of its labels is one.
type Choices = HashMap<IssueId, (Option<Timestamp>, AgentChoice)>;

/// What labels choose, of issues whose labels the poll does not return.
#[derive(Default)]
pub(crate) struct LabelChoices(Mutex<Choices>);

impl LabelChoices {
    fn lock(&self) -> MutexGuard<'_, Choices> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the agents and models that labels choose to issues that wait for a run, if the poll does not return them. The
/// decision depends on them while a usage limit is in force.
pub(super) async fn add_choices(app: &App, account: &TicketingClient, issues: &mut [FlaggedIssue]) {
    if account.polls_descriptions() {
        return;
    }
    let is_own = |issue: &&mut FlaggedIssue| {
        issue.issue.system == account.system() && issue.stage.requires_run()
    };
    let own: Vec<&mut FlaggedIssue> = issues.iter_mut().filter(is_own).collect();
    let now = app.core.now();
    let mut known = std::mem::take(&mut *app.live.label_choices.lock());
    let is_unknown = |issue: &&&mut FlaggedIssue| {
        let known = known.get(&issue.issue.id);
        known.is_none_or(|(updated_at, _)| *updated_at != issue.updated_at)
    };
    let unknown = own.iter().filter(is_unknown);
    let unknown: Vec<IssueRef> = unknown.map(|issue| issue.issue.clone()).collect();
    let read = match unknown.is_empty() {
        true => Ok(HashMap::new()),
        false => account.run_contexts(&unknown).await,
    };
    let read = read.unwrap_or_else(|error| {
        tracing::warn!(account = account.name(), %error, "Failed to read which agents labels choose.");
        HashMap::new()
    });
    let mut current = Choices::new();
    for issue in own {
        let id = &issue.issue.id;
        let choice = match read.get(id) {
            Some(context) => Some((issue.updated_at, choice_of(context.labels.as_deref()))),
            None => known.remove(id),
        };
        if let Some(choice) = choice {
            issue.agent_choice = choice.1.clone();
            // Another label may be set within the same second, which GitHub counts in.
            let settled = issue
                .updated_at
                .map(|updated| updated + CHANGE_SETTLED_AFTER);
            if settled.is_none_or(|settled| settled < now) {
                current.insert(id.clone(), choice);
            }
        }
    }
    *app.live.label_choices.lock() = current;
}

fn choice_of(labels: Option<&[String]>) -> AgentChoice {
    AgentChoice::from_labels(labels.into_iter().flatten().map(String::as_str))
}

/// Adds the missing context to issues that are about to run, with one request for all of them. The poll query
/// omits it, because with twenty siblings per issue it would exceed the vendor's query cost limit. A run does
/// not wait for siblings and labels, but for the description.
pub(super) async fn add(account: &TicketingClient, decided: &mut [(SharedIssue, Decision)]) {
    let mut incomplete: Vec<&mut (SharedIssue, Decision)> = decided
        .iter_mut()
        .filter(|(_, decision)| decision.outcome == DecisionOutcome::Dispatched)
        .filter(|(issue, _)| issue.issue.system == account.system())
        .filter(|(issue, _)| issue.related.parent.is_some() || issue.labels.is_none())
        .collect();
    if incomplete.is_empty() {
        return;
    }
    let issues: Vec<IssueRef> = incomplete
        .iter()
        .map(|(issue, _)| issue.issue.clone())
        .collect();
    let contexts = account.run_contexts(&issues).await;
    let mut contexts = contexts.unwrap_or_else(|error| {
        tracing::warn!(account = account.name(), %error, "Failed to read siblings and labels of issues.");
        Default::default()
    });
    for (issue, decision) in incomplete.iter_mut().map(|one| &mut **one) {
        let Some(context) = contexts.remove(&issue.issue.id) else {
            if !account.polls_descriptions() {
                decision.set_waiting(WaitReason::Ineligible, DESCRIPTION_UNREAD);
            }
            continue;
        };
        let issue = Arc::make_mut(issue);
        issue.related.siblings = context.siblings;
        issue.labels = context.labels.or_else(|| issue.labels.take());
        if issue.agent_choice == AgentChoice::default() {
            issue.agent_choice = choice_of(issue.labels.as_deref());
        }
        if let Some(description) = context.description {
            issue.description = ArenaStr::from(description);
        }
    }
}
