//! People and an operator who push to pull requests, approve them, move their base, and take them over, while the
//! service is killed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_vendors::{FakeRepo, FakeService, InjectedFault, PullSnapshot};
use reqwest::Method;
use serde_json::json;
use store::crash_injection::CrashPoint;
use vendors::http::percent_encode;

use crate::crash_env::CrashEnv;
use crate::landing::{Act, LANDING_REPOS, Landing, change_by_hand};
use crate::tickets::{ExpectedTicket, TicketKind};

/// Person who pushes and approves, and one who approves after them.
const PERSON: &str = "mia";
const SECOND_PERSON: &str = "kim";

const INTERVAL: Duration = Duration::from_millis(500);

/// Time for which a failing check must stay alone on a pull request that is taken over: two cycles of the service.
const TAKEN_DURATION: Duration = Duration::from_millis(2_500);

/// Chance per interval that somebody acts while the service is killed. It spreads the acts over the kills.
const ACT_CHANCE: f64 = 0.1;

/// What was done about a pull request.
#[derive(Default)]
struct Progress {
    /// Number of acts that are done.
    acts: usize,
    /// Head that was approved last.
    approved: Option<String>,
    /// Head whose check has passed.
    passed: Option<String>,
    /// Time at which the check of a pull request that is taken over had failed.
    failed_at: Option<Instant>,
}

/// Acts on each pull request that lands, until stopped.
pub async fn land(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut progress: HashMap<String, Progress> = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(INTERVAL).await;
        for name in LANDING_REPOS {
            let repo = env.repo(name);
            let pulls = repo.pulls();
            let tickets = env.record().tickets.clone();
            for ticket in tickets.iter().filter(|ticket| ticket.repo() == name) {
                let TicketKind::Landing(landing) = ticket.kind else {
                    continue;
                };
                let Some(pull) = pull_of(&pulls, ticket).filter(|pull| pull.open) else {
                    continue;
                };
                let acting = Acting {
                    env: &env,
                    repo: &repo,
                    ticket,
                    landing,
                    pull,
                };
                let progress = progress.entry(ticket.key.clone()).or_default();
                acting.act(progress).await;
            }
        }
    }
}

/// Pull request of a ticket.
pub fn pull_of<'a>(pulls: &'a [PullSnapshot], ticket: &ExpectedTicket) -> Option<&'a PullSnapshot> {
    let prefix = format!("{}: ", ticket.key);
    pulls.iter().find(|pull| pull.title.starts_with(&prefix))
}

/// Crash points that an act leads to.
fn points_after(act: Option<Act>) -> &'static [CrashPoint] {
    match act {
        Some(Act::MoveBase) => &[
            CrashPoint::LandingStepStored,
            CrashPoint::BranchUpdatePerformed,
        ],
        Some(Act::TakeOver | Act::GiveBack) => &[CrashPoint::TakeOverStored],
        Some(Act::PushFailure) => &[CrashPoint::CheckEventReceived, CrashPoint::CheckEventStored],
        Some(Act::PushDuringRun | Act::ApproveTaken | Act::PushToArmed) => &[],
        Some(Act::ApproveToArm | Act::ApproveAsSecond) | None => &[
            CrashPoint::LandingStepStored,
            CrashPoint::MergePerformed,
            CrashPoint::MergeRecorded,
        ],
    }
}

/// Whether somebody acts now. If the service is to be killed at a point that the act leads to, they do.
fn is_time_for(env: &CrashEnv, act: Option<Act>) -> bool {
    let record = env.record();
    let is_awaited = record
        .awaited
        .is_some_and(|point| points_after(act).contains(&point));
    record.is_undisturbed || is_awaited || fastrand::f64() < ACT_CHANCE
}

/// Somebody who acts on a pull request.
struct Acting<'a> {
    env: &'a CrashEnv,
    repo: &'a FakeRepo,
    ticket: &'a ExpectedTicket,
    landing: Landing,
    pull: &'a PullSnapshot,
}

