//! Audit log: a hash chain of entries, each added in the commit of the action that it records.
//!
//! Entries are never removed: there are two or three per dispatch, of about 300 bytes each, and a job with
//! its steps takes much more.

use std::ops::ControlFlow;

use serde_json::json;

use domain::audit::{
    AuditEntry, AuditEvent, AuditFilter, AuditHead, AuditVerification, AuditVerifier,
};
use domain::time::Timestamp;

use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{AUDIT, META};
use super::{StoreError, StoreResult};

/// Key of the head of the chain. It is stored apart from the entries, so that missing last entries are
/// detected.
const HEAD: &str = "audit-head";

/// Appends an event to the chain.
pub fn append(tx: &WriteTx<'_>, event: &AuditEvent, now: Timestamp) -> StoreResult<()> {
    let entry = head(tx)?.next_entry(event, now);
    AUDIT.put(tx, entry.seq, &entry)?;
    META.put(tx, HEAD, &json!(AuditHead::from_entry(&entry)))
}

/// Head of the chain: the last sequence number and hash.
pub fn head(tx: &impl ReadableTx) -> StoreResult<AuditHead> {
    let row = META.get(tx, HEAD)?;
    Ok(row
        .and_then(|head| serde_json::from_value(head).ok())
        .unwrap_or_default())
}

/// Latest entries before a sequence number, newest first.
pub fn latest(
    tx: &impl ReadableTx,
    before: Option<u64>,
    limit: usize,
) -> StoreResult<Vec<AuditEntry>> {
    latest_selected(tx, &AuditFilter::default(), before, limit)
}

