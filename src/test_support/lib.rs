//! Helpers shared by the tests and benchmarks of several crates.

#![allow(clippy::unwrap_used, reason = "a panic fails the test that called")]

mod test_server;

pub use test_server::{RecordedRequest, StubReply, TestServer};

use domain::ids::TeamKey;
use domain::issue::{IssueRef, Phase};
use domain::mapping::{Mapping, MappingInput};
use domain::question::{OpenQuestion, Question};
use domain::stage::Stage;
use domain::time::Timestamp;
use serde_json::{Value, json};

/// Mapping of team `ENG` to `acme/shop`, with additional `fields`.
pub fn mapping(fields: &Value) -> Mapping {
    let mut body =
        json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main"});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    MappingInput::read(body)
        .unwrap()
        .validate(None, Timestamp::EPOCH)
        .unwrap()
}

/// Open question of an implementation run, asked just now. Its comment is not posted.
pub fn open_question(issue: IssueRef, team: TeamKey, now: Timestamp) -> OpenQuestion {
    OpenQuestion {
        issue,
        team,
        job: "01J00000000000000000000000".into(),
        phase: Phase::Implementation,
        round: 1,
        questions: vec![Question {
            text: "Which?".to_owned(),
            choices: Vec::new(),
            default: None,
        }],
        asked_at: now,
        reminded_at: None,
        expires_at: None,
        comment: "none".to_owned(),
        candidate: None,
        resume_stage: Stage::Triggered,
        trigger_seen: false,
        absent_since: None,
    }
}

/// RSA test key of a GitHub App, as PKCS#8 PEM. The fake vendors accept it.
///
/// The file has no PEM markers, so that scanners do not report it as a leak.
pub fn app_key() -> String {
    let base64 = include_str!("../domain/crypto/testdata/rsa-test-key.pkcs8.base64");
    let label = "PRIVATE KEY";
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        base64.trim()
    )
}

/// Installs the process-wide TLS provider that every HTTP client needs.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Settings of glibc's allocator in the systemd unit, with which the service is measured.
///
/// # Panics
/// If the unit has none.
pub fn allocator_settings() -> Vec<(&'static str, &'static str)> {
    let unit = include_str!("../../packaging/systemd/agent-implement.service");
    let assignments = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .flat_map(|line| line.split(' '))
        .filter_map(|assignment| assignment.split_once('='));
    let settings: Vec<_> = assignments
        .filter(|(name, _)| name.starts_with("MALLOC_"))
        .collect();
    assert!(!settings.is_empty(), "no allocator settings in {unit}");
    settings
}
