//! Checks of the pull requests that land: what happened on each from its first run to its merge.

use std::collections::{BTreeMap, BTreeSet};

use domain::audit::AuditEntry;
use domain::feedback::{PullRequestId, PullRequestRecord, PullRequestStatus};
use domain::job::{Job, JobKind, JobState};
use fake_vendors::{FakeRepo, PullSnapshot};
use store::{Store, audit, job_index, pull_feedback};

use crate::checks::{ensure, pull_comments};
use crate::crash_env::CrashEnv;
use crate::landing::{self, LANDING_REPOS, Landing, UP_TO_DATE, changed_file};
use crate::landing_people::pull_of;
use crate::tickets::{ExpectedTicket, TicketKind};

/// Counts of what was checked, by name.
type Counts = BTreeMap<&'static str, usize>;

/// Checks every pull request that lands, and returns how often each thing happened.
pub fn check_landings(env: &CrashEnv, store: &Store) -> Result<Counts, String> {
    let entries = store.read(|tx| audit::latest(tx, None, 100_000)).unwrap();
    let tickets = env.record().tickets.clone();
    let mut counts = Counts::new();
    for name in LANDING_REPOS {
        let repo = env.repo(name);
        let pulls = repo.pulls();
        let mut own = BTreeSet::new();
        for ticket in tickets.iter().filter(|ticket| ticket.repo() == name) {
            let TicketKind::Landing(landing) = ticket.kind else {
                continue;
            };
            let pull = pull_of(&pulls, ticket).ok_or_else(|| format!("{ticket:?}: no pull"))?;
            own.insert(pull.number);
            let landed = Landed::read(env, store, &entries, &repo, ticket, landing, pull);
            let fault = |fault| format!("{ticket:?}, {pull:?}: {fault}");
            landed.check(&mut counts).map_err(fault)?;
        }
        let of_service = pulls.iter().filter(|pull| pull.author != "mia");
        let of_service: BTreeSet<u64> = of_service.map(|pull| pull.number).collect();
        ensure(own == of_service, || {
            format!("pull requests {of_service:?} of the tickets' {own:?}")
        })?;
    }
    Ok(counts)
}

/// Everything about one pull request.
struct Landed<'a> {
    env: &'a CrashEnv,
    repo: &'a FakeRepo,
    ticket: &'a ExpectedTicket,
    landing: Landing,
    pull: &'a PullSnapshot,
    /// Jobs in the order of their reservation.
    jobs: Vec<Job>,
    record: PullRequestRecord,
    entries: &'a [AuditEntry],
}

impl<'a> Landed<'a> {
    fn read(
        env: &'a CrashEnv,
        store: &Store,
        entries: &'a [AuditEntry],
        repo: &'a FakeRepo,
        ticket: &'a ExpectedTicket,
        landing: Landing,
        pull: &'a PullSnapshot,
    ) -> Self {
        let read = store.read(|tx| {
            let mut jobs = job_index::of_issue_named(tx, &ticket.key)?;
            jobs.sort_by_key(|job| job.reserved_at);
            let id = jobs.first().and_then(PullRequestId::of_job);
            let record = id.map(|id| pull_feedback::get_pull(tx, &id)).transpose()?;
            Ok((jobs, record.unwrap_or_default()))
        });
        let (jobs, record) = read.unwrap();
        Self {
            env,
            repo,
            ticket,
            landing,
            pull,
            jobs,
            record,
            entries,
        }
    }

    fn check(&self, counts: &mut Counts) -> Result<(), String> {
        self.check_runs(counts)?;
        self.check_commits(counts)?;
        self.check_reruns(counts)?;
        self.check_merge(counts)?;
        self.check_take_over(counts)
    }

    /// One run at a time works on the branch, and on each conflict at most one.
    fn check_runs(&self, counts: &mut Counts) -> Result<(), String> {
        for two in self.jobs.windows(2) {
            let is_after = two[0]
                .finished_at
                .is_some_and(|at| at <= two[1].reserved_at);
            ensure(is_after, || format!("two runs at once: {two:#?}"))?;
        }
        let attempts = &self.record.updates.attempts;
        let different: BTreeSet<_> = attempts.iter().map(|one| (&one.head, &one.base)).collect();
        let of_kind = |kind| self.jobs.iter().filter(move |job| job.kind == kind).count();
        let conflicts = of_kind(JobKind::Conflict);
        ensure(
            different.len() == attempts.len() && attempts.len() == conflicts,
            || format!("{conflicts} runs for the conflicts {attempts:?}"),
        )?;
        *counts.entry("runs for conflicts").or_default() += conflicts;
        *counts.entry("runs for checks").or_default() += of_kind(JobKind::CiFix);
        Ok(())
    }

    /// Every commit of a person and of a run is in the branch, those of runs once.
    fn check_commits(&self, counts: &mut Counts) -> Result<(), String> {
        let commits = self.repo.commits(&self.pull.head_sha);
        for job in &self.jobs {
            let mark = format!("Agent-Implement-Dispatch: {}", job.id);
            let of_job = commits.iter().filter(|one| one.message.contains(&mark));
            let (count, expected) = (of_job.count(), job.state == JobState::Completed);
            ensure(count == usize::from(expected), || {
                format!("{count} commits of {job:#?}: {commits:#?}")
            })?;
        }
        for (_, sha) in &self.commits_by_hand() {
            let is_kept = commits.iter().any(|commit| commit.sha == *sha);
            ensure(is_kept, || format!("{sha} was pushed over: {commits:#?}"))?;
            *counts.entry("commits by hand").or_default() += 1;
        }
        let updates = commits.iter().filter(|commit| {
            commit
                .message
                .ends_with(&format!("into {}", self.pull.head))
        });
        let updates = updates.filter(|commit| commit.message.starts_with("Merge branch"));
        *counts.entry("updates by the host").or_default() += updates.count();
        Ok(())
    }

