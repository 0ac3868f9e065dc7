//! What we owe the outside, in lanes.
//!
//! An errand is pushed in the commit that owes it, claimed before it is tried (so that a crash in
//! the middle is visible as an attempt), and settled after. Only the first errand of a lane can be
//! claimed; `OUTBOX_HEADS` holds one row for each lane, sorted by when its first errand is due.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::json;

use domain::effect::Effect;
use domain::time::Timestamp;

use super::StoreResult;
use super::change_feed::StoreChange;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{META, OUTBOX, OUTBOX_DEAD, OUTBOX_HEADS};

/// An effect on its way.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxEntry {
    #[serde(rename = "lane")]
    pub queue_key: String,
    pub seq: u64,
    pub effect: Effect,
    pub pushed_at: Timestamp,
    pub due_at: Timestamp,
    /// Tries begun so far.
    pub attempts: u32,
    /// When the last try began. Set without an outcome, it may or may not have reached the outside.
    #[serde(default)]
    pub claimed_at: Option<Timestamp>,
    /// When the last try ended at the latest that may have had its effect although its answer was lost.
    #[serde(rename = "unsureSince", default)]
    pub outcome_unknown_since: Option<Timestamp>,
    #[serde(default)]
    pub last_error: Option<String>,
    /// When an operator had it tried again after it was given up.
    #[serde(rename = "revivedAt", default)]
    pub manual_retry_at: Option<Timestamp>,
}

impl OutboxEntry {
    /// A name that the outside may keep: the same for every try.
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.pushed_at.as_millis(), self.seq)
    }

    /// Since when it is tried, by which it is judged when to give it up.
    pub fn retry_window_start(&self) -> Timestamp {
        self.manual_retry_at.unwrap_or(self.pushed_at)
    }

    /// Whether a try has begun and not ended. After a crash that is so until the next.
    pub fn is_in_flight(&self) -> bool {
        self.claimed_at.is_some()
    }
}

/// Adds an effect to the end of its lane and answers its stamp.
pub fn push(tx: &WriteTx<'_>, effect: &Effect, now: Timestamp) -> StoreResult<String> {
    let seq = next_seq(tx)?;
    let lane = effect.queue_key();
    let errand = OutboxEntry {
        queue_key: lane.clone(),
        seq,
        effect: effect.clone(),
        pushed_at: now,
        due_at: now,
        attempts: 0,
        claimed_at: None,
        outcome_unknown_since: None,
        last_error: None,
        manual_retry_at: None,
    };
    if first_of(tx, &lane)?.is_none() {
        OUTBOX_HEADS.put(tx, (now.as_millis(), lane.as_str()), &seq)?;
    }
    OUTBOX.put(tx, (lane.as_str(), seq), &errand)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(errand.idempotency_key())
}

/// The sequence of the errand that was pushed last.
pub fn last_seq(tx: &impl ReadableTx) -> StoreResult<u64> {
    let seq = META.get(tx, "outbox-seq")?;
    Ok(seq.and_then(|seq| seq.as_u64()).unwrap_or(0))
}

fn next_seq(tx: &WriteTx<'_>) -> StoreResult<u64> {
    let seq = last_seq(tx)? + 1;
    META.put(tx, "outbox-seq", &json!(seq))?;
    Ok(seq)
}

fn first_of(tx: &impl ReadableTx, lane: &str) -> StoreResult<Option<OutboxEntry>> {
    let mut first = None;
    OUTBOX.scan(
        tx,
        (lane, 0)..=(lane, u64::MAX),
        ScanDirection::Ascending,
        |_, errand| {
            first = Some(errand);
            ControlFlow::Break(())
        },
    )?;
    Ok(first)
}

