//! Tests with adversarial files: every check ends in bounded time.

use fastrand::Rng;
use proptest::prelude::*;

use super::super::content_scan;
use super::{AllowList, GuardReason, GuardVerdict, check_file};

const LARGE: usize = 5 << 20;

/// Maximum number of times that rules may read a byte of an adversarial file.
const MAX_READS_PER_BYTE: usize = 48;

/// Returns lines that make rules read as many bytes as possible.
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
fn reads_each_byte_a_bounded_number_of_times() {
    for line in adversarial() {
        let steps = content_scan::step_count(&line);
        let start = String::from_utf8_lossy(&line[..40]);
        assert!(
            steps <= MAX_READS_PER_BYTE * line.len(),
            "{} reads per byte of {start:?}",
            steps / line.len()
        );
    }
}

#[test]
fn finds_a_token_at_the_end_of_an_adversarial_line() {
    let token = super::corpus::generate(&mut Rng::with_seed(1), "ghp_{alnum:36}");
    for mut line in adversarial() {
        line.extend(format!(" {token}\n").into_bytes());
        let verdict = check_file("x.txt", b"", &line, &AllowList::default());
        assert!(matches!(verdict, GuardVerdict::Block(_)), "{verdict:?}");
    }
}

proptest! {
    #[test]
    fn never_panics(
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
        prop_assert!(!matches!(own, GuardVerdict::Block(GuardReason::Content(super::TokensAndAuth, _))), "unchanged content was reported as new");
    }

    #[test]
    fn finds_a_token_at_any_position(
        before in "[ -~\n]{0,400}",
        after in "[ -~\n]{0,400}",
        seed in any::<u64>(),
    ) {
        let token = super::corpus::generate(&mut Rng::with_seed(seed), "npm_{alnum:36}");
        // One of 28,000 looks like an example.
        prop_assume!(!token.to_lowercase().contains("xxxx"));
        let text = format!("{before} {token} {after}");
        let verdict = check_file("a.txt", b"", text.as_bytes(), &AllowList::default());
        prop_assert!(matches!(verdict, GuardVerdict::Block(_)));
    }
}
