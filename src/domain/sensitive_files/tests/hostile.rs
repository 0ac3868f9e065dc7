//! Files made to hurt: whatever they hold, judging them ends, and in time.

use fastrand::Rng;
use proptest::prelude::*;

use super::super::content_scan;
use super::{AllowList, GuardReason, GuardVerdict, check_file};

const LARGE: usize = 5 << 20;

/// How often a byte of a hostile file may be looked at by what follows a keyword.
const MOST_LOOKS: usize = 48;

/// Lines that make rules look as often as possible.
fn adversarial() -> Vec<Vec<u8>> {
    let keywords = content_scan::keywords();
    let all = keywords.join(&b"=\""[..]);
    let mut units: Vec<Vec<u8>> = [
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nComment: -----BEGIN PRIVATE KEY-----\n",
        "password='",
        "password=password=",
        "token = \"aaaaaaaaaaaaaaaa",
        "postgres://a:",
        "postgres://a:b@c ",
        "aws secret key ",
        "aws_secret_key=aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3 ",
        "token eyJ",
        "eyJaaaaaaaaaaaaa.eyJ",
        "host=a;pwd=b;",
        "curl -u ",
        "machine login ",
        "bearer ",
        "\"d\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1\",",
        "AZDO",
        "AZDOabcd ",
        ".glpat-glpat-glpat-",
        "AIzaAIza",
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg",
        "%5F\\u005f\\x5f",
    ]
    .map(|unit| unit.as_bytes().to_vec())
    .into();
    units.push(all);
    units.extend(keywords);
    let fill = |unit: &Vec<u8>| unit.repeat(LARGE / 64 / unit.len());
    units.iter().map(fill).collect()
}

#[test]
fn a_hostile_byte_is_looked_at_a_bounded_number_of_times() {
    for line in adversarial() {
        let steps = content_scan::step_count(&line);
        let shown = String::from_utf8_lossy(&line[..40]);
        assert!(
            steps <= MOST_LOOKS * line.len(),
            "{} looks a byte at {shown:?}",
            steps / line.len()
        );
    }
}

#[test]
fn hostile_lines_are_judged_to_their_end() {
    let token = super::corpus::drawn(&mut Rng::with_seed(1), "ghp_{alnum:36}");
    for mut line in adversarial() {
        line.extend(format!(" {token}\n").into_bytes());
        let verdict = check_file("x.txt", b"", &line, &AllowList::default());
        assert!(matches!(verdict, GuardVerdict::Block(_)), "{verdict:?}");
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        path in ".{0,80}",
        before in proptest::collection::vec(any::<u8>(), 0..300),
        after in proptest::collection::vec(any::<u8>(), 0..300),
        keyword in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut after = after;
        let at = at.index(after.len() + 1);
        let keywords = content_scan::keywords();
        after.splice(at..at, keyword.get(&keywords).iter().copied());
        let _ = check_file(&path, &before, &after, &AllowList::default());
        let own = check_file(&path, &after, &after, &AllowList::default());
        prop_assert!(!matches!(own, GuardVerdict::Block(GuardReason::Content(super::TokensAndAuth, _))), "what was there is not new");
    }

    #[test]
    fn a_token_is_found_wherever_it_stands(
        before in "[ -~\n]{0,400}",
        after in "[ -~\n]{0,400}",
        seed in any::<u64>(),
    ) {
        let token = super::corpus::drawn(&mut Rng::with_seed(seed), "npm_{alnum:36}");
        let text = format!("{before} {token} {after}");
        let verdict = check_file("a.txt", b"", text.as_bytes(), &AllowList::default());
        prop_assert!(matches!(verdict, GuardVerdict::Block(_)));
    }
}
