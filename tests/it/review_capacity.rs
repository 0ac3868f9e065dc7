//! Review capacity: limits of open pull requests, what counts for them, and what releases the tickets that wait.

mod orders;

use std::time::Duration;

use domain::feedback::PullRequestId;
use domain::issue::Phase;
use domain::job::{Job, JobKind, JobState, PullRequestRef};
use domain::mapping::Mapping;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use engine::dispatch::{self, DispatchRequest};
use engine::pull_requests::reconcile;
use fake_vendors::FakeService;
use serde_json::{Value, json};
use store::{jobs, mappings};

use crate::follow_up::{open_pull, options, register_webhook};
use crate::test_env::{TestEnv, TestEnvOptions, mapping, mapping_with};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Environment with a manual engine and webhooks, in which runs are dispatched but never start.
async fn env_with(mappings: Vec<Mapping>) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings,
        ..options()
    })
    .await;
    let slow = Duration::from_secs(6_000);
    env.vendors.github().set_start_delay(slow);
    register_webhook(&env);
    env
}

fn limited(fields: &Value) -> Mapping {
    let mut all = json!({"maxInProgressAiIssues": 50});
    let fields = fields.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    mapping_with(&all)
}

async fn poll(env: &TestEnv) {
    engine::poll::run_once(&env.app).await.unwrap();
}

async fn sweep(env: &TestEnv) {
    reconcile::run_once(&env.app).await.unwrap();
}

async fn decision(env: &TestEnv, key: &str) -> Value {
    let why = env.admin_get(&format!("/api/why/{key}")).await;
    why["decision"].clone()
}

/// Asserts that a ticket waits for reviews, with this message.
async fn assert_waits(env: &TestEnv, key: &str, message: &str) {
    let decision = decision(env, key).await;
    let found = (decision["reason"].as_str(), decision["message"].as_str());
    assert_eq!(found, (Some("review-capacity"), Some(message)), "{key}");
    assert!(env.jobs(key).is_empty(), "{key}");
}

/// Number of runs of a ticket that were reserved.
fn runs(env: &TestEnv, key: &str) -> usize {
    env.jobs(key).len()
}

/// Waits until somebody has woken the poll.
pub async fn assert_poll_is_woken(env: &TestEnv) {
    let woken = env.app.live.notifiers.poll.notified();
    let woken = tokio::time::timeout(Duration::from_secs(20), woken).await;
    assert!(woken.is_ok(), "nothing has woken the poll");
}