/// Lanes whose first errand is due, the longest due first; at most `limit`, without those for
/// which `busy` says that somebody is at it, and those held back by another lane.
pub fn due(
    tx: &impl ReadableTx,
    now: Timestamp,
    limit: usize,
    busy: impl Fn(&str) -> bool,
) -> StoreResult<Vec<(String, u64)>> {
    let mut heads = Vec::new();
    if limit == 0 {
        return Ok(heads);
    }
    let mut read = Ok(());
    OUTBOX_HEADS.scan(
        tx,
        ..(now.as_millis() + 1, ""),
        ScanDirection::Ascending,
        |(_, lane), seq| {
            if !busy(lane) {
                match is_held_back(tx, lane, seq) {
                    Ok(false) => heads.push((lane.to_owned(), seq)),
                    Ok(true) => {}
                    Err(error) => read = Err(error),
                }
            }
            if heads.len() < limit && read.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    )?;
    read.map(|()| heads)
}

/// Returns whether an earlier effect in another lane goes first.
fn is_held_back(tx: &impl ReadableTx, lane: &str, seq: u64) -> StoreResult<bool> {
    let errand = OUTBOX.get(tx, (lane, seq))?;
    let Some(behind) = errand.and_then(|errand| errand.effect.predecessor_queue_key()) else {
        return Ok(false);
    };
    let first = first_of(tx, &behind)?;
    Ok(first.is_some_and(|first| first.seq < seq))
}

/// When the next errand after `now` is due.
pub fn next_due(tx: &impl ReadableTx, now: Timestamp) -> StoreResult<Option<Timestamp>> {
    let mut next = None;
    OUTBOX_HEADS.scan(
        tx,
        (now.as_millis() + 1, "")..,
        ScanDirection::Ascending,
        |(due, _), _| {
            next = Some(Timestamp::from_millis(due));
            ControlFlow::Break(())
        },
    )?;
    Ok(next)
}

/// Every lane with work in it.
pub fn queue_keys(tx: &impl ReadableTx) -> StoreResult<Vec<String>> {
    OUTBOX_HEADS.collect(tx, .., |(_, lane), _| lane.to_owned())
}

/// Marks the beginning of a try. None when the errand is no longer there.
pub fn claim(
    tx: &WriteTx<'_>,
    lane: &str,
    seq: u64,
    now: Timestamp,
) -> StoreResult<Option<OutboxEntry>> {
    let Some(mut errand) = OUTBOX.get(tx, (lane, seq))? else {
        return Ok(None);
    };
    // A claim that was never settled ended with the process: what it did, and when, is not known.
    if errand.claimed_at.replace(now).is_some() {
        errand.outcome_unknown_since = Some(now);
    }
    errand.attempts += 1;
    OUTBOX.put(tx, (lane, seq), &errand)?;
    Ok(Some(errand))
}

/// Every errand of a lane, in order.
pub fn of_queue_key(tx: &impl ReadableTx, lane: &str) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX.collect(tx, (lane, 0)..=(lane, u64::MAX), |_, errand| errand)
}

/// The errand is done, or nothing is left to do: the lane goes on.
pub fn complete(tx: &WriteTx<'_>, errand: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    tx.bypass_space_check();
    let was_first = is_first(tx, errand)?;
    OUTBOX.remove(tx, (errand.queue_key.as_str(), errand.seq))?;
    tx.publish(StoreChange::Outbox);
    // The next of this lane may be due, or one that is behind it.
    tx.notify_outbox();
    if !was_first {
        return Ok(());
    }
    OUTBOX_HEADS.remove(tx, (errand.due_at.as_millis(), errand.queue_key.as_str()))?;
    if let Some(next) = first_of(tx, &errand.queue_key)? {
        // It waited for this one, so it is due no earlier than now.
        let due = OutboxEntry {
            due_at: next.due_at.max(now),
            ..next
        };
        OUTBOX_HEADS.put(
            tx,
            (due.due_at.as_millis(), due.queue_key.as_str()),
            &due.seq,
        )?;
        OUTBOX.put(tx, (due.queue_key.as_str(), due.seq), &due)?;
    }
    Ok(())
}

