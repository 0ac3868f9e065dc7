//! What must hold when nothing changes any more.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::decision::DecisionOutcome;
use domain::effect::Effect;
use domain::feedback::{
    FollowUpPolicy, PullRequestRecord, PullRequestStatus, automatic_runs_resume_at,
};
use domain::job::{Job, JobKind};
use domain::merge_policy::{MergeProgress, MergeRule};
use domain::red_checks::CiStatus;
use store::outbox::OutboxEntry;
use store::{audit, decisions, dedup, jobs, outbox, pull_feedback};

use super::ci::failed_checks;
use super::event::LandingEvent;
use super::invariants::{CheckResult, ensure};
use super::projects::PROJECTS;
use super::world::{SeenPull, World};

/// Ticks without a change after which nothing changes any more.
const QUIET_TICKS: u32 = 4;

/// Time between two of these ticks: three of them are longer than every wait of minutes.
const TICK_INTERVAL: Duration = Duration::from_secs(6 * 60);

/// Maximum number of ticks until then.
const MAX_TICKS: u32 = 60;

/// Pull request at rest.
struct AtRest<'w> {
    at: usize,
    seen: &'w SeenPull,
    record: PullRequestRecord,
    jobs: Vec<Job>,
}

impl AtRest<'_> {
    fn is_busy(&self) -> bool {
        self.jobs.iter().any(Job::is_active)
    }
}

impl World {
    /// Ends all faults, and lets the engine work until nothing changes any more. Then checks everything.
    pub async fn settle(&mut self) -> CheckResult {
        self.clear_faults();
        for project in 0..PROJECTS {
            self.repo(project).set_unknown_reads(0);
        }
        let (mut quiet, mut changes) = (0, String::new());
        for _ in 0..MAX_TICKS {
            let state = self.state();
            for event in [LandingEvent::Sweep, LandingEvent::Tick] {
                self.drive(&event).await;
                self.check_step().await?;
            }
            let due = self.due_effects();
            self.service.clock.advance(match due.is_empty() {
                true => TICK_INTERVAL,
                false => Duration::from_secs(61),
            });
            let now = self.state();
            quiet = match due.is_empty() && state == now {
                true => quiet + 1,
                false => 0,
            };
            changes = format!("{due:#?}\n{state}\n{now}");
            if quiet == QUIET_TICKS {
                return self.check_at_rest();
            }
        }
        Err(format!("never at rest: {changes}"))
    }

    /// Returns the effects that do not wait for a run. A branch is deleted when no run works on it any more.
    fn due_effects(&self) -> Vec<OutboxEntry> {
        let store = &self.env().store;
        let mut due = store.read(outbox::pending).unwrap();
        due.retain(|entry| match &entry.effect {
            Effect::DeleteBranch { repo, number } => {
                let of_pull = store.read(|tx| jobs::of_pull(tx, repo, *number));
                !of_pull.unwrap().iter().any(Job::is_active)
            }
            _ => true,
        });
        due
    }

    fn state(&self) -> String {
        let jobs = self.jobs();
        let jobs: Vec<_> = jobs.iter().map(|job| (&job.id, &job.state)).collect();
        let pulls = (0..self.pulls.len()).map(|at| {
            let record = self.record(at);
            (
                record.status,
                record.ci.status,
                record.merge.progress,
                record.updates,
            )
        });
        format!(
            "{jobs:?} {:?} {:?}",
            pulls.collect::<Vec<_>>(),
            self.seen_pulls()
        )
    }

    fn check_at_rest(&mut self) -> CheckResult {
        let dead = self.env().store.read(outbox::dead).unwrap();
        ensure(dead.is_empty(), || {
            format!("dead outbox entries: {dead:#?}")
        })?;
        let seen = self.seen_pulls();
        for (at, seen) in seen.iter().enumerate() {
            let id = self.pull_id(at);
            let of_pull = |tx: &store::ReadTx| jobs::of_pull(tx, &id.repo, id.number);
            let jobs = self.env().store.read(of_pull).unwrap();
            if jobs.is_empty() {
                // Its run ended before it could report the pull request.
                continue;
            }
            let record = self.record(at);
            let pull = AtRest {
                at,
                seen,
                record,
                jobs,
            };
            match seen.shown.open {
                true => self.check_open(&pull)?,
                false => self.check_ended(&pull)?,
            }
        }
        self.count_at_rest();
        Ok(())
    }

