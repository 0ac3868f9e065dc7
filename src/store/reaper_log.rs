//! Log of the reaper: machines that it destroyed, or would have destroyed in a dry run.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::ids::{IssueKey, TeamKey};
use domain::reaper::{ReapOutcome, ReaperRule};
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{REAPER_ACTIONS, REAPER_RECORDED};

/// Maximum number of actions in a list. As many are kept regardless of their age.
pub const MAX_RECENT_ACTIONS: usize = 100;

/// Period of the summary.
pub const SUMMARY_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Machine that was destroyed, or would have been in a dry run.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaperAction {
    /// Time of the action.
    pub at: Timestamp,
    /// Rule that applied.
    pub rule: ReaperRule,
    /// Id of the machine.
    pub machine_id: String,
    /// Team of the machine, if it is known.
    pub tenant: Option<TeamKey>,
    /// Issue of the machine, if it is known.
    pub issue: Option<IssueKey>,
    /// Age of the machine in seconds.
    pub age_seconds: u64,
    /// Whether the machine was destroyed.
    #[serde(rename = "badge")]
    pub outcome: ReapOutcome,
}

/// Records an action once per machine, rule and outcome. Returns whether it is new.
pub fn record(tx: &WriteTx<'_>, action: &ReaperAction) -> StoreResult<bool> {
    let action_key = rule_and_outcome(action.rule, action.outcome);
    let key = (action.machine_id.as_str(), action_key.as_str());
    if REAPER_RECORDED.get(tx, key)?.is_some() {
        return Ok(false);
    }
    REAPER_RECORDED.put(tx, key, &action.at)?;
    let at = action.at.as_millis();
    REAPER_ACTIONS.put(tx, (at, action.machine_id.as_str()), action)?;
    prune(tx, action.at)?;
    Ok(true)
}

/// Whether this action on the machine was recorded.
pub fn is_recorded(
    tx: &impl ReadableTx,
    machine: &str,
    rule: ReaperRule,
    outcome: ReapOutcome,
) -> StoreResult<bool> {
    let action_key = rule_and_outcome(rule, outcome);
    let recorded = REAPER_RECORDED.get(tx, (machine, action_key.as_str()))?;
    Ok(recorded.is_some())
}

/// Machines with recorded actions.
pub fn recorded_machines(tx: &impl ReadableTx) -> StoreResult<Vec<String>> {
    let mut machines = REAPER_RECORDED.collect(tx, .., |(machine, _), _| machine.to_owned())?;
    machines.dedup();
    Ok(machines)
}

/// Removes the records of a machine that no longer exists.
pub fn remove_machine(tx: &WriteTx<'_>, machine: &str) -> StoreResult<()> {
    for rule in ReaperRule::ALL {
        for outcome in [ReapOutcome::DryRun, ReapOutcome::Destroyed] {
            let action_key = rule_and_outcome(rule, outcome);
            REAPER_RECORDED.remove(tx, (machine, action_key.as_str()))?;
        }
    }
    Ok(())
}

/// Latest actions, newest first.
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

/// Actions at or after this time.
pub fn since(tx: &impl ReadableTx, moment: Timestamp) -> StoreResult<Vec<ReaperAction>> {
    REAPER_ACTIONS.collect(tx, (moment.as_millis(), "").., |_, action| action)
}

/// Removes actions that are neither among the latest nor in the period of the summary.
fn prune(tx: &WriteTx<'_>, now: Timestamp) -> StoreResult<()> {
    let summary_start = (now - SUMMARY_WINDOW).as_millis();
    let key = |(at, machine): (u64, &str), _| (at, machine.to_owned());
    let all = REAPER_ACTIONS.collect(tx, .., key)?;
    let surplus = all.len().saturating_sub(MAX_RECENT_ACTIONS);
    for (at, machine) in all
        .iter()
        .take(surplus)
        .filter(|(at, _)| *at < summary_start)
    {
        REAPER_ACTIONS.remove(tx, (*at, machine.as_str()))?;
    }
    Ok(())
}

/// Key of a rule and outcome within a machine.
fn rule_and_outcome(rule: ReaperRule, outcome: ReapOutcome) -> String {
    let outcome = match outcome {
        ReapOutcome::DryRun => "dry-run",
        ReapOutcome::Destroyed => "destroyed",
    };
    format!("{} {outcome}", rule.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    fn action(machine: &str, at: u64, outcome: ReapOutcome) -> ReaperAction {
        ReaperAction {
            at: Timestamp::from_millis(at),
            rule: ReaperRule::Orphan,
            machine_id: machine.to_owned(),
            tenant: None,
            issue: None,
            age_seconds: 300,
            outcome,
        }
    }

    #[tokio::test]
    async fn records_an_action_once_per_machine() {
        let store = Store::in_memory().unwrap();
        let recorded = store.write(|tx| {
            let first = record(tx, &action("m1", 1, ReapOutcome::DryRun))?;
            let again = record(tx, &action("m1", 2, ReapOutcome::DryRun))?;
            let real = record(tx, &action("m1", 3, ReapOutcome::Destroyed))?;
            remove_machine(tx, "m1")?;
            let after_removal = record(tx, &action("m1", 4, ReapOutcome::DryRun))?;
            Ok([first, again, real, after_removal])
        });
        assert_eq!(recorded.await.unwrap(), [true, false, true, true]);
        let latest = store.read(|tx| recent(tx, 2)).unwrap();
        let times: Vec<u64> = latest.iter().map(|action| action.at.as_millis()).collect();
        assert_eq!(times, [4, 3]);
    }

    #[tokio::test]
    async fn removes_old_actions_above_the_maximum() {
        let store = Store::in_memory().unwrap();
        let day = SUMMARY_WINDOW.as_millis() as u64;
        let counts = store.write(move |tx| {
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
        assert_eq!(counts.await.unwrap(), (150, MAX_RECENT_ACTIONS));
    }
}
