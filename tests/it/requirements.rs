//! Requirements of tests that a machine may lack.
//!
//! `#[requires("NAME")]` above a test makes it ignored if `AGENT_IMPLEMENT_SKIP` names the requirement. A test
//! that runs without its requirement fails.

use std::fmt::Display;

/// Returns the requirement.
///
/// # Panics
/// If the requirement is missing.
pub fn require<T>(name: &str, found: Result<T, impl Display>) -> T {
    found.unwrap_or_else(|reason| {
        panic!(
            "this test requires {name}: {reason}. Install it (tests/run.sh does), or set AGENT_IMPLEMENT_SKIP={name}=REASON"
        )
    })
}

#[test]
#[should_panic(expected = "requires engine: not found.")]
fn fails_if_a_requirement_is_missing() {
    require("engine", Err::<(), _>("not found"));
}

#[test]
fn returns_a_requirement_that_is_there() {
    assert_eq!(require("engine", Ok::<_, String>(7)), 7);
}