    fn check_open(&mut self, pull: &AtRest<'_>) -> CheckResult {
        let (record, head) = (&pull.record, &pull.seen.shown.head_sha);
        let known = record.readiness.head.as_ref().map(|head| &head.sha);
        ensure(
            record.status == PullRequestStatus::Open && known == Some(head),
            || format!("what is known of {:#?} is old: {record:#?}", pull.seen),
        )?;
        let grant = record
            .merge
            .progress
            .as_ref()
            .and_then(MergeProgress::open_grant);
        let is_granted = grant.is_some_and(|grant| grant.head == *head);
        ensure(
            pull.seen.is_armed == grant.is_some() && pull.seen.is_armed == is_granted,
            || format!("armed: {:#?}, but {:?}", pull.seen, record.merge),
        )?;
        let obstacle = self.merge_obstacle(pull.at, head, pull.is_busy());
        ensure(obstacle.is_none() || !pull.seen.is_armed, || {
            format!("armed although: {obstacle:?} {record:#?}")
        })?;
        let (project, ticket) = (self.pulls[pull.at].project, self.pulls[pull.at].ticket);
        let id = self.pull_id(pull.at);
        let findings = self
            .env()
            .store
            .read(|tx| pull_feedback::unresolved(tx, &id));
        let waits = !findings.unwrap().is_empty()
            || self.mapping(project).paused
            || self.tickets[ticket].is_taken
            || pull.is_busy();
        if waits {
            return Ok(());
        }
        self.check_red(pull)?;
        self.check_conflicting(pull)?;
        if obstacle.is_none() {
            self.check_mergeable(pull)?;
        }
        Ok(())
    }

    /// A red pull request without a run has a reason.
    fn check_red(&mut self, pull: &AtRest<'_>) -> CheckResult {
        let (repo, head) = (
            self.repo(self.pulls[pull.at].project),
            &pull.seen.shown.head_sha,
        );
        let (failed, ci) = (failed_checks(&repo, head), &pull.record.ci);
        if failed.is_empty() {
            return Ok(());
        }
        let is_limited =
            automatic_runs_resume_at(&FollowUpPolicy::default(), &pull.jobs, self.now());
        let has_reason = match &ci.status {
            CiStatus::Stopped { .. } => self.check_comment(pull),
            CiStatus::OnBase { .. } => true,
            CiStatus::Due { .. } => is_limited.is_some(),
            CiStatus::Quiet
            | CiStatus::Unjudged
            | CiStatus::Rerunning { .. }
            | CiStatus::Repairing { .. } => false,
        };
        ensure(has_reason && ci.head.as_ref() == Some(head), || {
            format!(
                "{failed:?} of {head} are red for no reason: {:#?}",
                pull.record
            )
        })?;
        if let CiStatus::Stopped { reason, .. } = &ci.status {
            let reason = serde_json::to_value(reason).unwrap();
            self.add_milestone(&format!("stopped: {}", reason.as_str().unwrap()));
        }
        Ok(())
    }

    /// Whether the pull request has its comment about failing checks.
    fn check_comment(&self, pull: &AtRest<'_>) -> bool {
        let number = pull.seen.shown.number;
        let comments = self.repo(self.pulls[pull.at].project).comments(number);
        let mut about = comments
            .iter()
            .filter(|one| one.body.contains("<!-- agent-implement:checks -->"));
        about.any(|one| one.body.contains("A person is needed"))
    }

