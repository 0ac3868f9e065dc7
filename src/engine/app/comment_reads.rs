//! How far comments on tickets were read, and which are to be read next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Core;
use domain::ids::IssueKey;
use domain::issue::{IssueRef, System};
use domain::time::Timestamp;
use store::ticket_commands::CommentCursor;
use store::{ReadableTx, StoreResult, decisions, job_index, ticket_commands};

/// A system with one request per issue reads them in every so many polls.
const EACH_ISSUE_PERIOD: u32 = 5;

/// Time that is read again, because clocks differ and comments may appear late.
const OVERLAP: Duration = Duration::from_secs(2 * 60);

/// Minimum time between two writes of a cursor.
const WRITE_PERIOD: Duration = Duration::from_secs(10 * 60);

/// Time for which commands are remembered.
const COMMAND_RETENTION: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Maximum number of announced issues. Further ones are read by the periodic reads.
const MAX_ANNOUNCED: usize = 200;

/// State of reading comments.
#[derive(Default)]
pub struct CommentReads(Mutex<BTreeMap<System, SystemReads>>);

#[derive(Default)]
struct SystemReads {
    polls: u32,
    /// Ids or keys of issues of which a webhook announced a comment.
    announced: BTreeSet<String>,
    cursor: Option<CommentCursor>,
    written_at: Timestamp,
}

impl CommentReads {
    /// Makes the next poll read the comments of an issue, by its id or key.
    pub(crate) fn announce(&self, system: System, issue: String) {
        self.with(system, |reads| {
            if reads.announced.len() < MAX_ANNOUNCED {
                reads.announced.insert(issue);
            }
        });
    }

    /// Takes the announced issues that the service knows.
    pub(crate) fn take_announced(
        &self,
        tx: &impl ReadableTx,
        system: System,
    ) -> StoreResult<Vec<IssueRef>> {
        let names = self.with(system, |reads| std::mem::take(&mut reads.announced));
        let mut issues = Vec::new();
        for name in names {
            let issue = match decisions::get_named(tx, &IssueKey::from(name.as_str()))? {
                Some(row) => Some(row.issue),
                None => job_index::of_issue_named(tx, &name)?
                    .pop()
                    .map(|job| job.issue),
            };
            issues.extend(issue.filter(|issue| issue.system == system));
        }
        Ok(issues)
    }

    /// Returns the time since which commands are read; `None` before the first poll.
    pub(crate) fn commands_since(
        &self,
        tx: &impl ReadableTx,
        system: System,
        now: Timestamp,
    ) -> StoreResult<Option<Timestamp>> {
        let known = self.with(system, |reads| reads.cursor);
        let cursor = match known {
            Some(cursor) => Some(cursor),
            None => ticket_commands::cursor(tx, system)?,
        };
        // A clock that was ahead, of this machine or of another one before a take-over, would hide what is written until
        // then.
        let cursor = cursor.map_or(
            CommentCursor {
                first: now.whole_second(),
                read_until: now,
            },
            |cursor| CommentCursor {
                first: cursor.first.min(now),
                read_until: cursor.read_until.min(now),
            },
        );
        self.with(system, |reads| reads.cursor = Some(cursor));
        Ok(Some((cursor.read_until - OVERLAP).max(cursor.first)))
    }

    /// Returns the time of the first poll of a system, before which commands do not count.
    pub(crate) fn first_poll(&self, system: System) -> Option<Timestamp> {
        self.with(system, |reads| reads.cursor.map(|cursor| cursor.first))
    }

    /// Returns whether the poll of a system reads the comments of each issue. Counts the poll.
    pub(crate) fn is_each_issue_due(&self, system: System) -> bool {
        self.with(system, |reads| {
            reads.polls = reads.polls.wrapping_add(1);
            reads.polls % EACH_ISSUE_PERIOD == 1
        })
    }

    /// Records that the comments up to a time were read (the epoch: none were), unless later ones were. The first call of
    /// a process writes the time of the first poll in any case, so that a restart does not move it.
    pub(crate) async fn record(
        &self,
        core: &Core,
        system: System,
        read_until: Timestamp,
    ) -> StoreResult<()> {
        let due = self.with(system, |reads| {
            let cursor = reads.cursor.as_mut()?;
            cursor.read_until = cursor.read_until.max(read_until);
            let read_until = cursor.read_until;
            let is_due = read_until.since(reads.written_at) >= WRITE_PERIOD;
            is_due.then(|| {
                reads.written_at = read_until;
                *cursor
            })
        });
        let Some(cursor) = due else { return Ok(()) };
        let write = core.store.write(move |tx| {
            ticket_commands::remove_before(tx, read_until - COMMAND_RETENTION)?;
            ticket_commands::put_cursor(tx, system, cursor)
        });
        write.await
    }

    fn with<R>(&self, system: System, change: impl FnOnce(&mut SystemReads) -> R) -> R {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(reads.entry(system).or_default())
    }
}
