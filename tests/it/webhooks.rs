//! `POST /api/repo-host/webhook`: rejected, ignored and duplicate deliveries.

use std::time::Duration;

use domain::crypto::signature::sign;
use domain::feedback::{FeedbackSource, PullRequestId, ReviewFindingState};
use domain::ids::Repo;
use domain::job::{JobKind, JobState, PullRequestRef};
use domain::secret::Secret;
use engine::pull_requests::follow_up;
use serde_json::{Value, json};
use store::dedup::DedupEntry;
use store::{Store, dedup, pull_feedback, webhook_deliveries};

use crate::api_server::{
    ACCESS_CODE, ApiResponse, ApiServer, CLOCK_START, dispatched_job, send_checked,
};

const PATH: &str = "/api/repo-host/webhook";
/// Webhook secret of [`webhook_flags`].
pub const WEBHOOK_SECRET: &str = "the host's own secret";

/// GitHub webhook payload from the test data, shortened to the fields in use.
pub fn payload(name: &str) -> Value {
    let text = match name {
        "check_run" => include_str!("../data/webhooks/check_run.json"),
        "closed" => include_str!("../data/webhooks/closed.json"),
        "issue_comment" => include_str!("../data/webhooks/issue_comment.json"),
        "issue_comment_on_issue" => include_str!("../data/webhooks/issue_comment_on_issue.json"),
        "merged" => include_str!("../data/webhooks/merged.json"),
        "opened" => include_str!("../data/webhooks/opened.json"),
        "ping" => include_str!("../data/webhooks/ping.json"),
        "review" => include_str!("../data/webhooks/review.json"),
        "review_comment" => include_str!("../data/webhooks/review_comment.json"),
        "review_dismissed" => include_str!("../data/webhooks/review_dismissed.json"),
        "synchronize" => include_str!("../data/webhooks/synchronize.json"),
        "thread_resolved" => include_str!("../data/webhooks/thread_resolved.json"),
        other => panic!("no payload {other}"),
    };
    serde_json::from_str(text).unwrap()
}

/// Metadata block of the service's pull requests.
pub fn meta_block(issue: &str, job: &str) -> String {
    let meta = json!({"issueId": issue, "identifier": "ENG-1", "dispatchId": job, "jobId": job});
    format!("Adds the feature.\n\n<!-- agent-implement-meta {meta} -->\n")
}

/// Value of the signature header for a body.
pub fn signature(body: &[u8]) -> String {
    format!("sha256={}", sign(body, &Secret::new(WEBHOOK_SECRET)))
}

/// Flags with the access code and the webhook secret.
pub fn webhook_flags() -> Vec<&'static str> {
    let admin = ["--admin-access-code", ACCESS_CODE];
    [admin, ["--scm-webhook-secret", WEBHOOK_SECRET]].concat()
}

async fn server() -> ApiServer {
    ApiServer::start_with(&webhook_flags(), Store::in_memory().unwrap()).await
}

