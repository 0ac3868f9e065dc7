//! The decisions about each issue, so that "why does it not run?" always has an answer.

use serde::{Deserialize, Serialize};

use domain::decision::Decision;
use domain::ids::IssueKey;
use domain::issue::IssueRef;

use super::StoreResult;
use super::news::News;
use super::shelf::{Rows, WriteTx};
use super::tables::LEDGER;

/// How many earlier decisions are kept for an issue?
const HISTORY: usize = 50;

/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerRow {
    pub issue: IssueRef,
    /// Oldest first, the last one in force. Only changes are kept.
    pub decisions: Vec<Decision>,
}

impl LedgerRow {
    pub fn current(&self) -> Option<&Decision> {
        self.decisions.last()
    }
}

/// Accepts the issue's key in any case.
pub fn get(tx: &impl Rows, key: &IssueKey) -> StoreResult<Option<LedgerRow>> {
    LEDGER.get(tx, row_key(key).as_str())
}

/// Whether this decision says something that the last one did not.
pub fn is_news(tx: &impl Rows, decision: &Decision) -> StoreResult<bool> {
    let row = get(tx, &decision.issue_identifier)?;
    Ok(!row.is_some_and(|row| {
        row.current()
            .is_some_and(|current| decision.repeats(current))
    }))
}

pub fn record(tx: &WriteTx<'_>, issue: &IssueRef, decision: &Decision) -> StoreResult<()> {
    let mut decisions = get(tx, &issue.key)?
        .map(|row| row.decisions)
        .unwrap_or_default();
    decisions.push(decision.clone());
    let surplus = decisions.len().saturating_sub(HISTORY);
    decisions.drain(..surplus);
    LEDGER.put(
        tx,
        row_key(&issue.key).as_str(),
        &LedgerRow {
            issue: issue.clone(),
            decisions,
        },
    )?;
    tx.tell(News::Decision(issue.key.clone()));
    Ok(())
}

fn row_key(key: &IssueKey) -> String {
    key.as_str().to_uppercase()
}
