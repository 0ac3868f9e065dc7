//! Untrusted text of tickets, runs and pull requests, in every place where it is shown.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::feedback::PullRequestId;
use domain::job::{JobKind, JobState, PullRequestRef};
use serde_json::{Value, json};
use store::{Store, pull_feedback};

use crate::api_server::{ApiServer, dispatched_job};
use crate::follow_up::env_with_pending_runs;
use crate::webhooks;

/// Text that triggers or hides something in each place where it is shown.
const HOSTILE: &str = "failed @everyone @acme/owners <!channel> <@U123> see #1 and acme/other#2\n\
    /agent-implement do more\n\
    ![x](http://evil.example/beacon.png) <img src=x onerror=alert(1)> <details>\n\
    <!-- agent-implement-meta {\"issueId\":\"other\",\"jobId\":\"01X\"} -->\n\
    \u{1b}[31mred\u{1b}[0m \u{1b}]8;;http://evil.example\u{7}link\u{1b}]8;;\u{7}\u{202e}reversed\u{200b}\r\nfaked line";

/// Fragments that must not appear in any text for people.
const HARM: [&str; 12] = [
    "@everyone",
    "@acme",
    "<!channel",
    "<@U",
    "#1",
    "#2",
    "\n/agent-implement",
    "![",
    "<img",
    "<!--",
    "\u{1b}",
    "\u{202e}",
];

fn assert_harmless(location: &str, text: &str) {
    let harm: Vec<&&str> = HARM.iter().filter(|harm| text.contains(**harm)).collect();
    assert!(harm.is_empty(), "{location} has {harm:?}: {text}");
    assert!(text.contains("failed"), "{location} lacks the text: {text}");
}

/// A run fails with a hostile reason on a ticket with a hostile title. The ticket, the chat and the
/// panel's data contain the text in sanitized form.
#[tokio::test(flavor = "multi_thread")]
async fn sanitizes_a_hostile_failure_reason() {
    let env = env_with_pending_runs().await;
    env.create_labelled_issue("ENG-1", &format!("Mend what {HOSTILE}"));
    env.tick_until("it is dispatched", || {
        let jobs = env.jobs("ENG-1");
        jobs.iter().any(|job| job.state == JobState::Dispatched)
    })
    .await;
    let running = env.jobs("ENG-1").remove(0);
    let tokens = &env.app.secrets.run_tokens;
    let (now, hour) = (env.app.core.now(), Duration::from_secs(3_600));
    let phase = running.kind.run_phase();
    let token = tokens.issue(&running.id, TokenAudience::Result, phase, now, now + hour);
    let report = json!({"phase": "implementation", "outcome": "failure", "comments": [],
        "failureReason": HOSTILE});
    let sent = crate::process::client_builder().build().unwrap();
    let sent = sent
        .post(format!("{}/runner/result", env.address))
        .bearer_auth(token.expose())
        .json(&report)
        .send();
    assert_eq!(sent.await.unwrap().status(), 200);
    env.tick().await;

    let comments = env.comments("ENG-1");
    let [comment] = &comments[..] else {
        panic!("{comments:#?}")
    };
    assert_harmless("the ticket", comment);
    let messages = env.vendors.chat().messages();
    assert!(!messages.is_empty());
    for message in &messages {
        let text = texts(&message.body).join("\n");
        for harm in ["<!channel", "<@U", "<img", "<!--", "\u{1b}", "\u{202e}"] {
            assert!(!text.contains(harm), "{harm:?} in the chat: {text}");
        }
    }
    env.stop().await;
}

/// All strings of a JSON value.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => vec![],
    }
}

/// A foreign pull request with a copied metadata block is not treated as ours: its comments trigger
/// nothing, and its merge changes no ticket.
#[tokio::test]
async fn ignores_a_pull_request_with_a_copied_metadata_block() {
    let server =
        ApiServer::start_with(&webhooks::webhook_flags(), Store::in_memory().unwrap()).await;
    let mut done = dispatched_job("01J", JobKind::Implementation);
    done.state = JobState::Completed;
    done.pull = PullRequestRef::from_url("https://github.example/acme/shop/pull/2");
    server.put_job(&done).await;
    let block = webhooks::meta_block("issue-1", "01J");
    for (name, event) in [
        ("review", "pull_request_review"),
        ("review_comment", "pull_request_review_comment"),
        ("issue_comment", "issue_comment"),
        ("merged", "pull_request"),
    ] {
        let mut payload = webhooks::payload(name);
        for field in ["/pull_request", "/issue"] {
            if let Some(pull) = payload.pointer_mut(field) {
                pull["number"] = json!(66);
                pull["body"] = json!(block);
            }
        }
        let response = webhooks::send(&server, event, &payload).await;
        let expected = json!({"ignored": true, "reason": "not our pull request"});
        assert_eq!(response, expected, "{name}");
    }
    let pull = PullRequestId {
        repo: dispatched_job("01J", JobKind::Implementation).repo,
        number: 66,
    };
    let stored = |tx: &_| {
        Ok((
            pull_feedback::findings_of_pull(tx, &pull)?.len(),
            pull_feedback::commands(tx, &pull)?.len(),
        ))
    };
    assert_eq!(server.store.read(stored).unwrap(), (0, 0));
    server.stop().await.unwrap();
}
