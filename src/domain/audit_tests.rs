use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn chain(events: &[AuditEvent]) -> (Vec<AuditEntry>, AuditHead) {
    let mut head = AuditHead::default();
    let mut entries = Vec::new();
    for event in events {
        let entry = head.next_entry(event, NOW);
        head = AuditHead::from_entry(&entry);
        entries.push(entry);
    }
    (entries, head)
}

fn verify(entries: &[AuditEntry], head: &AuditHead, anchor: Option<&str>) -> AuditVerification {
    let mut verifier = AuditVerifier::new(anchor);
    for entry in entries {
        if !verifier.verify_next(entry) {
            break;
        }
    }
    verifier.finish(head)
}

fn sample_events(count: usize) -> Vec<AuditEvent> {
    let event = |number| {
        let actor = Actor::admin("192.0.2.1");
        actor.audit_event(Action::DedupDeleted, format!("ENG-{number}"))
    };
    (0..count).map(event).collect()
}

/// The hashed bytes are part of the stored format: later releases must accept old chains.
#[test]
fn hash_format_is_stable() {
    let event = Actor::service().audit_event(Action::RunDispatched, "ENG-1");
    let (entries, head) = chain(&[event.clone().with_detail("implementation"), event]);
    assert_eq!(
        [entries[0].hash.as_str(), head.hash.as_str()],
        [
            "31e4fdd9590c3c4e5b823571f47167755ded2f2e2dd97e5aa189bd74fadbfbaa",
            "d7d295b7ff9ef5da5ab425861c54108d52e14e738030500c48f0e5a918646af6"
        ]
    );
}

#[test]
fn an_empty_chain_is_valid_and_a_lost_chain_is_not() {
    let valid = AuditVerification {
        ok: true,
        entries: 0,
        head: None,
        broken_at: None,
    };
    assert_eq!(verify(&[], &AuditHead::default(), None), valid);
    let (_, head) = chain(&sample_events(3));
    assert_eq!(verify(&[], &head, None).broken_at, Some(1));
}

#[test]
fn rejects_a_chain_without_the_anchor() {
    let (entries, head) = chain(&sample_events(3));
    let anchor = entries[1].hash.to_uppercase();
    assert!(verify(&entries, &head, Some(&anchor)).ok);
    let (others, other_head) = chain(&sample_events(2));
    let result = verify(&others, &other_head, Some(&entries[2].hash));
    assert_eq!(
        (result.ok, result.broken_at, result.entries),
        (false, None, 2)
    );
}

#[test]
fn untrusted_text_is_truncated_without_control_characters() {
    let event = Actor::webhook(["b", "a\n\u{1b}[31m", "b"])
        .audit_event(Action::PollRequested, "ä".repeat(4000));
    assert_eq!(event.actor, "webhook:a ,b");
    assert!(event.target.len() <= MAX_TEXT);
    assert!(event.target.ends_with('…'));
}

#[test]
fn rejections_above_the_limit_are_counted_in_one_entry() {
    let mut limiter = AuditRateLimiter::default();
    let recorded = (0..500).filter(|second| {
        let now = NOW + std::time::Duration::from_secs(*second);
        limiter.record_refusal(now).0
    });
    assert_eq!(recorded.count(), MAX_ENTRIES_PER_WINDOW as usize);
    let (before, after) = (
        NOW.as_millis() + WINDOW_MILLIS - 1,
        NOW.as_millis() + WINDOW_MILLIS,
    );
    assert_eq!(
        limiter.take_suppressed_count(Timestamp::from_millis(before)),
        None
    );
    assert_eq!(
        limiter.take_suppressed_count(Timestamp::from_millis(after)),
        Some(490)
    );
    assert_eq!(
        limiter.take_suppressed_count(Timestamp::from_millis(after)),
        None
    );
    assert_eq!(
        limiter.record_refusal(Timestamp::from_millis(after)),
        (true, None)
    );
}

fn any_events() -> impl Strategy<Value = Vec<AuditEvent>> {
    let word = "[a-c]{0,3}";
    let event = (word, word, word).prop_map(|(actor, target, detail)| {
        let actor = Actor::webhook([actor.as_str()]);
        actor
            .audit_event(Action::RunDispatched, target)
            .with_detail(detail)
    });
    prop::collection::vec(event, 2..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reports_a_changed_entry_at_its_position(
        events in any_events(),
        at in any::<prop::sample::Index>(),
        change in 0..9,
    ) {
        let (mut entries, head) = chain(&events);
        prop_assert!(verify(&entries, &head, None).ok);
        let at = at.index(entries.len());
        let mut broken_at = at as u64 + 1;
        let changed = &mut entries[at];
        match change {
            0 => changed.actor.push('x'),
            1 => changed.action = "poll-asked".to_owned(),
            // Text moved from one field to the next changes the hash.
            2 => (changed.target, changed.detail) = (format!("{}x", changed.target), format!("x{}", changed.detail)),
            3 => changed.detail.push(' '),
            4 => changed.at = Timestamp::from_millis(1),
            5 => changed.hash.replace_range(..1, if changed.hash.starts_with('0') { "1" } else { "0" }),
            6 => drop(entries.remove(at)),
            7 => {
                let other = (at + 1) % entries.len();
                broken_at = at.min(other) as u64 + 1;
                entries.swap(at, other);
            }
            _ => {
                let added = entries[at].clone();
                broken_at += 1;
                entries.insert(at, added);
            }
        }
        let result = verify(&entries, &head, None);
        prop_assert_eq!((result.ok, result.broken_at), (false, Some(broken_at)));
    }

    /// Rewriting an entry and all later entries is only detected by a recorded head.
    #[test]
    fn a_recomputed_chain_has_another_head(events in any_events(), at in any::<prop::sample::Index>()) {
        let (_, head) = chain(&events);
        let mut others = events;
        let at = at.index(others.len());
        others[at].detail.push('x');
        let (entries, other_head) = chain(&others);
        prop_assert!(verify(&entries, &other_head, None).ok);
        prop_assert!(!verify(&entries, &other_head, Some(&head.hash)).ok);
        prop_assert!(!verify(&entries, &head, None).ok);
    }
}
