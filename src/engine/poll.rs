//! Poll of all ticketing systems, with a decision about every flagged issue.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::app::{App, LiveState, PollFailure, PollOutcome, PolledIssue};
use domain::agent::AgentName;
use domain::agent_choice::AgentChoice;
use domain::decision::{self, Decision, DecisionOutcome, SchedulingState, WaitReason};
use domain::effect::ticket_queue_key;
use domain::ids::{IssueId, Repo, TeamKey};
use domain::issue::{FlaggedIssue, Phase, PollResult, System};
use domain::job::Job;
use domain::mapping::{Mapping, TicketingConfig};
use domain::runner_image::RequestedImage;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use domain::vendor::Vendor;
use store::crash_injection::CrashPoint;
use store::issue_waits::IssueWait;
use store::{
    ReadableTx, StoreResult, decisions, dedup, dispatch_breaker, jobs, mappings, operator_retries,
    outbox, take_overs,
};
use vendors::http::{VendorError, VendorErrorKind};
use vendors::ticketing::TicketingClient;

use super::budget;
use super::closed_issues;
use super::conversation;
use super::dispatch::{self, DispatchRequest};
use super::local_image;
use super::provider_limit;
use super::repo_image;
use super::repository_load;
use super::run_contexts;
use super::ticket_wait_comments;
use super::time_zones;
use super::trigger_trust;

/// Timeout of reading one account. The others wait for it, and the whole poll has five minutes.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Issue shared by all its holders; with thousands of issues, copies would dominate memory use.
pub(super) type SharedIssue = Arc<FlaggedIssue>;

/// Polls once: reads the store, requests the flagged issues, decides, and reserves runs.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let began = Instant::now();
    let in_progress = app.live.heartbeats.begin_poll();
    let (dispatched, waiting) = poll_all(app).await?;
    app.live.metrics.poll_duration.observe_time(began.elapsed());
    drop(in_progress);
    let (at, snapshots) = (app.core.now(), &app.live.poll_snapshots);
    let is_polled = |system| snapshots.is_polled(system);
    let has_systems = app.vendors.ticketing_in_use(is_polled).next().is_some();
    app.live.heartbeats.record_poll(PollOutcome {
        at,
        complete_at: if has_systems {
            snapshots.complete_at()
        } else {
            Some(at)
        },
        dispatched,
        waiting,
    });
    Ok(())
}

/// Polls once. Returns the number of runs that were reserved, and of issues that wait.
async fn poll_all(app: &App) -> StoreResult<(usize, usize)> {
    let now = app.core.now();
    if app
        .core
        .store
        .read(|tx| budget::has_pending_alerts(tx, now))?
    {
        app.core
            .store
            .write(move |tx| budget::enqueue_pending_alerts(tx, now))
            .await?;
    }
    let handle = app.clone();
    // Reads every open pull request, so it stays off the threads that serve requests.
    let read = app.core.store.read_long(move |tx| view(tx, &handle, now));
    let mut view = read.await?;
    let mapped: Vec<&Mapping> = view.mappings.values().collect();
    let snapshots = &app.live.poll_snapshots;
    // After the last project of a system is removed, its snapshot becomes empty.
    let is_used = |system| {
        let mut mapped = mapped.iter();
        mapped.any(|mapping| mapping.system() == system) || snapshots.is_polled(system)
    };
    let accounts: Vec<&TicketingClient> = app.vendors.ticketing_in_use(is_used).collect();
    let watches = app.core.store.read(|tx| {
        let watches = accounts.iter();
        let watches = watches.map(|account| conversation::watch(tx, app, account.system(), now));
        watches.collect::<StoreResult<Vec<CommentWatch>>>()
    })?;
    // After the watches: what ends a wait in between is pending or watched.
    let queue_keys = app.core.store.read(outbox::queue_keys)?;
    let requests = accounts
        .iter()
        .zip(&watches)
        .map(|(account, watch)| poll_account(account, &mapped, watch));
    let responses = join_all(requests).await;
    let is_pending = |issue: &FlaggedIssue| queue_keys.contains(&ticket_queue_key(&issue.issue));
    let (mut polls, mut issues) = (Vec::new(), Vec::new());
    for ((account, watch), (poll, found)) in accounts.iter().zip(&watches).zip(responses) {
        match poll.failure {
            None => conversation::after_poll(app, account, watch, &found, &is_pending, now).await?,
            Some(_) => conversation::after_failed_poll(app, account.system(), watch),
        }
        polls.push(poll);
        issues.extend(found.issues);
    }
    let people = app.core.store.read(conversation::awaited_people)?;
    (view.open_questions, view.plan_gates) = people;
    let flagged: HashSet<IssueId> = issues.iter().map(|issue| issue.issue.id.clone()).collect();
    let pending = issues.iter().filter(|issue| is_pending(issue));
    view.issues_with_pending_effects = pending.map(|issue| issue.issue.id.clone()).collect();
    if !view.model_limited_until.is_empty() {
        for account in &accounts {
            run_contexts::add_choices(app, account, &mut issues).await;
        }
    }
    view.declared_files = repository_load::declared_files(app, &issues).await?;
    view.untrusted_issues = trigger_trust::untrusted_issues(app, &view, &issues).await?;
    let decided = decision::decide(&view, issues, now);
    let mut decided = record_snapshots(&app.live, &polls, decided, now);
    // Counts the last snapshot of a system that did not respond.
    app.live
        .poll_snapshots
        .count_in_progress(|issues| decision::in_progress_counts(&view, issues));
    let targets = targets(&view, &decided);
    let contexts = async {
        for account in accounts {
            run_contexts::add(account, &mut decided).await;
        }
    };
    let (images, ()) = tokio::join!(repo_image::fetch_each(app, &targets), contexts);
    let mode = app.core.store.read(|tx| app.core.runner_mode(tx))?;
    local_image::hold_back_without_image(app, mode, &mut decided).await;
    let images = hold_back_invalid_images(images, &mut decided);
    let is_incomplete = polls.iter().any(|poll| poll.failure.is_some());
    observe_waiting(&app.live, &decided, is_incomplete, now);
    let is_unread = |wait: &IssueWait| {
        let poll = polls.iter().find(|poll| poll.system == wait.issue.system);
        poll.is_none_or(|poll| poll.failure.is_some() || poll.unread.contains(&wait.team))
    };
    let all = decided.iter().map(|(issue, decision)| (&**issue, decision));
    ticket_wait_comments::update(&app.core, all, is_unread, now).await?;
    let waits = |(_, decision): &&(_, Decision)| decision.outcome == DecisionOutcome::Waiting;
    let waiting = decided.iter().filter(waits).count();
    let sources = view.mappings.into_iter();
    let sources = sources
        .map(|(key, mapping)| (key, mapping.ticketing))
        .collect();
    let dispatched = reserve_and_record(app, decided, images, sources, now).await?;
    for poll in polls.iter().filter(|poll| poll.failure.is_none()) {
        closed_issues::cancel_runs(app, poll.system, &flagged).await?;
    }
    Ok((dispatched, waiting))
}