/// Latest entries before a sequence number that a filter selects, newest first.
pub fn latest_selected(
    tx: &impl ReadableTx,
    filter: &AuditFilter,
    before: Option<u64>,
    limit: usize,
) -> StoreResult<Vec<AuditEntry>> {
    let mut entries = Vec::new();
    if limit == 0 {
        return Ok(entries);
    }
    let before = before.unwrap_or(u64::MAX);
    AUDIT.scan(tx, ..before, ScanDirection::Descending, |_, entry| {
        if filter.is_before_all(&entry) {
            return ControlFlow::Break(());
        }
        if filter.selects(&entry) {
            entries.push(entry);
        }
        if entries.len() < limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(entries)
}

/// Entries after a sequence number that a filter selects, oldest first. Reads at most `count` entries; returns
/// the sequence number of the last one that was read, or `None` if there are no more.
pub fn next_page(
    tx: &impl ReadableTx,
    filter: &AuditFilter,
    after: u64,
    count: usize,
) -> StoreResult<(Vec<AuditEntry>, Option<u64>)> {
    let (mut entries, mut read, mut last) = (Vec::new(), 0, None);
    AUDIT.scan(tx, after + 1.., ScanDirection::Ascending, |seq, entry| {
        if read == count {
            return ControlFlow::Break(());
        }
        (read, last) = (read + 1, Some(seq));
        if filter.selects(&entry) {
            entries.push(entry);
        }
        ControlFlow::Continue(())
    })?;
    Ok((entries, last))
}

/// Verifies the whole chain. `anchor` is a hash that was noted elsewhere and must be in the chain.
pub fn verify(tx: &impl ReadableTx, anchor: Option<&str>) -> StoreResult<AuditVerification> {
    let mut verifier = AuditVerifier::new(anchor);
    let scanned = AUDIT.scan(tx, .., ScanDirection::Ascending, |key, entry| {
        // The key of an entry must be its sequence number.
        let is_intact = match key == entry.seq {
            true => verifier.verify_next(&entry),
            false => verifier.mark_broken(),
        };
        if is_intact {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    match scanned {
        Ok(()) => {}
        // The row was changed so that it cannot be parsed.
        Err(StoreError::Corrupt { .. }) => drop(verifier.mark_broken()),
        Err(error) => return Err(error),
    }
    Ok(verifier.finish(&head(tx)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use domain::audit::{Action, Actor};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    async fn with_entries(count: u64) -> Store {
        let store = Store::in_memory().unwrap();
        let written = store.write(move |tx| {
            (0..count).try_for_each(|number| {
                let event =
                    Actor::service().audit_event(Action::RunDispatched, format!("ENG-{number}"));
                append(tx, &event, NOW)
            })
        });
        written.await.unwrap();
        store
    }

    fn broken_at(store: &Store) -> Option<u64> {
        let verification = store.read(|tx| verify(tx, None)).unwrap();
        assert_eq!(verification.ok, verification.broken_at.is_none());
        verification.broken_at
    }

    #[tokio::test]
    async fn returns_entries_in_pages_newest_first() {
        let store = with_entries(5).await;
        let page = |before, limit| {
            let page = store.read(|tx| latest(tx, before, limit)).unwrap();
            page.iter().map(|entry| entry.seq).collect::<Vec<_>>()
        };
        assert_eq!(page(None, 2), [5, 4]);
        assert_eq!(page(Some(4), 9), [3, 2, 1]);
        assert_eq!(page(Some(1), 9), [0_u64; 0]);
        assert_eq!(page(None, 0), [0_u64; 0]);
    }

    #[tokio::test]
    async fn returns_the_entries_that_a_filter_selects() {
        let store = with_entries(25).await;
        let filter = AuditFilter {
            target: Some("eng-2".to_owned()),
            ..AuditFilter::default()
        };
        let found = store
            .read(|tx| latest_selected(tx, &filter, None, 3))
            .unwrap();
        let targets: Vec<String> = found.into_iter().map(|entry| entry.target).collect();
        assert_eq!(targets, ["ENG-24", "ENG-23", "ENG-22"]);
        let (mut after, mut pages) = (0, Vec::new());
        loop {
            let page = store.read(|tx| next_page(tx, &filter, after, 10)).unwrap();
            pages.push(page.0.len());
            match page.1 {
                Some(last) => after = last,
                None => break,
            }
        }
        assert_eq!(pages, [1, 0, 5, 0], "ENG-2, then ENG-20 to ENG-24");
    }

    #[tokio::test]
    async fn a_failed_write_adds_no_entry() {
        let store = with_entries(1).await;
        let failed = store.write(|tx| -> StoreResult<()> {
            append(
                tx,
                &Actor::service().audit_event(Action::PollRequested, ""),
                NOW,
            )?;
            Err(StoreError::Panicked)
        });
        assert!(failed.await.is_err());
        assert_eq!(store.read(head).unwrap().seq, 1);
        assert_eq!(broken_at(&store), None);
    }

    #[tokio::test]
    async fn detects_every_change_of_the_table() {
        let entry = |store: &Store, seq| store.read(|tx| AUDIT.get(tx, seq)).unwrap().unwrap();
        let store = with_entries(5).await;
        assert_eq!(broken_at(&store), None);

        let mut changed = entry(&store, 3);
        changed.detail.push('x');
        let put = store.write(move |tx| AUDIT.put(tx, 3, &changed));
        put.await.unwrap();
        assert_eq!(broken_at(&store), Some(3));

        for removed in [1, 2, 5] {
            let store = with_entries(5).await;
            store
                .write(move |tx| AUDIT.remove(tx, removed))
                .await
                .unwrap();
            assert_eq!(broken_at(&store), Some(removed), "removed {removed}");
        }

        let store = with_entries(5).await;
        let (two, three) = (entry(&store, 2), entry(&store, 3));
        let swapped = store.write(move |tx| {
            AUDIT.put(tx, 2, &three)?;
            AUDIT.put(tx, 3, &two)
        });
        swapped.await.unwrap();
        assert_eq!(broken_at(&store), Some(2));

        let store = with_entries(5).await;
        let broken: crate::table::Table<u64, String> = crate::table::Table::new("audit-1");
        let put = store.write(move |tx| broken.put(tx, 4, &"no entry".to_owned()));
        put.await.unwrap();
        assert_eq!(broken_at(&store), Some(4));
    }
}
