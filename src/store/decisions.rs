//! Dispatch decisions about each issue.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use domain::decision::Decision;
use domain::ids::{IssueId, IssueKey};
use domain::issue::IssueRef;

use super::change_feed::StoreChange;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::DECISIONS;
use super::{StoreResult, scoreboard};

/// Maximum number of decisions kept per issue.
const MAX_DECISIONS: usize = 50;

/// Latest decisions about an issue.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionHistory {
    /// Issue that the decisions are about.
    pub issue: IssueRef,
    /// Decisions, oldest first; the last one is current. Repeated decisions are not stored.
    pub decisions: Vec<Decision>,
}

impl DecisionHistory {
    /// Current decision.
    pub fn current(&self) -> Option<&Decision> {
        self.decisions.last()
    }
}

/// Decisions about an issue. The key is case-insensitive, and may name the owner of the repository.
pub fn get_named(tx: &impl ReadableTx, key: &IssueKey) -> StoreResult<Option<DecisionHistory>> {
    if let Some(row) = get(tx, key)? {
        return Ok(Some(row));
    }
    let Some(short) = key.without_owner() else {
        return Ok(None);
    };
    let row = get(tx, &short)?;
    Ok(row.filter(|row| row.issue.matches_id_or_key(key.as_str())))
}

/// Decisions about an issue. The key is case-insensitive.
pub fn get(tx: &impl ReadableTx, key: &IssueKey) -> StoreResult<Option<DecisionHistory>> {
    DECISIONS.get(tx, row_key(key).as_str())
}

/// Decisions about the issue with this id. Reads the rows one by one; for requests of people only.
pub fn find_by_issue(
    tx: &impl ReadableTx,
    issue: &IssueId,
) -> StoreResult<Option<DecisionHistory>> {
    /// Part of a row that names the issue.
    #[derive(Deserialize)]
    struct Subject {
        issue: IssueRef,
    }
    let mut key = None;
    DECISIONS.scan_partial_with_size(tx, .., ScanDirection::Ascending, |_, row: Subject, _| {
        if row.issue.id != *issue {
            return ControlFlow::Continue(());
        }
        key = Some(row.issue.key);
        ControlFlow::Break(())
    })?;
    key.map_or(Ok(None), |key| get(tx, &key))
}

/// Whether this decision differs from the current one.
pub fn is_changed(tx: &impl ReadableTx, decision: &Decision) -> StoreResult<bool> {
    let row = get(tx, &decision.issue_identifier)?;
    Ok(!row.is_some_and(|row| {
        row.current()
            .is_some_and(|current| decision.is_repeat_of(current))
    }))
}

/// Adds a decision and removes the oldest above the maximum.
pub fn record(tx: &WriteTx<'_>, issue: &IssueRef, decision: &Decision) -> StoreResult<()> {
    let mut decisions = get(tx, &issue.key)?
        .map(|row| row.decisions)
        .unwrap_or_default();
    scoreboard::count_wait(tx, decisions.last(), decision)?;
    decisions.push(decision.clone());
    let surplus = decisions.len().saturating_sub(MAX_DECISIONS);
    decisions.drain(..surplus);
    DECISIONS.put(
        tx,
        row_key(&issue.key).as_str(),
        &DecisionHistory {
            issue: issue.clone(),
            decisions,
        },
    )?;
    tx.publish(StoreChange::Decision(issue.key.clone()));
    Ok(())
}

fn row_key(key: &IssueKey) -> String {
    key.as_str().to_uppercase()
}