/// Whether its lane waits for it, and not for one that was put before it while it was tried.
fn is_first(tx: &impl ReadableTx, errand: &OutboxEntry) -> StoreResult<bool> {
    let first = first_of(tx, &errand.queue_key)?;
    Ok(first.is_none_or(|first| first.seq == errand.seq))
}

/// What a failed try leaves behind.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    pub ended_at: Timestamp,
    pub due_at: Timestamp,
    /// Whether the try may have had its effect.
    pub is_outcome_unknown: bool,
    pub error: String,
}

/// The try failed and another follows later; its lane waits for it.
pub fn schedule_retry(
    tx: &WriteTx<'_>,
    errand: &OutboxEntry,
    retry: &FailedAttempt,
) -> StoreResult<()> {
    tx.bypass_space_check();
    let later = OutboxEntry {
        due_at: retry.due_at,
        claimed_at: None,
        outcome_unknown_since: { retry.is_outcome_unknown.then_some(retry.ended_at) }
            .or(errand.outcome_unknown_since),
        last_error: Some(retry.error.clone()),
        ..errand.clone()
    };
    put_off(tx, errand, &later)
}

/// Stores an errand with another time at which it is due.
fn put_off(tx: &WriteTx<'_>, errand: &OutboxEntry, later: &OutboxEntry) -> StoreResult<()> {
    let lane = later.queue_key.as_str();
    if is_first(tx, errand)? {
        OUTBOX_HEADS.remove(tx, (errand.due_at.as_millis(), lane))?;
        OUTBOX_HEADS.put(tx, (later.due_at.as_millis(), lane), &later.seq)?;
    }
    OUTBOX.put(tx, (lane, later.seq), later)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(())
}

/// Has an errand that waits tried now, if it is its turn.
pub fn retry_now(tx: &WriteTx<'_>, errand: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    if errand.is_in_flight() || errand.due_at <= now {
        return Ok(());
    }
    let sooner = OutboxEntry {
        due_at: now,
        ..errand.clone()
    };
    put_off(tx, errand, &sooner)
}

/// Has every lane that waits beyond `latest` tried now, and answers how many there were. Only while
/// none is being tried: a try settles its lane under the time it was begun with.
pub fn reschedule_beyond(
    tx: &WriteTx<'_>,
    latest: Timestamp,
    now: Timestamp,
) -> StoreResult<usize> {
    let waiting =
        OUTBOX_HEADS.collect(tx, (latest.as_millis() + 1, "").., |(due, lane), seq| {
            (due, lane.to_owned(), seq)
        })?;
    for (due, lane, seq) in &waiting {
        let lane = lane.as_str();
        OUTBOX_HEADS.remove(tx, (*due, lane))?;
        if let Some(errand) = OUTBOX.get(tx, (lane, *seq))? {
            let sooner = OutboxEntry {
                due_at: now,
                ..errand
            };
            OUTBOX_HEADS.put(tx, (now.as_millis(), lane), seq)?;
            OUTBOX.put(tx, (lane, *seq), &sooner)?;
        }
    }
    if !waiting.is_empty() {
        tx.notify_outbox();
        tx.publish(StoreChange::Outbox);
    }
    Ok(waiting.len())
}

/// The errand is given up; operators see it and its lane goes on.
pub fn mark_dead(
    tx: &WriteTx<'_>,
    errand: &OutboxEntry,
    error: &str,
    now: Timestamp,
) -> StoreResult<()> {
    complete(tx, errand, now)?;
    let dead = OutboxEntry {
        last_error: Some(error.to_owned()),
        claimed_at: None,
        ..errand.clone()
    };
    OUTBOX_DEAD.put(tx, errand.seq, &dead)
}

