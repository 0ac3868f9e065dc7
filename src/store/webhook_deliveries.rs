//! Webhook deliveries that have been taken, so that one that comes again changes nothing.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{WEBHOOK_DELIVERIES, WEBHOOK_DELIVERIES_BY_TIME};

/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    #[serde(rename = "takenAt")]
    pub received_at: Timestamp,
}

pub fn is_recorded(tx: &impl ReadableTx, id: &str) -> StoreResult<bool> {
    Ok(WEBHOOK_DELIVERIES.get(tx, id)?.is_some())
}

/// Whether it is taken now; false when it was taken before.
pub fn record(tx: &WriteTx<'_>, id: &str, now: Timestamp) -> StoreResult<bool> {
    if is_recorded(tx, id)? {
        return Ok(false);
    }
    WEBHOOK_DELIVERIES.put(tx, id, &WebhookDelivery { received_at: now })?;
    WEBHOOK_DELIVERIES_BY_TIME.put(tx, (now.as_millis(), id), &())?;
    Ok(true)
}

/// Whether any was taken before `then`.
pub fn any_before(tx: &impl ReadableTx, then: Timestamp) -> StoreResult<bool> {
    let mut found = false;
    WEBHOOK_DELIVERIES_BY_TIME.scan(
        tx,
        ..(then.as_millis(), ""),
        ScanDirection::Ascending,
        |_, ()| {
            found = true;
            ControlFlow::Break(())
        },
    )?;
    Ok(found)
}

/// Forgets those taken before `then`, at most `limit` at a time, and answers how many.
pub fn remove_before(tx: &WriteTx<'_>, then: Timestamp, limit: usize) -> StoreResult<usize> {
    let mut old = Vec::new();
    WEBHOOK_DELIVERIES_BY_TIME.scan(
        tx,
        ..(then.as_millis(), ""),
        ScanDirection::Ascending,
        |(at, id), ()| {
            old.push((at, id.to_owned()));
            if old.len() < limit {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    )?;
    for (at, id) in &old {
        WEBHOOK_DELIVERIES_BY_TIME.remove(tx, (*at, id.as_str()))?;
        WEBHOOK_DELIVERIES.remove(tx, id.as_str())?;
    }
    Ok(old.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn a_delivery_is_taken_once_until_its_window_is_over() {
        let store = Store::in_memory().unwrap();
        let now = Timestamp::from_millis(1_000_000);
        let taken = |id: &'static str, at| {
            let store = store.clone();
            async move { store.write(move |tx| record(tx, id, at)).await.unwrap() }
        };
        assert!(taken("a", now).await && !taken("a", now).await);
        let later = now + Duration::from_secs(1);
        assert!(taken("b", later).await);
        let swept = store.write(move |tx| remove_before(tx, later, 10)).await;
        assert_eq!(swept.unwrap(), 1);
        assert!(taken("a", later).await && !taken("b", later).await);
    }
}
