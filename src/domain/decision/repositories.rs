//! Reasons for waiting that lie with open work on the repository, and with the dispatch hours.

use std::collections::BTreeMap;

use super::{SchedulingState, WaitReason};
use crate::collision::ClaimedFiles;
use crate::ids::{IssueId, Repo};
use crate::issue::{FlaggedIssue, Phase};
use crate::mapping::Mapping;
use crate::repository_load::{OpeningRun, RepositoryLoad};
use crate::review_capacity;
use crate::time::Timestamp;

/// Open work on each repository, with what this poll starts.
pub(super) struct Repositories<'s> {
    state: &'s SchedulingState,
    now: Timestamp,
    open_work: BTreeMap<Repo, (RepositoryLoad, ClaimedFiles)>,
}

impl<'s> Repositories<'s> {
    /// Creates the state at the start of a poll.
    pub(super) fn new(state: &'s SchedulingState, now: Timestamp) -> Self {
        let loads = state.repository_loads.iter();
        Self {
            state,
            now,
            open_work: loads
                .map(|(repo, load)| (repo.clone(), (load.clone(), ClaimedFiles::of(load))))
                .collect(),
        }
    }

    /// Returns why a phase of an issue does not start now.
    pub(super) fn wait_for(
        &self,
        mapping: &Mapping,
        issue: &FlaggedIssue,
        phase: Phase,
    ) -> Option<(WaitReason, String)> {
        let id = &issue.issue.id;
        let closed = self.state.outside_hours.get(&mapping.team_key);
        if let Some(message) = closed.filter(|_| !self.state.operator_retries.contains(id)) {
            return Some((WaitReason::OutsideHours, message.clone()));
        }
        // Planning opens no pull request and changes no file.
        if phase != Phase::Implementation {
            return None;
        }
        let (load, claimed) = self.open_work.get(&mapping.target_repo())?;
        if let Some(message) = review_capacity::full_message(load, mapping, id, self.now) {
            return Some((WaitReason::ReviewCapacity, message));
        }
        let message = claimed.collision_message(mapping, id, self.declared_files(id))?;
        Some((WaitReason::Collision, message))
    }

    /// Adds a run that this poll starts.
    pub(super) fn begin_run(&mut self, mapping: &Mapping, issue: &FlaggedIssue, phase: Phase) {
        if phase != Phase::Implementation {
            return;
        }
        let files = self.state.declared_files.get(&issue.issue.id);
        let run = OpeningRun {
            issue: issue.issue.id.clone(),
            key: issue.issue.key.clone(),
            files: files.cloned().unwrap_or_default(),
        };
        let (load, claimed) = self.open_work.entry(mapping.target_repo()).or_default();
        claimed.add_run(&run.issue, &run.key, &run.files);
        load.runs.push(run);
    }

    fn declared_files(&self, issue: &IssueId) -> &[String] {
        let files = self.state.declared_files.get(issue);
        files.map_or(&[], |files| files)
    }
}