impl Acting<'_> {
    /// Does the next thing if it is time for it.
    async fn act(&self, progress: &mut Progress) {
        let next = self.landing.acts().get(progress.acts).copied();
        let is_over = next.is_none() && !self.landing.is_merged();
        let is_shown = || !self.ticket.comments(self.env).is_empty();
        if is_over || !is_time_for(self.env, next) || !is_shown() {
            return;
        }
        let Some(act) = next else {
            self.approve_once(progress);
            return;
        };
        let is_done = match act {
            Act::MoveBase => self.has_passed(progress) && self.move_base(),
            Act::PushDuringRun => self.push_during_run(),
            Act::TakeOver => self.has_passed(progress) && self.send("take").await,
            Act::ApproveTaken => self.approve_once(progress),
            Act::PushFailure | Act::PushToArmed => {
                self.push(act);
                true
            }
            Act::ApproveToArm => self.approve_to_arm(progress),
            Act::ApproveAsSecond => {
                self.repo
                    .add_review(self.pull.number, SECOND_PERSON, "APPROVED", "");
                true
            }
            Act::GiveBack => self.has_stayed_taken(progress) && self.send("give-back").await,
        };
        progress.acts += usize::from(is_done);
    }

    /// Conclusion of the check of the head.
    fn conclusion(&self) -> Option<String> {
        self.repo.checks(&self.pull.head_sha).pop()?.1
    }

    /// Whether the check of the head has passed.
    fn has_passed(&self, progress: &mut Progress) -> bool {
        let head = Some(&self.pull.head_sha);
        if progress.passed.as_ref() != head && self.conclusion().as_deref() == Some("success") {
            progress.passed = head.cloned();
        }
        progress.passed.as_ref() == head
    }

    /// Approves a head whose check has passed, unless that was done. Returns whether it is approved. Now and then the
    /// answer to the merge is lost.
    fn approve_once(&self, progress: &mut Progress) -> bool {
        if progress.approved.as_ref() == Some(&self.pull.head_sha) {
            return true;
        }
        if !self.has_passed(progress) {
            return false;
        }
        let faults = self.env.vendors.faults(FakeService::GitHub);
        if fastrand::u8(..3) == 0 && faults.pending() == 0 {
            let request = match self.landing {
                Landing::Armed => "enablePullRequestAutoMerge",
                _ => "/merge",
            };
            faults.inject_on_match(request, InjectedFault::DropResponse);
        }
        let number = self.pull.number;
        self.repo.add_review(number, PERSON, "APPROVED", "");
        progress.approved = Some(self.pull.head_sha.clone());
        true
    }

    /// Approves the head while it is not armed for an older one. Returns whether it is approved and armed.
    fn approve_to_arm(&self, progress: &mut Progress) -> bool {
        let is_armed = self.repo.armed_pulls().contains(&self.pull.number);
        let is_approved = progress.approved.as_ref() == Some(&self.pull.head_sha);
        if !is_armed {
            self.approve_once(progress);
        }
        is_armed && is_approved
    }

    fn move_base(&self) -> bool {
        let key = &self.ticket.key;
        let (path, text) = change_by_hand(key, Act::MoveBase, self.landing);
        let branch = format!("by-hand/{}", key.replace('#', "-"));
        let title = format!("Move the base below {key}");
        self.repo
            .commit(&branch, &[(&path, &text)], &title)
            .unwrap();
        let number = self.repo.open_pull(&branch, PERSON, &title, "");
        self.repo.merge_pull(number).unwrap();
        true
    }

    /// Pushes once the second run of the ticket works, and lets it go on.
    fn push_during_run(&self) -> bool {
        let mut runs = self.env.dispatched_runs(self.ticket.repo());
        runs.retain(|run| run.inputs["issue_identifier"] == self.ticket.key.as_str());
        let works = runs
            .get(1)
            .is_some_and(|run| self.repo.run_log(run.id).contains("Agent started"));
        if works {
            self.push(Act::PushDuringRun);
            std::fs::write(self.env.gate(&self.ticket.key), "").unwrap();
        }
        works
    }

    fn push(&self, act: Act) {
        let key = &self.ticket.key;
        let (path, text) = change_by_hand(key, act, self.landing);
        let files = [(path.as_str(), text.as_str())];
        let pushed = self.repo.commit(&self.pull.head, &files, "By hand");
        let commits = &mut self.env.record().commits_by_hand;
        commits.push((key.clone(), pushed.unwrap()));
    }

    /// Whether the check has failed long enough. Nothing may have happened about it.
    fn has_stayed_taken(&self, progress: &mut Progress) -> bool {
        if self.conclusion().as_deref() != Some("failure") {
            return false;
        }
        let failed_at = *progress.failed_at.get_or_insert_with(Instant::now);
        let is_long = failed_at.elapsed() >= TAKEN_DURATION;
        let mut runs = self.repo.runs();
        runs.retain(|run| run.branch == self.pull.head);
        if is_long && runs.iter().any(|run| run.attempt > 1) {
            let key = &self.ticket.key;
            self.env
                .record_violation(format!("a rerun while {key} is taken over: {runs:?}"));
        }
        is_long
    }

    /// Sends a request of an operator. Returns whether it was accepted.
    async fn send(&self, what: &str) -> bool {
        let path = format!("/api/issues/{}/{what}", percent_encode(&self.ticket.key));
        let body = json!({"by": "Kim"});
        match self.env.try_request(Method::POST, &path, &body).await {
            Some((200, _)) => true,
            None => false,
            Some((status, body)) => {
                self.env
                    .record_violation(format!("{path} got status {status}: {body}"));
                true
            }
        }
    }
}
