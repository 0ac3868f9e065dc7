//! What must hold when a killed service has been left in peace.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use domain::job::{Job, JobKind};
use fake_vendors::{FakeService, InjectedFault};
use serde_json::{Value, json};
use store::{Store, StoreError, jobs, outbox};

use crate::crash_env::{CrashEnv, TIMEOUT};
use crate::durability::{check_backups, check_changes, check_reports, redeliver_events};
use crate::program::{KillOnDrop, check_audit};
use crate::tickets::{TicketKind, ended_as_expected};

/// How long does it stay calm once nothing is left to do? Two polls and a look at the runs.
const STILL: Duration = Duration::from_millis(2_500);

/// What was verified.
#[derive(Default)]
pub struct VerifiedCounts {
    tickets: BTreeMap<TicketKind, usize>,
    dispatches: usize,
    reports: usize,
    results: usize,
    pub host_events: usize,
    pub ticket_events: usize,
    changes: usize,
    pub backups: usize,
    pub truncated_backups: usize,
    faults: usize,
    /// Chat messages beyond one for each end of a run; the only thing that may come twice.
    repeated_chat: usize,
}

impl VerifiedCounts {
    pub fn add(&mut self, other: VerifiedCounts) {
        for (kind, count) in other.tickets {
            *self.tickets.entry(kind).or_default() += count;
        }
        self.dispatches += other.dispatches;
        self.reports += other.reports;
        self.results += other.results;
        self.host_events += other.host_events;
        self.ticket_events += other.ticket_events;
        self.changes += other.changes;
        self.backups += other.backups;
        self.truncated_backups += other.truncated_backups;
        self.faults += other.faults;
        self.repeated_chat += other.repeated_chat;
    }
}

impl fmt::Display for VerifiedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tickets: usize = self.tickets.values().sum();
        writeln!(f, "tickets: {tickets} {:?}", self.tickets)?;
        writeln!(f, "dispatches, each one run: {}", self.dispatches)?;
        writeln!(f, "faults of vendors: {}", self.faults)?;
        writeln!(
            f,
            "acknowledged and found: {} steps, {} results, {} events of the host, {} events of tickets, \
            {} changes of an operator",
            self.reports, self.results, self.host_events, self.ticket_events, self.changes
        )?;
        writeln!(
            f,
            "backups: {} whole and restored, {} cut off and refused",
            self.backups, self.truncated_backups
        )?;
        writeln!(f, "chat messages that came twice: {}", self.repeated_chat)
    }
}

