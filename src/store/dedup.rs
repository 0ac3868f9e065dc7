//! Dedup window: issues that were dispatched and must not be dispatched again yet.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::ids::IssueId;
use domain::issue::IssueRef;
use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, WriteTx};
use super::tables::DEDUP;

/// Dispatch of an issue that blocks another one.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DedupEntry {
    /// Issue that was dispatched.
    pub issue: IssueRef,
    /// Time of the dispatch.
    pub dispatched_at: Timestamp,
}

impl DedupEntry {
    /// Time at which the entry expires. `None` without a window: the entry does not expire.
    pub fn expires_at(&self, window: Option<Duration>) -> Option<Timestamp> {
        window.map(|window| self.dispatched_at + window)
    }

    /// Whether the entry still blocks a dispatch of its issue.
    pub fn is_active(&self, window: Option<Duration>, now: Timestamp) -> bool {
        self.expires_at(window)
            .is_none_or(|expires_at| now < expires_at)
    }
}

/// Entry of an issue.
pub fn get(tx: &impl ReadableTx, issue: &IssueId) -> StoreResult<Option<DedupEntry>> {
    DEDUP.get(tx, issue.as_str())
}

/// All entries, including expired ones.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<DedupEntry>> {
    DEDUP.collect(tx, .., |_, entry| entry)
}

/// Inserts or replaces the entry of an issue.
pub fn put(tx: &WriteTx<'_>, entry: &DedupEntry) -> StoreResult<()> {
    DEDUP.put(tx, entry.issue.id.as_str(), entry)
}

/// Issues whose entries have expired.
pub fn expired(
    tx: &impl ReadableTx,
    window: Duration,
    now: Timestamp,
) -> StoreResult<Vec<IssueId>> {
    let entries = all(tx)?.into_iter();
    let expired = entries.filter(|entry| !entry.is_active(Some(window), now));
    Ok(expired.map(|entry| entry.issue.id).collect())
}

/// Removes the entries of these issues that have expired.
pub fn remove_expired(
    tx: &WriteTx<'_>,
    issues: &[IssueId],
    window: Duration,
    now: Timestamp,
) -> StoreResult<()> {
    for issue in issues {
        if get(tx, issue)?.is_some_and(|entry| !entry.is_active(Some(window), now)) {
            remove(tx, issue)?;
        }
    }
    Ok(())
}

/// Removes the entry of an issue. Returns whether it existed.
pub fn remove(tx: &WriteTx<'_>, issue: &IssueId) -> StoreResult<bool> {
    DEDUP.remove(tx, issue.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Store;

    fn entry(key: &str, dispatched_at: Timestamp) -> DedupEntry {
        let issue = json!({"system": "A", "id": key, "key": key, "title": "t", "url": "u"});
        DedupEntry {
            issue: serde_json::from_value(issue).unwrap(),
            dispatched_at,
        }
    }

    #[tokio::test]
    async fn removes_only_expired_entries() {
        let store = Store::in_memory().unwrap();
        let (then, window) = (Timestamp::from_millis(1_000_000), Duration::from_secs(60));
        let later = then + window;
        let old = entry("ENG-1", then);
        let young = entry("ENG-2", then + Duration::from_millis(1));
        let both = [old.clone(), young.clone()];
        let put_both = store.write(move |tx| both.iter().try_for_each(|entry| put(tx, entry)));
        put_both.await.unwrap();
        let expired = store.read(|tx| expired(tx, window, later)).unwrap();
        assert_eq!(expired, [old.issue.id]);
        // It was dispatched again after the read.
        let again = entry("ENG-1", later);
        let issues = [expired, vec![young.issue.id.clone()]].concat();
        let left_of = |first: DedupEntry| {
            let (store, issues) = (store.clone(), issues.clone());
            async move {
                let write = store.write(move |tx| {
                    put(tx, &first)?;
                    remove_expired(tx, &issues, window, later)
                });
                write.await.unwrap();
                store.read(all).unwrap()
            }
        };
        assert_eq!(left_of(again.clone()).await, [again, young.clone()]);
        assert_eq!(left_of(entry("ENG-1", then)).await, [young]);
    }
}
