//! Review capacity: no further implementation starts while people have enough pull requests to review. See
//! docs/behaviour.md#review-capacity.

use std::time::Duration;

use crate::ids::{IssueId, Repo};
use crate::mapping::Mapping;
use crate::repository_load::{HostKnowledge, OpenPull, RepositoryLoad};
use crate::time::Timestamp;

/// Maximum number of pull requests and of runs that a message names.
const MAX_NAMED: usize = 5;

/// One day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns why no implementation of an issue starts because of the limits of its mapping, as a sentence. `None` if one
/// may start.
///
/// Runs that may open a pull request count for both limits, so that their pull requests do not exceed them. A run of
/// an issue with an open pull request opens no other.
pub fn full_message(
    load: &RepositoryLoad,
    mapping: &Mapping,
    issue: &IssueId,
    now: Timestamp,
) -> Option<String> {
    if !is_limited(mapping) || load.has_pull_of(issue) {
        return None;
    }
    let mut runs: Vec<&str> = load.opening_runs().map(|run| run.key.as_str()).collect();
    // `ENG-9` before `ENG-10`, and in every poll the same.
    runs.sort_by_key(|key| (key.len(), *key));
    let counts: [fn(&OpenPull) -> bool; 2] = [|_| true, |pull| pull.awaits_review];
    for (limit, counts) in limits(mapping).into_iter().zip(counts) {
        let mut pulls: Vec<&OpenPull> = load.pulls.iter().filter(|pull| counts(pull)).collect();
        let is_full = limit.is_some_and(|limit| pulls.len() + runs.len() >= limit as usize);
        if is_full {
            pulls.sort_by_key(|pull| (pull.opened_at, pull.number));
            return Some(sentence(&pulls, &runs, now));
        }
    }
    if load.pulls.is_empty() {
        return None;
    }
    let repo = mapping.target_repo();
    outdated_message(load.knowledge, &repo)
}

/// Returns whether a mapping limits its open pull requests.
pub fn is_limited(mapping: &Mapping) -> bool {
    limits(mapping).iter().any(Option::is_some)
}

/// Returns the limits of the open pull requests, and of those that wait for a review.
fn limits(mapping: &Mapping) -> [Option<u32>; 2] {
    [mapping.max_open_pulls, mapping.max_awaiting_review]
}

/// Returns that nothing starts because the open pull requests are not known well enough.
fn outdated_message(knowledge: HostKnowledge, repo: &Repo) -> Option<String> {
    let reason = match knowledge {
        HostKnowledge::Current => return None,
        HostKnowledge::Unread => {
            format!("The open pull requests of {repo} were not read since the service started.")
        }
        HostKnowledge::Old(at) => format!(
            "The open pull requests of {repo} could not be read from GitHub since {}.",
            at.date_text()
        ),
    };
    Some(format!(
        "{reason} Until then, the review capacity counts as used up."
    ))
}

fn sentence(pulls: &[&OpenPull], runs: &[&str], now: Timestamp) -> String {
    let pulls = pulls
        .iter()
        .map(|pull| format!("#{} ({})", pull.number, age(now.since(pull.opened_at))));
    let runs = runs.iter().map(|key| (*key).to_owned());
    match (pulls.len(), runs.len()) {
        (0, 1) => format!(
            "Waits for the pull request of {}, which is running",
            listed(runs)
        ),
        (0, _) => format!(
            "Waits for the pull requests of {}, which are running",
            listed(runs)
        ),
        (_, 0) => format!("Waits for review of {}", listed(pulls)),
        _ => format!(
            "Waits for review of {}; still running: {}",
            listed(pulls),
            listed(runs)
        ),
    }
}

/// Names the first, and counts the rest.
fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    let rest = items.len().saturating_sub(MAX_NAMED);
    let named: Vec<String> = items.take(MAX_NAMED).collect();
    let named = named.join(", ");
    match rest {
        0 => named,
        rest => format!("{named} and {rest} more"),
    }
}

