//! Comments on tickets about why they wait.
//!
//! Most waits end without intervention. One that does not (`no-mapping`, `ambiguous`, `ineligible`, `parked`) is
//! reported on the ticket after five minutes, once per wait, with the message of the decision. The
//! comment is deleted when the wait ends. The number of comments per poll is limited, because the
//! removal of a project makes all its tickets wait at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::app::Core;
use domain::comments;
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::effect::Effect;
use domain::ids::IssueId;
use domain::issue::{FlaggedIssue, IssueRef};
use domain::time::Timestamp;
use store::issue_waits::IssueWait;
use store::{StoreResult, WriteTx, issue_waits, outbox};

/// Duration of a wait after which it is reported on the ticket.
const COMMENT_DELAY: Duration = Duration::from_secs(5 * 60);

/// Maximum number of comments per poll.
const MAX_COMMENTS_PER_POLL: usize = 20;

/// Change of a wait by a poll.
#[derive(Debug, PartialEq)]
enum WaitUpdate {
    Begin(IssueWait),
    Comment(IssueWait, String),
    End(IssueWait),
}

/// Updates the stored waits and their comments from the decisions of a poll. `is_unread` returns
/// whether the poll could not read the issue of a wait.
pub(super) async fn update<'i>(
    core: &Core,
    decided: impl Iterator<Item = (&'i FlaggedIssue, &'i Decision)>,
    is_unread: impl Fn(&IssueWait) -> bool,
    now: Timestamp,
) -> StoreResult<()> {
    let known = core.store.read(issue_waits::all)?;
    let updates = updates(known, decided, is_unread, now);
    if updates.is_empty() {
        return Ok(());
    }
    core.store
        .write(move |tx| updates.iter().try_for_each(|update| apply(tx, update, now)))
        .await
}

fn updates<'i>(
    known: Vec<IssueWait>,
    decided: impl Iterator<Item = (&'i FlaggedIssue, &'i Decision)>,
    is_unread: impl Fn(&IssueWait) -> bool,
    now: Timestamp,
) -> Vec<WaitUpdate> {
    let known: HashMap<IssueId, IssueWait> = known
        .into_iter()
        .map(|wait| (wait.issue.id.clone(), wait))
        .collect();
    let (mut updates, mut continuing, mut comment_count) = (Vec::new(), HashSet::new(), 0);
    for (issue, decision) in decided {
        let Some(reason) = lasting_reason(decision) else {
            continue;
        };
        let before = known.get(&issue.issue.id);
        match before.filter(|wait| wait.reason == reason) {
            None => updates.push(WaitUpdate::Begin(IssueWait {
                issue: issue.issue.clone(),
                team: issue.team.clone(),
                reason,
                since: now,
                is_commented: false,
            })),
            Some(wait) => {
                continuing.insert(wait.issue.id.clone());
                let is_due = !wait.is_commented && now.since(wait.since) >= COMMENT_DELAY;
                if is_due && comment_count < MAX_COMMENTS_PER_POLL {
                    comment_count += 1;
                    updates.push(WaitUpdate::Comment(
                        wait.clone(),
                        comments::waiting(decision),
                    ));
                }
            }
        }
    }
    let ended = known
        .into_values()
        .filter(|wait| !continuing.contains(&wait.issue.id) && !is_unread(wait));
    // An issue that now waits for another reason ends one wait before it begins the next.
    let mut all: Vec<WaitUpdate> = ended.map(WaitUpdate::End).collect();
    all.append(&mut updates);
    all
}

/// Reason of a wait that ends only with an action of a person.
fn lasting_reason(decision: &Decision) -> Option<WaitReason> {
    decision
        .reason
        .filter(|_| decision.outcome == DecisionOutcome::Waiting)
        .filter(|reason| {
            matches!(
                reason,
                WaitReason::NoMapping
                    | WaitReason::Ambiguous
                    | WaitReason::Ineligible
                    | WaitReason::Parked
            )
        })
}

fn apply(tx: &WriteTx<'_>, update: &WaitUpdate, now: Timestamp) -> StoreResult<()> {
    let comment = |issue: &IssueRef, name: String, body: Option<String>| {
        let issue = issue.clone();
        outbox::push(tx, &Effect::WaitingComment { issue, name, body }, now).map(drop)
    };
    match update {
        WaitUpdate::Begin(wait) => issue_waits::put(tx, wait),
        WaitUpdate::Comment(wait, body) => {
            let commented = IssueWait {
                is_commented: true,
                ..wait.clone()
            };
            issue_waits::put(tx, &commented)?;
            comment(&wait.issue, wait.comment_key(), Some(body.clone()))
        }
        WaitUpdate::End(wait) => {
            issue_waits::remove(tx, &wait.issue.id)?;
            match wait.is_commented {
                true => comment(&wait.issue, wait.comment_key(), None),
                false => Ok(()),
            }
        }
    }
}

/// Ends the wait of an issue and removes its comment. The next poll begins another wait if the
/// issue still waits.
pub(super) fn end_wait(tx: &WriteTx<'_>, issue: &IssueId, now: Timestamp) -> StoreResult<()> {
    match issue_waits::get(tx, issue)? {
        Some(wait) => apply(tx, &WaitUpdate::End(wait), now),
        None => Ok(()),
    }
}
