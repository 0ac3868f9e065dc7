//! What was said about pull requests and asks for work: the ledger, and the runs asked for in
//! comments. Only the functions here write, so that no index can go stale.

use std::collections::BTreeSet;

use domain::feedback::{Command, Finding, PullId, PullRow};
use domain::ids::Repo;

use super::StoreResult;
use super::shelf::{LAST, Rows, WriteTx};
use super::tables::{COMMANDS, COMMANDS_WAITING, FINDINGS, FINDINGS_AT_WORK, PULLS};

/// A row and what it is found by.
pub type Keyed<T> = (String, T);

pub fn get(tx: &impl Rows, pull: &PullId, key: &str) -> StoreResult<Option<Finding>> {
    FINDINGS.get(tx, (pull.repo.to_string().as_str(), pull.number, key))
}

pub fn put(tx: &WriteTx<'_>, pull: &PullId, key: &str, finding: &Finding) -> StoreResult<()> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    if finding.is_at_work() {
        FINDINGS_AT_WORK.put(tx, row, &())?;
    } else {
        FINDINGS_AT_WORK.remove(tx, row)?;
    }
    FINDINGS.put(tx, row, finding)
}

/// Forgets feedback that nothing was or will be done about.
pub fn remove(tx: &WriteTx<'_>, pull: &PullId, key: &str) -> StoreResult<bool> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    FINDINGS_AT_WORK.remove(tx, row)?;
    FINDINGS.remove(tx, row)
}

/// Feedback on a pull request that something is still to be done about, the oldest first.
pub fn at_work(tx: &impl Rows, pull: &PullId) -> StoreResult<Vec<Keyed<Finding>>> {
    let repo = pull.repo.to_string();
    let range = (repo.as_str(), pull.number, "")..=(repo.as_str(), pull.number, LAST);
    let keys = FINDINGS_AT_WORK.collect(tx, range, |(_, _, key), ()| key.to_owned())?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(finding) = get(tx, pull, &key)? {
            found.push((key, finding));
        }
    }
    found.sort_by_key(|(_, finding)| (finding.seen_at, finding.remark.id));
    Ok(found)
}

/// All feedback on a pull request, whatever became of it.
pub fn of_pull(tx: &impl Rows, pull: &PullId) -> StoreResult<Vec<Keyed<Finding>>> {
    let repo = pull.repo.to_string();
    let range = (repo.as_str(), pull.number, "")..=(repo.as_str(), pull.number, LAST);
    FINDINGS.collect(tx, range, |(_, _, key), finding| (key.to_owned(), finding))
}

/// Pull requests that something is still to be done about.
pub fn pulls_at_work(tx: &impl Rows) -> StoreResult<Vec<PullId>> {
    let pull = |(repo, number, _): (&str, u64, &str), ()| (repo.to_owned(), number);
    let mut found: BTreeSet<(String, u64)> = BTreeSet::new();
    found.extend(FINDINGS_AT_WORK.collect(tx, .., pull)?);
    found.extend(COMMANDS_WAITING.collect(tx, .., pull)?);
    let pulls = found.into_iter().filter_map(|(repo, number)| {
        let repo = Repo::parse(&repo)?;
        Some(PullId { repo, number })
    });
    Ok(pulls.collect())
}

/// The runs asked for in comments on a pull request.
pub fn commands(tx: &impl Rows, pull: &PullId) -> StoreResult<Vec<Keyed<Command>>> {
    let repo = pull.repo.to_string();
    let range = (repo.as_str(), pull.number, "")..=(repo.as_str(), pull.number, LAST);
    let mut found = COMMANDS.collect(tx, range, |(_, _, key), row| (key.to_owned(), row))?;
    found.sort_by_key(|(_, command)| command.asked_at);
    Ok(found)
}

pub fn put_command(
    tx: &WriteTx<'_>,
    pull: &PullId,
    key: &str,
    command: &Command,
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

pub fn remove_command(tx: &WriteTx<'_>, pull: &PullId, key: &str) -> StoreResult<bool> {
    let repo = pull.repo.to_string();
    let row = (repo.as_str(), pull.number, key);
    COMMANDS_WAITING.remove(tx, row)?;
    COMMANDS.remove(tx, row)
}

/// What is known of a pull request beside its jobs; nothing is a valid answer.
pub fn pull(tx: &impl Rows, pull: &PullId) -> StoreResult<PullRow> {
    let known = PULLS.get(tx, (pull.repo.to_string().as_str(), pull.number))?;
    Ok(known.unwrap_or_default())
}

pub fn put_pull(tx: &WriteTx<'_>, pull: &PullId, row: &PullRow) -> StoreResult<()> {
    PULLS.put(tx, (pull.repo.to_string().as_str(), pull.number), row)
}
