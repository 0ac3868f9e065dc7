//! What we owe the outside, in lanes.
//!
//! An errand is pushed in the commit that owes it, claimed before it is tried (so that a crash in
//! the middle is visible as an attempt), and settled after. Only the first errand of a lane can be
//! claimed; `OUTBOX_HEADS` holds one row for each lane, sorted by when its first errand is due.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::effect::Effect;
use crate::domain::time::Timestamp;

use super::StoreResult;
use super::news::News;
use super::shelf::{Order, Rows, WriteTx};
use super::tables::{META, OUTBOX, OUTBOX_DEAD, OUTBOX_HEADS};

/// An effect on its way.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Errand {
    pub lane: String,
    pub seq: u64,
    pub effect: Effect,
    pub pushed_at: Timestamp,
    pub due_at: Timestamp,
    /// Tries begun so far.
    pub attempts: u32,
    /// When the last try began. Set without an outcome, it may or may not have reached the outside.
    #[serde(default)]
    pub claimed_at: Option<Timestamp>,
    /// When the last try began that may have had its effect although its answer was lost.
    #[serde(default)]
    pub unsure_since: Option<Timestamp>,
    #[serde(default)]
    pub last_error: Option<String>,
}

impl Errand {
    /// A name that the outside may keep: the same for every try.
    pub fn stamp(&self) -> String {
        format!("{}-{}", self.pushed_at.as_millis(), self.seq)
    }
}

/// Adds an effect to the end of its lane and answers its stamp.
pub fn push(tx: &WriteTx<'_>, effect: &Effect, now: Timestamp) -> StoreResult<String> {
    let seq = next_seq(tx)?;
    let lane = effect.lane();
    let errand = Errand {
        lane: lane.clone(),
        seq,
        effect: effect.clone(),
        pushed_at: now,
        due_at: now,
        attempts: 0,
        claimed_at: None,
        unsure_since: None,
        last_error: None,
    };
    if first_of(tx, &lane)?.is_none() {
        OUTBOX_HEADS.put(tx, (now.as_millis(), lane.as_str()), &seq)?;
    }
    OUTBOX.put(tx, (lane.as_str(), seq), &errand)?;
    tx.owe();
    tx.tell(News::Outbox);
    Ok(errand.stamp())
}

fn next_seq(tx: &WriteTx<'_>) -> StoreResult<u64> {
    let seq = META
        .get(tx, "outbox-seq")?
        .and_then(|seq| seq.as_u64())
        .unwrap_or(0)
        + 1;
    META.put(tx, "outbox-seq", &json!(seq))?;
    Ok(seq)
}

fn first_of(tx: &impl Rows, lane: &str) -> StoreResult<Option<Errand>> {
    let mut first = None;
    OUTBOX.scan(
        tx,
        (lane, 0)..=(lane, u64::MAX),
        Order::Ascending,
        |_, errand| {
            first = Some(errand);
            ControlFlow::Break(())
        },
    )?;
    Ok(first)
}

