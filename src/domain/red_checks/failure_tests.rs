use proptest::prelude::*;

use super::*;

fn failure(name: &str, log: &str) -> FailedCheck {
    FailedCheck {
        name: name.to_owned(),
        log: Some(log.to_owned()),
        ..FailedCheck::default()
    }
}

#[test]
fn the_fingerprint_ignores_what_changes_by_itself() {
    let first = "ran 12 tests in 3.42s\n  at /tmp/run-ab12/x.rs:10:4\ncommit 3f2a9c1d77 failed\nleft: wrong\n";
    let same = "left: wrong\nran 13 tests in 0.07s\n  at /tmp/run-ff00/x.rs:11:9\n\ncommit 00aa11bb22 failed\n";
    let other = "ran 12 tests in 3.42s\n  at /tmp/run-ab12/x.rs:10:4\ncommit 3f2a9c1d77 failed\nleft: other\n";
    let print = |log: &str| fingerprint(&[failure("test", log)]);
    assert_eq!(print(first), print(same));
    assert_ne!(print(first), print(other));
    assert_ne!(print(first), fingerprint(&[failure("lint", first)]));
    let (a, b) = (failure("a", first), failure("b", other));
    assert_eq!(fingerprint(&[a.clone(), b.clone()]), fingerprint(&[b, a]));
    let status = |title: &str| {
        fingerprint(&[FailedCheck {
            title: title.to_owned(),
            ..FailedCheck::default()
        }])
    };
    assert_eq!(status("12 of 40 failed"), status("13 of 41 failed"));
    assert_ne!(status("3 failed"), status("timeout"));
}

#[test]
fn each_log_gets_a_fair_share_and_keeps_its_end() {
    let long = |name: &str| {
        failure(
            name,
            &format!(
                "first of {name}\n{}last of {name}\n",
                "line\n".repeat(20_000)
            ),
        )
    };
    let text = format_failures(&[long("a"), failure("short", "one line\n"), long("b")]);
    for part in [
        "1. a\n",
        "2. short\nEnd of its log:\none line\n",
        "last of a\n",
        "last of b",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("first of"));
    let parts: Vec<usize> = text.split("3. b").map(str::len).collect();
    assert!(parts[0].abs_diff(parts[1]) < 500, "{parts:?}");
    let many: Vec<FailedCheck> = (0..40)
        .map(|at| failure(&format!("check {at}"), "x"))
        .collect();
    assert!(format_failures(&many).ends_with("30 more checks fail."));
}

proptest! {
    #[test]
    fn failures_fit_into_a_dispatch(logs in prop::collection::vec((0_usize..60_000, "[a-z<>&\"\\\\é\n]{1,8}"), 0..14)) {
        let failures: Vec<FailedCheck> = logs
            .iter()
            .map(|(count, text)| FailedCheck {
                url: Some(text.repeat(200)),
                title: text.repeat(300),
                summary: text.repeat(300),
                ..failure(&text.repeat(40), &text.repeat(*count / text.len()))
            })
            .collect();
        let text = format_failures(&failures);
        prop_assert!(text.len() <= MAX_LOG_BYTES + 10 * 2_500, "{}", text.len());
    }
}
