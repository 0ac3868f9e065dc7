//! Outbox: effects that are to be performed at vendors, in order per queue key.
//!
//! An entry is pushed in the commit that causes its effect, claimed before an attempt (so that a crash during
//! the attempt is visible), and completed or rescheduled after it. Only the first entry of a queue key can be
//! claimed. `OUTBOX_HEADS` has one row per queue key, sorted by the due time of its first entry.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::json;

use domain::effect::Effect;
use domain::time::Timestamp;

use super::StoreResult;
use super::change_feed::StoreChange;
use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{META, OUTBOX, OUTBOX_DEAD, OUTBOX_HEADS};

/// Stored effect with its attempts and due time.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxEntry {
    #[serde(rename = "lane")]
    /// Key within which entries are performed strictly in order.
    pub queue_key: String,
    /// Sequence number, unique in the outbox.
    pub seq: u64,
    /// Effect to perform.
    pub effect: Effect,
    /// Time of the push.
    pub pushed_at: Timestamp,
    /// Time of the next attempt.
    pub due_at: Timestamp,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Start of the attempt in progress. If it is set after a crash, the outcome of that attempt is unknown.
    #[serde(default)]
    pub claimed_at: Option<Timestamp>,
    /// Latest possible end of the last attempt whose outcome is unknown because its response was lost.
    #[serde(rename = "unsureSince", default)]
    pub outcome_unknown_since: Option<Timestamp>,
    /// Error of the last failed attempt.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Time at which an operator retried the entry after it was dead.
    #[serde(rename = "revivedAt", default)]
    pub manual_retry_at: Option<Timestamp>,
}

impl OutboxEntry {
    /// Value by which vendors recognize repeated attempts: the same for all attempts of the entry.
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.pushed_at.as_millis(), self.seq)
    }

    /// Start of the period after which the entry becomes dead.
    pub fn retry_window_start(&self) -> Timestamp {
        self.manual_retry_at.unwrap_or(self.pushed_at)
    }

    /// Whether an attempt is in progress. After a crash this is true until the next attempt ends.
    pub fn is_in_flight(&self) -> bool {
        self.claimed_at.is_some()
    }
}

