//! Tests of the outbox.

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

fn chat(title: &str) -> Effect {
    Effect::Chat {
        message: ChatMessage {
            title: title.into(),
            ..ChatMessage::default()
        },
    }
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

#[tokio::test]
async fn only_the_newest_dead_chat_messages_are_kept() {
    let store = Store::in_memory().unwrap();
    let push_and_give_up = |tx: &WriteTx<'_>, effect: &Effect| {
        push(tx, effect, NOW)?;
        let (queue_key, seq) = (effect.queue_key(), last_seq(tx)?);
        let claimed = claim(tx, &queue_key, seq, NOW)?.ok_or(StoreError::Panicked)?;
        mark_dead(tx, &claimed, "404", NOW)
    };
    let update = ticket(1, Stage::Planning);
    write(&store, move |tx| {
        push_and_give_up(tx, &update)?;
        (2..=104).try_for_each(|_| push_and_give_up(tx, &chat("one")))
    })
    .await;
    let dead = |store: &Store| store.read(dead).unwrap();
    let kept: Vec<u64> = dead(&store).iter().map(|entry| entry.seq).collect();
    let expected: Vec<u64> = [1].into_iter().chain(5..=104).collect();
    assert_eq!(kept, expected, "an update that an operator must see stays");
    let update = ticket(2, Stage::Planning);
    write(&store, move |tx| push_and_give_up(tx, &update)).await;
    assert_eq!(dead(&store).len(), expected.len() + 1);
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

/// What was pushed while the clock was ahead waits for what was pushed before, and not for the clock to get there again.
#[tokio::test]
async fn an_entry_of_a_clock_that_was_ahead_follows_at_once() {
    let store = Store::in_memory().unwrap();
    write(&store, |tx| {
        push(tx, &ticket(1, Stage::Planning), NOW)?;
        push(
            tx,
            &ticket(1, Stage::PrOpened),
            NOW + Duration::from_secs(5 * 3600),
        )?;
        let claimed = claim(tx, "ticket:id-1", 1, NOW)?.ok_or(StoreError::Panicked)?;
        complete(tx, &claimed, NOW)
    })
    .await;
    assert_consistent(&store);
    assert_eq!(due_now(&store, NOW), [("ticket:id-1".to_owned(), 2)]);
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

/// Gives up the first entry of the ticket's queue, and begins an attempt of the second.
async fn first_dead_and_second_in_progress(store: &Store) -> (OutboxEntry, OutboxEntry) {
    let queue_key = "ticket:id-1";
    let first = write(store, move |tx| claim(tx, queue_key, 1, NOW))
        .await
        .unwrap();
    write(store, move |tx| mark_dead(tx, &first, "no", NOW)).await;
    let second = write(store, move |tx| claim(tx, queue_key, 2, NOW))
        .await
        .unwrap();
    assert_consistent(store);
    let Some(OutboxEntryState::Dead(dead)) = store.read(|tx| find(tx, 1)).unwrap() else {
        panic!("it is dead");
    };
    (dead, second)
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
    let (dead, second) = first_dead_and_second_in_progress(&store).await;
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

/// An operator retries a failed update and deletes it, while the next one of its queue is in progress.
#[tokio::test]
async fn an_entry_in_progress_completes_after_one_before_it_came_and_went() {
    let later = NOW + Duration::from_secs(60);
    for is_retried in [false, true] {
        let store = Store::in_memory().unwrap();
        write(&store, |tx| {
            push(tx, &ticket(1, Stage::Planning), NOW)?;
            push(tx, &ticket(1, Stage::Implementing), NOW)
        })
        .await;
        let (dead, second) = first_dead_and_second_in_progress(&store).await;
        write(&store, move |tx| retry_dead(tx, &dead, later)).await;
        let Some(OutboxEntryState::Pending(first)) = store.read(|tx| find(tx, 1)).unwrap() else {
            panic!("it is pending");
        };
        write(&store, move |tx| complete(tx, &first, later)).await;
        assert_consistent(&store);
        let failed = FailedAttempt {
            ended_at: later,
            due_at: later + Duration::from_secs(60),
            is_outcome_unknown: false,
            error: "no answer".into(),
        };
        match is_retried {
            true => write(&store, move |tx| schedule_retry(tx, &second, &failed)).await,
            false => write(&store, move |tx| complete(tx, &second, later)).await,
        }
        assert_consistent(&store);
    }
}
