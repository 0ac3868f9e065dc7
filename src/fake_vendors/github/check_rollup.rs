//! Summary of the checks of a commit, and of the reviews of a pull request, as the GraphQL API returns them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::model::{CheckKind, CheckRecord, RepoRecord, ReviewRecord};

/// Number of checks of a commit by state.
#[derive(Clone, Default)]
pub(super) struct CheckRollup {
    runs: BTreeMap<String, u64>,
    statuses: BTreeMap<String, u64>,
    /// Checks, and whether each is required.
    checks: Vec<(CheckRecord, bool)>,
}

impl CheckRollup {
    /// Counts the checks of a commit. `None` if it has none.
    pub(super) fn of(repo: &RepoRecord, checks: Vec<CheckRecord>) -> Option<Self> {
        let mut rollup = Self::default();
        for check in checks {
            let counts = match check.kind {
                CheckKind::CheckRun => &mut rollup.runs,
                CheckKind::CommitStatus => &mut rollup.statuses,
            };
            *counts.entry(state(&check)).or_default() += 1;
            let is_required = repo.required_checks.contains(&check.name);
            rollup.checks.push((check, is_required));
        }
        (rollup.total() > 0).then_some(rollup)
    }

    fn total(&self) -> u64 {
        self.runs.values().chain(self.statuses.values()).sum()
    }

    /// Returns a field of the rollup or of its connection of contexts, except objects.
    pub(super) fn field(&self, name: &str) -> Value {
        match name {
            "totalCount" => json!(self.total()),
            "checkRunCount" => json!(self.runs.values().sum::<u64>()),
            "statusContextCount" => json!(self.statuses.values().sum::<u64>()),
            "state" => {
                let has = |state: &str| {
                    self.runs.contains_key(state) || self.statuses.contains_key(state)
                };
                match has("FAILURE") || has("ERROR") || has("TIMED_OUT") {
                    true => json!("FAILURE"),
                    false if has("PENDING") || has("IN_PROGRESS") => json!("PENDING"),
                    false => json!("SUCCESS"),
                }
            }
            _ => json!("SCR_1"),
        }
    }

    /// Returns the checks, and whether each is required.
    pub(super) fn checks(&self) -> &[(CheckRecord, bool)] {
        &self.checks
    }

    /// Returns the counts of one kind: state and number.
    pub(super) fn counts(&self, name: &str) -> Vec<(String, u64)> {
        let counts = match name {
            "checkRunCountsByState" => &self.runs,
            _ => &self.statuses,
        };
        counts
            .iter()
            .map(|(state, count)| (state.clone(), *count))
            .collect()
    }
}

fn state(check: &CheckRecord) -> String {
    let state = check.conclusion.as_deref().unwrap_or(&check.status);
    state.to_uppercase()
}

/// Returns the latest review with an opinion of each reviewer.
pub(super) fn latest_opinions(repo: &RepoRecord, number: u64) -> Vec<ReviewRecord> {
    let mut latest: BTreeMap<&str, &ReviewRecord> = BTreeMap::new();
    let opinions = repo.reviews.iter().filter(|review| {
        review.number == number
            && matches!(
                review.state.as_str(),
                "APPROVED" | "CHANGES_REQUESTED" | "DISMISSED"
            )
    });
    for review in opinions {
        latest.insert(&review.author, review);
    }
    latest.into_values().cloned().collect()
}
