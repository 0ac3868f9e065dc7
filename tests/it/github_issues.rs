//! GitHub Issues as tickets: what differs from the other systems. See docs/behaviour.md#github-issues.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::decision::DecisionOutcome;
use domain::job::{Job, JobState};
use domain::mapping::Mapping;
use fake_vendors::{FakeIssue, FakeRepo, FakeService, InjectedFault, LoggedRequest};
use reqwest::Method;
use serde_json::{Value, json};
use store::WriteTx;
use store::provider_limits::{self, ProviderLimit};
use vendors::http::percent_encode;

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};
use crate::test_ticket::{github_mapping, with_planning};

const MINUTE: Duration = Duration::from_secs(60);
const WEBHOOK_SECRET: &str = "the-secret-of-the-webhook";
const TRIGGER: &str = "Agent-Implement";

/// Environment with a manual engine and fake CI runs. The issues of `acme/shop` are tickets of project `SHOP`.
async fn manual_env(mappings: Vec<Mapping>) -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings,
        engine: EngineMode::manual(),
        fake_runs: true,
        extra_flags: vec![("--scm-webhook-secret", WEBHOOK_SECRET.to_owned())],
        ..TestEnvOptions::default()
    })
    .await
}

async fn shop_env() -> TestEnv {
    manual_env(vec![github_mapping("SHOP", "acme", "shop")]).await
}

fn labelled(repo: &FakeRepo, number: u64) -> FakeIssue {
    let issue = repo.issue(number).title("Add the feature");
    issue.describe("Please.").add_label(TRIGGER)
}

fn why_path(key: &str) -> String {
    format!("/api/why/{}", percent_encode(key))
}

