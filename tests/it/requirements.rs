//! What tests need and a machine may lack.
//!
//! A test whose need is missing fails, unless `AGENT_IMPLEMENT_SKIP` names the need (a list, separated by
//! commas). `tests/run.sh` names only what it could neither find nor install, and prints it.

use std::collections::BTreeSet;
use std::io::Write;

/// Every need there is.
const NEEDS: [&str; 13] = [
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

/// Returns what was found. None if it was not and may be skipped; the skip is then printed where nobody
/// captures it.
///
/// # Panics
/// If it is missing and the skip is not named.
pub fn require<T>(name: &str, test: &str, found: Result<T, impl Into<String>>) -> Option<T> {
    let list = std::env::var("AGENT_IMPLEMENT_SKIP").unwrap_or_default();
    match judge(name, test, found.map_err(Into::into), &skipped(&list)) {
        Ok(found) => Some(found),
        Err(skip) => {
            std::io::stderr().write_all(skip.as_bytes()).unwrap();
            None
        }
    }
}

fn skipped(list: &str) -> BTreeSet<&str> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let names: BTreeSet<&str> = names.collect();
    for name in &names {
        assert!(
            NEEDS.contains(name),
            "AGENT_IMPLEMENT_SKIP: {name} is none of {NEEDS:?}"
        );
    }
    names
}

fn judge<T>(
    name: &str,
    test: &str,
    found: Result<T, String>,
    skipped: &BTreeSet<&str>,
) -> Result<T, String> {
    assert!(NEEDS.contains(&name), "{name} is none of {NEEDS:?}");
    found.map_err(|why| {
        assert!(
            skipped.contains(name),
            "{test} needs {name}: {why}. Install it (tests/run.sh does), or set AGENT_IMPLEMENT_SKIP={name}"
        );
        format!("SKIPPED {test}: {why}\n")
    })
}

fn missing() -> Result<(), String> {
    Err("there is none".to_owned())
}

#[test]
#[should_panic(expected = "the story needs engine: there is none.")]
fn what_is_missing_fails_the_test() {
    let _ = judge(
        "engine",
        "the story",
        missing(),
        &skipped("contracts, mount"),
    );
}

#[test]
fn what_is_missing_and_named_is_skipped() {
    let skip = judge(
        "engine",
        "the story",
        missing(),
        &skipped("contracts, engine"),
    );
    assert_eq!(skip, Err("SKIPPED the story: there is none\n".to_owned()));
    assert_eq!(
        judge("engine", "the story", Ok(7), &skipped("engine")),
        Ok(7)
    );
}

#[test]
#[should_panic(expected = "engines is none of")]
fn a_skip_that_names_nothing_is_refused() {
    skipped("engines");
}
