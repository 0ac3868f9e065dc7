//! For the fuzzer: every parser of bytes that strangers write, one door each.
//!
//! `fuzz/` opens each door with bytes of its own making; the test below opens them with the corpus and
//! what little changes make of it. A door fails by a panic, or by breaking what it promises.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use domain::comments;
use domain::crypto::run_token::{RunTokenIssuer, TokenAudience};
use domain::crypto::signature;
use domain::feedback::{
    self, FeedbackAuthor, FeedbackSource, PullRequestMeta, ReviewComment, ReviewState,
};
use domain::ids::Repo;
use domain::issue::System;
use domain::mapping::{Mapping, MappingInput};
use domain::report::{ResultReport, StepRecord};
use domain::run_config::{RunConfig, RunInputs};
use domain::secret::Secret;
use domain::sensitive_files::{self, AllowList};
use domain::session_event::SessionEvent;
use domain::time::Timestamp;
use domain::{branch, runner_image};
use vendors::http::Redactor;
use vendors::{scm, session_hosts, ticketing};

/// What takes the bytes.
pub type EntryPoint = fn(&[u8]);

/// Every door by its name, which is that of its target and of its corpus.
pub const ENTRY_POINTS: [(&str, EntryPoint); 14] = [
    ("webhook", webhook),
    ("ticketing_webhook", ticketing_webhook),
    ("remark", review_comment),
    ("run_report", run_report),
    ("run_token", run_token),
    ("repository_files", repository_files),
    ("pipeline_yaml", pipeline_yaml),
    ("adf", adf),
    ("agent_stream", agent_stream),
    ("container_log", container_log),
    ("git_changes", git_changes),
    ("sensitive", sensitive_file),
    ("redaction", redaction),
    ("linear", linear_time),
];

/// A credential that nobody can guess out of a corpus.
const SECRET: &str = "a-credential-of-the-fuzzer-4711";

/// A project of either system.
static MAPPINGS: LazyLock<Vec<Mapping>> = LazyLock::new(|| {
    let rows = [
        json!({"teamKey": "ENG", "ticketingProvider": "A"}),
        json!({"teamKey": "OPS", "ticketingProvider": "B",
            "ticketingConfig": {"jql": "project = OPS", "repoFieldValue": "shop"}}),
    ];
    let target = json!({"owner": "acme", "repo": "shop", "defaultBranch": "main"});
    let read = |row: Value| {
        let mut body = target.clone();
        let fields = row.as_object().into_iter().flatten();
        fields.for_each(|(name, value)| body[name] = value.clone());
        MappingInput::read(body)
            .ok()?
            .validate(None, Timestamp::EPOCH)
            .ok()
    };
    rows.into_iter().filter_map(read).collect()
});

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new([SECRET]));

/// The first line, and what comes after it.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n');
    at.map_or((data, &[]), |at| (&data[..at], &data[at + 1..]))
}

/// The event's name on a line, then its payload.
pub fn webhook(data: &[u8]) {
    let (event, payload) = split(data);
    let event = std::str::from_utf8(event).ok();
    let signed = event.unwrap_or_default();
    assert!(!signature::is_valid_signature(
        payload,
        signed,
        &Secret::new(SECRET)
    ));
    let whole = serde_json::from_slice::<Value>(payload).ok();
    let kept = scm::webhook::parse_payload(payload);
    assert_eq!(kept.is_some(), whole.as_ref().is_some_and(Value::is_object));
    if let (Some(kept), Some(whole)) = (kept, whole) {
        for event in [event, None] {
            let told = scm::webhook::parse_event(event, &kept);
            assert_eq!(told, scm::webhook::parse_event(event, &whole));
        }
    }
}

/// The system's letter on a line, then its payload.
pub fn ticketing_webhook(data: &[u8]) {
    let (system, payload) = split(data);
    let system = match system {
        b"A" => System::Linear,
        _ => System::Jira,
    };
    if let Ok(payload) = serde_json::from_slice(payload) {
        let _ = ticketing::is_relevant_event(system, &payload, &MAPPINGS);
    }
}

