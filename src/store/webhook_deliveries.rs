//! Webhook deliveries that were processed, to ignore repeated deliveries.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use domain::time::Timestamp;

use super::StoreResult;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{WEBHOOK_DELIVERIES, WEBHOOK_DELIVERIES_BY_TIME};

/// Processed webhook delivery.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    /// Time of receipt.
    #[serde(rename = "takenAt")]
    pub received_at: Timestamp,
}

/// Whether this delivery was processed.
pub fn is_recorded(tx: &impl ReadableTx, id: &str) -> StoreResult<bool> {
    Ok(WEBHOOK_DELIVERIES.get(tx, id)?.is_some())
}

/// Records a delivery. Returns false if it was recorded before.
pub fn record(tx: &WriteTx<'_>, id: &str, now: Timestamp) -> StoreResult<bool> {
    if is_recorded(tx, id)? {
        return Ok(false);
    }
    WEBHOOK_DELIVERIES.put(tx, id, &WebhookDelivery { received_at: now })?;
    WEBHOOK_DELIVERIES_BY_TIME.put(tx, (now.as_millis(), id), &())?;
    Ok(true)
}

/// Whether any recorded delivery was received before `then`.
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

/// Removes deliveries received before `then`, at most `limit`, and returns how many.
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
    async fn records_a_delivery_once_until_it_is_removed() {
        let store = Store::in_memory().unwrap();
        let now = Timestamp::from_millis(1_000_000);
        let is_new = |id: &'static str, at| {
            let store = store.clone();
            async move { store.write(move |tx| record(tx, id, at)).await.unwrap() }
        };
        assert!(is_new("a", now).await && !is_new("a", now).await);
        let later = now + Duration::from_secs(1);
        assert!(is_new("b", later).await);
        let removed = store.write(move |tx| remove_before(tx, later, 10)).await;
        assert_eq!(removed.unwrap(), 1);
        assert!(is_new("a", later).await && !is_new("b", later).await);
    }
}