/// Updates the waiting times of issues. An issue keeps waiting while its start is pending or its
/// system does not respond.
fn observe_waiting(
    live: &LiveState,
    decided: &[(SharedIssue, Decision)],
    is_incomplete: bool,
    now: Timestamp,
) {
    let with = |outcomes: &'static [DecisionOutcome]| {
        let of = decided
            .iter()
            .filter(|(_, decision)| outcomes.contains(&decision.outcome));
        of.map(|(issue, _)| &issue.issue.id)
    };
    let started: HashSet<&IssueId> = with(&[DecisionOutcome::InProgress]).collect();
    let waiting = with(&[DecisionOutcome::Waiting, DecisionOutcome::Dispatched]);
    let keeps_waiting = |issue: &IssueId| is_incomplete || started.contains(issue);
    live.metrics.observe_waiting(waiting, keeps_waiting, now);
}

fn view(tx: &impl ReadableTx, app: &App, now: Timestamp) -> StoreResult<SchedulingState> {
    let mappings = mappings::all(tx)?;
    let phases = [Phase::Planning, Phase::Implementation];
    let mode = app.core.runner_mode(tx)?;
    let ineligible = mappings.iter().flat_map(|mapping| {
        let why = dispatch::ineligible_reason(app, mode, mapping);
        why.into_iter().flat_map(move |why| {
            phases.map(|phase| ((mapping.team_key.clone(), phase), why.clone()))
        })
    });
    let limited = mappings.iter().filter_map(|mapping| {
        let until = app
            .vendors
            .github
            .as_ref()?
            .limited_until(&mapping.target_repo())?;
        Some((mapping.team_key.clone(), until))
    });
    let (mut spent, mut model_limited) = (BTreeMap::new(), BTreeMap::new());
    for mapping in &mappings {
        let team = &mapping.team_key;
        if let Some(spending) = budget::exhausted(tx, mapping, now)? {
            spent.insert(team.clone(), spending.exhausted_message(team));
        }
        let chosen = AgentName::ALL.map(Some).into_iter().chain([None]);
        for agent in chosen {
            let labels = AgentChoice { agent, model: None };
            let available = provider_limit::available_choice(tx, app, mapping, &labels, now)?;
            if let Err(until) = available {
                model_limited.insert((team.clone(), agent), until);
            }
        }
    }
    let active = jobs::active(tx)?;
    let repos = mappings.iter().map(Mapping::target_repo).collect();
    let repository_loads = repository_load::read(tx, app, repos, &active, now)?;
    let outside_hours = mappings.iter().filter_map(|mapping| {
        let message = time_zones::closed_message(mapping, now)?;
        Some((mapping.team_key.clone(), message))
    });
    let (on_tickets, on_pulls): (Vec<Job>, Vec<Job>) = active
        .into_iter()
        .filter(|job| !job.shadow)
        .partition(|job| job.kind.phase().is_some());
    let is_active = |entry: &dedup::DedupEntry| entry.is_active(app.core.config.dedup_window, now);
    Ok(SchedulingState {
        ineligible: ineligible.collect(),
        host_limited_until: limited.collect(),
        over_budget: spent,
        model_limited_until: model_limited,
        active_issues: on_tickets
            .into_iter()
            .map(|job| (job.issue.id, job.team))
            .collect(),
        active_pull_request_issues: on_pulls.into_iter().map(|job| job.issue.id).collect(),
        deduped_issues: dedup::all(tx)?
            .into_iter()
            .filter(is_active)
            .map(|entry| entry.issue.id)
            .collect(),
        parked_issues: dispatch_breaker::all(tx)?
            .into_iter()
            .map(|parked| parked.issue.id)
            .collect(),
        issues_with_pending_effects: Default::default(),
        untrusted_issues: BTreeMap::new(),
        open_questions: BTreeSet::new(),
        plan_gates: BTreeMap::new(),
        outside_hours: outside_hours.collect(),
        operator_retries: operator_retries::all(tx)?,
        repository_loads,
        declared_files: BTreeMap::new(),
        uncleared_issues: dispatch::uncleared_issues(tx)?,
        taken_over: take_overs::all(tx)?
            .into_iter()
            .map(|take_over| (take_over.issue.id.clone(), take_over.sentence()))
            .collect(),
        mappings: mappings
            .into_iter()
            .map(|mapping| (mapping.team_key.clone(), mapping))
            .collect(),
    })
}

