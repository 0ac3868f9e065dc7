//! Accounts that set the trigger label, on repositories in which strangers may file issues.
//!
//! A person who may only triage, and an App, can set labels there, and an issue form can set labels for
//! anybody. The answers are kept until the issue is updated; setting a label updates it.

use std::sync::PoisonError;

use serde::Deserialize;

use crate::http::VendorError;
use domain::ids::{IssueId, Repo};
use domain::issue::TriggerAuthor;
use domain::stage::TRIGGER_LABEL;
use domain::ticket_comment::AuthorKind;
use domain::time::Timestamp;

use super::super::read_changes::is_settled;
use super::snapshot::PolledIssue;
use super::watch::Account;
use super::{Connection, GitHubIssues, Label};

/// Labels set last, newest at the end. An issue whose trigger is not among them has an unknown author.
pub(super) const SELECTION: &str = "{ timelineItems(last: 100, itemTypes: [LABELED_EVENT]) { nodes { \
    ... on LabeledEvent { actor { __typename login } label { name } } } } }";

/// Known author of an issue's trigger.
pub(super) struct KnownAuthor {
    updated_at: Timestamp,
    author: TriggerAuthor,
}

impl GitHubIssues {
    /// Reads who set the trigger of issues that wait for a run, in repositories open to strangers.
    pub(super) async fn read_trigger_authors(
        &self,
        repo: &Repo,
        issues: &mut [PolledIssue],
    ) -> Result<(), VendorError> {
        let checked = issues
            .iter_mut()
            .filter(|polled| polled.is_open_to_strangers && polled.flagged.stage.requires_run());
        let mut unknown = Vec::new();
        {
            let known = self.trigger_authors.lock();
            let known = known.unwrap_or_else(PoisonError::into_inner);
            for polled in checked {
                let author = known.get(polled.id());
                match author.filter(|author| author.updated_at == polled.updated_at) {
                    Some(known) => polled.flagged.trigger_author = known.author.clone(),
                    None => unknown.push(polled),
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let ids: Vec<IssueId> = unknown.iter().map(|polled| polled.id().clone()).collect();
        let mut answers = self
            .read_nodes::<LabelledIssue>(repo, "reading who set a label", &ids, SELECTION)
            .await?;
        let known = self.trigger_authors.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        for polled in unknown {
            polled.flagged.trigger_author = TriggerAuthor::Unknown;
            let Some(issue) = answers.found.remove(polled.id()) else {
                continue;
            };
            let (updated_at, author) = (polled.updated_at, issue.trigger_author());
            polled.flagged.trigger_author = author.clone();
            if is_settled(updated_at) {
                let author = KnownAuthor { updated_at, author };
                known.insert(polled.id().clone(), author);
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LabelledIssue {
    timeline_items: Connection<LabeledEvent>,
}

#[derive(Deserialize)]
struct LabeledEvent {
    actor: Option<Account>,
    label: Label,
}

impl LabelledIssue {
    /// Returns who set a label last. A deleted account has no actor.
    pub(super) fn last_actor(self, label: &str) -> Option<Account> {
        let events = self.timeline_items.into_nodes();
        let of_label = events.filter(|event| event.label.name.eq_ignore_ascii_case(label));
        of_label.last().and_then(|event| event.actor)
    }

    /// Returns who set the trigger label last.
    fn trigger_author(self) -> TriggerAuthor {
        let actor = self.last_actor(TRIGGER_LABEL).map(Account::into_author);
        match actor {
            Some(person) if person.kind == AuthorKind::Person => TriggerAuthor::Person(person.id),
            Some(app) => TriggerAuthor::App(app.id),
            None => TriggerAuthor::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn author(events: Value) -> TriggerAuthor {
        let issue = json!({"timelineItems": {"nodes": events}});
        let issue: LabelledIssue = serde_json::from_value(issue).unwrap();
        issue.trigger_author()
    }

    fn event(kind: &str, login: &str, label: &str) -> Value {
        json!({"actor": {"__typename": kind, "login": login}, "label": {"name": label}})
    }

    #[test]
    fn the_last_account_that_set_the_trigger_counts() {
        let (mona, robot) = (
            event("User", "mona", "Agent-Implement"),
            event("Bot", "robot", "agent-implement"),
        );
        let other = event("User", "mallory", "bug");
        let person = TriggerAuthor::Person("mona".into());
        assert_eq!(author(json!([mona, other])), person);
        assert_eq!(author(json!([robot, null, mona])), person);
        assert_eq!(
            author(json!([mona, robot])),
            TriggerAuthor::App("robot".into())
        );
        assert_eq!(author(json!([other])), TriggerAuthor::Unknown);
        let ghost = json!({"actor": null, "label": {"name": "Agent-Implement"}});
        assert_eq!(author(json!([mona, ghost])), TriggerAuthor::Unknown);
        let organization = event("Mannequin", "old", "Agent-Implement");
        assert_eq!(
            author(json!([organization])),
            TriggerAuthor::App("old".into())
        );
    }
}