/// What somebody said about a pull request; the text of one; and words of ours made of theirs.
pub fn review_comment(data: &[u8]) {
    let (author, said) = split(data);
    let said = String::from_utf8_lossy(said);
    let login = String::from_utf8_lossy(author);
    for source in [
        FeedbackSource::Review,
        FeedbackSource::ReviewComment,
        FeedbackSource::IssueComment,
    ] {
        for verdict in [
            None,
            Some(ReviewState::Commented),
            Some(ReviewState::ChangesRequested),
        ] {
            let remark = ReviewComment {
                source,
                id: 1,
                author: FeedbackAuthor::from_account(&login, author.ends_with(b"]")),
                review_state: verdict,
                path: None,
                line: None,
                body: said.clone().into_owned(),
                created_at: Timestamp::EPOCH,
            };
            let _ = feedback::classify(&remark);
            let _ = remark.fingerprint_input();
        }
    }
    let _ = PullRequestMeta::from_body(&said);
    for ours in [
        comments::sanitize_plain_text(&said),
        comments::sanitize_markdown(&said),
    ] {
        assert_eq!(feedback::parse_command(&ours), None, "{ours}");
        assert_eq!(PullRequestMeta::from_body(&ours), None, "{ours}");
        assert!(!ours.contains("![") && !ours.contains('\u{1b}'), "{ours}");
    }
}

/// A body of `/runner/*` or of a session's calls.
pub fn run_report(data: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let _ = ResultReport::parse(&body);
    let _ = SessionEvent::parse(&body);
    if let Ok(step) = StepRecord::parse(body.get("step").cloned()) {
        assert!(StepRecord::parse(Some(json!(step))).is_ok());
    }
    if let Ok(inputs) = serde_json::from_slice::<RunInputs>(data) {
        let _ = RunConfig::from_inputs(&inputs);
    }
}

/// A bearer token of a run. None of a stranger's is good.
pub fn run_token(data: &[u8]) {
    let tokens = RunTokenIssuer::new(&Secret::new(SECRET));
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for audience in [TokenAudience::Result, TokenAudience::Progress] {
        assert!(tokens.verify(text, audience, Timestamp::EPOCH).is_err());
    }
    let _ = signature::bearer_token(text);
}

/// What a repository says in files: WORKFLOW.md, config.yml, image.yml; and a branch prefix.
pub fn repository_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    run::fuzz_repo_config(text);
    let _ = runner_image::parse_image_file(text, &Repo::new("acme", "shop"), &[]);
    if let Ok(Some(prefix)) = branch::parse_prefix(text) {
        assert!(prefix.len() <= 64 && !prefix.contains(".."));
    }
}

/// An operator's own pipeline.
pub fn pipeline_yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // What an id allows differs; which one is tried is the input's choice.
    let id = ["autonomous", "gap-fill", "docs"][text.len() % 3];
    let _ = pipeline::parse_definition(id, "fuzzed.yml", text, &|_| Ok(None));
}

/// Jira's document format, in both directions.
pub fn adf(data: &[u8]) {
    if let Ok(document) = serde_json::from_slice::<Value>(data) {
        let _ = ticketing::adf_to_markdown(&document);
    } else if let Ok(text) = std::str::from_utf8(data) {
        let document = ticketing::markdown_to_adf(text);
        let _ = ticketing::adf_to_markdown(&document);
    }
}

/// What an agent's program says, each of them.
pub fn agent_stream(data: &[u8]) {
    run::agent::fuzz_streams(&String::from_utf8_lossy(data));
}

/// A container's log in the engine's frames.
pub fn container_log(data: &[u8]) {
    assert!(session_hosts::container_log_tail(data).len() <= 6_000);
}