/// Owes an errand again that was given up. It keeps its number, so it stands before all that its
/// lane was given after it, and its stamp, so the outside knows it again; as nobody knows which of
/// its tries had an effect, that is looked for first.
pub fn retry_dead(tx: &WriteTx<'_>, dead: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    let errand = OutboxEntry {
        due_at: now,
        claimed_at: None,
        outcome_unknown_since: dead.outcome_unknown_since.or(Some(dead.pushed_at)),
        manual_retry_at: Some(now),
        ..dead.clone()
    };
    let lane = errand.queue_key.as_str();
    if let Some(first) = first_of(tx, lane)? {
        OUTBOX_HEADS.remove(tx, (first.due_at.as_millis(), lane))?;
    }
    OUTBOX.put(tx, (lane, errand.seq), &errand)?;
    let first = first_of(tx, lane)?.unwrap_or_else(|| errand.clone());
    OUTBOX_HEADS.put(tx, (first.due_at.as_millis(), lane), &first.seq)?;
    OUTBOX_DEAD.remove(tx, errand.seq)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(())
}

/// Forgets an errand that was given up.
pub fn remove_dead(tx: &WriteTx<'_>, dead: &OutboxEntry) -> StoreResult<()> {
    tx.publish(StoreChange::Outbox);
    OUTBOX_DEAD.remove(tx, dead.seq).map(drop)
}

/// Where an errand stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxEntryState {
    Pending(OutboxEntry),
    Dead(OutboxEntry),
}