/// Appends an effect to its queue key and returns the idempotency key.
pub fn push(tx: &WriteTx<'_>, effect: &Effect, now: Timestamp) -> StoreResult<String> {
    let seq = next_seq(tx)?;
    let queue_key = effect.queue_key();
    let entry = OutboxEntry {
        queue_key: queue_key.clone(),
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
    if first_of(tx, &queue_key)?.is_none() {
        OUTBOX_HEADS.put(tx, (now.as_millis(), queue_key.as_str()), &seq)?;
    }
    OUTBOX.put(tx, (queue_key.as_str(), seq), &entry)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(entry.idempotency_key())
}

/// Sequence number of the entry that was pushed last.
pub fn last_seq(tx: &impl ReadableTx) -> StoreResult<u64> {
    let seq = META.get(tx, "outbox-seq")?;
    Ok(seq.and_then(|seq| seq.as_u64()).unwrap_or(0))
}

fn next_seq(tx: &WriteTx<'_>) -> StoreResult<u64> {
    let seq = last_seq(tx)? + 1;
    META.put(tx, "outbox-seq", &json!(seq))?;
    Ok(seq)
}

fn first_of(tx: &impl ReadableTx, queue_key: &str) -> StoreResult<Option<OutboxEntry>> {
    let mut first = None;
    OUTBOX.scan(
        tx,
        (queue_key, 0)..=(queue_key, u64::MAX),
        ScanDirection::Ascending,
        |_, entry| {
            first = Some(entry);
            ControlFlow::Break(())
        },
    )?;
    Ok(first)
}

/// Queue keys whose first entry is due, with the sequence number of that entry: longest due first, at most
/// `limit`. Skips keys for which `is_busy` returns true, and entries that wait for another queue key.
pub fn due(
    tx: &impl ReadableTx,
    now: Timestamp,
    limit: usize,
    is_busy: impl Fn(&str) -> bool,
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
        |(_, queue_key), seq| {
            if !is_busy(queue_key) {
                match waits_for_predecessor(tx, queue_key, seq) {
                    Ok(false) => heads.push((queue_key.to_owned(), seq)),
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

/// Whether an earlier entry of another queue key must be performed first.
fn waits_for_predecessor(tx: &impl ReadableTx, queue_key: &str, seq: u64) -> StoreResult<bool> {
    let entry = OUTBOX.get(tx, (queue_key, seq))?;
    let Some(predecessor) = entry.and_then(|entry| entry.effect.predecessor_queue_key()) else {
        return Ok(false);
    };
    let first = first_of(tx, &predecessor)?;
    Ok(first.is_some_and(|first| first.seq < seq))
}

/// Earliest due time after `now`.
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

/// All queue keys with entries.
pub fn queue_keys(tx: &impl ReadableTx) -> StoreResult<Vec<String>> {
    OUTBOX_HEADS.collect(tx, .., |(_, queue_key), _| queue_key.to_owned())
}

/// Records the start of an attempt. Returns `None` if the entry no longer exists.
pub fn claim(
    tx: &WriteTx<'_>,
    queue_key: &str,
    seq: u64,
    now: Timestamp,
) -> StoreResult<Option<OutboxEntry>> {
    let Some(mut entry) = OUTBOX.get(tx, (queue_key, seq))? else {
        return Ok(None);
    };
    // The previous attempt ended with the process, so its outcome is unknown.
    if entry.claimed_at.replace(now).is_some() {
        entry.outcome_unknown_since = Some(now);
    }
    entry.attempts += 1;
    OUTBOX.put(tx, (queue_key, seq), &entry)?;
    Ok(Some(entry))
}

/// All entries of a queue key, in order.
pub fn of_queue_key(tx: &impl ReadableTx, queue_key: &str) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX.collect(tx, (queue_key, 0)..=(queue_key, u64::MAX), |_, entry| entry)
}

/// Removes an entry whose effect was performed or is obsolete. The next entry of the queue key becomes due.
pub fn complete(tx: &WriteTx<'_>, entry: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    tx.bypass_space_check();
    let was_first = is_first(tx, entry)?;
    OUTBOX.remove(tx, (entry.queue_key.as_str(), entry.seq))?;
    tx.publish(StoreChange::Outbox);
    // The next entry of this queue key may be due, or one that waits for it.
    tx.notify_outbox();
    if !was_first {
        return Ok(());
    }
    OUTBOX_HEADS.remove(tx, (entry.due_at.as_millis(), entry.queue_key.as_str()))?;
    if let Some(next) = first_of(tx, &entry.queue_key)? {
        // It waited for this entry, so it is not due before now.
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

/// Whether the entry is the first of its queue key. A retried dead entry may have been put before it.
fn is_first(tx: &impl ReadableTx, entry: &OutboxEntry) -> StoreResult<bool> {
    let first = first_of(tx, &entry.queue_key)?;
    Ok(first.is_none_or(|first| first.seq == entry.seq))
}

/// Result of a failed attempt.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// End of the attempt.
    pub ended_at: Timestamp,
    /// Time of the next attempt.
    pub due_at: Timestamp,
    /// Whether the effect may have been performed despite the error.
    pub is_outcome_unknown: bool,
    /// Error message.
    pub error: String,
}

/// Records a failed attempt and schedules the next one. Later entries of the queue key wait for it.
pub fn schedule_retry(
    tx: &WriteTx<'_>,
    entry: &OutboxEntry,
    retry: &FailedAttempt,
) -> StoreResult<()> {
    tx.bypass_space_check();
    let rescheduled = OutboxEntry {
        due_at: retry.due_at,
        claimed_at: None,
        outcome_unknown_since: { retry.is_outcome_unknown.then_some(retry.ended_at) }
            .or(entry.outcome_unknown_since),
        last_error: Some(retry.error.clone()),
        ..entry.clone()
    };
    reschedule(tx, entry, &rescheduled)
}

/// Replaces an entry by a copy with another due time.
fn reschedule(tx: &WriteTx<'_>, entry: &OutboxEntry, rescheduled: &OutboxEntry) -> StoreResult<()> {
    let queue_key = rescheduled.queue_key.as_str();
    if is_first(tx, entry)? {
        OUTBOX_HEADS.remove(tx, (entry.due_at.as_millis(), queue_key))?;
        OUTBOX_HEADS.put(
            tx,
            (rescheduled.due_at.as_millis(), queue_key),
            &rescheduled.seq,
        )?;
    }
    OUTBOX.put(tx, (queue_key, rescheduled.seq), rescheduled)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(())
}

/// Makes a waiting entry due now. Does nothing while an attempt is in progress.
pub fn retry_now(tx: &WriteTx<'_>, entry: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    if entry.is_in_flight() || entry.due_at <= now {
        return Ok(());
    }
    let sooner = OutboxEntry {
        due_at: now,
        ..entry.clone()
    };
    reschedule(tx, entry, &sooner)
}

/// Makes all entries due now whose due time is after `latest`; returns how many. Must not run while attempts
/// are in progress, because completing an entry requires its due time at the start of the attempt.
pub fn reschedule_beyond(
    tx: &WriteTx<'_>,
    latest: Timestamp,
    now: Timestamp,
) -> StoreResult<usize> {
    let waiting = OUTBOX_HEADS.collect(
        tx,
        (latest.as_millis() + 1, "")..,
        |(due, queue_key), seq| (due, queue_key.to_owned(), seq),
    )?;
    for (due, queue_key, seq) in &waiting {
        let queue_key = queue_key.as_str();
        OUTBOX_HEADS.remove(tx, (*due, queue_key))?;
        if let Some(entry) = OUTBOX.get(tx, (queue_key, *seq))? {
            let sooner = OutboxEntry {
                due_at: now,
                ..entry
            };
            OUTBOX_HEADS.put(tx, (now.as_millis(), queue_key), seq)?;
            OUTBOX.put(tx, (queue_key, *seq), &sooner)?;
        }
    }
    if !waiting.is_empty() {
        tx.notify_outbox();
        tx.publish(StoreChange::Outbox);
    }
    Ok(waiting.len())
}

/// Moves an entry to the dead entries, which operators see. The next entry of the queue key becomes due.
pub fn mark_dead(
    tx: &WriteTx<'_>,
    entry: &OutboxEntry,
    error: &str,
    now: Timestamp,
) -> StoreResult<()> {
    complete(tx, entry, now)?;
    let dead = OutboxEntry {
        last_error: Some(error.to_owned()),
        claimed_at: None,
        ..entry.clone()
    };
    OUTBOX_DEAD.put(tx, entry.seq, &dead)
}

/// Moves a dead entry back to the outbox. It keeps its sequence number, so it precedes all later entries of
/// its queue key, and its idempotency key. Its outcome counts as unknown, so the effect is first looked up at
/// the vendor.
pub fn retry_dead(tx: &WriteTx<'_>, dead: &OutboxEntry, now: Timestamp) -> StoreResult<()> {
    let entry = OutboxEntry {
        due_at: now,
        claimed_at: None,
        outcome_unknown_since: dead.outcome_unknown_since.or(Some(dead.pushed_at)),
        manual_retry_at: Some(now),
        ..dead.clone()
    };
    let queue_key = entry.queue_key.as_str();
    if let Some(first) = first_of(tx, queue_key)? {
        OUTBOX_HEADS.remove(tx, (first.due_at.as_millis(), queue_key))?;
    }
    OUTBOX.put(tx, (queue_key, entry.seq), &entry)?;
    let first = first_of(tx, queue_key)?.unwrap_or_else(|| entry.clone());
    OUTBOX_HEADS.put(tx, (first.due_at.as_millis(), queue_key), &first.seq)?;
    OUTBOX_DEAD.remove(tx, entry.seq)?;
    tx.notify_outbox();
    tx.publish(StoreChange::Outbox);
    Ok(())
}

/// Deletes a dead entry.
pub fn remove_dead(tx: &WriteTx<'_>, dead: &OutboxEntry) -> StoreResult<()> {
    tx.publish(StoreChange::Outbox);
    OUTBOX_DEAD.remove(tx, dead.seq).map(drop)
}

/// Entry with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxEntryState {
    /// The entry waits for its next attempt, or an attempt is in progress.
    Pending(OutboxEntry),
    /// The entry is not retried any more.
    Dead(OutboxEntry),
}

/// Entry with this sequence number.
pub fn find(tx: &impl ReadableTx, seq: u64) -> StoreResult<Option<OutboxEntryState>> {
    if let Some(dead) = OUTBOX_DEAD.get(tx, seq)? {
        return Ok(Some(OutboxEntryState::Dead(dead)));
    }
    let mut found = None;
    OUTBOX.scan(tx, .., ScanDirection::Ascending, |(_, at), entry| {
        if at != seq {
            return ControlFlow::Continue(());
        }
        found = Some(OutboxEntryState::Pending(entry));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Number of entries, and age of the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxDepth {
    /// Number of pending entries.
    pub pending: u64,
    /// Number of dead entries.
    pub dead: u64,
    /// Time at which the oldest pending entry was pushed.
    pub oldest_pushed_at: Option<Timestamp>,
}

/// Returns the depth of the outbox. Reads only the first entry of each queue key, because later ones are
/// younger.
pub fn depth(tx: &impl ReadableTx) -> StoreResult<OutboxDepth> {
    let heads = OUTBOX_HEADS.collect(tx, .., |(_, queue_key), seq| (queue_key.to_owned(), seq))?;
    let mut oldest: Option<Timestamp> = None;
    for (queue_key, seq) in heads {
        let head = OUTBOX.get(tx, (queue_key.as_str(), seq))?;
        let pushed_at = head.map(|entry| entry.pushed_at);
        oldest = [oldest, pushed_at].into_iter().flatten().min();
    }
    Ok(OutboxDepth {
        pending: OUTBOX.count(tx)?,
        dead: OUTBOX_DEAD.count(tx)?,
        oldest_pushed_at: oldest,
    })
}

/// All pending entries, ordered by queue key.
pub fn pending(tx: &impl ReadableTx) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX.collect(tx, .., |_, entry| entry)
}

/// All dead entries.
pub fn dead(tx: &impl ReadableTx) -> StoreResult<Vec<OutboxEntry>> {
    OUTBOX_DEAD.collect(tx, .., |_, entry| entry)
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
    async fn performs_entries_of_a_queue_key_in_order() {
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
    async fn a_log_excerpt_waits_for_its_ticket_but_does_not_block_it() {
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
    async fn a_claim_without_outcome_marks_the_outcome_as_unknown() {
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
    async fn a_dead_entry_is_kept_and_does_not_block_its_queue_key() {
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

    /// Asserts that each queue key has one row in the heads, and that it leads to the first entry.
    fn assert_consistent(store: &Store) {
        let heads = store
            .read(|tx| {
                OUTBOX_HEADS.collect(tx, .., |(due, queue_key), seq| {
                    (queue_key.to_owned(), due, seq)
                })
            })
            .unwrap();
        let mut firsts: Vec<(String, u64, u64)> = Vec::new();
        for entry in store.read(pending).unwrap() {
            if firsts
                .last()
                .is_none_or(|(queue_key, ..)| *queue_key != entry.queue_key)
            {
                firsts.push((entry.queue_key, entry.due_at.as_millis(), entry.seq));
            }
        }
        let mut heads = heads;
        heads.sort();
        assert_eq!(heads, firsts);
    }

    #[tokio::test]
    async fn reschedules_only_entries_beyond_the_limit() {
        let store = Store::in_memory().unwrap();
        let latest = NOW + Duration::from_secs(60);
        let fail = |queue_key: &'static str, seq: u64, due_at: Timestamp| {
            store.write(move |tx| {
                let claimed = claim(tx, queue_key, seq, NOW)?.ok_or(StoreError::Panicked)?;
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
        fail("ticket:id-1", 1, far).await.unwrap();
        fail("ticket:id-2", 3, latest).await.unwrap();
        assert!(due_now(&store, NOW).is_empty(), "all wait");
        let rescheduled = write(&store, move |tx| reschedule_beyond(tx, latest, NOW)).await;
        assert_eq!(rescheduled, 1);
        assert_consistent(&store);
        assert_eq!(due_now(&store, NOW), [("ticket:id-1".to_owned(), 1)]);
        let again = write(&store, |tx| claim(tx, "ticket:id-1", 1, NOW))
            .await
            .unwrap();
        assert_eq!(
            (again.attempts, again.outcome_unknown_since),
            (2, Some(NOW))
        );
        let rescheduled = write(&store, move |tx| reschedule_beyond(tx, latest, NOW)).await;
        assert_eq!(rescheduled, 0);
    }

    #[tokio::test]
    async fn a_retried_dead_entry_precedes_a_later_one_in_progress() {
        let store = Store::in_memory().unwrap();
        let later = NOW + Duration::from_secs(60);
        write(&store, |tx| {
            push(tx, &ticket(1, Stage::Planning), NOW)?;
            push(tx, &ticket(1, Stage::Implementing), NOW)?;
            push(tx, &ticket(1, Stage::PrOpened), NOW)
        })
        .await;
        let queue_key = "ticket:id-1";
        let first = write(&store, move |tx| claim(tx, queue_key, 1, NOW))
            .await
            .unwrap();
        write(&store, move |tx| mark_dead(tx, &first, "no", NOW)).await;
        let second = write(&store, move |tx| claim(tx, queue_key, 2, NOW))
            .await
            .unwrap();
        assert_consistent(&store);
        let Some(OutboxEntryState::Dead(dead)) = store.read(|tx| find(tx, 1)).unwrap() else {
            panic!("it is dead");
        };
        let idempotency_key = dead.idempotency_key();
        write(&store, move |tx| retry_dead(tx, &dead, later)).await;
        assert_consistent(&store);
        assert_eq!(due_now(&store, later), [(queue_key.to_owned(), 1)]);
        let failed = FailedAttempt {
            ended_at: NOW,
            due_at: later + Duration::from_secs(60),
            is_outcome_unknown: false,
            error: "no answer".into(),
        };
        let claimed = second.clone();
        write(&store, move |tx| schedule_retry(tx, &claimed, &failed)).await;
        assert_consistent(&store);
        let again = write(&store, move |tx| claim(tx, queue_key, 1, later))
            .await
            .unwrap();
        assert_eq!(
            (again.idempotency_key(), again.outcome_unknown_since),
            (idempotency_key, Some(NOW))
        );
        assert_eq!(again.retry_window_start(), later);
        write(&store, move |tx| complete(tx, &again, later)).await;
        assert_consistent(&store);
        let Some(OutboxEntryState::Pending(second)) = store.read(|tx| find(tx, 2)).unwrap() else {
            panic!("it is pending");
        };
        assert!(due_now(&store, later).is_empty(), "it waits");
        write(&store, move |tx| retry_now(tx, &second, later)).await;
        assert_consistent(&store);
        assert_eq!(due_now(&store, later), [(queue_key.to_owned(), 2)]);
        let Some(OutboxEntryState::Pending(third)) = store.read(|tx| find(tx, 3)).unwrap() else {
            panic!("it is pending");
        };
        write(&store, move |tx| complete(tx, &third, later)).await;
        assert_consistent(&store);
        assert_eq!(store.read(|tx| find(tx, 3)).unwrap(), None);
    }
}