/// Polls once. Returns outcome, reason and message of the latest decision about an issue.
async fn decide(env: &TestEnv, key: &str) -> (String, String, String) {
    engine::poll::run_once(&env.app).await.unwrap();
    let why = env.admin_get(&why_path(key)).await;
    let text = |name: &str| {
        let value = why["decision"][name].as_str();
        value.unwrap_or_default().to_owned()
    };
    (text("outcome"), text("reason"), text("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_becomes_a_pull_request_that_closes_it() {
    let env = TestEnv::with_mapping(github_mapping("SHOP", "acme", "shop")).await;
    let issue = env.repo().issue(12).title("Say <b>hi</b> to @friends");
    let issue = issue.describe("Please.").add_label("bug");
    issue.clone().add_label(TRIGGER);
    let job = env.wait_for_job_end("shop#12").await;
    assert_eq!(job.state.status(), "completed", "{job:#?}");
    assert_eq!(job.issue.key.as_str(), "shop#12");
    assert_eq!(job.labels, ["bug"]);
    assert!(
        job.branch.starts_with("agent-implement/shop-12-say-"),
        "{}",
        job.branch
    );
    let pull = &env.repo().pulls()[0];
    assert!(pull.title.starts_with("shop#12: Say "), "{}", pull.title);
    let lines: BTreeSet<&str> = pull.body.lines().collect();
    assert!(lines.contains("Fixes #12"), "{}", pull.body);
    assert_eq!(issue.labels(), ["bug", TRIGGER, "Ready for Review"]);
    let comments = issue.comments();
    let link = format!(
        "Pull request opened: [#{}]({})",
        pull.number,
        env.repo().pull_url(pull.number)
    );
    assert!(comments[0].starts_with(&link), "{comments:?}");
    let created = env
        .vendors
        .requests()
        .for_service(FakeService::GitHub)
        .into_iter();
    let created = created.filter(|request| request.url.ends_with("/repos/acme/shop/labels"));
    for request in created {
        assert_eq!(request.body["color"], "6b7280");
        assert!(!request.body["description"].as_str().unwrap().is_empty());
    }
    // A pull request is not an issue, whatever its labels are.
    env.wait_for_polls().await;
    let shown = env.admin_get("/api/issues").await;
    assert_eq!(shown["issues"].as_array().unwrap().len(), 1, "{shown}");
    let instruction = env.repo().run_log(env.repo().runs()[0].id);
    assert!(!instruction.is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_writers_start_runs_where_strangers_file_issues() {
    let env = shop_env().await;
    let repo = env.repo();
    repo.set_collaborator_role("mallory", "triage");
    repo.set_collaborator_role("mona", "maintain");
    let issue = repo.issue(1).title("Do it").filed_by("stranger");
    let issue = issue.add_label_as("mallory", TRIGGER);

    for visibility in ["public", "internal"] {
        repo.set_visibility(visibility);
        let refused = (
            "waiting".to_owned(),
            "ineligible".to_owned(),
            "mallory set the label, but has no write access to acme/shop.".to_owned(),
        );
        assert_eq!(decide(&env, "shop#1").await, refused, "{visibility}");
    }
    // What she sets besides does not help, and neither does an App.
    issue.clone().add_label_as("mallory", "Plan-Complete");
    assert_eq!(decide(&env, "shop#1").await.1, "ineligible");
    issue
        .clone()
        .remove_label("Plan-Complete")
        .remove_label(TRIGGER);
    issue.clone().add_label_as("robot[bot]", TRIGGER);
    let (_, reason, message) = decide(&env, "shop#1").await;
    assert_eq!(reason, "ineligible");
    assert_eq!(
        message,
        "The app robot set the label, and apps cannot start runs of acme/shop."
    );
    // The label of a planned issue alone is not a request.
    let planned = repo.issue(2).title("Do it, too");
    planned.add_label_as("mallory", "Plan-Complete");
    assert_eq!(decide(&env, "shop#2").await.1, "ineligible");
    // An earlier label of a writer does not count after another account has set it again.
    issue
        .clone()
        .remove_label(TRIGGER)
        .add_label_as("mona", TRIGGER);
    issue
        .clone()
        .remove_label(TRIGGER)
        .add_label_as("stranger", TRIGGER);
    let (_, _, message) = decide(&env, "shop#1").await;
    assert_eq!(
        message,
        "stranger set the label, but has no write access to acme/shop."
    );
    assert_eq!(env.repo().runs(), []);

    issue
        .clone()
        .remove_label(TRIGGER)
        .add_label_as("mona", TRIGGER);
    assert_eq!(decide(&env, "shop#1").await.0, "dispatched");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_label_takes_no_slot() {
    let mapping = Mapping {
        max_in_progress: 1,
        ..github_mapping("SHOP", "acme", "shop")
    };
    let env = manual_env(vec![mapping]).await;
    env.repo().set_visibility("public");
    for number in 1..=5 {
        let issue = env.repo().issue(number).title("Spam");
        issue.add_label_as("mallory", TRIGGER);
    }
    labelled(&env.repo(), 6);
    env.repo().age_issues(MINUTE);
    assert_eq!(decide(&env, "shop#6").await.0, "dispatched");
    // Who set the labels is known from the first poll. The sixth is the last that reads comments because of the dispatch.
    env.advance_clock(Duration::from_secs(24 * 60 * 60));
    for _ in 0..5 {
        engine::poll::run_once(&env.app).await.unwrap();
    }
    env.vendors.requests().clear();
    engine::poll::run_once(&env.app).await.unwrap();
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let queries = requests.iter().filter(|one| one.url.ends_with("/graphql"));
    assert_eq!(queries.count(), 1, "{requests:#?}");
    env.stop().await;
}

/// Permissions that are known need no request, so they do not count against the limit of a poll.
#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_many_people_are_read_in_several_polls() {
    let mapping = Mapping {
        max_in_progress: 1,
        ..github_mapping("SHOP", "acme", "shop")
    };
    let env = manual_env(vec![mapping]).await;
    let repo = env.repo();
    repo.set_visibility("public");
    labelled(&repo, 1);
    // It has the slot before the others come, whose permissions are read in a random order.
    engine::poll::run_once(&env.app).await.unwrap();
    for number in 2..=60 {
        let login = format!("writer-{number}");
        repo.set_collaborator_role(&login, "write");
        let issue = repo.issue(number).title("Wait for a slot");
        issue.add_label_as(&login, TRIGGER);
    }
    for _ in 0..2 {
        engine::poll::run_once(&env.app).await.unwrap();
    }
    for number in 2..=60 {
        let why = env.admin_get(&why_path(&format!("shop#{number}"))).await;
        assert_eq!(why["decision"]["reason"], "concurrency", "{why}");
    }
    env.stop().await;
}

/// Cancels the run of the first issue as an operator, named by the short key.
async fn cancel(env: &TestEnv) {
    let path = "/api/jobs/shop%231/cancel";
    let (status, body) = env.admin_request(Method::POST, path, Some(json!({}))).await;
    assert_eq!(status, 200, "{body}");
    env.tick_until_drained().await;
}

/// Requests another run of the first issue as an operator, named by the key with the owner.
async fn retry(env: &TestEnv) {
    let path = "/api/jobs/acme%2Fshop%231/retry";
    let (status, body) = env.admin_request(Method::POST, path, Some(json!({}))).await;
    assert_eq!(status, 202, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_retry_what_the_service_labelled_itself() {
    let env = shop_env().await;
    env.repo().set_visibility("public");
    let issue = labelled(&env.repo(), 1);
    env.tick().await;
    cancel(&env).await;
    assert_eq!(issue.labels(), Vec::<String>::new());
    retry(&env).await;
    env.tick_until_drained().await;
    env.advance_clock(MINUTE);
    env.tick().await;
    assert_eq!(env.jobs("shop#1").len(), 2, "{:#?}", env.jobs("shop#1"));
    env.stop().await;
}

/// An operator's request is not one of the person who sets the trigger after somebody has removed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_person_sets_is_checked_in_spite_of_a_retry() {
    let env = shop_env().await;
    env.repo().set_visibility("public");
    let issue = labelled(&env.repo(), 1);
    env.tick().await;
    cancel(&env).await;
    retry(&env).await;
    engine::outbox_worker::drain(&env.app).await.unwrap();
    let issue = issue.remove_label(TRIGGER);
    issue.clone().add_label_as("mallory", TRIGGER);
    assert_eq!(decide(&env, "shop#1").await.1, "ineligible");
    env.repo().set_collaborator_role("mona", "write");
    issue.remove_label(TRIGGER).add_label_as("mona", TRIGGER);
    assert_eq!(decide(&env, "shop#1").await.0, "dispatched");
    env.stop().await;
}

/// A later request is one of the person who sets the trigger then.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_plan_ends_the_request_of_an_operator() {
    let env = manual_env(vec![with_planning(github_mapping("SHOP", "acme", "shop"))]).await;
    env.repo().set_visibility("public");
    let issue = labelled(&env.repo(), 1);
    env.tick().await;
    let end_run = async |runs: usize| {
        let run = env.repo().runs().pop().unwrap();
        env.repo().complete_run(run.id, "failure");
        let has_ended = || {
            env.advance_clock(MINUTE);
            let jobs = env.jobs("shop#1");
            jobs.len() == runs && !jobs.iter().any(Job::is_active)
        };
        env.tick_until("the planning fails", has_ended).await;
        env.tick_until_drained().await;
        assert_eq!(issue.labels(), Vec::<String>::new());
    };
    end_run(1).await;
    retry(&env).await;
    let is_planned = || {
        env.advance_clock(MINUTE);
        env.jobs("shop#1").len() == 2
    };
    env.tick_until("the ticket is planned again", is_planned)
        .await;
    env.tick_until_drained().await;
    end_run(2).await;

    issue.clone().add_label_as("mallory", TRIGGER);
    let (_, reason, message) = decide(&env, "shop#1").await;
    assert_eq!(reason, "ineligible", "{message}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_name_the_owner_where_repositories_share_a_name() {
    let env = manual_env(vec![
        github_mapping("ONE", "acme", "shop"),
        github_mapping("TWO", "umbrella", "shop"),
        github_mapping("LIB", "acme", "lib"),
    ])
    .await;
    let github = env.vendors.github();
    for (owner, name) in [("acme", "shop"), ("umbrella", "shop"), ("acme", "lib")] {
        labelled(&github.repo(owner, name), 7);
    }
    engine::poll::run_once(&env.app).await.unwrap();
    for key in ["acme/shop#7", "umbrella/shop#7", "lib#7", "ACME/lib#7"] {
        let why = env.admin_get(&why_path(key)).await;
        assert_eq!(why["decision"]["outcome"], "dispatched", "{key}: {why}");
    }
    let (status, _) = env
        .admin_request(Method::GET, "/api/why/other%2Flib%237", None)
        .await;
    assert_eq!(status, 404);
    let repos: BTreeSet<String> = env
        .admin_get("/api/log")
        .await
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["issueIdentifier"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(repos.len(), 3, "{repos:?}");
    env.stop().await;
}

/// The poll does not return labels, so they are read while a usage limit is in force.
#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_applies_to_the_agent_that_a_label_chooses() {
    for (limited, waits, starts) in [("codex", 1, 2), ("", 2, 1)] {
        let mapping = Mapping {
            max_in_progress: 1,
            ..github_mapping("SHOP", "acme", "shop")
        };
        let env = manual_env(vec![mapping]).await;
        labelled(&env.repo(), 1).add_label("agent:codex");
        labelled(&env.repo(), 2);
        env.repo().age_issues(MINUTE);
        let limit = ProviderLimit {
            until: env.app.core.now() + 120 * MINUTE,
            job: "01LIMITED".into(),
            with_credentials: Vec::new(),
        };
        let account = format!("repository acme/shop {limited}");
        let record = move |tx: &WriteTx<'_>| provider_limits::record(tx, account.trim(), &limit);
        env.store.write(record).await.unwrap();
        for _ in 0..2 {
            let (outcome, reason, message) = decide(&env, &format!("shop#{waits}")).await;
            assert_eq!((&*outcome, &*reason), ("waiting", "quota"), "{message}");
        }
        assert_eq!(env.jobs(&format!("shop#{waits}")), []);
        assert_eq!(env.jobs(&format!("shop#{starts}")).len(), 1, "{limited:?}");
        let requests = env.vendors.requests().for_service(FakeService::GitHub);
        let reads = requests.iter().filter(|one| {
            let query = one.body["query"].as_str().unwrap_or_default();
            query.contains("labels(first: 100)") && one.body.to_string().contains("subIssues")
        });
        // Once before the decision, and once more for the run.
        assert_eq!(reads.count(), 2);
        env.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blockers_are_dependencies_in_any_repository() {
    let env = shop_env().await;
    let lib = env.vendors.github().repo("acme", "lib");
    let (blocker, foreign) = (
        env.repo().issue(1).title("First"),
        lib.issue(3).title("Elsewhere"),
    );
    let issue = env.repo().issue(2).title("Then").blocked_by(1);
    issue.blocked_by_issue(&foreign).add_label(TRIGGER);
    let (_, reason, message) = decide(&env, "shop#2").await;
    assert_eq!(reason, "blocked");
    assert_eq!(message, "Blocked by shop#1, acme/lib#3, still open.");
    blocker.complete();
    let (_, _, message) = decide(&env, "shop#2").await;
    assert_eq!(message, "Blocked by acme/lib#3, still open.");
    foreign.close("NOT_PLANNED");
    assert_eq!(decide(&env, "shop#2").await.0, "dispatched");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_deleting_or_transferring_an_issue_cancels_its_run() {
    let mapping = Mapping {
        max_in_progress: 9,
        ..github_mapping("SHOP", "acme", "shop")
    };
    let env = manual_env(vec![mapping]).await;
    let lib = env.vendors.github().repo("acme", "lib");
    lib.seed(&[("README.md", "# Lib\n")], "Begin").unwrap();
    let issues: Vec<FakeIssue> = (1..=4)
        .map(|number| labelled(&env.repo(), number))
        .collect();
    env.tick().await;
    let ids: Vec<String> = issues
        .iter()
        .map(|issue| issue.snapshot().unwrap().id)
        .collect();
    issues[0].clone().close("NOT_PLANNED");
    issues[1].clone().delete();
    issues[2].clone().transfer_to(&lib);
    env.tick().await;
    let reasons: Vec<bool> = ids.iter().map(|id| is_active(&env, id)).collect();
    assert_eq!(reasons, [false, false, false, true]);
    env.stop().await;
}

fn is_active(env: &TestEnv, id: &str) -> bool {
    let id = domain::ids::IssueId::from(id);
    let jobs = env.store.read(|tx| store::jobs::of_issue(tx, &id)).unwrap();
    jobs.last().unwrap().is_active()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_repository_fails_only_its_own_project() {
    let env = manual_env(vec![
        github_mapping("SHOP", "acme", "shop"),
        github_mapping("GONE", "acme", "missing"),
    ])
    .await;
    labelled(&env.repo(), 1);
    assert_eq!(decide(&env, "shop#1").await.0, "dispatched");
    env.tick().await;
    let polled = env.app.live.poll_snapshots.all();
    let snapshot = &polled[&domain::issue::System::GitHub];
    let stale: Vec<&str> = snapshot
        .stale_since
        .keys()
        .map(|team| team.as_str())
        .collect();
    assert_eq!(stale, ["GONE"]);
    assert_eq!(snapshot.failure, None);
    env.vendors.faults(FakeService::GitHub).set_outage(true);
    engine::poll::run_once(&env.app).await.unwrap();
    let polled = env.app.live.poll_snapshots.all();
    assert!(polled[&domain::issue::System::GitHub].failure.is_some());
    let job = env.jobs("shop#1").pop().unwrap();
    assert!(!matches!(job.state, JobState::Failed { .. }), "{job:#?}");
    env.vendors.faults(FakeService::GitHub).clear();
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_until_its_description_is_read() {
    let env = shop_env().await;
    labelled(&env.repo(), 1);
    let github = env.vendors.faults(FakeService::GitHub);
    for _ in 0..20 {
        github.inject_on_match("body labels", InjectedFault::ErrorStatus(502));
    }
    let (outcome, _, message) = decide(&env, "shop#1").await;
    assert_eq!(outcome, "waiting");
    assert_eq!(
        message,
        "Its description could not be read. The next poll tries again."
    );
    github.clear();
    assert_eq!(decide(&env, "shop#1").await.0, "dispatched");
    env.tick().await;
    let inputs = json!(env.repo().runs()[0].inputs);
    assert!(inputs.to_string().contains("Please."), "{inputs}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_whose_answer_was_lost_is_not_repeated() {
    let env = shop_env().await;
    let issue = labelled(&env.repo(), 1);
    env.tick().await;
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("issues/1/comments", InjectedFault::DropResponse);
    env.repo().start_run(env.repo().runs()[0].id);
    env.repo().complete_run(env.repo().runs()[0].id, "failure");
    for _ in 0..8 {
        env.advance_clock(MINUTE);
        env.tick().await;
    }
    env.tick_until_drained().await;
    let comments = issue.comments();
    let failures = comments
        .iter()
        .filter(|text| text.contains("Implementation failed"));
    assert_eq!(failures.count(), 1, "{comments:#?}");
    assert_eq!(issue.labels(), Vec::<String>::new());
    env.stop().await;
}

/// Polls once. Returns the GraphQL requests.
async fn queries_of_poll(env: &TestEnv) -> Vec<LoggedRequest> {
    // Issues that changed before the last poll have no new commands.
    env.advance_clock(Duration::from_secs(24 * 60 * 60));
    env.vendors.requests().clear();
    engine::poll::run_once(&env.app).await.unwrap();
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    requests
        .into_iter()
        .filter(|one| one.url.ends_with("/graphql"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_repositories_are_polled_with_a_few_requests() {
    let name = |number: u64| format!("repo-{number}");
    let mappings = (1..=200).map(|number| Mapping {
        paused: true,
        ..github_mapping(&format!("R{number}"), "acme", &name(number))
    });
    let env = manual_env(mappings.collect()).await;
    env.vendors.github().set_quota(1_000_000);
    env.vendors.keep_in_memory();
    let mut total = 0;
    for number in 1..=200 {
        let repo = env.vendors.github().repo("acme", &name(number));
        // One repository has several pages.
        let count = if number == 1 { 324 } else { 23 };
        total += repo.create_labelled_issues(count, TRIGGER);
    }
    let queries = queries_of_poll(&env).await;
    // Four for the first pages of fifty repositories each, three for the further pages of the first.
    assert_eq!(queries.len(), 7, "{}", queries.len());
    let polled = env.app.live.poll_snapshots.all();
    let snapshot = &polled[&domain::issue::System::GitHub];
    assert_eq!(snapshot.issues.len() as u64, total);
    assert!(total > 4_900);
    let waits = |outcome| outcome == DecisionOutcome::Waiting;
    assert!(
        snapshot
            .issues
            .iter()
            .all(|one| waits(one.decision.outcome))
    );
    assert_eq!(queries_of_poll(&env).await.len(), 7);
    env.stop().await;
}

async fn deliver(env: &TestEnv, event: &str, id: &str, payload: &Value) -> Value {
    let body = payload.to_string();
    let secret = domain::secret::Secret::new(WEBHOOK_SECRET);
    let signature = domain::crypto::signature::sign(body.as_bytes(), &secret);
    let response = reqwest::Client::new()
        .post(format!("{}/api/repo-host/webhook", env.address))
        .header("x-github-event", event)
        .header("x-github-delivery", id)
        .header("x-hub-signature-256", format!("sha256={signature}"))
        .body(body);
    let response = crate::api_server::send_checked(response).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_issues_start_a_poll() {
    let env = shop_env().await;
    let event = |repo: &str, more: Value| {
        let mut payload = json!({"action": "labeled", "repository": {"full_name": repo}});
        for (name, value) in more.as_object().unwrap() {
            payload[name] = value.clone();
        }
        payload
    };
    let issue = json!({"issue": {"number": 1, "title": "x"}});
    let comment = json!({"issue": {"number": 1}, "comment": {"id": 1, "body": "x"}});
    let queued = json!({"queued": true});
    for (name, more) in [
        ("issues", &issue),
        ("issue_comment", &comment),
        ("label", &json!({})),
    ] {
        let payload = event("Acme/Shop", more.clone());
        assert_eq!(deliver(&env, name, name, &payload).await, queued, "{name}");
        let again = json!({"ignored": true, "reason": "duplicate"});
        assert_eq!(deliver(&env, name, name, &payload).await, again, "{name}");
    }
    let ignored = json!({"ignored": true, "reason": "not on a pull request"});
    let elsewhere = event("acme/other", issue.clone());
    assert_eq!(deliver(&env, "issues", "other", &elsewhere).await, ignored);
    let on_pull = event(
        "acme/shop",
        json!({
            "issue": {"number": 1, "pull_request": {"url": "u"}, "state": "open", "body": ""},
            "comment": {"id": 1, "body": "x", "user": {"login": "mona"}}, "action": "created",
        }),
    );
    let answer = deliver(&env, "issue_comment", "pull", &on_pull).await;
    assert_eq!(answer["reason"], "not our pull request");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_takes_the_issues_of_its_repository() {
    let env = manual_env(Vec::new()).await;
    let body = |more: Value| {
        let mut body = json!({
            "teamKey": "SHOP", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    for fields in [
        json!({"ticketingProvider": "C"}),
        json!({"ticketingProvider": "github"}),
        json!({"ticketingConfig": {"kind": "C"}}),
        json!({"ticketingProvider": "C", "ticketingConfig": {"kind": "C", "jql": "ignored"}}),
    ] {
        let saved = env.admin_post("/api/mappings", body(fields)).await;
        assert_eq!(saved["ticketingProvider"], "C", "{saved}");
        assert_eq!(saved["ticketingConfig"], json!({"kind": "C"}), "{saved}");
    }
    let check = body(json!({"ticketingProvider": "C"}));
    let checked = env.admin_post("/api/mappings/check", check.clone()).await;
    assert_eq!(checked["problems"], json!([]), "{checked}");
    env.repo().disable_issues();
    let checked = env.admin_post("/api/mappings/check", check).await;
    let problem = "Issues are turned off in acme/shop. Turn them on in its settings on GitHub.";
    assert_eq!(checked["problems"][0]["message"], problem, "{checked}");
    let choices = env.admin_get("/api/choices/teams?system=C").await;
    assert_eq!(choices["choices"], json!([]));
    // Issues are polled as long as a project takes them, and not shown otherwise.
    let systems = async || {
        engine::poll::run_once(&env.app).await.unwrap();
        let poll = env.admin_get("/api/poll").await;
        let systems = poll["systems"].as_array().unwrap().clone();
        systems
            .into_iter()
            .map(|one| one["system"].clone())
            .collect::<Vec<_>>()
    };
    assert!(systems().await.contains(&json!("C")));
    env.stop().await;
}
