//! When the CI runs of each repository are listed next.
//!
//! GitHub grants an installation some thousand requests an hour, and a list of runs is one for each repository. The more
//! repositories have runs, the less often each is asked; a webhook about the end of a run asks at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ids::Repo;
use domain::time::Timestamp;

/// Number of repositories that are all listed in each cycle. With a cycle of 15 seconds, any number of repositories then
/// takes at most 2,400 requests an hour, half of the least that an installation is granted. Many webhooks, which start
/// cycles early, can double that, and each adds the list of its own repository.
const REPOS_PER_CYCLE: usize = 10;

/// When the CI runs of each repository are listed next.
#[derive(Default)]
pub struct RunWatches {
    /// Time of the last list of each repository with runs.
    listed_at: Mutex<HashMap<Repo, Timestamp>>,
}

impl RunWatches {
    /// Returns those of the repositories with runs whose runs are to be listed now, and records that they are. `cycle` is
    /// the time between two calls.
    pub(crate) fn take_due(
        &self,
        with_runs: &HashSet<&Repo>,
        cycle: Duration,
        now: Timestamp,
    ) -> HashSet<Repo> {
        let interval = u32::try_from(with_runs.len().div_ceil(REPOS_PER_CYCLE)).unwrap_or(u32::MAX);
        // Cycles are not exactly as long as planned.
        let least = cycle * interval.max(1) - cycle / 2;
        let mut listed_at = self
            .listed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listed_at.retain(|repo, _| with_runs.contains(repo));
        let is_due = |repo: &&&Repo| {
            listed_at
                .get(**repo)
                .is_none_or(|at| now.since(*at) >= least)
        };
        let due: HashSet<Repo> = with_runs
            .iter()
            .filter(is_due)
            .map(|repo| (*repo).clone())
            .collect();
        listed_at.extend(due.iter().map(|repo| (repo.clone(), now)));
        due
    }

    /// Notes that a run of a repository has ended. Returns whether the repository is among those that are listed.
    pub(crate) fn note_ended_run(&self, repo: &Repo) -> bool {
        let mut listed_at = self
            .listed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listed_at.remove(repo).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLE: Duration = Duration::from_secs(15);

    /// Returns the number of lists in an hour, and the longest time between two of a repository.
    fn hour(repos: usize) -> (usize, Duration) {
        let watches = RunWatches::default();
        let repos: Vec<Repo> = (0..repos)
            .map(|number| Repo::new("o", number.to_string()))
            .collect();
        let with_runs: HashSet<&Repo> = repos.iter().collect();
        let start = Timestamp::from_millis(1_000_000_000);
        let (mut lists, mut longest) = (0, Duration::ZERO);
        let mut last: HashMap<Repo, Timestamp> = HashMap::new();
        for cycle in 0..240 {
            let now = start + CYCLE * cycle + Duration::from_millis(u64::from(cycle % 7));
            for repo in watches.take_due(&with_runs, CYCLE, now) {
                lists += 1;
                if let Some(before) = last.insert(repo, now) {
                    longest = longest.max(now.since(before));
                }
            }
        }
        (lists, longest)
    }

    #[test]
    fn the_number_of_requests_is_limited() {
        let rows = [
            (1, 240),
            (10, 2_400),
            (11, 1_320),
            (100, 2_400),
            (250, 2_500),
        ];
        for (repos, expected) in rows {
            let (lists, longest) = hour(repos);
            assert!(lists <= expected, "{repos}: {lists}");
            let cycles = u32::try_from(repos.div_ceil(REPOS_PER_CYCLE)).unwrap();
            assert!(
                longest <= CYCLE * cycles + Duration::from_millis(10),
                "{repos}: {longest:?}"
            );
        }
    }

    #[test]
    fn the_end_of_a_run_is_looked_up_at_once() {
        for count in [2, 10, 100] {
            let watches = RunWatches::default();
            let repos: Vec<Repo> = (0..count)
                .map(|number| Repo::new("o", number.to_string()))
                .collect();
            let with_runs: HashSet<&Repo> = repos.iter().collect();
            let now = Timestamp::from_millis(1_000_000_000);
            assert_eq!(watches.take_due(&with_runs, CYCLE, now).len(), count);
            assert!(watches.note_ended_run(&repos[1]));
            assert!(!watches.note_ended_run(&Repo::new("o", "x")));
            let due = watches.take_due(&with_runs, CYCLE, now + Duration::from_secs(1));
            assert_eq!(due, [repos[1].clone()].into(), "the others are not due");
            // A repository without runs is forgotten, and listed at once when it has one again.
            watches.take_due(&HashSet::new(), CYCLE, now);
            assert_eq!(watches.take_due(&with_runs, CYCLE, now).len(), count);
        }
    }
}