/// Outcome of polling one ticketing account.
struct AccountPoll {
    system: System,
    failure: Option<PollFailure>,
    /// Mappings that could not be read.
    unread: Vec<TeamKey>,
}

/// Polls one account. If it does not respond, its last decisions stay in force.
async fn poll_account(
    account: &TicketingClient,
    mappings: &[&Mapping],
    watch: &CommentWatch,
) -> (AccountPoll, PollResult) {
    let system = account.system();
    let own: Vec<&Mapping> = mappings
        .iter()
        .copied()
        .filter(|mapping| mapping.system() == system)
        .collect();
    let read = timeout(SNAPSHOT_TIMEOUT, account.snapshot(&own, watch));
    let answer = read.await.unwrap_or_else(|_| {
        let kind = VendorErrorKind::Timeout;
        Err(VendorError::new(
            Vendor::from(system).name(),
            "polling",
            kind,
        ))
    });
    if let Err(error) = &answer {
        tracing::warn!(account = account.name(), %error, "Polling failed; the last decisions stay in force.");
    }
    let (snapshot, failure) = match answer {
        Ok(snapshot) => (snapshot, None),
        Err(error) => {
            let failure = PollFailure {
                detail: error.to_string(),
                sentence: error.sentence(Vendor::from(system).name()),
            };
            (PollResult::default(), Some(failure))
        }
    };
    let poll = AccountPoll {
        system,
        failure,
        unread: snapshot.failed_teams.clone(),
    };
    (poll, snapshot)
}

/// Records the poll snapshots for the panel. Unchanged issues keep their allocation: thousands of
/// new ones among short-lived data of each poll would fragment memory.
fn record_snapshots(
    live: &LiveState,
    polls: &[AccountPoll],
    decided: Vec<(FlaggedIssue, Decision)>,
    now: Timestamp,
) -> Vec<(SharedIssue, Decision)> {
    let before = live.poll_snapshots.all();
    let before = before.values().flat_map(|snapshot| snapshot.issues.iter());
    let before: HashMap<&IssueId, &PolledIssue> = before
        .map(|polled| (&polled.issue.issue.id, polled))
        .collect();
    let share = |(issue, decision): (FlaggedIssue, Decision)| {
        let known = before.get(&issue.issue.id).copied();
        (share_issue(issue, &decision, known), decision)
    };
    let decided: Vec<(SharedIssue, Decision)> = decided.into_iter().map(share).collect();
    for poll in polls {
        let own = decided
            .iter()
            .filter(|(issue, _)| issue.issue.system == poll.system);
        let polled = own.map(|(issue, decision)| {
            let known = before.get(&issue.issue.id).map(|known| &known.decision);
            let known = known.filter(|known| decision.is_repeat_of(known)).cloned();
            PolledIssue {
                issue: without_run_context(issue, decision),
                decision: known.unwrap_or_else(|| Arc::new(decision.clone())),
            }
        });
        match &poll.failure {
            Some(failure) => live
                .poll_snapshots
                .record_failure(poll.system, failure.clone(), now),
            None => live
                .poll_snapshots
                .record(poll.system, polled.collect(), &poll.unread, now),
        }
    }
    decided
}

