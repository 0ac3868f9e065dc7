use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn chain(deeds: &[AuditEvent]) -> (Vec<AuditEntry>, AuditHead) {
    let mut head = AuditHead::default();
    let mut entries = Vec::new();
    for deed in deeds {
        let entry = head.next_entry(deed, NOW);
        head = AuditHead::from_entry(&entry);
        entries.push(entry);
    }
    (entries, head)
}

fn verdict(entries: &[AuditEntry], head: &AuditHead, anchor: Option<&str>) -> AuditVerification {
    let mut verifier = AuditVerifier::new(anchor);
    for entry in entries {
        if !verifier.verify_next(entry) {
            break;
        }
    }
    verifier.finish(head)
}

fn some_deeds(count: usize) -> Vec<AuditEvent> {
    let deed = |number| {
        let actor = Actor::admin("192.0.2.1");
        actor.audit_event(Action::DedupDeleted, format!("ENG-{number}"))
    };
    (0..count).map(deed).collect()
}

/// The bytes that are hashed are part of what is stored: another release must find old chains whole.
#[test]
fn the_hash_of_an_entry_is_what_it_has_always_been() {
    let deed = Actor::service().audit_event(Action::RunDispatched, "ENG-1");
    let (entries, head) = chain(&[deed.clone().with_detail("implementation"), deed]);
    assert_eq!(
        [entries[0].hash.as_str(), head.hash.as_str()],
        [
            "31e4fdd9590c3c4e5b823571f47167755ded2f2e2dd97e5aa189bd74fadbfbaa",
            "d7d295b7ff9ef5da5ab425861c54108d52e14e738030500c48f0e5a918646af6"
        ]
    );
}

#[test]
fn an_empty_chain_holds_and_a_lost_one_does_not() {
    let whole = AuditVerification {
        ok: true,
        entries: 0,
        head: None,
        broken_at: None,
    };
    assert_eq!(verdict(&[], &AuditHead::default(), None), whole);
    let (_, head) = chain(&some_deeds(3));
    assert_eq!(verdict(&[], &head, None).broken_at, Some(1));
}

#[test]
fn an_anchor_must_be_in_the_chain() {
    let (entries, head) = chain(&some_deeds(3));
    let noted = entries[1].hash.to_uppercase();
    assert!(verdict(&entries, &head, Some(&noted)).ok);
    let (others, other_head) = chain(&some_deeds(2));
    let told = verdict(&others, &other_head, Some(&entries[2].hash));
    assert_eq!((told.ok, told.broken_at, told.entries), (false, None, 2));
}

#[test]
fn texts_of_strangers_are_bounded_and_hold_no_control_characters() {
    let deed = Actor::webhook(["b", "a\n\u{1b}[31m", "b"])
        .audit_event(Action::PollRequested, "ä".repeat(4000));
    assert_eq!(deed.actor, "webhook:a[31m,b");
    assert!(deed.target.len() <= MAX_TEXT + '…'.len_utf8());
    assert!(deed.target.ends_with('…'));
}

#[test]
fn refusals_are_told_one_by_one_and_then_as_one() {
    let mut restraint = AuditRateLimiter::default();
    let told = (0..500).filter(|second| {
        let now = NOW + std::time::Duration::from_secs(*second);
        restraint.record_refusal(now).0
    });
    assert_eq!(told.count(), TOLD_PER_SPELL as usize);
    let (before, after) = (NOW.as_millis() + SPELL - 1, NOW.as_millis() + SPELL);
    assert_eq!(
        restraint.take_suppressed_count(Timestamp::from_millis(before)),
        None
    );
    assert_eq!(
        restraint.take_suppressed_count(Timestamp::from_millis(after)),
        Some(490)
    );
    assert_eq!(
        restraint.take_suppressed_count(Timestamp::from_millis(after)),
        None
    );
    assert_eq!(
        restraint.record_refusal(Timestamp::from_millis(after)),
        (true, None)
    );
}

fn deeds() -> impl Strategy<Value = Vec<AuditEvent>> {
    let word = "[a-c]{0,3}";
    let deed = (word, word, word).prop_map(|(actor, target, detail)| {
        let actor = Actor::webhook([actor.as_str()]);
        actor
            .audit_event(Action::RunDispatched, target)
            .with_detail(detail)
    });
    prop::collection::vec(deed, 2..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_to_an_entry_is_found_where_it_stands(
        deeds in deeds(),
        at in any::<prop::sample::Index>(),
        how in 0..9,
    ) {
        let (mut entries, head) = chain(&deeds);
        prop_assert!(verdict(&entries, &head, None).ok);
        let at = at.index(entries.len());
        let mut broken_at = at as u64 + 1;
        let one = &mut entries[at];
        match how {
            0 => one.actor.push('x'),
            1 => one.action = "poll-asked".to_owned(),
            // What leaves one field for its neighbour leaves a trace.
            2 => (one.target, one.detail) = (format!("{}x", one.target), format!("x{}", one.detail)),
            3 => one.detail.push(' '),
            4 => one.at = Timestamp::from_millis(1),
            5 => one.hash.replace_range(..1, if one.hash.starts_with('0') { "1" } else { "0" }),
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
        let told = verdict(&entries, &head, None);
        prop_assert_eq!((told.ok, told.broken_at), (false, Some(broken_at)));
    }

    /// Rewriting an entry and everything after it is found by the head that was noted, and only so.
    #[test]
    fn a_chain_made_anew_has_another_head(deeds in deeds(), at in any::<prop::sample::Index>()) {
        let (_, head) = chain(&deeds);
        let mut others = deeds;
        let at = at.index(others.len());
        others[at].detail.push('x');
        let (entries, other_head) = chain(&others);
        prop_assert!(verdict(&entries, &other_head, None).ok);
        prop_assert!(!verdict(&entries, &other_head, Some(&head.hash)).ok);
        prop_assert!(!verdict(&entries, &head, None).ok);
    }
}