    fn commits_by_hand(&self) -> Vec<(String, String)> {
        let mut commits = self.env.record().commits_by_hand.clone();
        commits.retain(|(key, _)| *key == self.ticket.key);
        commits
    }

    /// Failed jobs of a head ran again once.
    fn check_reruns(&self, counts: &mut Counts) -> Result<(), String> {
        let mut runs = self.repo.runs();
        runs.retain(|run| run.workflow == landing::CI && run.branch == self.pull.head);
        let attempts: Vec<u64> = runs.iter().map(|run| run.attempt).collect();
        let again = attempts.iter().filter(|attempt| **attempt > 1).count();
        let is_once = attempts.iter().all(|attempt| *attempt <= 2);
        ensure(is_once && again == self.landing.expected_reruns(), || {
            format!("attempts at the checks of the heads: {attempts:?}")
        })?;
        *counts.entry("reruns").or_default() += again;
        Ok(())
    }

    /// It was merged once by the policy, with one note and one entry in the audit, or not at all.
    fn check_merge(&self, counts: &mut Counts) -> Result<(), String> {
        let number = self.pull.number;
        let expected = usize::from(self.landing.is_merged());
        let (squashed, merged) = (
            format!("(#{number})"),
            format!("Merge pull request #{number} "),
        );
        let is_merge = |text: &str| text.ends_with(&squashed) || text.starts_with(&merged);
        let on_base = self.repo.commits("main");
        let subjects = on_base.iter().filter_map(|one| one.message.lines().next());
        let merges = subjects.filter(|subject| is_merge(subject)).count();
        let comments = pull_comments(self.repo, number)?;
        let notes = comments
            .iter()
            .filter(|body| body.contains("erged by policy") || body.contains("GitHub merged"));
        let target = format!("{}#{number}", self.repo.full_name());
        let audited = self.audited("pull-merged", &target).len();
        let found = [
            merges,
            notes.count(),
            audited,
            usize::from(self.pull.merged),
        ];
        ensure(found == [expected; 4], || {
            format!("merges, notes, audit, state: {found:?}; {comments:#?}")
        })?;
        let is_known = matches!(self.record.status, PullRequestStatus::Merged { .. });
        ensure(is_known == self.landing.is_merged(), || {
            format!("recorded as {:?}", self.record.status)
        })?;
        if let Some(text) = self.landing.merged_text() {
            let file = self.repo.read_file("main", &changed_file(&self.ticket.key));
            ensure(file.as_deref() == Some(text), || {
                format!("main has {file:?}")
            })?;
        }
        let is_kept = self.repo.branches().contains(&self.pull.head);
        let is_deleted = self.landing.is_merged() && self.landing.repo() == UP_TO_DATE;
        let deletions = self.audited("branch-deleted", &target).len();
        ensure(
            is_kept != is_deleted && deletions <= usize::from(is_deleted),
            || format!("kept {is_kept}, deleted {deletions} times"),
        )?;
        let [armed, disarmed] =
            ["merge-armed", "merge-disarmed"].map(|action| self.audited(action, &target).len());
        let expected = match self.landing {
            Landing::Armed => [2, 1],
            _ => [0, 0],
        };
        ensure([armed, disarmed] == expected, || {
            format!("armed {armed} times, disarmed {disarmed} times")
        })?;
        *counts.entry("armed").or_default() += armed;
        *counts.entry("disarmed").or_default() += disarmed;
        *counts.entry("merges by policy").or_default() += merges;
        Ok(())
    }

    /// A take-over was recorded and ended once, and nothing automatic happened in between.
    fn check_take_over(&self, counts: &mut Counts) -> Result<(), String> {
        let expected = usize::from(self.landing == Landing::TakenOver);
        let taken = self.audited("taken-over", &self.ticket.key);
        let given = self.audited("given-back", &self.ticket.key);
        ensure([taken.len(), given.len()] == [expected; 2], || {
            format!("take-overs {taken:?}, ends {given:?}")
        })?;
        for (from, to) in taken.iter().zip(given) {
            let is_within = |at| from.at <= at && at < to.at;
            let mut jobs = self.jobs.iter();
            let run = jobs.find(|job| is_within(job.reserved_at));
            ensure(run.is_none(), || {
                format!("a run while it is taken: {run:#?}")
            })?;
            let is_merged = match &self.record.status {
                PullRequestStatus::Merged { at, .. } => is_within(*at),
                _ => false,
            };
            ensure(!is_merged, || "merged while it was taken".to_owned())?;
            *counts.entry("take-overs").or_default() += 1;
        }
        Ok(())
    }

    fn audited(&self, action: &str, target: &str) -> Vec<&AuditEntry> {
        let matches = |entry: &&AuditEntry| entry.action == action && entry.target == target;
        self.entries.iter().filter(matches).collect()
    }
}
