//! Checks after a killed service has become idle.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use domain::job::{Job, JobKind};
use fake_vendors::{FakeRepo, FakeService, InjectedFault};
use serde_json::{Value, json};
use store::crash_injection::CrashPlan;
use store::{Store, jobs, outbox};

use crate::crash_env::{CrashEnv, TIMEOUT};
use crate::durability::{StepLoss, check_backups, check_changes, check_reports, redeliver_events};
use crate::landing::LANDING_REPOS;
use crate::landing_checks::check_landings;
use crate::people::{check_conversations, check_waits};
use crate::program::{KillOnDrop, check_audit};
use crate::tickets::{REPOS, TicketKind, ended_as_expected};

/// Duration without remaining work that counts as idle: two polls and one check of the runs.
pub const IDLE_DURATION: Duration = Duration::from_millis(2_500);

/// Numbers of checked items.
#[derive(Default)]
pub struct VerifiedCounts {
    tickets: BTreeMap<TicketKind, usize>,
    dispatches: usize,
    reports: usize,
    lost_steps: StepLoss,
    results: usize,
    pub host_events: usize,
    pub ticket_events: usize,
    changes: usize,
    pub backups: usize,
    pub truncated_backups: usize,
    /// Answers, decisions on plans, and commands.
    conversations: BTreeMap<&'static str, usize>,
    /// What happened on pull requests that land.
    landings: BTreeMap<&'static str, usize>,
    faults: usize,
    /// Chat messages beyond one per end of a run. Only chat messages may be repeated.
    repeated_chat: usize,
}

impl VerifiedCounts {
    pub fn add(&mut self, other: VerifiedCounts) {
        for (kind, count) in other.tickets {
            *self.tickets.entry(kind).or_default() += count;
        }
        self.dispatches += other.dispatches;
        self.reports += other.reports;
        self.lost_steps.add(other.lost_steps);
        self.results += other.results;
        self.host_events += other.host_events;
        self.ticket_events += other.ticket_events;
        self.changes += other.changes;
        self.backups += other.backups;
        self.truncated_backups += other.truncated_backups;
        for (action, count) in other.conversations {
            *self.conversations.entry(action).or_default() += count;
        }
        for (what, count) in other.landings {
            *self.landings.entry(what).or_default() += count;
        }
        self.faults += other.faults;
        self.repeated_chat += other.repeated_chat;
    }
}

impl fmt::Display for VerifiedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tickets: usize = self.tickets.values().sum();
        writeln!(f, "tickets: {tickets} {:?}", self.tickets)?;
        writeln!(f, "dispatches with one run each: {}", self.dispatches)?;
        writeln!(f, "counted once: {:?}", self.conversations)?;
        writeln!(f, "on pull requests that land: {:?}", self.landings)?;
        writeln!(f, "vendor faults: {}", self.faults)?;
        writeln!(
            f,
            "acknowledged and stored: {} steps, {} results, {} repository events, {} ticket events, \
            {} operator changes",
            self.reports, self.results, self.host_events, self.ticket_events, self.changes
        )?;
        writeln!(
            f,
            "lost with a machine: {} steps, acknowledged at most {:.1?} before",
            self.lost_steps.steps, self.lost_steps.window
        )?;
        writeln!(
            f,
            "backups: {} complete and restored, {} truncated and rejected",
            self.backups, self.truncated_backups
        )?;
        writeln!(f, "repeated chat messages: {}", self.repeated_chat)
    }
}

