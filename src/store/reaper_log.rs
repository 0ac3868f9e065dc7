//! What the reaper did, or would have done.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::ids::{IssueKey, TeamKey};
use domain::reaper::{ReapOutcome, ReaperRule};
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{REAPER_ACTIONS, REAPER_RECORDED};

/// How many actions are shown at most, and kept however old they are?
pub const MAX_RECENT_ACTIONS: usize = 100;

/// What the summary counts.
pub const SUMMARY_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// A machine that was destroyed, or would have been. (spec: *Other records*)
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaperAction {
    pub at: Timestamp,
    pub rule: ReaperRule,
    pub machine_id: String,
    pub tenant: Option<TeamKey>,
    pub issue: Option<IssueKey>,
    pub age_seconds: u64,
    #[serde(rename = "badge")]
    pub outcome: ReapOutcome,
}

/// Notes an action, once for each machine, rule and badge. Whether it is news.
pub fn record(tx: &WriteTx<'_>, action: &ReaperAction) -> StoreResult<bool> {
    let what = mark(action.rule, action.outcome);
    let key = (action.machine_id.as_str(), what.as_str());
    if REAPER_RECORDED.get(tx, key)?.is_some() {
        return Ok(false);
    }
    REAPER_RECORDED.put(tx, key, &action.at)?;
    let at = action.at.as_millis();
    REAPER_ACTIONS.put(tx, (at, action.machine_id.as_str()), action)?;
    prune(tx, action.at)?;
    Ok(true)
}

/// Whether this action on the machine was noted before.
pub fn is_recorded(
    tx: &impl ReadableTx,
    machine: &str,
    rule: ReaperRule,
    badge: ReapOutcome,
) -> StoreResult<bool> {
    let what = mark(rule, badge);
    Ok(REAPER_RECORDED.get(tx, (machine, what.as_str()))?.is_some())
}

/// Machines that something was noted about.
pub fn recorded_machines(tx: &impl ReadableTx) -> StoreResult<Vec<String>> {
    let mut machines = REAPER_RECORDED.collect(tx, .., |(machine, _), _| machine.to_owned())?;
    machines.dedup();
    Ok(machines)
}

/// Forgets what was noted about a machine that is no more.
pub fn remove_machine(tx: &WriteTx<'_>, machine: &str) -> StoreResult<()> {
    for rule in ReaperRule::ALL {
        for badge in [ReapOutcome::DryRun, ReapOutcome::Destroyed] {
            REAPER_RECORDED.remove(tx, (machine, mark(rule, badge).as_str()))?;
        }
    }
    Ok(())
}

/// The latest actions, newest first.
pub fn recent(tx: &impl ReadableTx, limit: usize) -> StoreResult<Vec<ReaperAction>> {
    let mut actions = Vec::new();
    if limit == 0 {
        return Ok(actions);
    }
    REAPER_ACTIONS.scan(tx, .., ScanDirection::Descending, |_, action| {
        actions.push(action);
        if actions.len() < limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(actions)
}

/// The actions since a moment.
pub fn since(tx: &impl ReadableTx, moment: Timestamp) -> StoreResult<Vec<ReaperAction>> {
    REAPER_ACTIONS.collect(tx, (moment.as_millis(), "").., |_, action| action)
}

/// Lets go of what is neither recent nor counted.
fn prune(tx: &WriteTx<'_>, now: Timestamp) -> StoreResult<()> {
    let counted = (now - SUMMARY_WINDOW).as_millis();
    let key = |(at, machine): (u64, &str), _| (at, machine.to_owned());
    let all = REAPER_ACTIONS.collect(tx, .., key)?;
    let surplus = all.len().saturating_sub(MAX_RECENT_ACTIONS);
    for (at, machine) in all.iter().take(surplus).filter(|(at, _)| *at < counted) {
        REAPER_ACTIONS.remove(tx, (*at, machine.as_str()))?;
    }
    Ok(())
}

fn mark(rule: ReaperRule, badge: ReapOutcome) -> String {
    let badge = match badge {
        ReapOutcome::DryRun => "dry-run",
        ReapOutcome::Destroyed => "destroyed",
    };
    format!("{} {badge}", rule.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    fn action(machine: &str, at: u64, badge: ReapOutcome) -> ReaperAction {
        ReaperAction {
            at: Timestamp::from_millis(at),
            rule: ReaperRule::Orphan,
            machine_id: machine.to_owned(),
            tenant: None,
            issue: None,
            age_seconds: 300,
            outcome: badge,
        }
    }

    #[tokio::test]
    async fn an_action_is_noted_once_until_its_machine_is_forgotten() {
        let store = Store::in_memory().unwrap();
        let noted = store.write(|tx| {
            let first = record(tx, &action("m1", 1, ReapOutcome::DryRun))?;
            let again = record(tx, &action("m1", 2, ReapOutcome::DryRun))?;
            let real = record(tx, &action("m1", 3, ReapOutcome::Destroyed))?;
            remove_machine(tx, "m1")?;
            let anew = record(tx, &action("m1", 4, ReapOutcome::DryRun))?;
            Ok([first, again, real, anew])
        });
        assert_eq!(noted.await.unwrap(), [true, false, true, true]);
        let told = store.read(|tx| recent(tx, 2)).unwrap();
        let times: Vec<u64> = told.iter().map(|action| action.at.as_millis()).collect();
        assert_eq!(times, [4, 3]);
    }

    #[tokio::test]
    async fn old_actions_leave_when_there_are_newer_ones_to_show() {
        let store = Store::in_memory().unwrap();
        let day = SUMMARY_WINDOW.as_millis() as u64;
        let kept = store.write(move |tx| {
            for number in 0..150 {
                record(
                    tx,
                    &action(&format!("old{number}"), number, ReapOutcome::Destroyed),
                )?;
            }
            let before = since(tx, Timestamp::EPOCH)?.len();
            record(tx, &action("new", 2 * day, ReapOutcome::Destroyed))?;
            Ok((before, since(tx, Timestamp::EPOCH)?.len()))
        });
        assert_eq!(kept.await.unwrap(), (150, MAX_RECENT_ACTIONS));
    }
}
