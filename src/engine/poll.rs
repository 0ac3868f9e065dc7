//! One look at every ticketing system, and a decision about every flagged issue.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use crate::app::{App, PolledIssue};
use domain::decision::{self, Decision, DecisionOutcome, SchedulingState, WaitReason};
use domain::effect::ticket_queue_key;
use domain::ids::{IssueId, TeamKey};
use domain::issue::{FlaggedIssue, IssueRef, Phase, PollResult, System};
use domain::job::Job;
use domain::mapping::Mapping;
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use store::crash_injection::CrashPoint;
use store::issue_waits::IssueWait;
use store::{ReadableTx, StoreResult, decisions, dedup, dispatch_breaker, jobs, mappings, outbox};
use vendors::ticketing::TicketingClient;

use super::budget;
use super::closed_issues;
use super::dispatch::{self, DispatchRequest};
use super::provider_limit;
use super::repo_image;
use super::ticket_wait_comments;

/// An issue that all who handle it share: a copy each, of thousands, would be most of our memory.
type Shared = Arc<FlaggedIssue>;

/// Polls once: looks at the store, asks everybody, decides, reserves.
pub async fn run_once(app: &App) -> StoreResult<()> {
    let (began, now) = (Instant::now(), app.now());
    if app.store.read(|tx| budget::has_pending_alerts(tx, now))? {
        app.store
            .write(move |tx| budget::enqueue_pending_alerts(tx, now))
            .await?;
    }
    let mut view = app.store.read(|tx| view(tx, app, now))?;
    let lanes = app.store.read(outbox::queue_keys)?;
    let mapped: Vec<&Mapping> = view.mappings.values().collect();
    let answers = join_all(app.ticketing.iter().map(|account| look(account, &mapped))).await;
    let (looks, seen): (Vec<Look>, Vec<Vec<FlaggedIssue>>) = answers.into_iter().unzip();
    let issues: Vec<FlaggedIssue> = seen.into_iter().flatten().collect();
    let flagged: HashSet<IssueId> = issues.iter().map(|issue| issue.issue.id.clone()).collect();
    let owed = issues
        .iter()
        .filter(|issue| lanes.contains(&ticket_queue_key(&issue.issue)));
    view.issues_with_pending_effects = owed.map(|issue| issue.issue.id.clone()).collect();
    let decided = decision::decide(&view, issues, now);
    let mut decided = show(app, &looks, decided, now);
    // Of everything in sight: what a silent system showed last counts as it did.
    app.poll_snapshots
        .count_in_progress(|issues| decision::in_progress_counts(&view, issues));
    for account in &app.ticketing {
        add_siblings(account, &mut decided).await;
    }
    let images = images(app, &view, &mut decided).await;
    let is_silent = looks.iter().any(|look| look.failure.is_some());
    note_waiting(app, &decided, is_silent, now);
    let is_unseen = |wait: &IssueWait| {
        let look = looks.iter().find(|look| look.system == wait.issue.system);
        look.is_none_or(|look| look.failure.is_some() || look.unread.contains(&wait.team))
    };
    let all = decided.iter().map(|(issue, decision)| (&**issue, decision));
    ticket_wait_comments::update(app, all, is_unseen, now).await?;
    note(app, decided, images, now).await?;
    for look in looks.iter().filter(|look| look.failure.is_none()) {
        closed_issues::cancel_runs(app, look.system, &flagged).await?;
    }
    app.metrics.poll_duration.observe_time(began.elapsed());
    app.heartbeats.record_poll(app.now());
    Ok(())
}

/// Since when issues wait for a run. One whose start is still owed, or whose system is silent, goes on
/// waiting.
fn note_waiting(app: &App, decided: &[(Shared, Decision)], is_silent: bool, now: Timestamp) {
    let with = |outcomes: &'static [DecisionOutcome]| {
        let of = decided
            .iter()
            .filter(|(_, decision)| outcomes.contains(&decision.outcome));
        of.map(|(issue, _)| &issue.issue.id)
    };
    let started: HashSet<&IssueId> = with(&[DecisionOutcome::InProgress]).collect();
    let waiting = with(&[DecisionOutcome::Waiting, DecisionOutcome::Dispatched]);
    let goes_on = |issue: &IssueId| is_silent || started.contains(issue);
    app.metrics.observe_waiting(waiting, goes_on, now);
}

