//! Feedback on pull requests that requests work: review findings, and commands in comments. Only the
//! functions here write, so that the indexes stay consistent.

use std::collections::BTreeSet;

use domain::feedback::{
    CommentCommand, PullRequestId, PullRequestRecord, PullRequestStatus, ReviewFinding,
};
use domain::ids::Repo;

use super::table::{MAX_KEY_TEXT, ReadableTx, WriteTx};
use super::tables::{
    COMMANDS, COMMANDS_WAITING, OPEN_PULLS, PULLS, REVIEW_FINDINGS, REVIEW_FINDINGS_UNRESOLVED,
};
use super::{StoreResult, changed_files, scoreboard};

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

/// Open pull requests, by repository and number.
pub fn open_pulls(tx: &impl ReadableTx) -> StoreResult<Vec<PullRequestId>> {
    let rows = OPEN_PULLS.collect(tx, .., |(repo, number), _| (repo.to_owned(), number))?;
    let pulls = rows.into_iter().filter_map(|(repo, number)| {
        let repo = Repo::parse(&repo)?;
        Some(PullRequestId { repo, number })
    });
    Ok(pulls.collect())
}

/// Open pull requests of a repository, by number.
pub fn open_pulls_of(tx: &impl ReadableTx, repo: &Repo) -> StoreResult<Vec<u64>> {
    let open = heads_of_open_pulls(tx, repo)?.into_iter();
    Ok(open.map(|(number, _)| number).collect())
}

/// Open pull requests of a repository whose head is this commit or not known yet, by number.
pub fn open_pulls_with_head(tx: &impl ReadableTx, repo: &Repo, sha: &str) -> StoreResult<Vec<u64>> {
    let open = heads_of_open_pulls(tx, repo)?.into_iter();
    let found = open.filter(|(_, head)| head.as_ref().is_none_or(|head| head == sha));
    Ok(found.map(|(number, _)| number).collect())
}

fn heads_of_open_pulls(
    tx: &impl ReadableTx,
    repo: &Repo,
) -> StoreResult<Vec<(u64, Option<String>)>> {
    let name = repo.to_string();
    let range = (name.as_str(), 0)..=(name.as_str(), u64::MAX);
    OPEN_PULLS.collect(tx, range, |(_, number), head| (number, head))
}

/// Builds the index of open pull requests.
pub(super) fn build_index(tx: &WriteTx<'_>) -> StoreResult<()> {
    let is_open = |record: &PullRequestRecord| record.status == PullRequestStatus::Open;
    let rows = PULLS.collect(tx, .., |(repo, number), record| {
        is_open(&record).then(|| (repo.to_owned(), number, head_sha(&record)))
    })?;
    rows.into_iter()
        .flatten()
        .try_for_each(|(repo, number, head)| OPEN_PULLS.put(tx, (repo.as_str(), number), &head))
}

fn head_sha(record: &PullRequestRecord) -> Option<String> {
    let head = record.readiness.head.as_ref();
    head.map(|head| head.sha.clone())
}

/// Inserts or replaces the record of a pull request, and updates its index and the counters of the scoreboard.
pub fn put_pull(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    row: &PullRequestRecord,
) -> StoreResult<()> {
    scoreboard::update_pull(tx, &get_pull(tx, pull)?, row)?;
    let repo = pull.repo.to_string();
    let key = (repo.as_str(), pull.number);
    match row.status {
        PullRequestStatus::Open => OPEN_PULLS.put(tx, key, &head_sha(row))?,
        PullRequestStatus::Closed | PullRequestStatus::Merged { .. } => {
            OPEN_PULLS.remove(tx, key)?;
            changed_files::remove_of_pull(tx, pull)?;
        }
    }
    PULLS.put(tx, key, row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::changed_files::PullFiles;
    use domain::feedback::HeadCommit;
    use domain::time::Timestamp;

    #[tokio::test]
    async fn the_index_lists_open_pull_requests_and_can_be_built_again() {
        let store = Store::in_memory().unwrap();
        let pull = |number| PullRequestId {
            repo: Repo::new("acme", "shop"),
            number,
        };
        let merged = PullRequestStatus::Merged {
            commit: "c".into(),
            at: Timestamp::EPOCH,
        };
        let (open, closed) = (PullRequestStatus::Open, PullRequestStatus::Closed);
        let changes = [
            (1, open.clone()),
            (2, open.clone()),
            (3, open.clone()),
            (4, open.clone()),
            (2, merged),
            (3, closed),
            // Reopened.
            (4, PullRequestStatus::Closed),
            (4, open),
        ];
        let write = store.write(move |tx| {
            let files = PullFiles {
                head: "c".into(),
                files: vec!["a".into()],
            };
            changed_files::put_of_pull(tx, &pull(2), &files)?;
            changed_files::put_of_pull(tx, &pull(1), &files)?;
            for (number, status) in &changes {
                let row = PullRequestRecord {
                    status: status.clone(),
                    ..get_pull(tx, &pull(*number))?
                };
                put_pull(tx, &pull(*number), &row)?;
            }
            let kept = [1, 2].map(|number| changed_files::of_pull(tx, &pull(number)).unwrap());
            assert_eq!(kept, [Some(files), None]);
            let mut row = get_pull(tx, &pull(1))?;
            row.readiness.head = Some(HeadCommit {
                sha: "c1".into(),
                author_email: String::new(),
                parents: Vec::new(),
            });
            put_pull(tx, &pull(1), &row)?;
            let assert_indexed = || {
                assert_eq!(open_pulls(tx).unwrap(), [pull(1), pull(4)]);
                let with_head = |sha| open_pulls_with_head(tx, &pull(1).repo, sha).unwrap();
                // The head of 4 is not known.
                assert_eq!([with_head("c1"), with_head("c2")], [vec![1, 4], vec![4]]);
            };
            assert_indexed();
            // As in a store of schema version 7, and of version 6.
            OPEN_PULLS.put(tx, ("acme/shop", 1), &None)?;
            OPEN_PULLS.remove(tx, ("acme/shop", 4))?;
            build_index(tx)?;
            assert_indexed();
            Ok(())
        });
        write.await.unwrap();
    }
}
