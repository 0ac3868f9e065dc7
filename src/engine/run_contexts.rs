//! What a run needs of its issue and the poll does not return: siblings, labels and description.

use std::sync::Arc;

use domain::agent_choice::AgentChoice;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::issue::IssueRef;
use domain::string_arena::ArenaStr;
use vendors::ticketing::TicketingClient;

use super::poll::SharedIssue;

/// Message of an issue whose description could not be read.
const DESCRIPTION_UNREAD: &str = "Its description could not be read. The next poll tries again.";

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
            let labels = issue.labels.iter().flatten().map(String::as_str);
            issue.agent_choice = AgentChoice::from_labels(labels);
        }
        if let Some(description) = context.description {
            issue.description = ArenaStr::from(description);
        }
    }
}