/// The errand of this number.
pub fn find(tx: &impl ReadableTx, seq: u64) -> StoreResult<Option<OutboxEntryState>> {
    if let Some(dead) = OUTBOX_DEAD.get(tx, seq)? {
        return Ok(Some(OutboxEntryState::Dead(dead)));
    }
    let mut found = None;
    OUTBOX.scan(tx, .., ScanDirection::Ascending, |(_, at), errand| {
        if at != seq {
            return ControlFlow::Continue(());
        }
        found = Some(OutboxEntryState::Pending(errand));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// How much is owed, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxDepth {
    pub pending: u64,
    pub dead: u64,
    /// When the oldest that is pending was pushed.
    pub oldest_pushed_at: Option<Timestamp>,
}

/// Looks at the first errand of each lane only: those behind it are younger.
pub fn depth(tx: &impl ReadableTx) -> StoreResult<OutboxDepth> {
    let heads = OUTBOX_HEADS.collect(tx, .., |(_, lane), seq| (lane.to_owned(), seq))?;
    let mut oldest: Option<Timestamp> = None;
    for (lane, seq) in heads {
        let head = OUTBOX.get(tx, (lane.as_str(), seq))?;
        let pushed_at = head.map(|errand| errand.pushed_at);
        oldest = [oldest, pushed_at].into_iter().flatten().min();
    }
    Ok(OutboxDepth {
        pending: OUTBOX.count(tx)?,
        dead: OUTBOX_DEAD.count(tx)?,
        oldest_pushed_at: oldest,
    })
}

/// Everything that is owed, in lane order.
pub fn pending(tx: &impl ReadableTx) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX.collect(tx, .., |_, errand| errand)
}

/// Everything that was given up.
pub fn dead(tx: &impl ReadableTx) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX_DEAD.collect(tx, .., |_, errand| errand)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Store, StoreError};
    use domain::effect::{ChatMessage, LogLabel};
    use domain::ids::{IssueId, IssueKey, Repo};
    use domain::issue::{IssueRef, System};
    use domain::job::RunHandle;
    use domain::stage::Stage;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn ticket(number: u32, stage: Stage) -> Effect {
        let issue = IssueRef {
            system: System::Linear,
            id: IssueId::new(format!("id-{number}")),
            key: IssueKey::new(format!("ENG-{number}")),
            title: String::new(),
            url: String::new(),
            marker_field: None,
        };
        Effect::SetMarker { issue, stage }
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
        assert_eq!((claimed.attempts, claimed.outcome_unknown_since), (1, None));
        let later = NOW + Duration::from_secs(9);
        let failed = FailedAttempt {
            ended_at: NOW,
            due_at: later,
            is_outcome_unknown: true,
            error: "no answer".into(),
        };
        write(&store, move |tx| schedule_retry(tx, &claimed, &failed)).await;
        assert_eq!(
            due_now(&store, NOW),
            [("ticket:id-2".to_owned(), 3)],
            "the second never overtakes the first"
        );
        assert_eq!(store.read(|tx| next_due(tx, NOW)).unwrap(), Some(later));

        let again = write(&store, move |tx| claim(tx, "ticket:id-1", 1, later))
            .await
            .unwrap();
        assert_eq!(
            (again.attempts, again.outcome_unknown_since),
            (2, Some(NOW))
        );
        write(&store, move |tx| complete(tx, &again, later)).await;
        assert_eq!(
            due_now(&store, later),
            [("ticket:id-2".to_owned(), 3), ("ticket:id-1".to_owned(), 2)]
        );
    }

    #[tokio::test]
    async fn a_log_excerpt_follows_its_ticket_and_holds_nothing_of_it_up() {
        let store = Store::in_memory().unwrap();
        let Effect::SetMarker { issue, .. } = ticket(1, Stage::Planning) else {
            unreachable!("it is a marker");
        };
        let excerpt = Effect::LogExcerpt {
            issue,
            repo: Repo::new("acme", "shop"),
            run: RunHandle::Ci {
                id: 7,
                url: String::new(),
            },
            label: LogLabel::SessionFailed,
            comment: None,
        };
        write(&store, move |tx| {
            push(tx, &ticket(1, Stage::ImplementationFailed), NOW)?;
            push(tx, &excerpt, NOW)?;
            push(tx, &ticket(1, Stage::Implementing), NOW)
        })
        .await;
        let (ticket, cleanup) = ("ticket:id-1", "cleanup:acme/shop#7");
        assert_eq!(due_now(&store, NOW), [(ticket.to_owned(), 1)]);
        let marker = write(&store, move |tx| claim(tx, ticket, 1, NOW)).await;
        write(&store, move |tx| {
            complete(tx, &marker.clone().unwrap(), NOW)
        })
        .await;
        assert_eq!(
            due_now(&store, NOW),
            [(cleanup.to_owned(), 2), (ticket.to_owned(), 3)]
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
        assert_eq!(again.outcome_unknown_since, Some(NOW));
        assert_eq!(again.idempotency_key(), "1000000-1");
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
        write(&store, move |tx| mark_dead(tx, &claimed, "gone", NOW)).await;
        assert_eq!(due_now(&store, NOW), [("chat".to_owned(), 2)]);
        let dead = store.read(dead).unwrap();
        assert_eq!(dead[0].last_error.as_deref(), Some("gone"));
        assert_eq!(store.read(pending).unwrap().len(), 1);
    }

    /// Each lane has one row of its own among the heads, and it leads to the lane's first errand.
    fn is_consistent(store: &Store) {
        let heads = store
            .read(|tx| OUTBOX_HEADS.collect(tx, .., |(due, lane), seq| (lane.to_owned(), due, seq)))
            .unwrap();
        let mut firsts: Vec<(String, u64, u64)> = Vec::new();
        for errand in store.read(pending).unwrap() {
            if firsts
                .last()
                .is_none_or(|(lane, ..)| *lane != errand.queue_key)
            {
                firsts.push((errand.queue_key, errand.due_at.as_millis(), errand.seq));
            }
        }
        let mut heads = heads;
        heads.sort();
        assert_eq!(heads, firsts);
    }

    #[tokio::test]
    async fn what_waits_too_long_is_called_back_and_the_rest_keeps_its_time() {
        let store = Store::in_memory().unwrap();
        let latest = NOW + Duration::from_secs(60);
        let put_off = |lane: &'static str, seq: u64, due_at: Timestamp| {
            store.write(move |tx| {
                let claimed = claim(tx, lane, seq, NOW)?.ok_or(StoreError::Panicked)?;
                let failed = FailedAttempt {
                    ended_at: NOW,
                    due_at,
                    is_outcome_unknown: true,
                    error: "no answer".into(),
                };
                schedule_retry(tx, &claimed, &failed)
            })
        };
        write(&store, |tx| {
            push(tx, &ticket(1, Stage::Planning), NOW)?;
            push(tx, &ticket(1, Stage::PrOpened), NOW)?;
            push(tx, &ticket(2, Stage::Planning), NOW)
        })
        .await;
        let far = latest + Duration::from_millis(1);
        put_off("ticket:id-1", 1, far).await.unwrap();
        put_off("ticket:id-2", 3, latest).await.unwrap();
        assert!(due_now(&store, NOW).is_empty(), "all wait");
        let called = write(&store, move |tx| reschedule_beyond(tx, latest, NOW)).await;
        assert_eq!(called, 1);
        is_consistent(&store);
        assert_eq!(due_now(&store, NOW), [("ticket:id-1".to_owned(), 1)]);
        let again = write(&store, |tx| claim(tx, "ticket:id-1", 1, NOW))
            .await
            .unwrap();
        assert_eq!(
            (again.attempts, again.outcome_unknown_since),
            (2, Some(NOW))
        );
        let called = write(&store, move |tx| reschedule_beyond(tx, latest, NOW)).await;
        assert_eq!(called, 0);
    }

    #[tokio::test]
    async fn what_is_revived_comes_first_even_while_a_later_one_is_tried() {
        let store = Store::in_memory().unwrap();
        let later = NOW + Duration::from_secs(60);
        write(&store, |tx| {
            push(tx, &ticket(1, Stage::Planning), NOW)?;
            push(tx, &ticket(1, Stage::Implementing), NOW)?;
            push(tx, &ticket(1, Stage::PrOpened), NOW)
        })
        .await;
        let lane = "ticket:id-1";
        let first = write(&store, move |tx| claim(tx, lane, 1, NOW))
            .await
            .unwrap();
        write(&store, move |tx| mark_dead(tx, &first, "no", NOW)).await;
        let second = write(&store, move |tx| claim(tx, lane, 2, NOW))
            .await
            .unwrap();
        is_consistent(&store);
        let Some(OutboxEntryState::Dead(dead)) = store.read(|tx| find(tx, 1)).unwrap() else {
            panic!("it is dead");
        };
        let stamp = dead.idempotency_key();
        write(&store, move |tx| retry_dead(tx, &dead, later)).await;
        is_consistent(&store);
        assert_eq!(due_now(&store, later), [(lane.to_owned(), 1)]);
        let failed = FailedAttempt {
            ended_at: NOW,
            due_at: later + Duration::from_secs(60),
            is_outcome_unknown: false,
            error: "no answer".into(),
        };
        let tried = second.clone();
        write(&store, move |tx| schedule_retry(tx, &tried, &failed)).await;
        is_consistent(&store);
        let again = write(&store, move |tx| claim(tx, lane, 1, later))
            .await
            .unwrap();
        assert_eq!(
            (again.idempotency_key(), again.outcome_unknown_since),
            (stamp, Some(NOW))
        );
        assert_eq!(again.retry_window_start(), later);
        write(&store, move |tx| complete(tx, &again, later)).await;
        is_consistent(&store);
        let Some(OutboxEntryState::Pending(second)) = store.read(|tx| find(tx, 2)).unwrap() else {
            panic!("it is owed");
        };
        assert!(due_now(&store, later).is_empty(), "it waits");
        write(&store, move |tx| retry_now(tx, &second, later)).await;
        is_consistent(&store);
        assert_eq!(due_now(&store, later), [(lane.to_owned(), 2)]);
        let Some(OutboxEntryState::Pending(third)) = store.read(|tx| find(tx, 3)).unwrap() else {
            panic!("it is owed");
        };
        write(&store, move |tx| complete(tx, &third, later)).await;
        is_consistent(&store);
        assert_eq!(store.read(|tx| find(tx, 3)).unwrap(), None);
    }
}