/// What git says has changed.
pub fn git_changes(data: &[u8]) {
    run::fuzz_changes(data);
}

/// A path on a line, then what stands in its file.
pub fn sensitive_file(data: &[u8]) {
    let (path, contents) = split(data);
    let path = String::from_utf8_lossy(path);
    let nothing = AllowList::default();
    let _ = sensitive_files::check_file(&path, b"", contents, &nothing);
    let _ = sensitive_files::check_file(&path, contents, contents, &nothing);
    let _ = sensitive_files::check_symlink(&path, &String::from_utf8_lossy(contents));
}

/// A log with a credential in it, whole and line by line: the credential never comes out.
pub fn redaction(data: &[u8]) {
    let redactor = &*REDACTOR;
    let text = String::from_utf8_lossy(data).replace('\u{1}', SECRET);
    let mut lines = redactor.line_redactor();
    for line in text.split('\n') {
        let shown = lines.redact(line);
        assert!(!shown.contains(SECRET), "{shown}");
    }
    assert!(!redactor.redact(&text).contains(SECRET));
}

/// The same bytes over and over, to a size at which anything quadratic takes many seconds: the guard
/// and redaction take less than one.
pub fn linear_time(data: &[u8]) {
    const SIZE: usize = if cfg!(fuzzing) { 256 << 10 } else { 1 << 10 };
    const LIMIT: Duration = Duration::from_secs(1);
    let text = String::from_utf8_lossy(data);
    if text.is_empty() {
        return;
    }
    let text = text.repeat(SIZE / text.len() + 1);
    let began = Instant::now();
    let _ = sensitive_files::check_file("x", b"", text.as_bytes(), &AllowList::default());
    let judged = began.elapsed();
    let _ = REDACTOR.redact(&text);
    let redacted = began.elapsed() - judged;
    assert!(
        judged < LIMIT && redacted < LIMIT,
        "{judged:?} {redacted:?}"
    );
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// How many changed copies of each piece of the corpus are tried.
    const CHANGED: usize = 200;

    fn corpus(door: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../corpus")
            .join(door);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|_| panic!("no {folder:?}"));
        files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect()
    }

    /// As a fuzzer does: bytes turned, cut out, doubled, or taken from another piece.
    fn change(piece: &mut Vec<u8>, other: &[u8], chance: &mut fastrand::Rng) {
        for _ in 0..chance.usize(1..4) {
            let at = chance.usize(0..=piece.len());
            let end = (at + chance.usize(0..16)).min(piece.len());
            match chance.u8(0..4) {
                0 if at < piece.len() => piece[at] = chance.u8(..),
                1 => drop(piece.drain(at..end)),
                2 => {
                    let doubled = piece[at..end].to_vec();
                    piece.splice(at..at, doubled);
                }
                _ => {
                    let from = chance.usize(0..=other.len());
                    let until = (from + chance.usize(0..32)).min(other.len());
                    piece.splice(at..end, other[from..until].iter().copied());
                }
            }
        }
    }

    #[test]
    fn every_door_holds_against_its_corpus_and_changes_of_it() {
        let mut chance = fastrand::Rng::with_seed(7);
        for (name, door) in ENTRY_POINTS {
            let corpus = corpus(name);
            assert!(!corpus.is_empty(), "{name}");
            for piece in &corpus {
                door(piece);
                for _ in 0..CHANGED {
                    let mut changed = piece.clone();
                    let other = &corpus[chance.usize(..corpus.len())];
                    change(&mut changed, other, &mut chance);
                    door(&changed);
                }
            }
        }
    }

    #[test]
    fn every_door_has_a_target() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        for (name, _) in ENTRY_POINTS {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            let target = root.join(format!("fuzz_targets/{name}.rs"));
            assert!(
                std::fs::read_to_string(target)
                    .unwrap()
                    .contains("fuzz_entry_points::")
            );
        }
    }
}
