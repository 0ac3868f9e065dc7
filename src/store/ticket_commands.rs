//! Commands on tickets that were carried out, so that each counts once, and how far comments were read.

use serde::{Deserialize, Serialize};

use domain::issue::System;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::{COMMENT_CURSORS, TICKET_COMMANDS};

/// How far the comments of a ticketing system were read.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommentCursor {
    /// Time of the first poll. Commands before it do not count.
    pub first: Timestamp,
    /// Time up to which commands were read.
    pub read_until: Timestamp,
}

/// Cursor of a system; `None` before its first poll.
pub fn cursor(tx: &impl ReadableTx, system: System) -> StoreResult<Option<CommentCursor>> {
    COMMENT_CURSORS.get(tx, name(system))
}

/// Replaces the cursor of a system.
pub fn put_cursor(tx: &WriteTx<'_>, system: System, cursor: CommentCursor) -> StoreResult<()> {
    COMMENT_CURSORS.put(tx, name(system), &cursor)
}

fn name(system: System) -> &'static str {
    match system {
        System::Linear => "linear",
        System::Jira => "jira",
        System::GitHub => "github",
    }
}

/// Whether the command in this comment was carried out.
pub fn is_recorded(tx: &impl ReadableTx, system: System, comment: &str) -> StoreResult<bool> {
    Ok(TICKET_COMMANDS.get(tx, (name(system), comment))?.is_some())
}

/// Records that the command in this comment was carried out. Returns false if it was recorded before.
pub fn record(
    tx: &WriteTx<'_>,
    system: System,
    comment: &str,
    now: Timestamp,
) -> StoreResult<bool> {
    if is_recorded(tx, system, comment)? {
        return Ok(false);
    }
    TICKET_COMMANDS.put(tx, (name(system), comment), &now)?;
    Ok(true)
}

/// Removes records from before `then`.
pub fn remove_before(tx: &WriteTx<'_>, then: Timestamp) -> StoreResult<()> {
    let old = TICKET_COMMANDS.collect(tx, .., |(system, comment), at: Timestamp| {
        (at < then).then(|| (system.to_owned(), comment.to_owned()))
    })?;
    for (system, comment) in old.into_iter().flatten() {
        TICKET_COMMANDS.remove(tx, (system.as_str(), comment.as_str()))?;
    }
    Ok(())
}
