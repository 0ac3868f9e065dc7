//! Feedback on pull requests that requests work: review findings, and commands in comments. Only the
//! functions here write, so that the indexes stay consistent.

use std::collections::BTreeSet;

use domain::feedback::{CommentCommand, PullRequestId, PullRequestRecord, ReviewFinding};
use domain::ids::Repo;

use super::table::{MAX_KEY_TEXT, ReadableTx, WriteTx};
use super::tables::{
    COMMANDS, COMMANDS_WAITING, PULLS, REVIEW_FINDINGS, REVIEW_FINDINGS_UNRESOLVED,
};
use super::{StoreResult, scoreboard};

/// Row with its key within the pull request.
pub type KeyedRow<T> = (String, T);

/// Finding with this key.
pub fn get_finding(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
    key: &str,
) -> StoreResult<Option<ReviewFinding>> {
    REVIEW_FINDINGS.get(tx, (pull.repo.to_string().as_str(), pull.number, key))
}

/// Inserts or replaces a finding.
pub fn put_finding(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    key: &str,
    finding: &ReviewFinding,
) -> StoreResult<()> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    if finding.is_unresolved() {
        REVIEW_FINDINGS_UNRESOLVED.put(tx, row, &())?;
    } else {
        REVIEW_FINDINGS_UNRESOLVED.remove(tx, row)?;
    }
    REVIEW_FINDINGS.put(tx, row, finding)
}

/// Removes a finding that needs no work. Returns whether it existed.
pub fn remove_finding(tx: &WriteTx<'_>, pull: &PullRequestId, key: &str) -> StoreResult<bool> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    REVIEW_FINDINGS_UNRESOLVED.remove(tx, row)?;
    REVIEW_FINDINGS.remove(tx, row)
}

/// Unresolved findings of a pull request, oldest first.
pub fn unresolved(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
) -> StoreResult<Vec<KeyedRow<ReviewFinding>>> {
    let repo = pull.repo.to_string();
    let range = (repo.as_str(), pull.number, "")..=(repo.as_str(), pull.number, MAX_KEY_TEXT);
    let keys = REVIEW_FINDINGS_UNRESOLVED.collect(tx, range, |(_, _, key), ()| key.to_owned())?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(finding) = get_finding(tx, pull, &key)? {
            found.push((key, finding));
        }
    }
    found.sort_by_key(|(_, finding)| (finding.seen_at, finding.comment.id));
    Ok(found)
}

/// All findings of a pull request, in any state.
pub fn findings_of_pull(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
) -> StoreResult<Vec<KeyedRow<ReviewFinding>>> {
    let repo = pull.repo.to_string();
    let range = (repo.as_str(), pull.number, "")..=(repo.as_str(), pull.number, MAX_KEY_TEXT);
    REVIEW_FINDINGS.collect(tx, range, |(_, _, key), finding| (key.to_owned(), finding))
}

/// Pull requests with unresolved findings or waiting commands.
pub fn pulls_with_open_work(tx: &impl ReadableTx) -> StoreResult<Vec<PullRequestId>> {
    let pull = |(repo, number, _): (&str, u64, &str), ()| (repo.to_owned(), number);
    let mut found: BTreeSet<(String, u64)> = BTreeSet::new();
    found.extend(REVIEW_FINDINGS_UNRESOLVED.collect(tx, .., pull)?);
    found.extend(COMMANDS_WAITING.collect(tx, .., pull)?);
    let pulls = found.into_iter().filter_map(|(repo, number)| {
        let repo = Repo::parse(&repo)?;
        Some(PullRequestId { repo, number })
    });
    Ok(pulls.collect())
}

/// Commands in comments on a pull request, oldest first.
pub fn commands(
    tx: &impl ReadableTx,
    pull: &PullRequestId,
) -> StoreResult<Vec<KeyedRow<CommentCommand>>> {
    let repo = pull.repo.to_string();
    let range = (repo.as_str(), pull.number, "")..=(repo.as_str(), pull.number, MAX_KEY_TEXT);
    let mut found = COMMANDS.collect(tx, range, |(_, _, key), row| (key.to_owned(), row))?;
    found.sort_by_key(|(_, command)| command.requested_at);
    Ok(found)
}

/// Inserts or replaces a command.
pub fn put_command(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    key: &str,
    command: &CommentCommand,
) -> StoreResult<()> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    if command.is_waiting() {
        COMMANDS_WAITING.put(tx, row, &())?;
    } else {
        COMMANDS_WAITING.remove(tx, row)?;
    }
    COMMANDS.put(tx, row, command)
}

/// Removes a command. Returns whether it existed.
pub fn remove_command(tx: &WriteTx<'_>, pull: &PullRequestId, key: &str) -> StoreResult<bool> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    COMMANDS_WAITING.remove(tx, row)?;
    COMMANDS.remove(tx, row)
}

/// Record of a pull request; empty if nothing is stored.
pub fn get_pull(tx: &impl ReadableTx, pull: &PullRequestId) -> StoreResult<PullRequestRecord> {
    let row = PULLS.get(tx, (pull.repo.to_string().as_str(), pull.number))?;
    Ok(row.unwrap_or_default())
}

/// Inserts or replaces the record of a pull request, and updates the counters of the scoreboard.
pub fn put_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    row: &PullRequestRecord,
) -> StoreResult<()> {
    scoreboard::update_pull(tx, &get_pull(tx, pull)?, row)?;
    PULLS.put(tx, (pull.repo.to_string().as_str(), pull.number), row)
}