/// Issue for a poll snapshot. It must not share the description with the run: that would keep the
/// memory of the whole response page alive.
fn without_run_context(issue: &SharedIssue, decision: &Decision) -> SharedIssue {
    match decision.outcome {
        DecisionOutcome::Dispatched => Arc::new(FlaggedIssue::clone(issue).without_run_context()),
        _ => issue.clone(),
    }
}

/// Wraps an issue for sharing. The context of a run is dropped unless the issue is dispatched now.
fn share_issue(
    issue: FlaggedIssue,
    decision: &Decision,
    known: Option<&PolledIssue>,
) -> SharedIssue {
    if decision.outcome == DecisionOutcome::Dispatched {
        return Arc::new(issue);
    }
    let issue = issue.without_run_context();
    let known = known.map(|known| &known.issue);
    let known = known.filter(|known| ***known == issue).cloned();
    known.unwrap_or_else(|| Arc::new(issue))
}

/// Target repository and branch of each mapping with an issue that is about to run.
fn targets(
    view: &SchedulingState,
    decided: &[(SharedIssue, Decision)],
) -> BTreeMap<TeamKey, (Repo, String)> {
    let about_to_run = decided
        .iter()
        .filter(|(_, decision)| decision.outcome == DecisionOutcome::Dispatched);
    let mapped = about_to_run.filter_map(|(issue, _)| view.mappings.get(&issue.team));
    let target = |mapping: &Mapping| (mapping.target_repo(), mapping.default_branch.clone());
    mapped
        .map(|mapping| (mapping.team_key.clone(), target(mapping)))
        .collect()
}

/// Makes the issues of a repository with an invalid image wait. Returns the images of the others.
fn hold_back_invalid_images(
    images: BTreeMap<TeamKey, Result<RequestedImage, String>>,
    decided: &mut [(SharedIssue, Decision)],
) -> BTreeMap<TeamKey, RequestedImage> {
    for (issue, decision) in decided {
        if decision.outcome == DecisionOutcome::Dispatched
            && let Some(Err(why)) = images.get(&issue.team)
        {
            decision.set_waiting(WaitReason::Ineligible, why);
        }
    }
    let valid = images.into_iter();
    valid
        .filter_map(|(team, image)| Some((team, image.ok()?)))
        .collect()
}

/// Reserves runs and records changed decisions in the dispatch log, in one transaction. Returns the number of
/// reserved runs.
async fn reserve_and_record(
    app: &App,
    decided: Vec<(SharedIssue, Decision)>,
    images: BTreeMap<TeamKey, RequestedImage>,
    sources: BTreeMap<TeamKey, TicketingConfig>,
    now: Timestamp,
) -> StoreResult<usize> {
    // Reads one row per issue, so it stays off the threads that serve requests.
    let changed = app.core.store.read_long(move |tx| {
        let mut changed = Vec::new();
        for (issue, decision) in decided {
            if decision.outcome == DecisionOutcome::Dispatched
                || decisions::is_changed(tx, &decision)?
            {
                changed.push((issue, decision));
            }
        }
        Ok(changed)
    });
    let changed = changed.await?;
    if changed.is_empty() {
        return Ok(0);
    }
    let handle = app.clone();
    let reserved = app
        .core
        .store
        .write(move |tx| {
            let mut reserved = Vec::new();
            for (issue, decision) in &changed {
                if let (DecisionOutcome::Dispatched, Some(phase)) =
                    (decision.outcome, decision.phase)
                {
                    let request = DispatchRequest {
                        issue: FlaggedIssue::clone(issue),
                        phase,
                        image: images.get(&issue.team).cloned().unwrap_or_default(),
                        ticketing: sources.get(&issue.team).cloned(),
                    };
                    let Some(job) = dispatch::reserve(tx, &handle, &request, now)? else {
                        continue;
                    };
                    reserved.push((job, issue.issue.key.clone(), issue.team.clone()));
                }
                decisions::record(tx, &issue.issue, decision)?;
            }
            Ok(reserved)
        })
        .await?;
    for (job, issue, team) in &reserved {
        tracing::info!(job_id = %job, %issue, %team, "Reserved a run.");
    }
    if !reserved.is_empty() {
        app.core.crash_plan.crash_if_planned(CrashPoint::Reserved);
    }
    Ok(reserved.len())
}
