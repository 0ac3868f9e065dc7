//! Runs that are never seen, never end, end without a word or speak too late; on a clock that is
//! turned by hand.

use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::{Job, JobState, RunHandle, TimeoutReason};
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, LinearTicket, RunSnapshot};
use serde_json::{Value, json};
use store::{jobs, steps};

use crate::test_env::{EngineMode, IMPLEMENTATION_WORKFLOW, TestEnv, TestEnvOptions, mapping};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a run's report is waited for.
const GRACE: Duration = Duration::from_secs(120);

/// The dispatch is answered as if all were well, and nothing comes of it.
const ACCEPTED_AND_FORGOTTEN: InjectedFault = InjectedFault::ErrorStatus(204);

/// An engine that is turned by hand, and one flagged ticket.
async fn flagged() -> TestEnv {
    let world = TestEnv::with_manual_engine([mapping()]).await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    world
}

/// The same, with a workflow that only ever does this.
async fn flagged_with_workflow(command: &str) -> TestEnv {
    let world = flagged().await;
    let (head, _) = IMPLEMENTATION_WORKFLOW.split_once("\njobs:\n").unwrap();
    let jobs = format!(
        "jobs:\n  other:\n    runs-on: ubuntu-latest\n    steps:\n      - run: {command}\n"
    );
    let file = (
        ".github/workflows/agent-implement.yml",
        &*format!("{head}\n{jobs}"),
    );
    world.repo().seed(&[file], "Do something else").unwrap();
    world
}

impl TestEnv {
    fn job(&self) -> Job {
        self.jobs("ENG-1").pop().unwrap()
    }

    fn run(&self) -> RunSnapshot {
        self.repo().runs().pop().unwrap()
    }

    async fn until_run_is(&self, status: &str) {
        self.wait_until(&format!("the run is {status}"), || {
            self.run().status == status
        })
        .await;
    }

    /// Opens the pull request of the job's branch.
    fn open_pull(&self) -> u64 {
        let branch = self.job().branch;
        self.repo()
            .open_pull(&branch, "agent", "Add the feature", "")
    }

    /// Posts a result with the job's own token and answers the status.
    async fn report(&self, mut result: Value) -> u16 {
        let (job, tokens) = (self.job(), self.app.run_tokens.as_ref().unwrap());
        let (now, phase) = (self.app.now(), job.kind.run_phase());
        let token = tokens.issue(
            &job.id,
            TokenAudience::Result,
            phase,
            now,
            now + 60 * MINUTE,
        );
        result["phase"] = json!("implementation");
        result["comments"] = json!([]);
        let request = reqwest::Client::new()
            .post(format!("{}/runner/result", self.address))
            .bearer_auth(token.expose())
            .json(&result);
        let status = request.send().await.unwrap().status().as_u16();
        flow_settles(self).await;
        status
    }
}

async fn flow_settles(world: &TestEnv) {
    engine::outbox_worker::drain(&world.app).await.unwrap();
}

