//! The decisions about each issue, so that "why does it not run?" always has an answer.

use serde::{Deserialize, Serialize};

use domain::decision::Decision;
use domain::ids::IssueKey;
use domain::issue::IssueRef;

use super::StoreResult;
use super::change_feed::StoreChange;
use super::table::{ReadableTx, WriteTx};
use super::tables::DECISIONS;

/// How many earlier decisions are kept for an issue?
const HISTORY: usize = 50;

/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionHistory {
    pub issue: IssueRef,
    /// Oldest first, the last one in force. Only changes are kept.
    pub decisions: Vec<Decision>,
}

impl DecisionHistory {
    pub fn current(&self) -> Option<&Decision> {
        self.decisions.last()
    }
}

/// Accepts the issue's key in any case.
pub fn get(tx: &impl ReadableTx, key: &IssueKey) -> StoreResult<Option<DecisionHistory>> {
    DECISIONS.get(tx, row_key(key).as_str())
}

/// Whether this decision says something that the last one did not.
pub fn is_changed(tx: &impl ReadableTx, decision: &Decision) -> StoreResult<bool> {
    let row = get(tx, &decision.issue_identifier)?;
    Ok(!row.is_some_and(|row| {
        row.current()
            .is_some_and(|current| decision.is_repeat_of(current))
    }))
}

pub fn record(tx: &WriteTx<'_>, issue: &IssueRef, decision: &Decision) -> StoreResult<()> {
    let mut decisions = get(tx, &issue.key)?
        .map(|row| row.decisions)
        .unwrap_or_default();
    decisions.push(decision.clone());
    let surplus = decisions.len().saturating_sub(HISTORY);
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