fn view(tx: &impl ReadableTx, app: &App, now: Timestamp) -> StoreResult<SchedulingState> {
    let mappings = mappings::all(tx)?;
    let phases = [Phase::Planning, Phase::Implementation];
    let mode = app.runner_mode(tx)?;
    let ineligible = mappings.iter().flat_map(|mapping| {
        phases.into_iter().filter_map(|phase| {
            let why = dispatch::ineligible_reason(app, mode, mapping, phase)?;
            Some(((mapping.team_key.clone(), phase), why))
        })
    });
    let limited = mappings.iter().filter_map(|mapping| {
        let until = app.github.as_ref()?.limited_until(&mapping.target_repo())?;
        Some((mapping.team_key.clone(), until))
    });
    let (mut spent, mut model_limited) = (BTreeMap::new(), BTreeMap::new());
    for mapping in &mappings {
        let team = &mapping.team_key;
        if let Some(spending) = budget::exhausted(tx, mapping, now)? {
            spent.insert(team.clone(), spending.exhausted_message(team));
        }
        if let Some(until) = provider_limit::limited_until(tx, app, mapping, now)? {
            model_limited.insert(team.clone(), until);
        }
    }
    let (on_tickets, on_pulls): (Vec<Job>, Vec<Job>) = jobs::active(tx)?
        .into_iter()
        .filter(|job| !job.shadow)
        .partition(|job| job.kind.phase().is_some());
    let held = |entry: &dedup::DedupEntry| entry.is_active(app.config.dedup_window, now);
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
            .filter(held)
            .map(|entry| entry.issue.id)
            .collect(),
        parked_issues: dispatch_breaker::all(tx)?
            .into_iter()
            .map(|parked| parked.issue.id)
            .collect(),
        issues_with_pending_effects: Default::default(),
        mappings: mappings
            .into_iter()
            .map(|mapping| (mapping.team_key.clone(), mapping))
            .collect(),
    })
}

/// How one account answered.
struct Look {
    system: System,
    failure: Option<String>,
    /// Mappings it could not answer for.
    unread: Vec<TeamKey>,
}

/// A system that does not answer keeps its last decisions; the others go on.
async fn look(account: &TicketingClient, mappings: &[&Mapping]) -> (Look, Vec<FlaggedIssue>) {
    let system = account.system();
    let own: Vec<&Mapping> = mappings
        .iter()
        .copied()
        .filter(|mapping| mapping.system() == system)
        .collect();
    let answer = account.snapshot(&own).await;
    if let Err(error) = &answer {
        tracing::warn!(account = account.name(), %error, "Polling failed; the last decisions stand.");
    }
    let (snapshot, failure) = match answer {
        Ok(snapshot) => (snapshot, None),
        Err(error) => (PollResult::default(), Some(error.to_string())),
    };
    let look = Look {
        system,
        failure,
        unread: snapshot.failed_teams,
    };
    (look, snapshot.issues)
}

/// Keeps what was seen for people to look at. What looks as it did before stays where it is in memory:
/// thousands of new rows among what every poll needs for a moment would leave it full of holes.
fn show(
    app: &App,
    looks: &[Look],
    decided: Vec<(FlaggedIssue, Decision)>,
    now: Timestamp,
) -> Vec<(Shared, Decision)> {
    let before = app.poll_snapshots.all();
    let before = before.values().flat_map(|sighting| sighting.issues.iter());
    let before: HashMap<&IssueId, &PolledIssue> = before
        .map(|sighted| (&sighted.issue.issue.id, sighted))
        .collect();
    let share = |(issue, decision): (FlaggedIssue, Decision)| {
        let known = before.get(&issue.issue.id).copied();
        (shared(issue, &decision, known), decision)
    };
    let decided: Vec<(Shared, Decision)> = decided.into_iter().map(share).collect();
    for look in looks {
        let own = decided
            .iter()
            .filter(|(issue, _)| issue.issue.system == look.system);
        let sighted = own.map(|(issue, decision)| {
            let known = before.get(&issue.issue.id).map(|known| &known.decision);
            let known = known.filter(|known| decision.is_repeat_of(known)).cloned();
            PolledIssue {
                issue: to_look_at(issue, decision),
                decision: known.unwrap_or_else(|| Arc::new(decision.clone())),
            }
        });
        match &look.failure {
            Some(failure) => app
                .poll_snapshots
                .record_failure(look.system, failure.clone()),
            None => app
                .poll_snapshots
                .record(look.system, sighted.collect(), &look.unread, now),
        }
    }
    decided
}

/// What a run needs is the run's alone: a description would keep those of its whole page.
fn to_look_at(issue: &Shared, decision: &Decision) -> Shared {
    match decision.outcome {
        DecisionOutcome::Dispatched => Arc::new(FlaggedIssue::clone(issue).without_run_context()),
        _ => issue.clone(),
    }
}