async fn post(
    server: &ApiServer,
    body: impl Into<Vec<u8>>,
    headers: &[(&str, &str)],
) -> ApiResponse {
    let body = body.into();
    let mut request = server.request("POST", PATH);
    if headers
        .iter()
        .all(|(name, _)| *name != "x-hub-signature-256")
    {
        request = request.header("x-hub-signature-256", signature(&body));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send_checked(request.body(body)).await
}

/// Sends a payload with a random delivery id. Returns the response body.
pub async fn send(server: &ApiServer, event: &str, payload: &Value) -> Value {
    let id = format!("{:x}", fastrand::u128(..));
    let headers = [("x-github-event", event), ("x-github-delivery", &id)];
    let response = post(server, payload.to_string(), &headers).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

/// Stores the completed job that opened pull request 2 for issue `issue-1`.
async fn put_pull_job(server: &ApiServer) {
    let mut done = dispatched_job("01J", JobKind::Implementation);
    done.state = JobState::Completed;
    done.finished_at = Some(CLOCK_START);
    done.pull = PullRequestRef::from_url("https://github.example/acme/shop/pull/2");
    server.put_job(&done).await;
}

/// Payload about pull request 2, with the metadata block in its body.
fn own_payload(name: &str) -> Value {
    let mut payload = payload(name);
    for field in ["/pull_request", "/issue"] {
        if let Some(pull) = payload.pointer_mut(field) {
            pull["number"] = json!(2);
            pull["body"] = json!(meta_block("issue-1", "01J"));
        }
    }
    payload
}

/// Payload about a check in a repository.
fn check_of(repo: &str) -> Value {
    let mut payload = payload("check_run");
    payload["repository"]["full_name"] = json!(repo);
    payload
}

/// Payload about pull request 2 with this text and a random id.
fn payload_with_text(name: &str, field: &str, text: &str) -> Value {
    let mut payload = own_payload(name);
    payload[field]["body"] = json!(text);
    payload[field]["id"] = json!(fastrand::u32(..));
    payload
}

fn ignored(reason: &str) -> Value {
    json!({"ignored": true, "reason": reason})
}

fn findings(server: &ApiServer) -> Vec<(FeedbackSource, ReviewFindingState, String)> {
    let pull = PullRequestId {
        repo: Repo::new("acme", "shop"),
        number: 2,
    };
    let rows = server
        .store
        .read(|tx| pull_feedback::findings_of_pull(tx, &pull));
    let rows = rows.unwrap().into_iter();
    rows.map(|(_, one)| (one.comment.source, one.state, one.comment.body))
        .collect()
}

#[tokio::test]
async fn invalid_requests_are_rejected_in_a_fixed_order() {
    let off = ApiServer::start_with(
        &["--admin-access-code", ACCESS_CODE],
        Store::in_memory().unwrap(),
    );
    let response = post(&off.await, "{", &[]).await;
    assert_eq!(response.error(), (503, "Webhook not configured"));

    let server = server().await;
    let right = signature(b"{}");
    let others = format!("sha256={}", sign(b"{}", &Secret::new("another")));
    let sha1 = right.replace("sha256=", "sha1=");
    for wrong in ["", "sha256=", &sha1, &right[..70], &others, "sha256=zz"] {
        for body in ["{}", "{", ""] {
            let response = post(&server, body, &[("x-hub-signature-256", wrong)]).await;
            assert_eq!(
                response.error(),
                (401, "Invalid signature"),
                "{wrong:?} {body:?}"
            );
        }
    }
    let changed = post(&server, "{ }", &[("x-hub-signature-256", &right)]).await;
    assert_eq!(changed.error(), (401, "Invalid signature"));
    let unsigned = send_checked(server.request("POST", PATH).body("{}")).await;
    assert_eq!(unsigned.error(), (401, "Invalid signature"));

    let deep = "[".repeat(200_000);
    for wrong in [
        "",
        "{",
        "payload={}",
        "null",
        "7",
        "\"x\"",
        "[]",
        "\u{0}",
        deep.as_str(),
    ] {
        let response = post(&server, wrong, &[]).await;
        assert_eq!(response.error(), (400, "Invalid JSON payload"));
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let response = post(&server, "payload=%7B%22zen%22%3A+1%7D&x=1", &form).await;
    assert_eq!(
        (response.status, response.body),
        (200, ignored("unsupported event"))
    );
    let response = post(&server, "other=%7B%7D", &form).await;
    assert_eq!(response.error(), (400, "Invalid JSON payload"));

    for field in [
        "/pull_request/number",
        "/pull_request/html_url",
        "/pull_request/head/ref",
        "/pull_request/merge_commit_sha",
        "/repository/full_name",
    ] {
        let mut merged = payload("merged");
        *merged.pointer_mut(field).unwrap() = Value::Null;
        for named in [&[("x-github-event", "pull_request")][..], &[]] {
            let response = post(&server, merged.to_string(), named).await;
            assert_eq!(
                response.error(),
                (400, "Missing required PR fields"),
                "{field}"
            );
        }
    }
    let got = server.send("GET", PATH, "", None).await;
    assert_eq!((got.status, got.header("allow")), (405, "POST"));
    let large = post(&server, vec![b' '; (25 << 20) + 1], &[]).await;
    assert_eq!(large.status, 413);
}

#[tokio::test]
async fn a_delivery_is_processed_once_within_days() {
    let server = server().await;
    put_pull_job(&server).await;
    let body = own_payload("review").to_string();
    let headers = [
        ("x-github-event", "pull_request_review"),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
    ];
    let first = post(&server, body.clone(), &headers).await;
    assert_eq!((first.status, first.body), (200, json!({"queued": true})));
    let stored = findings(&server);
    assert_eq!(stored.len(), 1);
    server.clock.advance(Duration::from_secs(3 * 24 * 60 * 60));
    follow_up::run_once(&server.app).await.unwrap();
    let again = post(&server, body.clone(), &headers).await;
    assert_eq!((again.status, again.body), (200, ignored("duplicate")));
    assert_eq!(findings(&server), stored);

    // A rejected delivery is not recorded: its corrected repeat is accepted.
    let headers = [
        ("x-github-event", "pull_request"),
        ("x-github-delivery", "corrected"),
    ];
    let mut merged = own_payload("merged");
    merged["pull_request"]["merge_commit_sha"] = Value::Null;
    assert_eq!(
        post(&server, merged.to_string(), &headers).await.status,
        400
    );
    let response = post(&server, own_payload("merged").to_string(), &headers).await;
    assert_eq!(response.body, json!({"queued": true}));

    // Without an id, a delivery is identified by its bytes.
    let bare = own_payload("synchronize").to_string();
    let response = post(&server, bare.clone(), &[]).await;
    assert_eq!(response.body, json!({"acknowledged": true}));
    assert_eq!(post(&server, bare, &[]).await.body, ignored("duplicate"));

    server.clock.advance(Duration::from_secs(2 * 24 * 60 * 60));
    follow_up::run_once(&server.app).await.unwrap();
    let known = post(&server, own_payload("opened").to_string(), &headers).await;
    assert_eq!(known.body, ignored("duplicate"));
    let first = [("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")];
    let forgotten = post(&server, body, &first).await;
    assert_ne!(
        forgotten.body,
        ignored("duplicate"),
        "expired delivery ids are deleted"
    );
}

#[tokio::test]
async fn an_event_of_no_use_is_not_stored() {
    let server = server().await;
    for (number, (event, payload)) in [
        ("pull_request", own_payload("merged")),
        ("pull_request_review", own_payload("review")),
        ("check_run", check_of("acme/shop")),
        ("star", json!({"action": "created"})),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("useless {number}");
        let headers = [("x-github-event", event), ("x-github-delivery", &id)];
        let first = post(&server, payload.to_string(), &headers).await.body;
        assert_eq!(first["ignored"], true, "{event}: {first}");
        assert_ne!(first, ignored("duplicate"), "{event}");
        let again = post(&server, payload.to_string(), &headers).await.body;
        assert_eq!(again, ignored("duplicate"), "{event}");
        let stored = server
            .store
            .read(|tx| webhook_deliveries::is_recorded(tx, &id));
        assert!(!stored.unwrap(), "{event}");
    }
}

/// Covers every row of the table in docs/behaviour.md#repository-webhook.
#[tokio::test]
async fn each_event_gets_its_response() {
    let server = server().await;
    put_pull_job(&server).await;
    let queued = json!({"queued": true});
    let review = "pull_request_review";
    let line = "pull_request_review_comment";

    let acknowledged = json!({"acknowledged": true});
    assert_eq!(
        send(&server, "check_run", &check_of("acme/shop")).await,
        acknowledged
    );
    assert_eq!(send(&server, review, &own_payload("review")).await, queued);
    let mut blocking = payload_with_text(
        "review",
        "review",
        "## Blocking\n\nThe migration loses rows.",
    );
    blocking["review"]["state"] = json!("commented");
    assert_eq!(send(&server, review, &blocking).await, queued);
    assert_eq!(
        send(&server, line, &own_payload("review_comment")).await,
        queued
    );
    assert_eq!(
        send(&server, "issue_comment", &own_payload("issue_comment")).await,
        queued
    );
    let sources: Vec<FeedbackSource> = findings(&server)
        .into_iter()
        .map(|(source, _, _)| source)
        .collect();
    let count = |wanted| sources.iter().filter(|source| **source == wanted).count();
    assert_eq!(
        [
            count(FeedbackSource::Review),
            count(FeedbackSource::ReviewComment),
            count(FeedbackSource::IssueComment)
        ],
        [2, 1, 1]
    );
    assert!(
        findings(&server)
            .iter()
            .all(|(_, state, _)| *state == ReviewFindingState::New)
    );

    // The same text again, also with other whitespace.
    assert_eq!(
        send(&server, line, &own_payload("review_comment")).await,
        ignored("known")
    );
    let folded = payload_with_text(
        "review_comment",
        "comment",
        " This panics  when\nthe list is empty. ",
    );
    assert_eq!(send(&server, line, &folded).await, ignored("known"));

    let mut approved = payload_with_text("review", "review", "- [ ] everything");
    approved["review"]["state"] = json!("approved");
    let mut edited = payload_with_text("issue_comment", "comment", "/agent-implement");
    edited["action"] = json!("edited");
    let mut closed = own_payload("issue_comment");
    closed["issue"]["state"] = json!("closed");
    let mut bot = payload_with_text("issue_comment", "comment", "- [ ] run the tests");
    bot["comment"]["user"] = json!({"login": "ci[bot]", "type": "Bot"});
    let mut own = payload_with_text("issue_comment", "comment", "🔴 fixed?");
    own["comment"]["user"] = own["issue"]["user"].clone();
    let mut incomplete = own_payload("review_comment");
    incomplete["comment"]["id"] = json!("7");
    let foreign_block = {
        let mut payload = own_payload("review");
        payload["pull_request"]["body"] = json!(meta_block("another-issue", "01X"));
        payload
    };
    let mut foreign_number = own_payload("review");
    foreign_number["pull_request"]["number"] = json!(3);
    let comment = |text: &str| payload_with_text("issue_comment", "comment", text);
    let at_line = |text: &str| payload_with_text("review_comment", "comment", text);
    for (event, payload, reason) in [
        (review, approved, "does not request changes"),
        (line, at_line("nit: rename this"), "optional"),
        (line, at_line("LGTM!"), "praise"),
        (
            "issue_comment",
            comment("What a nice change, and not blocking."),
            "nothing actionable",
        ),
        (
            "issue_comment",
            comment("Please review, @somebody"),
            "nothing actionable",
        ),
        ("issue_comment", bot, "nothing actionable"),
        ("issue_comment", own, "our own words"),
        (
            "issue_comment",
            comment("- [ ] a\n\n<!-- agent-implement:1-1 -->"),
            "our own words",
        ),
        ("issue_comment", edited, "an edited command"),
        ("issue_comment", closed, "the pull request is closed"),
        (
            "issue_comment",
            own_payload("issue_comment_on_issue"),
            "not on a pull request",
        ),
        (review, payload("review"), "not our pull request"),
        (review, foreign_block, "not our pull request"),
        (review, foreign_number, "not our pull request"),
        (line, incomplete, "incomplete payload"),
        (
            "pull_request",
            own_payload("opened"),
            "not a merged pull request",
        ),
        (
            "pull_request",
            own_payload("closed"),
            "not a merged pull request",
        ),
        ("ping", payload("ping"), "unsupported event"),
        ("check_run", check_of("acme/docs"), "not our pull request"),
    ] {
        assert_eq!(
            send(&server, event, &payload).await,
            ignored(reason),
            "{event} {payload}"
        );
    }
    assert_eq!(findings(&server).len(), 4);

    let synchronized = send(&server, "pull_request", &own_payload("synchronize")).await;
    assert_eq!(synchronized, acknowledged);
    let mut command =
        payload_with_text("issue_comment", "comment", "/agent-implement say it louder");
    assert_eq!(send(&server, "issue_comment", &command).await, queued);
    assert_eq!(
        send(&server, "issue_comment", &command).await,
        ignored("known")
    );
    command["action"] = json!("deleted");
    let gone = send(&server, "issue_comment", &command).await;
    assert_eq!(gone, json!({"acknowledged": true}));
}

#[tokio::test]
async fn retracted_feedback_is_withdrawn() {
    let server = server().await;
    put_pull_job(&server).await;
    let states = || -> Vec<ReviewFindingState> {
        findings(&server)
            .into_iter()
            .map(|(_, state, _)| state)
            .collect()
    };
    send(&server, "pull_request_review", &own_payload("review")).await;
    send(
        &server,
        "pull_request_review",
        &own_payload("review_dismissed"),
    )
    .await;
    assert_eq!(states(), [ReviewFindingState::Withdrawn]);
    send(&server, "pull_request_review", &own_payload("review")).await;
    assert_eq!(states(), [ReviewFindingState::New], "it is submitted again");
    let mut approved = payload_with_text("review", "review", "");
    approved["review"]["state"] = json!("approved");
    send(&server, "pull_request_review", &approved).await;
    assert_eq!(states(), [ReviewFindingState::Withdrawn]);

    let line = "pull_request_review_comment";
    send(&server, line, &own_payload("review_comment")).await;
    send(
        &server,
        "pull_request_review_thread",
        &own_payload("thread_resolved"),
    )
    .await;
    assert!(
        states()
            .iter()
            .all(|state| *state == ReviewFindingState::Withdrawn)
    );
    let mut unresolved = own_payload("thread_resolved");
    unresolved["action"] = json!("unresolved");
    let response = send(&server, "pull_request_review_thread", &unresolved).await;
    assert_eq!(response, json!({"queued": true}));
    assert!(states().contains(&ReviewFindingState::New));
    let mut edited = own_payload("review_comment");
    edited["action"] = json!("edited");
    edited["comment"]["body"] = json!("nit: never mind");
    assert_eq!(send(&server, line, &edited).await, ignored("optional"));
    assert!(
        states()
            .iter()
            .all(|state| *state == ReviewFindingState::Withdrawn)
    );
}

/// Repository names are case-insensitive at GitHub, so mappings are, too.
#[tokio::test]
async fn feedback_is_accepted_for_any_letter_case_of_a_mapping() {
    let server = server().await;
    let token = server.sign_in().await;
    let save = async |team: &str, owner: &str, repo: &str| {
        let body = json!({"teamKey": team, "owner": owner, "repo": repo, "defaultBranch": "main"});
        let response = server.send("POST", "/api/mappings", &token, body.to_string());
        let response = response.await;
        assert_eq!(response.status, 200, "{response:?}");
        let name = |field: &str| response.body[field].as_str().unwrap().to_owned();
        format!("{}/{}", name("owner"), name("repo"))
    };
    let delete = async |team: &str| {
        let path = format!("/api/mappings/{team}");
        let response = server.send("DELETE", &path, &token, None).await;
        assert_eq!(response.status, 200, "{response:?}");
    };
    let review = async |text: &str| {
        let review = payload_with_text("review", "review", text);
        send(&server, "pull_request_review", &review).await
    };
    let queued = json!({"queued": true});
    assert_eq!(save("ENG", "acme", "shop").await, "acme/shop");
    assert_eq!(save("ENG", "Acme", "shop").await, "acme/shop");
    put_pull_job(&server).await;
    assert_eq!(save("ENG", "Acme", "Shop").await, "acme/shop");
    assert_eq!(review("The first is wrong.").await, queued);
    // Payloads contain one spelling for both teams.
    assert_eq!(save("AAA", "ACME", "Shop").await, "acme/shop");
    assert_eq!(review("The second is wrong.").await, queued);
    // The pull request is still known without the mapping.
    for team in ["AAA", "ENG"] {
        delete(team).await;
    }
    assert_eq!(save("WEB", "Acme", "Shop").await, "acme/shop");
    assert_eq!(review("The third is wrong.").await, queued);
    assert_eq!(findings(&server).len(), 3);
    // The spelling of a new repository is kept.
    assert_eq!(save("WEB", "Acme", "Docs").await, "Acme/Docs");
}

#[tokio::test]
async fn a_merge_is_processed_once() {
    let server = server().await;
    put_pull_job(&server).await;
    let entry = DedupEntry {
        issue: server.job("01J").issue,
        dispatched_at: CLOCK_START,
    };
    let put = server.store.write(move |tx| dedup::put(tx, &entry));
    put.await.unwrap();
    send(&server, "pull_request_review", &own_payload("review")).await;
    let token = server.sign_in().await;
    let shown = server.send("GET", "/api/pulls", &token, None).await.body;
    assert_eq!(shown["pulls"][0]["state"], "open");
    assert_eq!(shown["pulls"][0]["findingsWaiting"], 1);

    let mut elsewhere = payload("merged");
    elsewhere["pull_request"]["number"] = json!(77);
    let response = send(&server, "pull_request", &elsewhere).await;
    assert_eq!(response, ignored("not our pull request"));
    // Repository names are case-insensitive at GitHub.
    let mut merged = own_payload("merged");
    merged["repository"]["full_name"] = json!("acme/shop");
    assert_eq!(
        send(&server, "pull_request", &merged).await,
        json!({"queued": true})
    );
    assert_eq!(
        send(&server, "pull_request", &merged).await,
        ignored("known")
    );

    let shown = server.send("GET", "/api/pulls", &token, None).await.body;
    let pull = &shown["pulls"][0];
    assert_eq!(
        (&pull["state"], &pull["jobStatus"], &pull["findingsWaiting"]),
        (&json!("merged"), &json!("completed"), &json!(0))
    );
    assert_eq!(
        (
            &pull["prNumber"],
            &pull["repo"],
            &pull["issueIdentifier"],
            &pull["iterations"]
        ),
        (&json!(2), &json!("acme/shop"), &json!("ENG-1"), &json!(1))
    );
    assert!(server.store.read(dedup::all).unwrap().is_empty());
    assert_eq!(findings(&server)[0].1, ReviewFindingState::Withdrawn);
    let pending = server.store.read(store::outbox::pending);
    assert!(pending.unwrap().is_empty(), "the ticket is unchanged");
}