/// Waits until no work is left and stays so.
pub async fn wait_until_idle(env: &CrashEnv) -> Result<(), String> {
    let (mut since, mut remaining) = (Instant::now(), Some(String::new()));
    loop {
        let now = unfinished(env).await;
        if now != remaining {
            (since, remaining) = (Instant::now(), now);
        }
        match &remaining {
            None if since.elapsed() > IDLE_DURATION => return Ok(()),
            // Even on a slow machine something changes within the timeout.
            Some(remaining) if since.elapsed() > TIMEOUT => {
                return Err(format!("not idle: {remaining}"));
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Description of unfinished work, if any.
async fn unfinished(env: &CrashEnv) -> Option<String> {
    let (pending, dead) = env.outbox_state().await;
    if pending > 0 || dead != json!([]) {
        return Some(format!(
            "{pending} outbox entries are pending; dead: {dead}"
        ));
    }
    let vendors = &env.vendors;
    let webhooks_delivered =
        vendors.github().webhooks().is_idle() && vendors.linear().webhooks().is_idle();
    if !webhooks_delivered || !vendors.jira().webhooks().is_idle() {
        return Some("webhooks are being delivered".to_owned());
    }
    for name in REPOS {
        let runs = env.repo(name).runs();
        if let Some(run) = runs.iter().find(|run| run.status != "completed") {
            return Some(format!("a run is active: {run:?}"));
        }
    }
    let tickets = env.record().tickets.clone();
    let mut runs: HashMap<String, usize> = HashMap::new();
    for (key, _) in runs_of(env) {
        *runs.entry(key).or_default() += 1;
    }
    let faults = tickets.iter().filter_map(|ticket| {
        let actual = runs.get(&ticket.key).copied().unwrap_or_default();
        let runs_complete = actual == ticket.expected_jobs().len();
        let mismatch = ticket.mismatch(env);
        mismatch.or_else(|| (!runs_complete).then(|| format!("{ticket:?} had {actual} runs")))
    });
    let faults: Vec<String> = faults.collect();
    (!faults.is_empty()).then(|| faults.join("\n"))
}

/// Ticket and dispatch ID of every run.
fn runs_of(env: &CrashEnv) -> Vec<(String, String)> {
    let runs = REPOS.map(|name| env.dispatched_runs(name));
    let input = |inputs: &serde_json::Map<String, Value>, name: &str| {
        inputs[name].as_str().unwrap_or_default().to_owned()
    };
    let pairs = runs.iter().flatten().map(|run| {
        let inputs = &run.inputs;
        (
            input(inputs, "issue_identifier"),
            input(inputs, "dispatch_id"),
        )
    });
    pairs.collect()
}

/// Checks everything that must hold for an idle environment whose service still runs.
pub async fn check_all(env: &CrashEnv, mut service: KillOnDrop) -> Result<VerifiedCounts, String> {
    let mut counts = VerifiedCounts::default();
    redeliver_events(env, &mut counts).await?;
    wait_until_idle(env).await?;
    check_waits(env).await?;
    let pid = rustix::process::Pid::from_child(&service.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = service.0.wait().unwrap();
    ensure(status.success(), || {
        format!("the service exited with {status}")
    })?;
    check_audit(&env.data_dir())?;
    let store = open_store(&env.data_dir()).await;
    let faults = env.record().violations.clone();
    ensure(faults.is_empty(), || faults.join("\n"))?;
    check_jobs(env, &store, &mut counts)?;
    check_pulls(env)?;
    counts.landings = check_landings(env, &store)?;
    counts.conversations = check_conversations(env, &store)?;
    check_cancelled_runs(env)?;
    check_chat(env, &store, &mut counts)?;
    check_reports(env, &store, usize::MAX)?;
    counts.lost_steps = StepLoss::measure(env, &store);
    check_changes(env, &store)?;
    drop(store);
    check_backups(env, &mut counts).await?;
    let record = env.record();
    for ticket in &record.tickets {
        *counts.tickets.entry(ticket.kind).or_default() += 1;
    }
    counts.reports = record.reports.len();
    counts.results = record.results.len();
    counts.changes = record.acknowledged_caps.len();
    let vendors = [
        FakeService::Linear,
        FakeService::Jira,
        FakeService::GitHub,
        FakeService::Chat,
    ];
    let injected = vendors.map(|vendor| env.vendors.faults(vendor).injected().len());
    counts.faults = injected.iter().sum();
    Ok(counts)
}

pub fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// Runs cases three at a time, because they wait more than they compute.
///
/// # Panics
/// If a case fails.
pub fn run_cases<C: Send>(cases: Vec<C>, run: impl Fn(C) -> Result<(), String> + Sync) {
    let count = cases.len();
    let (queue, faults) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(case) = next() {
                    if let Err(fault) = run(case) {
                        faults.lock().unwrap().push(fault);
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(
        faults.is_empty(),
        "{} of {count} recoveries failed:\n{}",
        faults.len(),
        faults.join("\n=====\n")
    );
}

/// Opens the store once its previous process has released it.
pub async fn open_store(dir: &Path) -> Store {
    let opened = Store::open_when_released(dir, CrashPlan::default()).await;
    opened.unwrap()
}

/// One run per dispatch, one dispatch per phase, each with the expected end, and an empty outbox.
fn check_jobs(env: &CrashEnv, store: &Store, counts: &mut VerifiedCounts) -> Result<(), String> {
    let all = store.read(|tx| jobs::latest(tx, 100_000)).unwrap();
    let pending = store.read(outbox::pending).unwrap();
    let dead = store.read(outbox::dead).unwrap();
    ensure(pending.is_empty() && dead.is_empty(), || {
        format!("pending: {pending:#?}, dead: {dead:#?}")
    })?;
    let mut jobs_by_ticket: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
    for job in &all {
        jobs_by_ticket
            .entry(job.issue.key.as_str())
            .or_default()
            .push(job);
    }
    for ticket in &env.record().tickets {
        let mut actual = jobs_by_ticket
            .remove(ticket.key.as_str())
            .unwrap_or_default();
        actual.sort_by_key(|job| job.reserved_at);
        let expected = ticket.expected_jobs();
        let matches_expected = |(job, (kind, succeeds)): (&&Job, &(JobKind, bool))| {
            job.kind == *kind && ended_as_expected(&job.state, *succeeds)
        };
        let all_match =
            actual.len() == expected.len() && actual.iter().zip(&expected).all(matches_expected);
        ensure(all_match, || format!("{ticket:?} had {actual:#?}"))?;
    }
    ensure(jobs_by_ticket.is_empty(), || {
        format!("jobs without a ticket: {jobs_by_ticket:#?}")
    })?;
    let runs = runs_of(env);
    let dispatched: HashSet<&str> = runs.iter().map(|(_, id)| id.as_str()).collect();
    let reserved: HashSet<&str> = all.iter().map(|job| job.id.as_str()).collect();
    ensure(
        dispatched == reserved && runs.len() == reserved.len(),
        || format!("jobs {reserved:?}, but runs {runs:?}"),
    )?;
    counts.dispatches = runs.len();
    Ok(())
}

/// One pull request per ticket, one commit per run on it, and no repeated comment by the service.
fn check_pulls(env: &CrashEnv) -> Result<(), String> {
    for name in REPOS.iter().filter(|name| !LANDING_REPOS.contains(name)) {
        let repo = env.repo(name);
        let pulls = repo.pulls();
        let mut remaining = pulls.len();
        let tickets = env.record().tickets.clone();
        for ticket in tickets.iter().filter(|ticket| ticket.repo() == *name) {
            let implemented = ticket.expected_jobs().into_iter();
            let pushes =
                implemented.filter(|(kind, succeeds)| *succeeds && *kind != JobKind::Planning);
            let pushes = pushes.count();
            let title_prefix = format!("{}: ", ticket.key);
            let own = pulls
                .iter()
                .filter(|pull| format!("{}: ", pull.title).starts_with(&title_prefix));
            let own: Vec<_> = own.collect();
            remaining -= own.len();
            ensure(own.len() == pushes.min(1), || {
                format!("{ticket:?} has {own:?}")
            })?;
            for pull in own {
                let commits = repo.commits(&pull.head);
                let run_commits = commits.iter();
                let run_commits = run_commits
                    .filter(|commit| commit.message.contains("Agent-Implement-Dispatch"));
                let run_commits = run_commits.count();
                ensure(run_commits == pushes, || {
                    format!("{ticket:?}: {run_commits} pushes, {commits:?}")
                })?;
                pull_comments(&repo, pull.number)?;
            }
        }
        ensure(remaining == 0, || {
            format!("pull requests without a ticket: {pulls:?}")
        })?;
    }
    Ok(())
}

/// Visible texts of the comments on a pull request, if no two are equal.
pub fn pull_comments(repo: &FakeRepo, number: u64) -> Result<Vec<String>, String> {
    let comments = repo.comments(number).into_iter();
    let comments: Vec<String> = comments
        .map(|comment| visible_text(&comment.body))
        .collect();
    let different: HashSet<&String> = comments.iter().collect();
    ensure(different.len() == comments.len(), || {
        format!("repeated comment: {comments:?}")
    })?;
    Ok(comments)
}

/// The host cancelled the first run of each ticket whose run the operator cancelled, and no other.
fn check_cancelled_runs(env: &CrashEnv) -> Result<(), String> {
    for ticket in &env.record().tickets {
        let is_cancelled = matches!(ticket.kind, TicketKind::Cancelled | TicketKind::Retried);
        let mut runs = env.dispatched_runs(ticket.repo());
        runs.retain(|run| run.inputs["issue_identifier"] == ticket.key.as_str());
        runs.sort_by_key(|run| run.id);
        let cancelled: Vec<bool> = { runs.iter() }
            .map(|run| run.conclusion.as_deref() == Some("cancelled"))
            .collect();
        let expected: Vec<bool> = (0..runs.len()).map(|at| is_cancelled && at == 0).collect();
        ensure(cancelled == expected, || format!("{ticket:?}: {runs:#?}"))?;
    }
    Ok(())
}

/// Comment text without HTML comments.
fn visible_text(text: &str) -> String {
    let mut seen = String::new();
    let mut rest = text;
    while let Some((before, rest_of_comment)) = rest.split_once("<!--") {
        seen.push_str(before);
        rest = rest_of_comment
            .split_once("-->")
            .map_or("", |(_, after)| after);
    }
    seen + rest
}

/// Number of runs of each ticket whose start was not confirmed before their end. None without a lost machine: only a
/// machine that takes over needs so long for it that a run can end meanwhile.
fn unconfirmed_starts(env: &CrashEnv, store: &Store) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    if env.record().machines_before == 0 {
        return counts;
    }
    let is_confirmed = |job: &Job| {
        let end = job.finished_at;
        job.dispatched_at
            .is_some_and(|at| end.is_none_or(|end| at <= end))
    };
    let all = store.read(|tx| jobs::latest(tx, 100_000)).unwrap();
    for job in all.iter().filter(|job| job.kind.phase().is_some()) {
        let count: &mut usize = counts.entry(job.issue.key.to_string()).or_default();
        *count += usize::from(!is_confirmed(job));
    }
    counts
}

/// The chat has a message for each confirmed start and each end, and the ticket a marker for each such start. Only a
/// message whose response was lost, by a vendor fault or a kill, may be repeated.
fn check_chat(env: &CrashEnv, store: &Store, counts: &mut VerifiedCounts) -> Result<(), String> {
    let messages = env.vendors.chat().messages().into_iter();
    // The other fields of a message have times.
    let messages: Vec<String> = messages
        .map(|message| message.body["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    let unconfirmed = unconfirmed_starts(env, store);
    let tickets = env.record().tickets.clone();
    for ticket in &tickets {
        let (expected, repeated) = ticket.expected_chat();
        let missing = unconfirmed.get(&ticket.key).copied().unwrap_or_default();
        let of_ticket: Vec<&String> = messages
            .iter()
            .filter(|message| contains_key(message, &ticket.key))
            .collect();
        let different: HashSet<&String> = of_ticket.iter().copied().collect();
        // A start without a message can be one of several with the same text.
        let range = (expected - repeated).saturating_sub(missing)..=expected - repeated;
        let is_expected = range.contains(&different.len()) && of_ticket.len() >= expected - missing;
        ensure(is_expected, || {
            format!("wrong chat messages about {ticket:?} ({missing} unconfirmed): {of_ticket:#?}")
        })?;
        ticket.check_progress(env, missing)?;
        counts.repeated_chat += of_ticket.len() - (expected - missing);
    }
    let injected = env.vendors.faults(FakeService::Chat).injected().into_iter();
    let lost = injected.filter(|(_, fault)| {
        matches!(
            fault,
            InjectedFault::DropResponse | InjectedFault::ReplaceResponseStatus(_)
        )
    });
    let causes = lost.count() + env.record().kills;
    ensure(counts.repeated_chat <= causes, || {
        format!(
            "{} repeated messages, but only {causes} lost responses",
            counts.repeated_chat
        )
    })
}

/// Whether a text contains a key that is not the prefix of a longer key.
fn contains_key(text: &str, key: &str) -> bool {
    text.match_indices(key).any(|(at, _)| {
        let next = text[at + key.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_digit())
    })
}