/// Lanes whose first errand is due, the longest due first; at most `limit`, without those for
/// which `busy` says that somebody is at it.
pub fn due(
    tx: &impl Rows,
    now: Timestamp,
    limit: usize,
    busy: impl Fn(&str) -> bool,
) -> StoreResult<Vec<(String, u64)>> {
    let mut heads = Vec::new();
    if limit == 0 {
        return Ok(heads);
    }
    OUTBOX_HEADS.scan(
        tx,
        ..(now.as_millis() + 1, ""),
        Order::Ascending,
        |(_, lane), seq| {
            if !busy(lane) {
                heads.push((lane.to_owned(), seq));
            }
            if heads.len() < limit {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    )?;
    Ok(heads)
}

/// When the next errand after `now` is due.
pub fn next_due(tx: &impl Rows, now: Timestamp) -> StoreResult<Option<Timestamp>> {
    let mut next = None;
    OUTBOX_HEADS.scan(
        tx,
        (now.as_millis() + 1, "")..,
        Order::Ascending,
        |(due, _), _| {
            next = Some(Timestamp::from_millis(due));
            ControlFlow::Break(())
        },
    )?;
    Ok(next)
}

/// Every lane with work in it.
pub fn lanes(tx: &impl Rows) -> StoreResult<Vec<String>> {
    OUTBOX_HEADS.collect(tx, .., |(_, lane), _| lane.to_owned())
}

/// Marks the beginning of a try. None when the errand is no longer there.
pub fn claim(
    tx: &WriteTx<'_>,
    lane: &str,
    seq: u64,
    now: Timestamp,
) -> StoreResult<Option<Errand>> {
    let Some(mut errand) = OUTBOX.get(tx, (lane, seq))? else {
        return Ok(None);
    };
    // A claim that was never settled ended with the process: what it did is not known.
    errand.unsure_since = errand.claimed_at.or(errand.unsure_since);
    errand.attempts += 1;
    errand.claimed_at = Some(now);
    OUTBOX.put(tx, (lane, seq), &errand)?;
    Ok(Some(errand))
}

/// The errand is done, or nothing is left to do: the lane goes on.
pub fn settle(tx: &WriteTx<'_>, errand: &Errand, now: Timestamp) -> StoreResult<()> {
    OUTBOX_HEADS.remove(tx, (errand.due_at.as_millis(), errand.lane.as_str()))?;
    OUTBOX.remove(tx, (errand.lane.as_str(), errand.seq))?;
    tx.tell(News::Outbox);
    if let Some(next) = first_of(tx, &errand.lane)? {
        // It waited for this one, so it is due no earlier than now.
        let due = Errand {
            due_at: next.due_at.max(now),
            ..next
        };
        OUTBOX_HEADS.put(tx, (due.due_at.as_millis(), due.lane.as_str()), &due.seq)?;
        OUTBOX.put(tx, (due.lane.as_str(), due.seq), &due)?;
        tx.owe();
    }
    Ok(())
}

/// What a failed try leaves behind.
#[derive(Debug, Clone)]
pub struct Retry {
    pub due_at: Timestamp,
    /// Whether the try may have had its effect.
    pub unsure: bool,
    pub error: String,
}

/// The try failed and another follows later; its lane waits for it.
pub fn retry(tx: &WriteTx<'_>, errand: &Errand, retry: &Retry) -> StoreResult<()> {
    OUTBOX_HEADS.remove(tx, (errand.due_at.as_millis(), errand.lane.as_str()))?;
    let later = Errand {
        due_at: retry.due_at,
        claimed_at: None,
        unsure_since: errand
            .claimed_at
            .filter(|_| retry.unsure)
            .or(errand.unsure_since),
        last_error: Some(retry.error.clone()),
        ..errand.clone()
    };
    OUTBOX_HEADS.put(
        tx,
        (later.due_at.as_millis(), later.lane.as_str()),
        &later.seq,
    )?;
    OUTBOX.put(tx, (later.lane.as_str(), later.seq), &later)?;
    tx.owe();
    tx.tell(News::Outbox);
    Ok(())
}

/// The errand is given up; operators see it and its lane goes on.
pub fn bury(tx: &WriteTx<'_>, errand: &Errand, error: &str, now: Timestamp) -> StoreResult<()> {
    settle(tx, errand, now)?;
    let dead = Errand {
        last_error: Some(error.to_owned()),
        claimed_at: None,
        ..errand.clone()
    };
    OUTBOX_DEAD.put(tx, errand.seq, &dead)
}

/// Everything that is owed, in lane order.
pub fn pending(tx: &impl Rows) -> StoreResult<Vec<Errand>> {
    OUTBOX.collect(tx, .., |_, errand| errand)
}

/// Everything that was given up.
pub fn dead(tx: &impl Rows) -> StoreResult<Vec<Errand>> {
    OUTBOX_DEAD.collect(tx, .., |_, errand| errand)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::effect::ChatMessage;
    use crate::domain::ids::{IssueId, IssueKey};
    use crate::domain::issue::{IssueRef, System};
    use crate::domain::stage::Stage;
    use crate::store::Store;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn ticket(number: u32, stage: Stage) -> Effect {
        let issue = IssueRef {
            system: System::A,
            id: IssueId::new(format!("id-{number}")),
            key: IssueKey::new(format!("ENG-{number}")),
            title: String::new(),
            url: String::new(),
            marker_field: None,
        };
        Effect::MoveMarker { issue, stage }
    }

    async fn write<T: Send + 'static>(
        store: &Store,
        f: impl FnMut(&WriteTx<'_>) -> StoreResult<T> + Send + 'static,
    ) -> T {
        store.write(f).await.unwrap()
    }

    fn due_now(store: &Store, now: Timestamp) -> Vec<(String, u64)> {
        store.read(|tx| due(tx, now, 8, |_| false)).unwrap()
    }

    #[tokio::test]
    async fn a_lane_is_strictly_in_order_and_waits_for_its_first() {
        let store = Store::in_memory().unwrap();
        write(&store, |tx| {
            push(tx, &ticket(1, Stage::Implementing), NOW)?;
            push(tx, &ticket(1, Stage::PrOpened), NOW)?;
            push(tx, &ticket(2, Stage::Planning), NOW)
        })
        .await;
        assert_eq!(
            due_now(&store, NOW),
            [("ticket:id-1".to_owned(), 1), ("ticket:id-2".to_owned(), 3)]
        );

        let claimed = write(&store, |tx| claim(tx, "ticket:id-1", 1, NOW))
            .await
            .unwrap();
        assert_eq!((claimed.attempts, claimed.unsure_since), (1, None));
        let later = NOW + Duration::from_secs(9);
        let failed = Retry {
            due_at: later,
            unsure: true,
            error: "no answer".into(),
        };
        write(&store, move |tx| retry(tx, &claimed, &failed)).await;
        assert_eq!(
            due_now(&store, NOW),
            [("ticket:id-2".to_owned(), 3)],
            "the second never overtakes the first"
        );
        assert_eq!(store.read(|tx| next_due(tx, NOW)).unwrap(), Some(later));

        let again = write(&store, move |tx| claim(tx, "ticket:id-1", 1, later))
            .await
            .unwrap();
        assert_eq!((again.attempts, again.unsure_since), (2, Some(NOW)));
        write(&store, move |tx| settle(tx, &again, later)).await;
        assert_eq!(
            due_now(&store, later),
            [("ticket:id-2".to_owned(), 3), ("ticket:id-1".to_owned(), 2)]
        );
    }

    #[tokio::test]
    async fn a_claim_without_outcome_leaves_the_next_try_unsure() {
        let store = Store::in_memory().unwrap();
        write(&store, |tx| push(tx, &ticket(1, Stage::Planning), NOW)).await;
        write(&store, |tx| claim(tx, "ticket:id-1", 1, NOW)).await;
        let again = write(&store, |tx| claim(tx, "ticket:id-1", 1, NOW))
            .await
            .unwrap();
        assert_eq!(again.unsure_since, Some(NOW));
        assert_eq!(again.stamp(), "1000000-1");
    }

    #[tokio::test]
    async fn what_is_given_up_is_kept_and_its_lane_goes_on() {
        let store = Store::in_memory().unwrap();
        let chat = |title: &str| Effect::Chat {
            message: ChatMessage {
                title: title.into(),
                ..ChatMessage::default()
            },
        };
        let (first, second) = (chat("one"), chat("two"));
        write(&store, move |tx| {
            push(tx, &first, NOW)?;
            push(tx, &second, NOW)
        })
        .await;
        let claimed = write(&store, |tx| claim(tx, "chat", 1, NOW)).await.unwrap();
        write(&store, move |tx| bury(tx, &claimed, "gone", NOW)).await;
        assert_eq!(due_now(&store, NOW), [("chat".to_owned(), 2)]);
        let dead = store.read(dead).unwrap();
        assert_eq!(dead[0].last_error.as_deref(), Some("gone"));
        assert_eq!(store.read(pending).unwrap().len(), 1);
    }
}