fn timed_out(reason: TimeoutReason) -> JobState {
    JobState::TimedOut { reason }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_never_shows_up_is_given_up_after_ten_minutes() {
    let world = flagged().await;
    let github = world.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", ACCEPTED_AND_FORGOTTEN);
    world.tick().await;
    world.advance_clock(10 * MINUTE - SECOND);
    world.tick().await;
    assert_eq!(world.job().state, JobState::Dispatched);

    // Only a list that could be read tells that the run is missing.
    world.advance_clock(SECOND);
    github.set_outage(true);
    world.tick().await;
    assert_eq!(world.job().state, JobState::Dispatched);
    github.set_outage(false);
    world.tick().await;
    assert_eq!(world.job().state, timed_out(TimeoutReason::RunNotFound));
    assert_eq!(
        world.comments("ENG-1"),
        ["Implementation failed: no run was found within 10 minutes of the dispatch"]
    );
    assert!(world.vendors.linear().issue("ENG-1").labels().is_empty());
    let log = world.admin_get("/api/log").await;
    assert_eq!(
        (&log[0]["status"], &log[0]["timeoutReason"]),
        (&json!("timed_out"), &json!("run_not_found"))
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_there_all_along_is_not_missing_when_we_come_back_late() {
    let world = flagged().await;
    let github = world.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::ReplaceResponseStatus(204));
    let hang = Script::new().pass([ScriptStep::Hang]);
    world.set_agent_script("ENG-1", hang);
    flow_until_dispatched(&world).await;
    world.until_run_is("in_progress").await;
    world.advance_clock(30 * MINUTE);
    world.tick().await;
    let job = world.job();
    assert_eq!(job.state, JobState::Running);
    assert!(
        matches!(&job.run, Some(RunHandle::Ci { url, .. }) if !url.is_empty()),
        "{job:?}"
    );
    world.stop().await;
}

/// A poll and the dispatch, and no look at what came of it.
async fn flow_until_dispatched(world: &TestEnv) {
    engine::poll::run_once(&world.app).await.unwrap();
    flow_settles(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_its_budget_is_cancelled_and_told_with_its_log() {
    let world = flagged().await;
    world.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    world.tick().await;
    world
        .wait_until("the agent is at work", || {
            let steps = |id| world.app.store.read(|tx| steps::of_job(tx, id)).unwrap();
            steps(&world.job().id)
                .iter()
                .any(|step| step.id == "implement.1")
        })
        .await;
    world.advance_clock(95 * MINUTE - SECOND);
    world.tick().await;
    assert_eq!(world.job().state, JobState::Running);
    world.advance_clock(SECOND);
    world.tick().await;
    assert_eq!(world.job().state, timed_out(TimeoutReason::TimedOut));
    world.until_run_is("completed").await;
    assert_eq!(world.run().conclusion.as_deref(), Some("cancelled"));

    // What the cancelled run still reported is kept and changes nothing.
    world
        .wait_until("its last words have come", || world.job().result_accepted)
        .await;
    assert_eq!(world.job().state, timed_out(TimeoutReason::TimedOut));
    world.advance_clock(5 * MINUTE);
    world.tick().await;
    let [told, log] = &world.comments("ENG-1")[..] else {
        panic!("{:?}", world.comments("ENG-1"))
    };
    assert_eq!(
        told,
        "Implementation failed: the run exceeded its time budget of 90 minutes"
    );
    assert_eq!(log, "Log excerpt (`session_failed`)");
    let whole = world.vendors.linear().issue("ENG-1").comments().remove(0);
    assert!(
        whole.contains("\n```\nENG-1 failed in step Run\n"),
        "{whole}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_does_not_wait_for_the_log_of_its_last_run() {
    let world = flagged().await;
    world.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    world.tick().await;
    world.until_run_is("in_progress").await;
    let failure = json!({"outcome": "failure", "failureReason": "it gave up"});
    assert_eq!(world.report(failure).await, 200);
    assert_eq!(world.run().status, "in_progress", "the host's run lingers");
    let told = ["Implementation failed: it gave up"];
    assert_eq!(world.comments("ENG-1"), told);

    let first = world.run().id;
    world
        .vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    world.tick().await;
    assert_eq!(world.repo().runs().len(), 2, "the next run has started");
    assert_eq!(world.comments("ENG-1"), told, "the log is not there yet");

    world.repo().time_out_run(first);
    world
        .wait_until("the first run is over", || {
            let runs = world.repo().runs();
            { runs.iter() }.any(|run| run.id == first && run.status == "completed")
        })
        .await;
    world.advance_clock(MINUTE);
    flow_settles(&world).await;
    assert_eq!(
        world.comments("ENG-1"),
        [told[0], "Log excerpt (`session_failed`)"]
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_host_timed_out_has_timed_out() {
    let world = flagged().await;
    world.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    world.tick().await;
    world.until_run_is("in_progress").await;
    world.repo().time_out_run(world.run().id);
    world.until_run_is("completed").await;
    world.tick().await;
    assert!(world.job().is_active(), "its report may still come");
    world.advance_clock(GRACE);
    world.tick().await;
    let job = world.job();
    assert_eq!(job.state, timed_out(TimeoutReason::TimedOut));
    assert_eq!(job.conclusion.as_deref(), Some("timed_out"));
    world.finish().await;
}

/// What becomes of a run that ended without having reported, when its report had time to come.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_a_word_is_judged_by_the_host() {
    let rows = [
        (
            "echo nothing to do",
            "the run ended without opening a pull request",
            "pr_not_found",
        ),
        (
            "exit 1",
            "the run ended with conclusion failure and reported no result",
            "session_failed",
        ),
    ];
    for (command, reason, label) in rows {
        let world = flagged_with_workflow(command).await;
        world.tick().await;
        world.until_run_is("completed").await;
        world.tick().await;
        world.advance_clock(GRACE - SECOND);
        world.tick().await;
        assert!(world.job().is_active(), "its report may still come");
        assert!(world.comments("ENG-1").is_empty());
        world.advance_clock(SECOND);
        world.tick().await;
        assert_eq!(world.job().state.status(), "failed");
        let [told, log] = &world.comments("ENG-1")[..] else {
            panic!("{:?}", world.comments("ENG-1"))
        };
        assert_eq!(*told, format!("Implementation failed: {reason}"));
        assert_eq!(*log, format!("Log excerpt (`{label}`)"));
        world.finish().await;
    }
}

/// Our App may be taken away, or the repository: what a run left behind is never told then.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_host_refuses_to_tell_of_it_is_judged_after_a_day() {
    for refused in ["/actions/runs?", "/pulls?"] {
        let world = flagged_with_workflow("echo nothing to do").await;
        let github = world.vendors.faults(FakeService::GitHub);
        world.tick().await;
        world.until_run_is("completed").await;
        world.tick().await;
        world.advance_clock(DAY - SECOND);
        github.inject_on_match(refused, InjectedFault::ErrorStatus(404));
        world.tick().await;
        assert_eq!(github.pending(), 0, "{refused}");
        assert!(world.job().is_active(), "{refused}: it may tell it yet");

        world.advance_clock(SECOND);
        github.set_outage(true);
        world.tick().await;
        assert!(world.job().is_active(), "it is only out of order");
        github.set_outage(false);
        github.inject_on_match(refused, InjectedFault::ErrorStatus(404));
        world.tick().await;
        assert_eq!(
            world.comments("ENG-1")[0],
            "Implementation failed: the run ended without opening a pull request",
            "{refused}"
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_people_cancelled_or_deleted_has_failed() {
    for deleted in [false, true] {
        let world = flagged_with_workflow("sleep 600").await;
        world.tick().await;
        world.until_run_is("in_progress").await;
        let id = world.run().id;
        world.repo().cancel_run(id);
        world.until_run_is("completed").await;
        if deleted {
            world.repo().delete_run(id);
        }
        world.tick().await;
        world.advance_clock(GRACE);
        world.tick().await;
        let reason = if deleted {
            "the run ended with conclusion deleted and reported no result"
        } else {
            "the run was cancelled at its host"
        };
        assert_eq!(
            world.comments("ENG-1")[0],
            format!("Implementation failed: {reason}")
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_is_the_truth_when_it_comes_within_the_grace() {
    let world = flagged_with_workflow("exit 1").await;
    world.tick().await;
    world.until_run_is("completed").await;
    world.tick().await;
    world.advance_clock(GRACE - SECOND);
    world.tick().await;
    let number = world.open_pull();
    let url = world.repo().pull_url(number);
    let done = json!({"outcome": "success", "prUrl": url});
    assert_eq!(world.report(done.clone()).await, 200);
    assert_eq!(world.job().state, JobState::Completed);
    assert_eq!(
        world.comments("ENG-1"),
        [format!("Pull request opened: [#{number}]({url})")]
    );
    assert_eq!(world.report(done).await, 409);
    world.advance_clock(10 * MINUTE);
    world.tick().await;
    assert_eq!(world.job().state, JobState::Completed);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_after_the_end_is_taken_and_changes_nothing() {
    let world = flagged_with_workflow("exit 1").await;
    world.tick().await;
    world.until_run_is("completed").await;
    world.tick().await;
    world.advance_clock(GRACE);
    world.tick().await;
    let told = world.comments("ENG-1");
    let done = json!({"outcome": "success", "prUrl": world.repo().pull_url(7)});
    assert_eq!(world.report(done.clone()).await, 200);
    assert_eq!(world.report(done).await, 409, "its token is spent");
    assert_eq!(world.job().state.status(), "failed");
    assert!(world.job().result_accepted);
    assert_eq!(world.comments("ENG-1"), told);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_review_did_not_approve_is_told_without_the_log() {
    let world = flagged_with_workflow("exit 1").await;
    world.tick().await;
    world.until_run_is("completed").await;
    let number = world.open_pull();
    let url = world.repo().pull_url(number);
    let unapproved = json!({
        "outcome": "failure", "prUrl": url, "failureCode": "REVIEW_UNAPPROVED",
        "unresolved": ["a race between two writers"],
    });
    assert_eq!(world.report(unapproved).await, 200);
    assert_eq!(world.job().state.status(), "review_failed");
    let [opened, unresolved] = &world.comments("ENG-1")[..] else {
        panic!("{:?}", world.comments("ENG-1"))
    };
    assert_eq!(*opened, format!("Pull request opened: [#{number}]({url})"));
    assert_eq!(
        unresolved,
        "The pull request stays a draft: its review left blocking findings open.\n\n- a race between two writers"
    );
    let labels = world.vendors.linear().issue("ENG-1").labels();
    assert_eq!(labels, ["Agent-Implement", "Ready for Review"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_closed_or_deleted_ticket_is_ended_without_blame() {
    let ends: [fn(LinearTicket); 3] = [
        |ticket| drop(ticket.cancel()),
        |ticket| drop(ticket.complete()),
        |ticket| drop(ticket.delete()),
    ];
    for end in ends {
        let world = flagged_with_workflow("sleep 600").await;
        world.tick().await;
        world.until_run_is("in_progress").await;
        world.tick().await;
        assert!(world.job().is_active());
        let id = world.job().id;
        end(world.vendors.linear().issue("ENG-1"));
        world.tick().await;
        world.until_run_is("completed").await;
        let job = world.app.store.read(|tx| jobs::get(tx, &id)).unwrap();
        assert!(
            matches!(&job.unwrap().state, JobState::Failed { code: Some(FailureCode::Cancelled), reason }
                if reason == "the issue was closed")
        );
        assert!(world.comments("ENG-1").is_empty());
        // Opened again, it must not look busy for ever.
        if let Some(left) = world.vendors.linear().issue("ENG-1").snapshot() {
            assert_eq!(left.labels, ["Agent-Implement"]);
        }
        world.finish().await;
    }
}

/// Whatever became of the answer to its dispatch, a run does not go on for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_closed_ticket_is_ended_although_nobody_has_seen_it() {
    for lost in [
        InjectedFault::DropResponse,
        InjectedFault::ReplaceResponseStatus(204),
    ] {
        let world = TestEnv::with_options(TestEnvOptions {
            engine: EngineMode::manual(),
            fake_runs: true,
            ..TestEnvOptions::default()
        })
        .await;
        world.create_labelled_issue("ENG-1", "Add the feature");
        world
            .vendors
            .faults(FakeService::GitHub)
            .inject_on_match("/dispatches", lost);
        flow_until_dispatched(&world).await;
        assert_eq!(
            (world.run().status.as_str(), world.job().run),
            ("queued", None)
        );
        world.vendors.linear().issue("ENG-1").cancel();
        engine::poll::run_once(&world.app).await.unwrap();
        assert!(!world.job().is_active());
        world.tick_until_drained().await;
        assert_eq!(world.run().conclusion.as_deref(), Some("cancelled"));
        assert_eq!(world.repo().runs().len(), 1, "it is not started again");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_only_lost_its_labels_keeps_its_run() {
    let world = flagged_with_workflow("sleep 600").await;
    world.tick().await;
    world.until_run_is("in_progress").await;
    for label in world.vendors.linear().issue("ENG-1").labels() {
        world.vendors.linear().issue("ENG-1").remove_label(&label);
    }
    world.tick().await;
    assert!(world.job().is_active());
    world.stop().await;
}
