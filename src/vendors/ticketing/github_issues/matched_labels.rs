//! Labels that choose among several mappings of one repository.
//!
//! The lists of the poll do not contain labels: they would make it cost a hundred times as much. The labels are read
//! for issues of repositories with matches, and kept until the issue is updated; setting or removing a label updates
//! it. A renamed label does not: labels are read again after [`MAX_AGE`].

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::http::VendorError;
use domain::ids::{IssueId, Repo};
use domain::mapping::ticket_match::TicketFacts;
use domain::time::Timestamp;

use super::super::read_changes::is_settled;
use super::snapshot::{MappedRepo, PolledIssue};
use super::{Connection, GitHubIssues, Label};

/// GitHub allows 100 labels per issue.
const SELECTION: &str = "{ labels(first: 100) { nodes { name } } }";

/// Age at which known labels are read again.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);

/// Known labels of an issue.
pub(super) struct KnownLabels {
    updated_at: Timestamp,
    /// Whether the labels were read so long after the update that no later one has the same time.
    is_settled: bool,
    read_at: Instant,
    /// Names of the labels that mappings matched when they were read.
    wanted: Vec<String>,
    /// Those of them that the issue has.
    found: Vec<String>,
}

impl KnownLabels {
    fn is_current(&self, updated_at: Timestamp, wanted: &[String], now: Instant) -> bool {
        self.updated_at == updated_at
            && self.is_settled
            && self.wanted == wanted
            && now.saturating_duration_since(self.read_at) < MAX_AGE
    }
}

impl GitHubIssues {
    /// Reads the labels of issues in repositories whose mappings match labels. An issue that cannot be read is left
    /// out: without its labels, the wrong mapping could take it.
    pub(super) async fn read_matched_labels(
        &self,
        repo: &Repo,
        group: &[MappedRepo],
        issues: &mut Vec<PolledIssue>,
    ) -> Result<(), VendorError> {
        let unknown = self.unknown_labels(group, issues);
        if !unknown.is_empty() {
            self.learn_labels(repo, group, issues, &unknown).await?;
        }
        let known = self.matched_labels.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        issues.retain_mut(|polled| {
            if group[polled.repo].matched_labels.is_empty() {
                return true;
            }
            let Some(labels) = known.get(polled.id()) else {
                let issue = &polled.flagged.issue.key;
                tracing::warn!(%issue, "Failed to read the labels of an issue.");
                return false;
            };
            polled.flagged.facts = Some(Box::new(TicketFacts {
                labels: labels.found.clone(),
                project: None,
            }));
            true
        });
        Ok(())
    }

    /// Returns the positions of issues whose labels are not known, and forgets outdated ones.
    fn unknown_labels(&self, group: &[MappedRepo], issues: &[PolledIssue]) -> Vec<usize> {
        let known = self.matched_labels.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_unknown = |(_, polled): &(usize, &PolledIssue)| {
            let wanted = &group[polled.repo].matched_labels;
            let current = known.get(polled.id());
            let is_known = current.is_some_and(|it| it.is_current(polled.updated_at, wanted, now));
            if !is_known {
                known.remove(polled.id());
            }
            !wanted.is_empty() && !is_known
        };
        let unknown = issues.iter().enumerate().filter(is_unknown);
        unknown.map(|(at, _)| at).collect()
    }

    /// Reads the labels of the issues at these positions.
    async fn learn_labels(
        &self,
        repo: &Repo,
        group: &[MappedRepo],
        issues: &[PolledIssue],
        unknown: &[usize],
    ) -> Result<(), VendorError> {
        let ids = unknown.iter().map(|at| issues[*at].id().clone());
        let ids: Vec<IssueId> = ids.collect();
        let read_at = Instant::now();
        let mut answers = self
            .read_nodes::<LabelledIssue>(repo, "reading labels of issues", &ids, SELECTION)
            .await?;
        let known = self.matched_labels.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        for polled in unknown.iter().map(|at| &issues[*at]) {
            let Some(issue) = answers.found.remove(polled.id()) else {
                continue;
            };
            let wanted = group[polled.repo].matched_labels.clone();
            let labels = KnownLabels {
                updated_at: polled.updated_at,
                is_settled: is_settled(polled.updated_at),
                read_at,
                found: issue.labels_among(&wanted),
                wanted,
            };
            known.insert(polled.id().clone(), labels);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct LabelledIssue {
    labels: Option<Connection<Label>>,
}

impl LabelledIssue {
    /// Returns those of the wanted labels that the issue has, as they are spelt there. GitHub ignores case.
    fn labels_among(self, wanted: &[String]) -> Vec<String> {
        let labels = self.labels.unwrap_or_default().into_nodes();
        let labels: Vec<String> = labels.map(|label| label.name.to_lowercase()).collect();
        let is_set = |name: &&String| labels.contains(&name.to_lowercase());
        wanted.iter().filter(is_set).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn among(labels: Value, wanted: &[&str]) -> Vec<String> {
        let issue: LabelledIssue = serde_json::from_value(json!({ "labels": labels })).unwrap();
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        issue.labels_among(&wanted)
    }

    #[test]
    fn names_are_those_of_the_mappings_and_case_is_ignored() {
        let labels =
            json!({"nodes": [{"name": "Repo:WEB"}, null, {"name": "büro"}, {"name": "repo:ap"}]});
        let wanted = ["repo:web", "repo:api", "BÜRO"];
        assert_eq!(among(labels, &wanted), ["repo:web", "BÜRO"]);
        assert_eq!(among(Value::Null, &wanted), Vec::<String>::new());
    }

    #[test]
    fn labels_are_read_again_after_an_update_another_match_and_ten_minutes() {
        let now = Instant::now();
        let wanted = vec!["repo:web".to_owned()];
        let mut known = KnownLabels {
            updated_at: Timestamp::EPOCH,
            is_settled: true,
            read_at: now,
            wanted: wanted.clone(),
            found: Vec::new(),
        };
        let later = Timestamp::EPOCH + Duration::from_secs(1);
        let other = vec!["repo:api".to_owned()];
        for (updated_at, wanted, age, expected) in [
            (Timestamp::EPOCH, &wanted, 599, true),
            (Timestamp::EPOCH, &wanted, 600, false),
            (later, &wanted, 0, false),
            (Timestamp::EPOCH, &other, 0, false),
        ] {
            let at = now + Duration::from_secs(age);
            assert_eq!(known.is_current(updated_at, wanted, at), expected, "{age}");
        }
        // Another label may have been set within the same second.
        known.is_settled = false;
        assert!(!known.is_current(Timestamp::EPOCH, &wanted, now));
    }
}
