//! Implementation runs: from a labelled ticket to an open pull request.

use std::time::Duration;

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::{FakeService, FaultRates, InjectedFault};

use fake_vendors::scripted_agent::{Script, ScriptStep};

use serde_json::json;

use crate::test_env::{IMPLEMENTATION_WORKFLOW, TestEnv, mapping_with};

#[tokio::test(flavor = "multi_thread")]
async fn a_labelled_ticket_becomes_a_pull_request() {
    let env = TestEnv::start().await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(
        job.state,
        JobState::Completed,
        "{}",
        env.repo().run_log(env.repo().runs()[0].id)
    );
    let pulls = env.repo().pulls();
    let [pull] = &pulls[..] else {
        panic!("{pulls:?}")
    };
    assert_eq!(pull.title, "ENG-1: Add the feature");
    assert_eq!(pull.head, "agent-implement/eng-1-add-the-feature");
    assert!(
        !pull.draft
            && pull.body.contains("Fixes ENG-1")
            && pull.body.contains("agent-implement-meta"),
        "{}",
        pull.body
    );
    assert_eq!(
        env.repo().read_file(&pull.head, "feature.txt").as_deref(),
        Some("done\n")
    );

    let ticket = env.vendors.linear().issue("ENG-1").snapshot().unwrap();
    assert_eq!(ticket.labels, ["Agent-Implement", "Ready for Review"]);
    let changes: Vec<String> = ticket
        .history
        .iter()
        .map(|change| format!("{change:?}"))
        .collect();
    assert!(
        changes
            .iter()
            .any(|change| change.contains("Agent-Working")),
        "{changes:?}"
    );
    let url = env.repo().pull_url(pull.number);
    assert_eq!(
        env.vendors.linear().issue("ENG-1").comments(),
        [format!("Pull request opened: [#{}]({url})", pull.number)]
    );
    assert_eq!(ticket.state_type, "started");
    assert_eq!(
        env.vendors.chat().messages().len(),
        2,
        "one message for the dispatch, one for the end"
    );

    let log = env.admin_get("/api/log").await;
    assert_eq!(log[0]["status"], "completed");
    let steps = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
    let ids: Vec<&str> = steps["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|step| step["id"].as_str())
        .collect();
    for step in [
        "clone",
        "install",
        "feedback-loop",
        "implement.1",
        "review.1",
        "preflight",
        "push",
    ] {
        assert!(ids.contains(&step), "{step} in {ids:?}");
    }
    env.wait_for_polls().await;
    assert_eq!(
        env.jobs("ENG-1").len(),
        1,
        "a pull request that is open is final"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_starts_from_the_default_branch_of_the_mapping() {
    let env = TestEnv::with_mapping(mapping_with(&json!({ "defaultBranch": "develop" }))).await;
    let files = [
        (
            ".github/workflows/agent-implement.yml",
            IMPLEMENTATION_WORKFLOW,
        ),
        ("only-in-develop.txt", "yes\n"),
    ];
    env.repo().commit("develop", &files, "Develop").unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{job:?}");
    let pulls = env.repo().pulls();
    assert_eq!(pulls[0].base, "develop");
    let inherited = env.repo().read_file(&job.branch, "only-in-develop.txt");
    assert_eq!(inherited.as_deref(), Some("yes\n"));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_ticket_is_not_started_and_why_returns_the_blocker() {
    let env = TestEnv::start().await;
    env.vendors.linear().issue("ENG-1").title("First");
    env.create_labelled_issue("ENG-2", "Second");
    env.vendors.linear().issue("ENG-2").blocked_by("ENG-1");
    env.wait_for_polls().await;
    // ENG-2 may have been polled before it was blocked, so only ENG-3 is asserted.
    env.create_labelled_issue("ENG-4", "Fourth, blocked from the start");
    let blocked = env
        .vendors
        .linear()
        .issue("ENG-3")
        .title("Third")
        .blocked_by("ENG-1");
    blocked.add_label("Agent-Implement");
    env.wait_for_polls().await;
    assert!(env.jobs("ENG-3").is_empty());
    let why = env.admin_get("/api/why/ENG-3").await;
    assert_eq!(why["decision"]["reason"], "blocked");
    assert_eq!(why["decision"]["message"], "Blocked by ENG-1, still open.");

    env.vendors.linear().issue("ENG-1").complete();
    env.wait_for_job_end("ENG-3").await;
    env.wait_for_job_end("ENG-4").await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_with_a_lost_response_is_not_repeated() {
    let env = TestEnv::start().await;
    env.vendors
        .faults(FakeService::GitHub)
        .inject_on_match("/dispatches", InjectedFault::DropResponse);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(env.repo().runs().len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_listed_late_is_not_dispatched_twice() {
    let env = TestEnv::start().await;
    env.vendors
        .github()
        .set_listing_delay(Duration::from_millis(1_200));
    // Long after the listing, so that the run is not first found through its progress report.
    env.vendors.github().set_start_delay(Duration::from_secs(4));
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::DropResponse);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(github.injected().len(), 1, "the answer was lost");
    assert_eq!(
        env.repo().runs().len(),
        1,
        "a second run was not started while the first was hidden"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_to_an_old_workflow_fails_with_advice_to_sync() {
    let env = TestEnv::start().await;
    let old = "on:\n  workflow_dispatch:\n    inputs:\n      issue_id: {type: string}\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: 'true'\n";
    env.repo()
        .commit(
            "main",
            &[(".github/workflows/agent-implement.yml", old)],
            "Old",
        )
        .unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    let comments = env.vendors.linear().issue("ENG-1").comments();
    assert!(
        comments[0].starts_with("Implementation failed: the run could not be dispatched"),
        "{comments:?}"
    );
    assert!(comments[0].to_lowercase().contains("sync"), "{comments:?}");
    assert!(env.vendors.linear().issue("ENG-1").labels().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_ticket_runs_again_only_when_labelled_again() {
    let env = TestEnv::start().await;
    env.set_agent_script(
        "ENG-1",
        Script::new()
            .pass([ScriptStep::ExhaustTurns])
            .pass([ScriptStep::write("a.txt", "a\n")]),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let reason = "model invocation failed with exit code 1: Reached max turns (50)";
    assert_eq!(
        job.state,
        JobState::Failed {
            code: Some(FailureCode::MaxTurnsExhausted),
            reason: reason.to_owned()
        }
    );
    let ticket = || env.vendors.linear().issue("ENG-1");
    let expected = [
        format!("Implementation failed: {reason}"),
        "Log excerpt (`session_failed`)".to_owned(),
    ];
    assert_eq!(env.comments("ENG-1"), expected);
    assert!(ticket().labels().is_empty());
    env.wait_for_polls().await;
    assert_eq!(
        env.jobs("ENG-1").len(),
        1,
        "nothing runs again without the trigger"
    );

    ticket().add_label("Agent-Implement");
    env.wait_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!((job.state, job.dispatch_number), (JobState::Completed, 2));
    assert_eq!(env.repo().pulls().len(), 1);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_snapshot_of_an_unavailable_system_is_kept_and_marked_stale() {
    let env = TestEnv::start().await;
    env.vendors.linear().issue("ENG-9").title("Blocker");
    env.vendors
        .linear()
        .issue("ENG-1")
        .title("Waits")
        .blocked_by("ENG-9")
        .add_label("Agent-Implement");
    env.wait_for_polls().await;
    let fresh = env.admin_get("/api/issues").await;
    assert_eq!(
        (&fresh["issues"][0]["identifier"], &fresh["stale"]),
        (&json!("ENG-1"), &json!([]))
    );

    env.vendors.faults(FakeService::Linear).set_outage(true);
    env.wait_for_polls().await;
    env.wait_for_polls().await;
    let stale = env.admin_get("/api/issues").await;
    assert_eq!(stale["stale"], json!(["ENG"]));
    assert!(stale["staleSince"]["ENG"].is_string(), "{stale}");
    assert_eq!(
        stale["issues"][0]["decision"]["reason"], "blocked",
        "the last poll snapshot is kept"
    );
    let blockers = env.admin_get("/api/blockers?all=true").await;
    assert_eq!(
        blockers["blockers"][0]["message"],
        "Blocked by ENG-9, still open."
    );
    assert_eq!(
        env.admin_get("/api/blockers").await["totals"]["issues"],
        0,
        "only the three default reasons"
    );

    env.vendors.faults(FakeService::Linear).set_outage(false);
    env.vendors.linear().issue("ENG-9").complete();
    env.wait_for_job_end("ENG-1").await;
    assert_eq!(env.admin_get("/api/issues").await["stale"], json!([]));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_failures_in_a_row_park_a_ticket_until_it_is_unparked() {
    let env = TestEnv::start().await;
    let works = [ScriptStep::write("a.txt", "a\n")];
    let script = Script::new()
        .pass([ScriptStep::ExhaustTurns])
        .pass([ScriptStep::ExhaustTurns])
        .pass([ScriptStep::ExhaustTurns])
        .pass(works);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    for failures in 1..=3 {
        env.wait_until("it has run", || env.jobs("ENG-1").len() == failures)
            .await;
        assert_eq!(env.wait_for_job_end("ENG-1").await.state.status(), "failed");
        env.vendors
            .linear()
            .issue("ENG-1")
            .add_label("Agent-Implement");
    }
    env.wait_for_polls().await;
    assert_eq!(
        env.jobs("ENG-1").len(),
        3,
        "a parked ticket is not dispatched, even with the trigger"
    );
    assert_eq!(
        env.admin_get("/api/why/ENG-1").await["decision"]["reason"],
        "parked"
    );
    let comments = env.vendors.linear().issue("ENG-1").comments();
    assert_eq!(
        comments
            .iter()
            .filter(|comment| comment.starts_with("Parked after 3 failures"))
            .count(),
        1
    );

    for (named, unparked) in [("ENG-2", false), ("eng-1", true), ("eng-1", false)] {
        let answer = env
            .admin_post("/api/parked/unpark", json!({ "issueId": named }))
            .await;
        assert_eq!(answer, json!({ "unparked": unparked }), "{named}");
    }
    let nameless = env.admin_post("/api/parked/unpark", json!({})).await;
    assert_eq!(nameless, json!({ "error": "issueId is required" }));
    env.wait_until("it runs again", || env.jobs("ENG-1").len() == 4)
        .await;
    assert_eq!(
        env.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    env.finish().await;
}

/// Fault rates: 20 % of requests dropped before their effect, 20 % after it, 20 % answered with 500.
#[tokio::test(flavor = "multi_thread")]
async fn ten_tickets_complete_despite_random_faults_of_both_vendors() {
    let env = TestEnv::start().await;
    let fault_rates = FaultRates {
        drop_request_rate: 0.2,
        drop_response_rate: 0.2,
        error_rate: 0.2,
        ..FaultRates::default()
    };
    env.set_fault_rates(&fault_rates);
    let keys: Vec<String> = (1..=10).map(|number| format!("ENG-{number}")).collect();
    for key in &keys {
        env.create_labelled_issue(key, &format!("Feature {key}"));
    }
    for key in &keys {
        let job = env.wait_for_job_end(key).await;
        assert_eq!(job.state, JobState::Completed, "{key}");
    }
    let (runs, pulls) = (env.repo().runs(), env.repo().pulls());
    assert_eq!((runs.len(), pulls.len()), (10, 10));
    for key in &keys {
        assert_eq!(
            runs.iter()
                .filter(|run| run.title.contains(&format!("{key} [")))
                .count(),
            1,
            "{key}"
        );
        let comments = env.vendors.linear().issue(key).comments();
        assert_eq!(comments.len(), 1, "{key}: {comments:?}");
        assert_eq!(
            env.vendors.linear().issue(key).labels(),
            ["Agent-Implement", "Ready for Review"],
            "{key}"
        );
    }
    env.finish().await;
}