/// Waits until nothing is left to do, and looks that it stays so.
pub async fn wait_until_idle(world: &CrashEnv) -> Result<(), String> {
    let (mut since, mut left) = (Instant::now(), Some(String::new()));
    loop {
        let now = unfinished(world).await;
        if now != left {
            (since, left) = (Instant::now(), now);
        }
        match &left {
            None if since.elapsed() > STILL => return Ok(()),
            // However slow the machine is, something happens.
            Some(left) if since.elapsed() > TIMEOUT => {
                return Err(format!("it did not become calm: {left}"));
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Something that is not done yet, if there is anything.
async fn unfinished(world: &CrashEnv) -> Option<String> {
    let (owed, dead) = world.outbox_state().await;
    if owed > 0 || dead != json!([]) {
        return Some(format!("{owed} errands are owed; given up: {dead}"));
    }
    let town = &world.vendors;
    let is_told = town.github().is_webhook_queue_empty() && town.linear().is_webhook_queue_empty();
    if !is_told || !town.jira().is_webhook_queue_empty() {
        return Some("events are on their way".to_owned());
    }
    for name in ["shop", "puppets"] {
        let runs = world.repo(name).runs();
        if let Some(run) = runs.iter().find(|run| run.status != "completed") {
            return Some(format!("a run goes on: {run:?}"));
        }
    }
    let tickets = world.record().tickets.clone();
    let mut runs: HashMap<String, usize> = HashMap::new();
    for (key, _) in runs_of(world) {
        *runs.entry(key).or_default() += 1;
    }
    tickets.iter().find_map(|ticket| {
        let had = runs.get(&ticket.key).copied().unwrap_or_default();
        let is_run = had == ticket.expected_jobs().len();
        let wrong = ticket.mismatch(world);
        wrong.or_else(|| (!is_run).then(|| format!("{ticket:?} had {had} runs")))
    })
}

/// Ticket and dispatch of every run.
fn runs_of(world: &CrashEnv) -> Vec<(String, String)> {
    let runs = ["shop", "puppets"].map(|name| world.repo(name).runs());
    let word = |inputs: &serde_json::Map<String, Value>, name: &str| {
        inputs[name].as_str().unwrap_or_default().to_owned()
    };
    let named = runs.iter().flatten().map(|run| {
        let inputs = &run.inputs;
        (
            word(inputs, "issue_identifier"),
            word(inputs, "dispatch_id"),
        )
    });
    named.collect()
}

/// Everything that must hold of a world that has become calm, whose service is still there.
pub async fn check_all(
    world: &CrashEnv,
    mut service: KillOnDrop,
) -> Result<VerifiedCounts, String> {
    let mut counted = VerifiedCounts::default();
    redeliver_events(world, &mut counted).await?;
    wait_until_idle(world).await?;
    let pid = rustix::process::Pid::from_child(&service.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = service.0.wait().unwrap();
    ensure(status.success(), || format!("it ended with {status}"))?;
    check_audit(&world.data_dir())?;
    let store = open_store(&world.data_dir()).await;
    let faults = world.record().violations.clone();
    ensure(faults.is_empty(), || faults.join("\n"))?;
    look_at_the_jobs(world, &store, &mut counted)?;
    look_at_the_pulls(world)?;
    look_at_the_chat(world, &mut counted)?;
    check_reports(world, &store, usize::MAX)?;
    check_changes(world, &store)?;
    drop(store);
    check_backups(world, &mut counted).await?;
    let record = world.record();
    for ticket in &record.tickets {
        *counted.tickets.entry(ticket.kind).or_default() += 1;
    }
    counted.reports = record.reports.len();
    counted.results = record.results.len();
    counted.changes = record.acknowledged_caps.len();
    let vendors = [
        FakeService::Linear,
        FakeService::Jira,
        FakeService::GitHub,
        FakeService::Chat,
    ];
    let struck = vendors.map(|vendor| world.vendors.faults(vendor).injected().len());
    counted.faults = struck.iter().sum();
    Ok(counted)
}

pub fn ensure(holds: bool, else_told: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(else_told()) }
}

/// Opens the store once its process has let go of it.
pub async fn open_store(dir: &Path) -> Store {
    let began = Instant::now();
    loop {
        match Store::open(dir) {
            Err(StoreError::InUse { .. }) if began.elapsed() < TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

/// One run a dispatch, one dispatch a phase, each ended as it was to, and nothing owed.
fn look_at_the_jobs(
    world: &CrashEnv,
    store: &Store,
    counted: &mut VerifiedCounts,
) -> Result<(), String> {
    let all = store.read(|tx| jobs::latest(tx, 100_000)).unwrap();
    let owed = store.read(outbox::pending).unwrap();
    let dead = store.read(outbox::dead).unwrap();
    ensure(owed.is_empty() && dead.is_empty(), || {
        format!("owed: {owed:#?}, given up: {dead:#?}")
    })?;
    let mut of: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
    for job in &all {
        of.entry(job.issue.key.as_str()).or_default().push(job);
    }
    for ticket in &world.record().tickets {
        let mut had = of.remove(ticket.key.as_str()).unwrap_or_default();
        had.sort_by_key(|job| job.reserved_at);
        let wanted = ticket.expected_jobs();
        let fits = |(job, (kind, is_well)): (&&Job, &(JobKind, bool))| {
            job.kind == *kind && ended_as_expected(&job.state, *is_well)
        };
        let is_right = had.len() == wanted.len() && had.iter().zip(&wanted).all(fits);
        ensure(is_right, || format!("{ticket:?} had {had:#?}"))?;
    }
    ensure(of.is_empty(), || format!("jobs of nobody: {of:#?}"))?;
    let runs = runs_of(world);
    let dispatched: HashSet<&str> = runs.iter().map(|(_, id)| id.as_str()).collect();
    let reserved: HashSet<&str> = all.iter().map(|job| job.id.as_str()).collect();
    ensure(
        dispatched == reserved && runs.len() == reserved.len(),
        || format!("jobs {reserved:?}, but runs {runs:?}"),
    )?;
    counted.dispatches = runs.len();
    Ok(())
}

/// One pull request a ticket, one commit a run on it, and no comment of ours twice.
fn look_at_the_pulls(world: &CrashEnv) -> Result<(), String> {
    for name in ["shop", "puppets"] {
        let repo = world.repo(name);
        let pulls = repo.pulls();
        let mut left = pulls.len();
        let tickets = world.record().tickets.clone();
        for ticket in tickets.iter().filter(|ticket| ticket.repo() == name) {
            let implemented = ticket.expected_jobs().into_iter();
            let pushes =
                implemented.filter(|(kind, is_well)| *is_well && *kind != JobKind::Planning);
            let pushes = pushes.count();
            let begin = format!("{}: ", ticket.key);
            let own = pulls
                .iter()
                .filter(|pull| format!("{}: ", pull.title).starts_with(&begin));
            let own: Vec<_> = own.collect();
            left -= own.len();
            ensure(own.len() == pushes.min(1), || {
                format!("{ticket:?} has {own:?}")
            })?;
            for pull in own {
                let commits = repo.commits(&pull.head);
                let made = commits.iter();
                let made =
                    made.filter(|commit| commit.message.contains("Agent-Implement-Dispatch"));
                let made = made.count();
                ensure(made == pushes, || {
                    format!("{ticket:?}: {made} pushes, {commits:?}")
                })?;
                let said = repo.comments(pull.number).into_iter();
                let said: Vec<String> = said.map(|said| without_marks(&said.body)).collect();
                let different: HashSet<&String> = said.iter().collect();
                ensure(different.len() == said.len(), || {
                    format!("said twice: {said:?}")
                })?;
            }
        }
        ensure(left == 0, || format!("pull requests of nobody: {pulls:?}"))?;
    }
    Ok(())
}

/// What people see of a comment.
fn without_marks(text: &str) -> String {
    let mut seen = String::new();
    let mut rest = text;
    while let Some((before, mark)) = rest.split_once("<!--") {
        seen.push_str(before);
        rest = mark.split_once("-->").map_or("", |(_, after)| after);
    }
    seen + rest
}

/// The chat was told of each beginning and each end. Nothing but a message may come again, and only
/// one whose answer was lost, to a fault of the vendor or to a kill.
fn look_at_the_chat(world: &CrashEnv, counted: &mut VerifiedCounts) -> Result<(), String> {
    let messages = world.vendors.chat().messages().into_iter();
    let messages: Vec<String> = messages.map(|message| message.body.to_string()).collect();
    for ticket in &world.record().tickets {
        let wanted = ticket
            .expected_jobs()
            .iter()
            .filter(|(kind, _)| kind.phase().is_some())
            .count()
            * 2;
        let told = messages
            .iter()
            .filter(|message| names(message, &ticket.key));
        let different: HashSet<&String> = told.clone().collect();
        ensure(different.len() == wanted, || {
            format!("the chat was told of {ticket:?}: {different:#?}")
        })?;
        counted.repeated_chat += told.count() - wanted;
    }
    let struck = world
        .vendors
        .faults(FakeService::Chat)
        .injected()
        .into_iter();
    let lost = struck.filter(|(_, fault)| {
        matches!(
            fault,
            InjectedFault::DropResponse | InjectedFault::ReplaceResponseStatus(_)
        )
    });
    let causes = lost.count() + world.record().kills;
    ensure(counted.repeated_chat <= causes, || {
        format!(
            "{} messages came twice, but {causes} answers were lost",
            counted.repeated_chat
        )
    })
}

/// Whether a text holds a key, and not only a longer one.
fn names(text: &str, key: &str) -> bool {
    text.match_indices(key).any(|(at, _)| {
        let next = text[at + key.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_digit())
    })
}