/// What does not run now is kept without what a run would need.
fn shared(issue: FlaggedIssue, decision: &Decision, known: Option<&PolledIssue>) -> Shared {
    if decision.outcome == DecisionOutcome::Dispatched {
        return Arc::new(issue);
    }
    let issue = issue.without_run_context();
    let known = known.map(|known| &known.issue);
    let known = known.filter(|known| ***known == issue).cloned();
    known.unwrap_or_else(|| Arc::new(issue))
}

/// Completes what stands around the issues that are about to run: one request for all of them, made
/// only when something runs. In the snapshot, where parents and dependencies are read, twenty
/// siblings of every issue would pass what a query may cost; a request a ticket would be too many.
async fn add_siblings(account: &TicketingClient, decided: &mut [(Shared, Decision)]) {
    let mut children: Vec<&mut Shared> = decided
        .iter_mut()
        .filter(|(_, decision)| decision.outcome == DecisionOutcome::Dispatched)
        .map(|(issue, _)| issue)
        .filter(|issue| issue.issue.system == account.system() && issue.related.parent.is_some())
        .collect();
    if children.is_empty() {
        return;
    }
    let asked: Vec<IssueRef> = children.iter().map(|child| child.issue.clone()).collect();
    match account.siblings(&asked).await {
        Ok(mut siblings) => {
            for child in &mut children {
                let siblings = siblings.remove(&child.issue.id).unwrap_or_default();
                Arc::make_mut(child).related.siblings = siblings;
            }
        }
        // They are context; a run does without rather than wait for them.
        Err(error) => {
            tracing::warn!(account = account.name(), %error, "Sibling issues could not be read.");
        }
    }
}

/// The images that the repositories of what is about to run ask for: one request a repository. What
/// asks for one that it cannot have waits.
async fn images(
    app: &App,
    view: &SchedulingState,
    decided: &mut [(Shared, Decision)],
) -> BTreeMap<TeamKey, RequestedImage> {
    let about_to_run = |decision: &Decision| decision.outcome == DecisionOutcome::Dispatched;
    let teams: BTreeSet<&TeamKey> = decided
        .iter()
        .filter(|(_, decision)| about_to_run(decision))
        .map(|(issue, _)| &issue.team)
        .collect();
    let mapped = teams.into_iter().filter_map(|team| view.mappings.get(team));
    let looks = mapped.map(async |mapping| {
        let asked = repo_image::fetch(app, &mapping.target_repo(), &mapping.default_branch).await;
        (mapping.team_key.clone(), asked)
    });
    let (mut images, mut refused) = (BTreeMap::new(), BTreeMap::new());
    for (team, asked) in join_all(looks).await {
        match asked {
            Ok(asked) => drop(images.insert(team, asked)),
            Err(why) => drop(refused.insert(team, why)),
        }
    }
    for (issue, decision) in decided {
        if let Some(why) = refused.get(&issue.team).filter(|_| about_to_run(decision)) {
            decision.set_waiting(WaitReason::Ineligible, why);
        }
    }
    images
}

/// Reserves what is to run and keeps what has changed in the ledger, in one commit.
async fn note(
    app: &App,
    decided: Vec<(Shared, Decision)>,
    images: BTreeMap<TeamKey, RequestedImage>,
    now: Timestamp,
) -> StoreResult<()> {
    // Off the threads that serve requests: it reads a row of each issue.
    let look = app.store.read_long(move |tx| {
        let mut news = Vec::new();
        for (issue, decision) in decided {
            if decision.outcome == DecisionOutcome::Dispatched
                || decisions::is_changed(tx, &decision)?
            {
                news.push((issue, decision));
            }
        }
        Ok(news)
    });
    let news = look.await?;
    if news.is_empty() {
        return Ok(());
    }
    let handle = app.clone();
    let reserved = app
        .store
        .write(move |tx| {
            let mut reserved = Vec::new();
            for (issue, decision) in &news {
                if let (DecisionOutcome::Dispatched, Some(phase)) =
                    (decision.outcome, decision.phase)
                {
                    let plan = DispatchRequest {
                        issue: FlaggedIssue::clone(issue),
                        phase,
                        image: images.get(&issue.team).cloned().unwrap_or_default(),
                    };
                    let Some(job) = dispatch::reserve(tx, &handle, &plan, now)? else {
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
        app.crash_plan.crash_if_planned(CrashPoint::Reserved);
    }
    Ok(())
}
