//! Comments that tell a ticket's people why it waits.
//!
//! Most waits pass by themselves. One that does not (`no-mapping`, `ineligible`, `parked`) is told on the
//! ticket after five minutes, once for each wait, in the words of `why`; the comment is deleted when the
//! wait is over. A poll writes a few such comments at most: when a project is removed, all its tickets
//! wait at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::app::App;
use domain::comments;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::effect::Effect;
use domain::ids::IssueId;
use domain::issue::{FlaggedIssue, IssueRef};
use domain::time::Timestamp;
use store::issue_waits::IssueWait;
use store::{StoreResult, WriteTx, issue_waits, outbox};

/// How long does an issue wait before its ticket says so?
const TOLD_AFTER: Duration = Duration::from_secs(5 * 60);

/// Most comments that one poll writes.
const MOST_AT_ONCE: usize = 20;

/// What a poll changes.
#[derive(Debug, PartialEq)]
enum Step {
    Begin(IssueWait),
    Tell(IssueWait, String),
    End(IssueWait),
}

/// Brings what is known of waits, and the comments about them, up to date with what was decided.
/// `is_unseen` tells of which issues this poll could see nothing.
pub(super) async fn update<'i>(
    app: &App,
    decided: impl Iterator<Item = (&'i FlaggedIssue, &'i Decision)>,
    is_unseen: impl Fn(&IssueWait) -> bool,
    now: Timestamp,
) -> StoreResult<()> {
    let known = app.store.read(issue_waits::all)?;
    let steps = steps(known, decided, is_unseen, now);
    if steps.is_empty() {
        return Ok(());
    }
    app.store
        .write(move |tx| steps.iter().try_for_each(|step| take(tx, step, now)))
        .await
}

fn steps<'i>(
    known: Vec<IssueWait>,
    decided: impl Iterator<Item = (&'i FlaggedIssue, &'i Decision)>,
    is_unseen: impl Fn(&IssueWait) -> bool,
    now: Timestamp,
) -> Vec<Step> {
    let known: HashMap<IssueId, IssueWait> = known
        .into_iter()
        .map(|wait| (wait.issue.id.clone(), wait))
        .collect();
    let (mut steps, mut goes_on, mut told) = (Vec::new(), HashSet::new(), 0);
    for (issue, decision) in decided {
        let Some(reason) = lasting(decision) else {
            continue;
        };
        let before = known.get(&issue.issue.id);
        match before.filter(|wait| wait.reason == reason) {
            None => steps.push(Step::Begin(IssueWait {
                issue: issue.issue.clone(),
                team: issue.team.clone(),
                reason,
                since: now,
                is_commented: false,
            })),
            Some(wait) => {
                goes_on.insert(wait.issue.id.clone());
                let is_due = !wait.is_commented && now.since(wait.since) >= TOLD_AFTER;
                if is_due && told < MOST_AT_ONCE {
                    told += 1;
                    steps.push(Step::Tell(wait.clone(), comments::waiting(decision)));
                }
            }
        }
    }
    let over = known
        .into_values()
        .filter(|wait| !goes_on.contains(&wait.issue.id) && !is_unseen(wait));
    // An issue that now waits for something else ends one wait before it begins the other.
    let mut all: Vec<Step> = over.map(Step::End).collect();
    all.append(&mut steps);
    all
}

/// The reason of a wait that people have to end.
fn lasting(decision: &Decision) -> Option<WaitReason> {
    decision
        .reason
        .filter(|_| decision.outcome == DecisionOutcome::Waiting)
        .filter(|reason| {
            matches!(
                reason,
                WaitReason::NoMapping | WaitReason::Ineligible | WaitReason::Parked
            )
        })
}

fn take(tx: &WriteTx<'_>, step: &Step, now: Timestamp) -> StoreResult<()> {
    let comment = |issue: &IssueRef, name: String, body: Option<String>| {
        let issue = issue.clone();
        outbox::push(tx, &Effect::WaitingComment { issue, name, body }, now).map(drop)
    };
    match step {
        Step::Begin(wait) => issue_waits::put(tx, wait),
        Step::Tell(wait, body) => {
            let told = IssueWait {
                is_commented: true,
                ..wait.clone()
            };
            issue_waits::put(tx, &told)?;
            comment(&wait.issue, wait.comment_key(), Some(body.clone()))
        }
        Step::End(wait) => {
            issue_waits::remove(tx, &wait.issue.id)?;
            match wait.is_commented {
                true => comment(&wait.issue, wait.comment_key(), None),
                false => Ok(()),
            }
        }
    }
}