/// Age in whole days, so that a message changes once a day.
pub(crate) fn age(age: Duration) -> String {
    match age.as_secs() / DAY.as_secs() {
        0 => "today".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mapping::example_mapping;
    use crate::repository_load::OpeningRun;

    const NOW: Timestamp = Timestamp::from_millis(1_795_228_800_000);

    fn pull(number: u64, days: u32, awaits_review: bool) -> OpenPull {
        OpenPull {
            number,
            issue: format!("issue-{number}").as_str().into(),
            key: format!("ENG-{number}").as_str().into(),
            opened_at: NOW - DAY * days,
            awaits_review,
            files: [].into(),
        }
    }

    fn run(number: u64) -> OpeningRun {
        OpeningRun {
            issue: format!("issue-{number}").as_str().into(),
            key: format!("ENG-{number}").as_str().into(),
            files: [].into(),
        }
    }

    fn message(load: &RepositoryLoad, open: Option<u32>, awaiting: Option<u32>) -> Option<String> {
        let fields = json!({"maxOpenPulls": open, "maxAwaitingReview": awaiting});
        full_message(load, &example_mapping(&fields), &"candidate".into(), NOW)
    }

    #[test]
    fn names_what_is_waited_for_oldest_first() {
        let load = |pulls: &[OpenPull], runs: &[OpeningRun]| RepositoryLoad {
            pulls: pulls.to_vec(),
            runs: runs.to_vec(),
            knowledge: HostKnowledge::Current,
        };
        let two = [pull(15, 1, true), pull(12, 3, true)];
        let many: Vec<OpenPull> = (1..=8).map(|number| pull(number, 0, true)).collect();
        let rows = [
            (
                load(&two, &[]),
                "Waits for review of #12 (3 days), #15 (1 day)",
            ),
            (load(&two[..1], &[]), "Waits for review of #15 (1 day)"),
            (
                load(&many, &[]),
                "Waits for review of #1 (today), #2 (today), #3 (today), #4 (today), #5 (today) and 3 more",
            ),
            (
                load(&[], &[run(4)]),
                "Waits for the pull request of ENG-4, which is running",
            ),
            (
                load(&[], &[run(4), run(5)]),
                "Waits for the pull requests of ENG-4, ENG-5, which are running",
            ),
            (
                load(&two, &[run(4)]),
                "Waits for review of #12 (3 days), #15 (1 day); still running: ENG-4",
            ),
        ];
        for (load, expected) in rows {
            for (open, awaiting) in [(Some(1), None), (None, Some(1)), (Some(1), Some(9))] {
                let found = message(&load, open, awaiting);
                assert_eq!(found.as_deref(), Some(expected), "{open:?} {awaiting:?}");
            }
            assert_eq!(message(&load, None, None), None);
            assert_eq!(message(&load, Some(9), Some(9)), None);
        }
    }

    #[test]
    fn drafts_and_approved_ones_await_no_review() {
        let load = RepositoryLoad {
            pulls: vec![pull(1, 0, false), pull(2, 0, true)],
            ..RepositoryLoad::default()
        };
        assert_eq!(message(&load, None, Some(2)), None);
        let waits = message(&load, None, Some(1)).unwrap();
        assert_eq!(waits, "Waits for review of #2 (today)");
        assert!(message(&load, Some(2), None).is_some());
    }

    #[test]
    fn a_run_of_an_issue_with_a_pull_request_opens_no_other() {
        let load = RepositoryLoad {
            pulls: vec![pull(1, 0, true)],
            runs: vec![run(1)],
            ..RepositoryLoad::default()
        };
        assert_eq!(message(&load, Some(2), None), None);
        let mapping = example_mapping(&json!({"maxOpenPulls": 1}));
        assert_eq!(full_message(&load, &mapping, &"issue-1".into(), NOW), None);
    }

    #[test]
    fn old_knowledge_counts_as_full_if_there_are_pull_requests() {
        for (knowledge, expected) in [
            (
                HostKnowledge::Unread,
                "were not read since the service started",
            ),
            (
                HostKnowledge::Old(NOW),
                "could not be read from GitHub since 21 Nov 02:40 UTC",
            ),
        ] {
            let known = RepositoryLoad {
                pulls: vec![pull(1, 0, true)],
                runs: Vec::new(),
                knowledge,
            };
            let found = message(&known, None, Some(5)).unwrap();
            assert!(found.contains(expected), "{found}");
            assert_eq!(message(&known, None, None), None);
            let none = RepositoryLoad {
                pulls: Vec::new(),
                ..known
            };
            assert_eq!(message(&none, Some(1), None), None);
        }
    }
}