/// Whether the poll was woken since this was last asked.
pub async fn is_poll_woken(env: &TestEnv) -> bool {
    let woken = env.app.live.notifiers.poll.notified();
    tokio::time::timeout(Duration::from_millis(1), woken)
        .await
        .is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_waits_for_reviews_until_a_pull_request_is_merged_or_closed() {
    let env = env_with(vec![limited(&json!({"maxOpenPulls": 2}))]).await;
    let first = open_pull(&env, "ENG-1").await;
    env.advance_clock(2 * DAY);
    let second = open_pull(&env, "ENG-2").await;
    env.advance_clock(DAY);
    env.create_labelled_issue("ENG-3", "Third");
    env.create_labelled_issue("ENG-4", "Fourth");
    poll(&env).await;
    let message = format!("Waits for review of #{first} (3 days), #{second} (1 day)");
    assert_waits(&env, "ENG-3", &message).await;
    let blockers = env.admin_get("/api/blockers?all=true").await;
    let of_reason = blockers["blockers"].as_array().unwrap().iter();
    let of_reason = of_reason.filter(|one| one["reason"] == "review-capacity");
    assert_eq!(of_reason.count(), 2, "{blockers}");
    // It is no wait that only a person's change of the ticket ends: the ticket is not commented on.
    env.advance_clock(Duration::from_secs(6 * 60));
    poll(&env).await;
    engine::outbox_worker::drain(&env.app).await.unwrap();
    assert_eq!(env.comments("ENG-3"), [""; 0]);

    is_poll_woken(&env).await;
    env.repo().merge_pull(first).unwrap();
    assert_poll_is_woken(&env).await;
    sweep(&env).await;
    poll(&env).await;
    // One run starts, and counts for the next ticket at once.
    assert_eq!((runs(&env, "ENG-3"), runs(&env, "ENG-4")), (1, 0));
    let waiting = decision(&env, "ENG-4").await;
    let expected = format!("Waits for review of #{second} (3 days); still running: ENG-3");
    assert_eq!(
        waiting["message"], expected,
        "GitHub says when it was opened"
    );

    is_poll_woken(&env).await;
    env.repo().close_pull(second);
    assert_poll_is_woken(&env).await;
    poll(&env).await;
    assert_eq!(runs(&env, "ENG-4"), 1);
    env.stop().await;
}

/// A merge that no webhook delivered is found by the sweep, which wakes the poll.
#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_finds_a_merge_that_no_webhook_reported() {
    let env = env_with(vec![limited(&json!({"maxAwaitingReview": 1}))]).await;
    env.repo().set_webhook("http://127.0.0.1:9/nowhere", "x");
    let number = open_pull(&env, "ENG-1").await;
    env.create_labelled_issue("ENG-2", "Second");
    sweep(&env).await;
    poll(&env).await;
    let message = format!("Waits for review of #{number} (today)");
    assert_waits(&env, "ENG-2", &message).await;
    env.repo().merge_pull(number).unwrap();
    is_poll_woken(&env).await;
    sweep(&env).await;
    assert!(is_poll_woken(&env).await);
    poll(&env).await;
    assert_eq!(runs(&env, "ENG-2"), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_under_way_count_and_projects_of_a_repository_share_the_count() {
    let of_label = |label: &str, fields: Value| {
        let matching = json!({"kind": "A", "teamKey": "ENG", "match": {"label": label}});
        let mut all = json!({"teamKey": label, "ticketingConfig": matching});
        all.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        limited(&all)
    };
    let env = env_with(vec![
        of_label("two", json!({"maxOpenPulls": 2})),
        of_label("three", json!({"maxOpenPulls": 3})),
    ])
    .await;
    for (key, label) in [
        ("ENG-1", "two"),
        ("ENG-2", "two"),
        ("ENG-3", "two"),
        ("ENG-4", "three"),
        ("ENG-5", "three"),
    ] {
        env.vendors
            .linear()
            .issue(key)
            .title("Do it")
            .add_label(label);
        env.create_labelled_issue(key, "Do it");
    }
    poll(&env).await;
    let reserved = [1, 2, 3, 4, 5].map(|number| runs(&env, &format!("ENG-{number}")));
    assert_eq!(reserved, [1, 1, 0, 1, 0]);
    let message = "Waits for the pull requests of ENG-1, ENG-2, ENG-4, which are running";
    assert_waits(&env, "ENG-5", message).await;
    // The next poll counts the same from the store.
    poll(&env).await;
    assert_waits(&env, "ENG-3", message).await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_and_approved_pull_requests_await_no_review() {
    let env = env_with(vec![limited(&json!({"maxAwaitingReview": 1}))]).await;
    let (draft, approved) = (
        open_pull(&env, "ENG-1").await,
        open_pull(&env, "ENG-2").await,
    );
    env.create_labelled_issue("ENG-3", "Third");
    sweep(&env).await;
    poll(&env).await;
    let message = format!("Waits for review of #{draft} (today), #{approved} (today)");
    assert_waits(&env, "ENG-3", &message).await;
    env.advance_clock(Duration::from_secs(1));
    let github = env.app.vendors.github.as_ref().unwrap();
    let repo = mapping().target_repo();
    let node = github.pull(&repo, draft).await.unwrap().node_id;
    github.set_draft(&repo, &node).await.unwrap();
    sweep(&env).await;
    poll(&env).await;
    assert_waits(
        &env,
        "ENG-3",
        &format!("Waits for review of #{approved} (today)"),
    )
    .await;
    env.repo().add_review(approved, "mia", "APPROVED", "");
    sweep(&env).await;
    poll(&env).await;
    assert_eq!(runs(&env, "ENG-3"), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_and_work_on_open_pull_requests_are_exempt() {
    let fields = json!({
        "maxOpenPulls": 1, "planningEnabled": true, "planningWorkflowFile": "agent-plan.yml",
    });
    let env = env_with(vec![limited(&fields)]).await;
    env.repo().set_collaborator_role("mia", "maintain");
    let number = open_pull(&env, "ENG-1").await;
    sweep(&env).await;
    env.create_labelled_issue("ENG-2", "Second");
    env.vendors
        .linear()
        .issue("ENG-3")
        .title("Planned")
        .add_label("Plan-Complete");
    poll(&env).await;
    let kinds = |key: &str| -> Vec<JobKind> { env.jobs(key).iter().map(|job| job.kind).collect() };
    assert_eq!(kinds("ENG-2"), [JobKind::Planning]);
    let message = format!("Waits for review of #{number} (today)");
    assert_waits(&env, "ENG-3", &message).await;
    env.repo()
        .add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    env.wait_until("the webhook is answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.advance_clock(Duration::from_secs(60));
    env.tick().await;
    assert_eq!(kinds("ENG-1"), [JobKind::Implementation, JobKind::FollowUp]);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_too_long_counts_as_full() {
    let env = env_with(vec![limited(&json!({"maxOpenPulls": 5}))]).await;
    open_pull(&env, "ENG-1").await;
    env.create_labelled_issue("ENG-2", "Second");
    env.create_labelled_issue("ENG-3", "Third");
    let set_blocked = |key: &str| {
        env.vendors.linear().issue("ENG-9").title("Blocker");
        env.vendors.linear().issue(key).blocked_by("ENG-9");
    };
    set_blocked("ENG-3");
    poll(&env).await;
    let unread = "The open pull requests of acme/shop were not read since the service started. Until then, the review capacity counts as used up.";
    assert_waits(&env, "ENG-2", unread).await;
    is_poll_woken(&env).await;
    sweep(&env).await;
    assert!(is_poll_woken(&env).await, "the first sweep wakes the poll");
    let swept_at = env.app.core.now();
    poll(&env).await;
    assert_eq!(runs(&env, "ENG-2"), 1);

    // GitHub does not answer any more.
    env.create_labelled_issue("ENG-4", "Fourth");
    env.advance_clock(Duration::from_secs(31 * 60));
    let github = env.vendors.faults(FakeService::GitHub);
    github.set_outage(true);
    sweep(&env).await;
    poll(&env).await;
    let old = format!(
        "The open pull requests of acme/shop could not be read from GitHub since {}. Until then, the review capacity counts as used up.",
        swept_at.date_text()
    );
    assert_waits(&env, "ENG-4", &old).await;
    github.set_outage(false);
    sweep(&env).await;
    poll(&env).await;
    assert_eq!(runs(&env, "ENG-4"), 1);
    env.stop().await;
}

/// A repository without a pull request of the service has nothing to read.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_without_pull_requests_needs_no_sweep() {
    let env = env_with(vec![limited(&json!({"maxOpenPulls": 1}))]).await;
    env.create_labelled_issue("ENG-1", "First");
    env.vendors.requests().clear();
    poll(&env).await;
    assert_eq!(runs(&env, "ENG-1"), 1);
    sweep(&env).await;
    let asked = env.vendors.requests().for_service(FakeService::GitHub);
    assert!(
        !asked.iter().any(|one| one.url.contains("/pulls")),
        "{asked:#?}"
    );
    env.stop().await;
}

/// A poll that waits for reviews sends the requests of any other poll.
#[tokio::test(flavor = "multi_thread")]
async fn limits_take_no_request_of_a_poll() {
    let mut seen = Vec::new();
    for fields in [
        json!({}),
        json!({"maxOpenPulls": 2, "maxAwaitingReview": 2}),
    ] {
        let env = env_with(vec![limited(&fields)]).await;
        open_pull(&env, "ENG-1").await;
        open_pull(&env, "ENG-2").await;
        sweep(&env).await;
        set_paused(&env, fields == json!({})).await;
        env.create_labelled_issue("ENG-3", "Third");
        poll(&env).await;
        env.vendors.requests().clear();
        poll(&env).await;
        let requests = env.vendors.requests();
        let of = |service| requests.for_service(service).len();
        seen.push((of(FakeService::Linear), of(FakeService::GitHub)));
        assert_eq!(runs(&env, "ENG-3"), 0);
        env.stop().await;
    }
    assert_eq!(seen[0], seen[1]);
}

/// Without limits, a paused project starts nothing either.
async fn set_paused(env: &TestEnv, paused: bool) {
    let write = env.store.write(move |tx| {
        let mut mapping = mappings::get(tx, &"ENG".into())?.unwrap();
        mapping.paused = paused;
        mappings::put(tx, &mapping)
    });
    write.await.unwrap();
}

/// Reserves an implementation of a ticket, as a poll would that has decided before. Returns whether it was reserved.
pub async fn reserve(env: &TestEnv, key: &str, now: Timestamp) -> bool {
    let mapped = env.store.read(mappings::all).unwrap();
    let mapped: Vec<&Mapping> = mapped.iter().collect();
    let account = &env.app.vendors.ticketing[0];
    let watch = CommentWatch::default();
    let issues = account.snapshot(&mapped, &watch).await.unwrap().issues;
    let issue = issues
        .into_iter()
        .find(|issue| issue.issue.key.as_str() == key);
    let request = DispatchRequest {
        issue: issue.unwrap(),
        phase: Phase::Implementation,
        image: Default::default(),
        ticketing: Some(mapping().ticketing),
    };
    let app = env.app.clone();
    let reserved = env
        .store
        .write(move |tx| dispatch::reserve(tx, &app, &request, now));
    reserved.await.unwrap().is_some()
}

/// The reservation counts again: what became known after the decision is not exceeded.
#[tokio::test(flavor = "multi_thread")]
async fn the_reservation_counts_again() {
    let env = env_with(vec![limited(&json!({"maxOpenPulls": 1}))]).await;
    env.create_labelled_issue("ENG-1", "First");
    env.create_labelled_issue("ENG-2", "Second");
    let now = env.app.core.now();
    let number = open_pull(&env, "ENG-3").await;
    assert!(!reserve(&env, "ENG-1", now).await);
    env.repo().close_pull(number);
    sweep(&env).await;
    assert!(reserve(&env, "ENG-1", now).await);
    assert!(!reserve(&env, "ENG-2", now).await);
    env.stop().await;
}

/// Ends a run with a pull request: the open one of its branch, else a new one.
async fn end_with_pull(env: &TestEnv, job: &Job) {
    let (repo, key) = (env.repo(), job.issue.key.as_str());
    let file = format!("{key}.txt");
    repo.commit(&job.branch, &[(&file, "a\n")], "A").unwrap();
    let open = repo.pulls().into_iter();
    let open = open
        .filter(|pull| pull.open)
        .find(|pull| pull.head == job.branch);
    let number = open.map_or_else(
        || {
            let body = crate::webhooks::meta_block(job.issue.id.as_str(), job.id.as_str());
            repo.open_pull(&job.branch, "agent-implement[bot]", key, &body)
        },
        |pull| pull.number,
    );
    let ended = Job {
        pull: PullRequestRef::from_url(&repo.pull_url(number)),
        state: JobState::Completed,
        finished_at: Some(env.app.core.now()),
        ..job.clone()
    };
    let put = env.store.write(move |tx| jobs::put(tx, &ended));
    put.await.unwrap();
}

fn pull_id(number: u64) -> PullRequestId {
    PullRequestId {
        repo: mapping().target_repo(),
        number,
    }
}
