//! From a flagged ticket to an open pull request, and what stands in the way.

use std::time::Duration;

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::{Dial, Fault, Vendor};

use fake_vendors::scripted_agent::{Script, Step};

use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_flagged_ticket_becomes_a_pull_request() {
    let world = World::start().await;
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;

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
        world.repo().file_at(&pull.head, "feature.txt").as_deref(),
        Some("done\n")
    );

    let ticket = world.town.linear().issue("ENG-1").snapshot().unwrap();
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
        world.town.linear().issue("ENG-1").comments(),
        [format!("Pull request opened: [#{}]({url})", pull.number)]
    );
    assert_eq!(ticket.state_type, "started");
    assert_eq!(
        world.town.chat().messages().len(),
        2,
        "one for the dispatch, one for the end"
    );

    let log = world.admin("/api/log").await;
    assert_eq!(log[0]["status"], "completed");
    let steps = world.admin(&format!("/api/jobs/{}/steps", job.id)).await;
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
    world.polled().await;
    assert_eq!(
        world.jobs("ENG-1").len(),
        1,
        "a pull request that is open is final"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_ticket_is_not_started_and_why_says_so() {
    let world = World::start().await;
    world.town.linear().issue("ENG-1").title("First");
    world.flag("ENG-2", "Second");
    world.town.linear().issue("ENG-2").blocked_by("ENG-1");
    world.polled().await;
    // Flagged before it was blocked, it may have been seen in between; only one that was not counts.
    world.flag("ENG-4", "Fourth, blocked from the start");
    let blocked = world
        .town
        .linear()
        .issue("ENG-3")
        .title("Third")
        .blocked_by("ENG-1");
    blocked.add_label("Agent-Implement");
    world.polled().await;
    assert!(world.jobs("ENG-3").is_empty());
    let why = world.admin("/api/why/ENG-3").await;
    assert_eq!(why["decision"]["reason"], "blocked");
    assert_eq!(why["decision"]["message"], "Blocked by ENG-1, still open.");

    world.town.linear().issue("ENG-1").complete();
    world.ended("ENG-3").await;
    world.ended("ENG-4").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_whose_answer_is_lost_is_found_and_not_repeated() {
    let world = World::start().await;
    world
        .town
        .faults(Vendor::GitHub)
        .next_on("/dispatches", Fault::DropAfter);
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(world.repo().runs().len(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_host_lists_late_is_waited_for() {
    let world = World::start().await;
    world
        .town
        .github()
        .set_listing_delay(Duration::from_millis(1_200));
    // Long after the listing, so that no report of the run can tell of it first.
    world.town.github().set_start_delay(Duration::from_secs(4));
    let github = world.town.faults(Vendor::GitHub);
    github.next_on("/dispatches", Fault::DropAfter);
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(github.struck().len(), 1, "the answer was lost");
    assert_eq!(
        world.repo().runs().len(),
        1,
        "a second run was not started while the first was hidden"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_with_an_old_workflow_is_told_to_sync() {
    let world = World::start().await;
    let old = "on:\n  workflow_dispatch:\n    inputs:\n      issue_id: {type: string}\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: 'true'\n";
    world
        .repo()
        .commit(
            "main",
            &[(".github/workflows/agent-implement.yml", old)],
            "Old",
        )
        .unwrap();
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    let comments = world.town.linear().issue("ENG-1").comments();
    assert!(
        comments[0].starts_with("Implementation failed: the run could not be dispatched"),
        "{comments:?}"
    );
    assert!(comments[0].to_lowercase().contains("sync"), "{comments:?}");
    assert!(world.town.linear().issue("ENG-1").labels().is_empty());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_ticket_runs_again_only_when_it_is_flagged_again() {
    let world = World::start().await;
    world.script(
        "ENG-1",
        Script::new()
            .pass([Step::Loop])
            .pass([Step::write("a.txt", "a\n")]),
    );
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    let reason = "model invocation failed with exit code 1: Reached max turns (50)";
    assert_eq!(
        job.state,
        JobState::Failed {
            code: Some(FailureCode::MaxTurnsExhausted),
            reason: reason.to_owned()
        }
    );
    let ticket = || world.town.linear().issue("ENG-1");
    let told = [
        format!("Implementation failed: {reason}"),
        "Log excerpt (`session_failed`)".to_owned(),
    ];
    assert_eq!(world.comments("ENG-1"), told);
    assert!(ticket().labels().is_empty());
    world.polled().await;
    assert_eq!(
        world.jobs("ENG-1").len(),
        1,
        "without the trigger nothing runs again"
    );

    ticket().add_label("Agent-Implement");
    world
        .until("it runs again", || world.jobs("ENG-1").len() == 2)
        .await;
    let job = world.ended("ENG-1").await;
    assert_eq!((job.state, job.dispatch_number), (JobState::Completed, 2));
    assert_eq!(world.repo().pulls().len(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_silent_system_showed_last_stands_and_is_called_stale() {
    let world = World::start().await;
    world.town.linear().issue("ENG-9").title("Blocker");
    world
        .town
        .linear()
        .issue("ENG-1")
        .title("Waits")
        .blocked_by("ENG-9")
        .add_label("Agent-Implement");
    world.polled().await;
    let fresh = world.admin("/api/issues").await;
    assert_eq!(
        (&fresh["issues"][0]["identifier"], &fresh["stale"]),
        (&json!("ENG-1"), &json!([]))
    );

    world.town.faults(Vendor::Linear).outage(true);
    world.polled().await;
    world.polled().await;
    let stale = world.admin("/api/issues").await;
    assert_eq!(stale["stale"], json!(["ENG"]));
    assert!(stale["staleSince"]["ENG"].is_string(), "{stale}");
    assert_eq!(
        stale["issues"][0]["decision"]["reason"], "blocked",
        "nothing is wiped"
    );
    let blockers = world.admin("/api/blockers?all=true").await;
    assert_eq!(
        blockers["blockers"][0]["message"],
        "Blocked by ENG-9, still open."
    );
    assert_eq!(
        world.admin("/api/blockers").await["totals"]["issues"],
        0,
        "the spec's three reasons only"
    );

    world.town.faults(Vendor::Linear).outage(false);
    world.town.linear().issue("ENG-9").complete();
    world.ended("ENG-1").await;
    assert_eq!(world.admin("/api/issues").await["stale"], json!([]));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_failures_in_a_row_park_a_ticket_until_it_is_unparked() {
    let world = World::start().await;
    let works = [Step::write("a.txt", "a\n")];
    let script = Script::new()
        .pass([Step::Loop])
        .pass([Step::Loop])
        .pass([Step::Loop])
        .pass(works);
    world.script("ENG-1", script);
    world.flag("ENG-1", "Add the feature");
    for failures in 1..=3 {
        world
            .until("it has run", || world.jobs("ENG-1").len() == failures)
            .await;
        assert_eq!(world.ended("ENG-1").await.state.status(), "failed");
        world
            .town
            .linear()
            .issue("ENG-1")
            .add_label("Agent-Implement");
    }
    world.polled().await;
    assert_eq!(
        world.jobs("ENG-1").len(),
        3,
        "a parked ticket is not dispatched, trigger or not"
    );
    assert_eq!(
        world.admin("/api/why/ENG-1").await["decision"]["reason"],
        "parked"
    );
    let told = world.town.linear().issue("ENG-1").comments();
    assert_eq!(
        told.iter()
            .filter(|comment| comment.starts_with("Parked after 3 failures"))
            .count(),
        1
    );

    for (named, unparked) in [("ENG-2", false), ("eng-1", true), ("eng-1", false)] {
        let answer = world
            .post("/api/parked/unpark", json!({ "issueId": named }))
            .await;
        assert_eq!(answer, json!({ "unparked": unparked }), "{named}");
    }
    let nameless = world.post("/api/parked/unpark", json!({})).await;
    assert_eq!(nameless, json!({ "error": "issueId is required" }));
    world
        .until("it runs again", || world.jobs("ENG-1").len() == 4)
        .await;
    assert_eq!(world.ended("ENG-1").await.state, JobState::Completed);
    world.end().await;
}

/// Ten tickets on a bad day: a fifth of all requests dropped before their effect, a fifth after,
/// a fifth answered with 500.
#[tokio::test(flavor = "multi_thread")]
async fn ten_tickets_survive_a_bad_day_of_both_vendors() {
    let world = World::start().await;
    let bad_day = Dial {
        drop_before: 0.2,
        drop_after: 0.2,
        error: 0.2,
        ..Dial::default()
    };
    world.dial(&bad_day);
    let keys: Vec<String> = (1..=10).map(|number| format!("ENG-{number}")).collect();
    for key in &keys {
        world.flag(key, &format!("Feature {key}"));
    }
    for key in &keys {
        let job = world.ended(key).await;
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
        let comments = world.town.linear().issue(key).comments();
        assert_eq!(comments.len(), 1, "{key}: {comments:?}");
        assert_eq!(
            world.town.linear().issue(key).labels(),
            ["Agent-Implement", "Ready for Review"],
            "{key}"
        );
    }
    world.end().await;
}
