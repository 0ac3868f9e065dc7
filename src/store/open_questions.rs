//! Questions of runs that wait for an answer.

use domain::ids::IssueId;
use domain::question::OpenQuestion;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::OPEN_QUESTIONS;

/// All open questions.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<OpenQuestion>> {
    OPEN_QUESTIONS.collect(tx, .., |_, question| question)
}

/// Open question of an issue.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<OpenQuestion>> {
    OPEN_QUESTIONS.get(tx, issue.as_str())
}

/// Inserts or replaces the question of an issue.
pub fn put(tx: &WriteTx<'_>, question: &OpenQuestion) -> StoreResult<()> {
    OPEN_QUESTIONS.put(tx, question.issue.id.as_str(), question)
}

/// Removes the question of an issue.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<()> {
    OPEN_QUESTIONS.remove(tx, issue.as_str()).map(drop)
}
