//! Requirements of tests that a machine may lack.
//!
//! A test with a missing requirement fails, unless `AGENT_IMPLEMENT_SKIP` (separated by commas) names the
//! requirement. `tests/run.sh` sets and prints only requirements that it could neither find nor install.

use std::collections::BTreeSet;
use std::io::Write;

/// Names of all requirements.
const REQUIREMENTS: [&str; 13] = [
    "agents",
    "browser",
    "caddy",
    "contracts",
    "crates",
    "engine",
    "fish",
    "groff",
    "immutable",
    "mount",
    "namespaces",
    "panel-tools",
    "zsh",
];

/// Returns the requirement, or `None` if it is missing and may be skipped. A skip is written to standard
/// error directly, because the test harness does not capture that.
///
/// # Panics
/// If the requirement is missing and may not be skipped.
pub fn require<T>(name: &str, test: &str, found: Result<T, impl Into<String>>) -> Option<T> {
    let list = std::env::var("AGENT_IMPLEMENT_SKIP").unwrap_or_default();
    match check(name, test, found.map_err(Into::into), &parse_skips(&list)) {
        Ok(found) => Some(found),
        Err(skip) => {
            std::io::stderr().write_all(skip.as_bytes()).unwrap();
            None
        }
    }
}

fn parse_skips(list: &str) -> BTreeSet<&str> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let names: BTreeSet<&str> = names.collect();
    for name in &names {
        assert!(
            REQUIREMENTS.contains(name),
            "AGENT_IMPLEMENT_SKIP: {name} is not one of {REQUIREMENTS:?}"
        );
    }
    names
}

fn check<T>(
    name: &str,
    test: &str,
    found: Result<T, String>,
    skipped: &BTreeSet<&str>,
) -> Result<T, String> {
    assert!(
        REQUIREMENTS.contains(&name),
        "{name} is not one of {REQUIREMENTS:?}"
    );
    found.map_err(|reason| {
        assert!(
            skipped.contains(name),
            "{test} requires {name}: {reason}. Install it (tests/run.sh does), or set AGENT_IMPLEMENT_SKIP={name}"
        );
        format!("SKIPPED {test}: {reason}\n")
    })
}

fn missing() -> Result<(), String> {
    Err("not found".to_owned())
}

#[test]
#[should_panic(expected = "the test requires engine: not found.")]
fn fails_if_a_requirement_is_missing() {
    let _ = check(
        "engine",
        "the test",
        missing(),
        &parse_skips("contracts, mount"),
    );
}

#[test]
fn skips_a_missing_requirement_that_is_listed() {
    let skip = check(
        "engine",
        "the test",
        missing(),
        &parse_skips("contracts, engine"),
    );
    assert_eq!(skip, Err("SKIPPED the test: not found\n".to_owned()));
    assert_eq!(
        check("engine", "the test", Ok(7), &parse_skips("engine")),
        Ok(7)
    );
}

#[test]
#[should_panic(expected = "engines is not one of")]
fn rejects_an_unknown_requirement_in_the_list() {
    parse_skips("engines");
}
