//! Conditions of a merge by policy, and whether each merge met them.

use std::collections::BTreeMap;

use domain::merge_policy::MergeMode;

use super::ci::is_green;
use super::invariants::{CheckResult, Observation, ensure};
use super::runs::BOT;
use super::world::{SeenPull, World};

/// Reviewers who may write.
const WRITERS: [&str; 2] = ["mia", "kim"];

impl World {
    /// Returns why a head may not be merged by policy. `None` if it may.
    pub fn merge_obstacle(&self, at: usize, head: &str, is_busy: bool) -> Option<String> {
        let pull = &self.pulls[at];
        let mapping = self.mapping(pull.project);
        let mut latest: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for (_, login, opinion, commit) in &pull.reviews {
            if *opinion != "COMMENTED" {
                latest.insert(login, (opinion, commit));
            }
        }
        let of_writers = || latest.iter().filter(|(login, _)| WRITERS.contains(*login));
        let is_approval = |(_, review): &(&&str, &(&str, &str))| **review == ("APPROVED", head);
        let approvals = of_writers().filter(is_approval).count();
        let blocks = of_writers().any(|(_, (opinion, _))| *opinion == "CHANGES_REQUESTED");
        match () {
            () if mapping.merge.mode == MergeMode::Never => Some("people merge".to_owned()),
            () if mapping.paused => Some("the project is paused".to_owned()),
            () if self.tickets[pull.ticket].is_taken => Some("it is taken over".to_owned()),
            () if is_busy => Some("a run works on it".to_owned()),
            () if !is_green(&self.repo(pull.project), head) => Some("checks".to_owned()),
            () if blocks => Some(format!("changes requested: {latest:?}")),
            () if approvals == 0 => Some(format!("no approval of {head}: {latest:?}")),
            () if !pull.threads.is_empty() => Some("open conversations".to_owned()),
            () => None,
        }
    }

    /// Whether a run works on the branch of a pull request, before and after a step.
    fn is_busy(&self, at: usize, before: &Observation, after: &Observation) -> bool {
        let pull = &self.pulls[at];
        let repo = self.repo_id(pull.project);
        let is_active = |observed: &Observation, job: &domain::ids::JobId| {
            let mut jobs = observed.jobs.iter();
            jobs.any(|other| other.id == *job && other.is_active())
        };
        before.jobs.iter().any(|job| {
            job.branch == pull.branch
                && job.repo == repo
                && is_active(before, &job.id)
                && is_active(after, &job.id)
        })
    }

    /// What this step merged, armed or added to the queue met the conditions.
    pub fn check_merges(&mut self, before: &Observation, after: &Observation) -> CheckResult {
        for (at, (old, new)) in before.pulls.iter().zip(&after.pulls).enumerate() {
            let is_armed_now = new.is_armed && !old.is_armed;
            let is_merged_now = new.shown.merged && !old.shown.merged;
            let is_by_service = is_merged_now && merger(new) == BOT;
            let is_direct = is_by_service && !old.is_armed;
            if is_direct || is_armed_now {
                let is_busy = self.is_busy(at, before, after);
                let obstacle = self.merge_obstacle(at, &new.shown.head_sha, is_busy);
                ensure(obstacle.is_none(), || {
                    let (what, record) = (obstacle.unwrap_or_default(), self.record(at));
                    format!("merged or armed although: {what}: {new:#?} {record:#?}")
                })?;
                self.add_milestone(if is_direct {
                    "merged by the service"
                } else {
                    "armed"
                });
            } else if is_by_service {
                self.add_milestone("merged by the host");
            } else if is_merged_now && merger(new) != "maintainer" {
                self.add_milestone("merged by the queue");
            }
        }
        Ok(())
    }
}

fn merger(pull: &SeenPull) -> &str {
    pull.shown.merged_by.as_deref().unwrap_or_default()
}
