//! From a flagged ticket to an open pull request, and what stands in the way.

use std::time::Duration;

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::{FakeService, FaultRates, InjectedFault};

use fake_vendors::scripted_agent::{Script, ScriptStep};

use serde_json::json;

use crate::test_env::TestEnv;

#[tokio::test(flavor = "multi_thread")]
async fn a_flagged_ticket_becomes_a_pull_request() {
    let world = TestEnv::start().await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(
        job.state,
        JobState::Completed,
        "{}",
        world.repo().run_log(world.repo().runs()[0].id)
    );
    let pulls = world.repo().pulls();
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
        world.repo().read_file(&pull.head, "feature.txt").as_deref(),
        Some("done\n")
    );

    let ticket = world.vendors.linear().issue("ENG-1").snapshot().unwrap();
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
    let url = world.repo().pull_url(pull.number);
    assert_eq!(
        world.vendors.linear().issue("ENG-1").comments(),
        [format!("Pull request opened: [#{}]({url})", pull.number)]
    );
    assert_eq!(ticket.state_type, "started");
    assert_eq!(
        world.vendors.chat().messages().len(),
        2,
        "one for the dispatch, one for the end"
    );

    let log = world.admin_get("/api/log").await;
    assert_eq!(log[0]["status"], "completed");
    let steps = world
        .admin_get(&format!("/api/jobs/{}/steps", job.id))
        .await;
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
    world.wait_for_polls().await;
    assert_eq!(
        world.jobs("ENG-1").len(),
        1,
        "a pull request that is open is final"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_ticket_is_not_started_and_why_says_so() {
    let world = TestEnv::start().await;
    world.vendors.linear().issue("ENG-1").title("First");
    world.create_labelled_issue("ENG-2", "Second");
    world.vendors.linear().issue("ENG-2").blocked_by("ENG-1");
    world.wait_for_polls().await;
    // Flagged before it was blocked, it may have been seen in between; only one that was not counts.
    world.create_labelled_issue("ENG-4", "Fourth, blocked from the start");
    let blocked = world
        .vendors
        .linear()
        .issue("ENG-3")
        .title("Third")
        .blocked_by("ENG-1");
    blocked.add_label("Agent-Implement");
    world.wait_for_polls().await;
    assert!(world.jobs("ENG-3").is_empty());
    let why = world.admin_get("/api/why/ENG-3").await;
    assert_eq!(why["decision"]["reason"], "blocked");
    assert_eq!(why["decision"]["message"], "Blocked by ENG-1, still open.");

    world.vendors.linear().issue("ENG-1").complete();
    world.wait_for_job_end("ENG-3").await;
    world.wait_for_job_end("ENG-4").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_whose_answer_is_lost_is_found_and_not_repeated() {
    let world = TestEnv::start().await;
    world
        .vendors
        .faults(FakeService::GitHub)
        .inject_on_match("/dispatches", InjectedFault::DropResponse);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(world.repo().runs().len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_host_lists_late_is_waited_for() {
    let world = TestEnv::start().await;
    world
        .vendors
        .github()
        .set_listing_delay(Duration::from_millis(1_200));
    // Long after the listing, so that no report of the run can tell of it first.
    world
        .vendors
        .github()
        .set_start_delay(Duration::from_secs(4));
    let github = world.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::DropResponse);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(github.injected().len(), 1, "the answer was lost");
    assert_eq!(
        world.repo().runs().len(),
        1,
        "a second run was not started while the first was hidden"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_with_an_old_workflow_is_told_to_sync() {
    let world = TestEnv::start().await;
    let old = "on:\n  workflow_dispatch:\n    inputs:\n      issue_id: {type: string}\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: 'true'\n";
    world
        .repo()
        .commit(
            "main",
            &[(".github/workflows/agent-implement.yml", old)],
            "Old",
        )
        .unwrap();
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    let comments = world.vendors.linear().issue("ENG-1").comments();
    assert!(
        comments[0].starts_with("Implementation failed: the run could not be dispatched"),
        "{comments:?}"
    );
    assert!(comments[0].to_lowercase().contains("sync"), "{comments:?}");
    assert!(world.vendors.linear().issue("ENG-1").labels().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_ticket_runs_again_only_when_it_is_flagged_again() {
    let world = TestEnv::start().await;
    world.set_agent_script(
        "ENG-1",
        Script::new()
            .pass([ScriptStep::ExhaustTurns])
            .pass([ScriptStep::write("a.txt", "a\n")]),
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let reason = "model invocation failed with exit code 1: Reached max turns (50)";
    assert_eq!(
        job.state,
        JobState::Failed {
            code: Some(FailureCode::MaxTurnsExhausted),
            reason: reason.to_owned()
        }
    );
    let ticket = || world.vendors.linear().issue("ENG-1");
    let told = [
        format!("Implementation failed: {reason}"),
        "Log excerpt (`session_failed`)".to_owned(),
    ];
    assert_eq!(world.comments("ENG-1"), told);
    assert!(ticket().labels().is_empty());
    world.wait_for_polls().await;
    assert_eq!(
        world.jobs("ENG-1").len(),
        1,
        "without the trigger nothing runs again"
    );

    ticket().add_label("Agent-Implement");
    world
        .wait_until("it runs again", || world.jobs("ENG-1").len() == 2)
        .await;
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!((job.state, job.dispatch_number), (JobState::Completed, 2));
    assert_eq!(world.repo().pulls().len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_silent_system_showed_last_stands_and_is_called_stale() {
    let world = TestEnv::start().await;
    world.vendors.linear().issue("ENG-9").title("Blocker");
    world
        .vendors
        .linear()
        .issue("ENG-1")
        .title("Waits")
        .blocked_by("ENG-9")
        .add_label("Agent-Implement");
    world.wait_for_polls().await;
    let fresh = world.admin_get("/api/issues").await;
    assert_eq!(
        (&fresh["issues"][0]["identifier"], &fresh["stale"]),
        (&json!("ENG-1"), &json!([]))
    );

    world.vendors.faults(FakeService::Linear).set_outage(true);
    world.wait_for_polls().await;
    world.wait_for_polls().await;
    let stale = world.admin_get("/api/issues").await;
    assert_eq!(stale["stale"], json!(["ENG"]));
    assert!(stale["staleSince"]["ENG"].is_string(), "{stale}");
    assert_eq!(
        stale["issues"][0]["decision"]["reason"], "blocked",
        "nothing is wiped"
    );
    let blockers = world.admin_get("/api/blockers?all=true").await;
    assert_eq!(
        blockers["blockers"][0]["message"],
        "Blocked by ENG-9, still open."
    );
    assert_eq!(
        world.admin_get("/api/blockers").await["totals"]["issues"],
        0,
        "the spec's three reasons only"
    );

    world.vendors.faults(FakeService::Linear).set_outage(false);
    world.vendors.linear().issue("ENG-9").complete();
    world.wait_for_job_end("ENG-1").await;
    assert_eq!(world.admin_get("/api/issues").await["stale"], json!([]));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_failures_in_a_row_park_a_ticket_until_it_is_unparked() {
    let world = TestEnv::start().await;
    let works = [ScriptStep::write("a.txt", "a\n")];
    let script = Script::new()
        .pass([ScriptStep::ExhaustTurns])
        .pass([ScriptStep::ExhaustTurns])
        .pass([ScriptStep::ExhaustTurns])
        .pass(works);
    world.set_agent_script("ENG-1", script);
    world.create_labelled_issue("ENG-1", "Add the feature");
    for failures in 1..=3 {
        world
            .wait_until("it has run", || world.jobs("ENG-1").len() == failures)
            .await;
        assert_eq!(
            world.wait_for_job_end("ENG-1").await.state.status(),
            "failed"
        );
        world
            .vendors
            .linear()
            .issue("ENG-1")
            .add_label("Agent-Implement");
    }
    world.wait_for_polls().await;
    assert_eq!(
        world.jobs("ENG-1").len(),
        3,
        "a parked ticket is not dispatched, trigger or not"
    );
    assert_eq!(
        world.admin_get("/api/why/ENG-1").await["decision"]["reason"],
        "parked"
    );
    let told = world.vendors.linear().issue("ENG-1").comments();
    assert_eq!(
        told.iter()
            .filter(|comment| comment.starts_with("Parked after 3 failures"))
            .count(),
        1
    );

    for (named, unparked) in [("ENG-2", false), ("eng-1", true), ("eng-1", false)] {
        let answer = world
            .admin_post("/api/parked/unpark", json!({ "issueId": named }))
            .await;
        assert_eq!(answer, json!({ "unparked": unparked }), "{named}");
    }
    let nameless = world.admin_post("/api/parked/unpark", json!({})).await;
    assert_eq!(nameless, json!({ "error": "issueId is required" }));
    world
        .wait_until("it runs again", || world.jobs("ENG-1").len() == 4)
        .await;
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    world.finish().await;
}

/// Ten tickets on a bad day: a fifth of all requests dropped before their effect, a fifth after,
/// a fifth answered with 500.
#[tokio::test(flavor = "multi_thread")]
async fn ten_tickets_survive_a_bad_day_of_both_vendors() {
    let world = TestEnv::start().await;
    let bad_day = FaultRates {
        drop_request_rate: 0.2,
        drop_response_rate: 0.2,
        error_rate: 0.2,
        ..FaultRates::default()
    };
    world.set_fault_rates(&bad_day);
    let keys: Vec<String> = (1..=10).map(|number| format!("ENG-{number}")).collect();
    for key in &keys {
        world.create_labelled_issue(key, &format!("Feature {key}"));
    }
    for key in &keys {
        let job = world.wait_for_job_end(key).await;
        assert_eq!(job.state, JobState::Completed, "{key}");
    }
    let (runs, pulls) = (world.repo().runs(), world.repo().pulls());
    assert_eq!((runs.len(), pulls.len()), (10, 10));
    for key in &keys {
        assert_eq!(
            runs.iter()
                .filter(|run| run.title.contains(&format!("{key} [")))
                .count(),
            1,
            "{key}"
        );
        let comments = world.vendors.linear().issue(key).comments();
        assert_eq!(comments.len(), 1, "{key}: {comments:?}");
        assert_eq!(
            world.vendors.linear().issue(key).labels(),
            ["Agent-Implement", "Ready for Review"],
            "{key}"
        );
    }
    world.finish().await;
}
