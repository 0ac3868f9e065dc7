//! Files made to hurt: whatever they hold, judging them ends, and in time.

use fastrand::Rng;
use proptest::prelude::*;

use super::super::contents;
use super::super::rules::RULES;
use super::{AllowList, Reason, Verdict, judge};

const LARGE: usize = 5 << 20;

/// Lines that make rules look as often as possible.
fn adversarial() -> Vec<Vec<u8>> {
    let pieces: Vec<String> = RULES
        .iter()
        .flat_map(|rule| rule.keywords)
        .map(|keyword| (*keyword).to_owned())
        .collect();
    let all = pieces.join("=\"");
    let units = [
        all,
        "-----BEGIN PRIVATE KEY-----\n".into(),
        "password='".into(),
        "token = \"aaaaaaaaaaaaaaaa".into(),
        "postgres://a:".into(),
        "aws secret key ".into(),
        "token eyJ".into(),
    ];
    units
        .iter()
        .map(|unit| unit.repeat(LARGE / unit.len()).into_bytes())
        .collect()
}

#[test]
fn each_rule_reads_a_hostile_line_at_most_once() {
    for line in adversarial() {
        let mut ends = vec![0; RULES.len()];
        let mut read = vec![0; RULES.len()];
        for (rule, zone) in contents::zones("x/.npmrc", &line) {
            assert!(
                ends[rule] == 0 || zone.start > ends[rule],
                "{}",
                RULES[rule].what
            );
            ends[rule] = zone.end;
            read[rule] += zone.len();
        }
        assert!(read.iter().all(|bytes| *bytes <= line.len()));
    }
}

#[test]
fn hostile_lines_are_judged_to_their_end() {
    let token = super::corpus::drawn(&mut Rng::with_seed(1), "ghp_{alnum:36}");
    for mut line in adversarial() {
        line.extend(format!(" {token}\n").into_bytes());
        let verdict = judge("x.txt", b"", &line, &AllowList::default());
        assert!(matches!(verdict, Verdict::Blocks(_)), "{verdict:?}");
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        path in ".{0,80}",
        before in proptest::collection::vec(any::<u8>(), 0..300),
        after in proptest::collection::vec(any::<u8>(), 0..300),
        keyword in 0..RULES.len(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut after = after;
        let at = at.index(after.len() + 1);
        after.splice(at..at, RULES[keyword].keywords[0].bytes());
        let _ = judge(&path, &before, &after, &AllowList::default());
        let own = judge(&path, &after, &after, &AllowList::default());
        prop_assert!(!matches!(own, Verdict::Blocks(Reason::Content(super::TokensAndAuth, _))), "what was there is not new");
    }

    #[test]
    fn a_token_is_found_wherever_it_stands(
        before in "[ -~\n]{0,400}",
        after in "[ -~\n]{0,400}",
        seed in any::<u64>(),
    ) {
        let token = super::corpus::drawn(&mut Rng::with_seed(seed), "npm_{alnum:36}");
        let text = format!("{before} {token} {after}");
        let verdict = judge("a.txt", b"", text.as_bytes(), &AllowList::default());
        prop_assert!(matches!(verdict, Verdict::Blocks(_)));
    }
}