    /// A pull request in conflict has had its run, or waits for one of its repository or for the daily limit.
    fn check_conflicting(&self, pull: &AtRest<'_>) -> CheckResult {
        let project = self.pulls[pull.at].project;
        let (repo, head) = (self.repo(project), &pull.seen.shown.head_sha);
        let base = repo.branch_head("main").unwrap();
        if !repo.are_in_conflict(&base, head) {
            return Ok(());
        }
        let mut attempts = pull.record.updates.attempts.iter();
        let is_attempted = attempts.any(|one| one.head == *head && one.base == base);
        let repo_id = self.repo_id(project);
        let is_other =
            |job: &Job| job.is_active() && job.kind == JobKind::Conflict && job.repo == repo_id;
        let limited = automatic_runs_resume_at(&FollowUpPolicy::default(), &pull.jobs, self.now());
        let has_reason = is_attempted || limited.is_some() || self.jobs().iter().any(is_other);
        ensure(has_reason, || {
            format!(
                "nothing happens about the conflict of {head} and {base}: {:#?}",
                pull.record
            )
        })
    }

    /// A pull request that meets all conditions is merged or armed, unless GitHub or a person refuses.
    fn check_mergeable(&self, pull: &AtRest<'_>) -> CheckResult {
        let repo = self.repo(self.pulls[pull.at].project);
        let base = repo.branch_head("main").unwrap();
        let is_conflicting = repo.are_in_conflict(&base, &pull.seen.shown.head_sha);
        let is_refused = matches!(&pull.record.merge.progress, Some(MergeProgress::Refused(refusal))
            if matches!(refusal.rule, MergeRule::GitHub | MergeRule::Stopped));
        ensure(pull.seen.is_armed || is_conflicting || is_refused, || {
            format!("{:#?} is not merged: {:#?}", pull.seen, pull.record)
        })
    }

    /// Nothing goes on for a pull request that is merged or closed.
    fn check_ended(&self, pull: &AtRest<'_>) -> CheckResult {
        let (record, shown) = (&pull.record, &pull.seen.shown);
        // A closed one is read again only if it is listed as open: one that is reopened and merged between two sweeps,
        // without a webhook, stays closed.
        let is_merged = shown.merged && record.status != PullRequestStatus::Closed;
        let status = if is_merged { "merged" } else { "closed" };
        let progress = record.merge.progress.as_ref();
        let is_pending = progress.is_some_and(|progress| progress.open_grant().is_some());
        let is_ended = record.status.as_str() == status && !is_pending;
        ensure(is_ended && record.ci.ticket_comment.is_none(), || {
            format!("{shown:#?} goes on: {record:#?}")
        })?;
        let issue = &pull.jobs[0].issue;
        let others = self
            .pulls
            .iter()
            .filter(|other| other.ticket == self.pulls[pull.at].ticket);
        let is_deduped = self.env().store.read(dedup::all).unwrap();
        let is_deduped = is_deduped.iter().any(|entry| entry.issue.id == issue.id);
        ensure(!is_merged || !is_deduped || others.count() > 1, || {
            format!("{} is merged, but not closed", issue.key)
        })?;
        let is_ours = matches!(progress, Some(MergeProgress::Merged(_)));
        let notes = self
            .repo(self.pulls[pull.at].project)
            .comments(shown.number);
        let notes = notes
            .iter()
            .filter(|one| one.body.starts_with("Merged by policy"));
        let (notes, expected) = (notes.count(), usize::from(is_ours));
        ensure(notes == expected, || {
            format!("{notes} notes about the merge of {shown:#?}: {record:#?}")
        })
    }

    fn count_at_rest(&mut self) {
        for at in 0..self.tickets.len() {
            let key = self.tickets[at].key.as_str().into();
            let read = self.env().store.read(|tx| decisions::get(tx, &key));
            let history = read.unwrap();
            let current = history.as_ref().and_then(|history| history.current());
            let waiting = current.filter(|one| one.outcome == DecisionOutcome::Waiting);
            if let Some(reason) = waiting.and_then(|one| one.reason) {
                self.add_milestone(&format!("reason: {}", reason.as_str()));
            }
        }
    }

    /// Counts what happened in this case.
    pub fn count_all(&self) -> BTreeMap<String, u64> {
        let mut all = self.milestones.clone();
        let read = self.env().store.read(|tx| audit::latest(tx, None, 100_000));
        for entry in read.unwrap() {
            *all.entry(entry.action).or_default() += 1;
        }
        for job in self.jobs() {
            let name = format!("{} {}", job.kind.as_str(), job.state.status());
            *all.entry(name).or_default() += 1;
        }
        all
    }
}
