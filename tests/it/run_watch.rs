//! Run monitor with a manual clock: runs that are missing, hang, end without a result, or report late.

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

/// Time in which a result may arrive after the end of the run.
const GRACE: Duration = Duration::from_secs(120);

/// Fault that accepts the dispatch and starts no run.
const ACCEPTED_WITHOUT_RUN: InjectedFault = InjectedFault::ErrorStatus(204);

/// Environment with a manual engine and a labelled ticket.
async fn env_with_labelled_issue() -> TestEnv {
    let env = TestEnv::with_manual_engine([mapping()]).await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    env
}

/// The same, with a workflow that only runs this command.
async fn env_with_workflow(command: &str) -> TestEnv {
    let env = env_with_labelled_issue().await;
    let (head, _) = IMPLEMENTATION_WORKFLOW.split_once("\njobs:\n").unwrap();
    let jobs = format!(
        "jobs:\n  other:\n    runs-on: ubuntu-latest\n    steps:\n      - run: {command}\n"
    );
    let file = (
        ".github/workflows/agent-implement.yml",
        &*format!("{head}\n{jobs}"),
    );
    env.repo().seed(&[file], "Do something else").unwrap();
    env
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

    /// Opens the pull request of the job's branch. Returns its number.
    fn open_pull(&self) -> u64 {
        let branch = self.job().branch;
        self.repo()
            .open_pull(&branch, "agent", "Add the feature", "")
    }

    /// Posts a result with the job's own token. Returns the status of the response.
    async fn report(&self, mut result: Value) -> u16 {
        let (job, tokens) = (self.job(), &self.app.secrets.run_tokens);
        let (now, phase) = (self.app.core.now(), job.kind.run_phase());
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
        drain_outbox(self).await;
        status
    }
}

async fn drain_outbox(env: &TestEnv) {
    engine::outbox_worker::drain(&env.app).await.unwrap();
}

fn timed_out(reason: TimeoutReason) -> JobState {
    JobState::TimedOut { reason }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_run_times_out_after_ten_minutes() {
    let env = env_with_labelled_issue().await;
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", ACCEPTED_WITHOUT_RUN);
    env.tick().await;
    env.advance_clock(10 * MINUTE - SECOND);
    env.tick().await;
    assert_eq!(env.job().state, JobState::Dispatched);

    // A run is missing only if the list of runs could be read.
    env.advance_clock(SECOND);
    github.set_outage(true);
    env.tick().await;
    assert_eq!(env.job().state, JobState::Dispatched);
    github.set_outage(false);
    env.tick().await;
    assert_eq!(env.job().state, timed_out(TimeoutReason::RunNotFound));
    assert_eq!(
        env.comments("ENG-1"),
        ["Implementation failed: no run was found within 10 minutes of the dispatch"]
    );
    assert!(env.vendors.linear().issue("ENG-1").labels().is_empty());
    let log = env.admin_get("/api/log").await;
    assert_eq!(
        (&log[0]["status"], &log[0]["timeoutReason"]),
        (&json!("timed_out"), &json!("run_not_found"))
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_first_check_finds_a_running_run() {
    let env = env_with_labelled_issue().await;
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("/dispatches", InjectedFault::ReplaceResponseStatus(204));
    let hang = Script::new().pass([ScriptStep::Hang]);
    env.set_agent_script("ENG-1", hang);
    poll_and_dispatch(&env).await;
    env.until_run_is("in_progress").await;
    env.advance_clock(30 * MINUTE);
    env.tick().await;
    let job = env.job();
    assert_eq!(job.state, JobState::Running);
    assert!(
        matches!(&job.run, Some(RunHandle::Ci { url, .. }) if !url.is_empty()),
        "{job:?}"
    );
    env.stop().await;
}

/// Polls and dispatches, without the run monitor.
async fn poll_and_dispatch(env: &TestEnv) {
    engine::poll::run_once(&env.app).await.unwrap();
    drain_outbox(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_its_time_budget_is_cancelled_and_reported_with_its_log() {
    let env = env_with_labelled_issue().await;
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    env.tick().await;
    env.wait_until("the agent has started", || {
        let steps = |id| env.store.read(|tx| steps::of_job(tx, id)).unwrap();
        steps(&env.job().id)
            .iter()
            .any(|step| step.id == "implement.1")
    })
    .await;
    env.advance_clock(95 * MINUTE - SECOND);
    env.tick().await;
    assert_eq!(env.job().state, JobState::Running);
    env.advance_clock(SECOND);
    env.tick().await;
    assert_eq!(env.job().state, timed_out(TimeoutReason::TimedOut));
    env.until_run_is("completed").await;
    assert_eq!(env.run().conclusion.as_deref(), Some("cancelled"));

    // A result of the cancelled run is recorded and changes nothing.
    env.wait_until("its result has arrived", || env.job().result_accepted)
        .await;
    assert_eq!(env.job().state, timed_out(TimeoutReason::TimedOut));
    env.advance_clock(5 * MINUTE);
    env.tick().await;
    let [failure, log] = &env.comments("ENG-1")[..] else {
        panic!("{:?}", env.comments("ENG-1"))
    };
    assert_eq!(
        failure,
        "Implementation failed: the run exceeded its time budget of 90 minutes"
    );
    assert_eq!(log, "Log excerpt (`session_failed`)");
    let whole = env.vendors.linear().issue("ENG-1").comments().remove(0);
    assert!(
        whole.contains("\n```\nENG-1 failed in step Run\n"),
        "{whole}"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_does_not_wait_for_the_log_of_its_last_run() {
    let env = env_with_labelled_issue().await;
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    env.tick().await;
    env.until_run_is("in_progress").await;
    let failure = json!({"outcome": "failure", "failureReason": "it gave up"});
    assert_eq!(env.report(failure).await, 200);
    assert_eq!(env.run().status, "in_progress", "the host's run lingers");
    let expected = ["Implementation failed: it gave up"];
    assert_eq!(env.comments("ENG-1"), expected);

    let first = env.run().id;
    env.vendors
        .linear()
        .issue("ENG-1")
        .add_label("Agent-Implement");
    env.tick().await;
    assert_eq!(env.repo().runs().len(), 2, "the next run has started");
    assert_eq!(env.comments("ENG-1"), expected, "the log is not there yet");

    env.repo().time_out_run(first);
    env.wait_until("the first run is over", || {
        let runs = env.repo().runs();
        { runs.iter() }.any(|run| run.id == first && run.status == "completed")
    })
    .await;
    env.advance_clock(MINUTE);
    drain_outbox(&env).await;
    assert_eq!(
        env.comments("ENG-1"),
        [expected[0], "Log excerpt (`session_failed`)"]
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_host_timed_out_has_timed_out() {
    let env = env_with_labelled_issue().await;
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    env.tick().await;
    env.until_run_is("in_progress").await;
    env.repo().time_out_run(env.run().id);
    env.until_run_is("completed").await;
    env.tick().await;
    assert!(env.job().is_active(), "its report may still come");
    env.advance_clock(GRACE);
    env.tick().await;
    let job = env.job();
    assert_eq!(job.state, timed_out(TimeoutReason::TimedOut));
    assert_eq!(job.conclusion.as_deref(), Some("timed_out"));
    env.finish().await;
}

/// A run without a result is judged after the grace period by its conclusion.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_result_is_judged_by_its_conclusion() {
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
        let env = env_with_workflow(command).await;
        env.tick().await;
        env.until_run_is("completed").await;
        env.tick().await;
        env.advance_clock(GRACE - SECOND);
        env.tick().await;
        assert!(env.job().is_active(), "its report may still come");
        assert!(env.comments("ENG-1").is_empty());
        env.advance_clock(SECOND);
        env.tick().await;
        assert_eq!(env.job().state.status(), "failed");
        let [failure, log] = &env.comments("ENG-1")[..] else {
            panic!("{:?}", env.comments("ENG-1"))
        };
        assert_eq!(*failure, format!("Implementation failed: {reason}"));
        assert_eq!(*log, format!("Log excerpt (`{label}`)"));
        env.finish().await;
    }
}

/// Without access to the repository, GitHub does not return what the run left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_repository_access_is_judged_after_a_day() {
    for refused in ["/actions/runs?", "/pulls?"] {
        let env = env_with_workflow("echo nothing to do").await;
        let github = env.vendors.faults(FakeService::GitHub);
        env.tick().await;
        env.until_run_is("completed").await;
        env.tick().await;
        env.advance_clock(DAY - SECOND);
        github.inject_on_match(refused, InjectedFault::ErrorStatus(404));
        env.tick().await;
        assert_eq!(github.pending(), 0, "{refused}");
        assert!(env.job().is_active(), "{refused}: access may return");

        env.advance_clock(SECOND);
        github.set_outage(true);
        env.tick().await;
        assert!(env.job().is_active(), "an outage does not end the job");
        github.set_outage(false);
        github.inject_on_match(refused, InjectedFault::ErrorStatus(404));
        env.tick().await;
        assert_eq!(
            env.comments("ENG-1")[0],
            "Implementation failed: the run ended without opening a pull request",
            "{refused}"
        );
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_cancelled_or_deleted_by_a_person_has_failed() {
    for deleted in [false, true] {
        let env = env_with_workflow("sleep 600").await;
        env.tick().await;
        env.until_run_is("in_progress").await;
        let id = env.run().id;
        env.repo().cancel_run(id);
        env.until_run_is("completed").await;
        if deleted {
            env.repo().delete_run(id);
        }
        env.tick().await;
        env.advance_clock(GRACE);
        env.tick().await;
        let reason = if deleted {
            "the run ended with conclusion deleted and reported no result"
        } else {
            "the run was cancelled at its host"
        };
        assert_eq!(
            env.comments("ENG-1")[0],
            format!("Implementation failed: {reason}")
        );
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_within_the_grace_period_is_used() {
    let env = env_with_workflow("exit 1").await;
    env.tick().await;
    env.until_run_is("completed").await;
    env.tick().await;
    env.advance_clock(GRACE - SECOND);
    env.tick().await;
    let number = env.open_pull();
    let url = env.repo().pull_url(number);
    let done = json!({"outcome": "success", "prUrl": url});
    assert_eq!(env.report(done.clone()).await, 200);
    assert_eq!(env.job().state, JobState::Completed);
    assert_eq!(
        env.comments("ENG-1"),
        [format!("Pull request opened: [#{number}]({url})")]
    );
    assert_eq!(env.report(done).await, 409);
    env.advance_clock(10 * MINUTE);
    env.tick().await;
    assert_eq!(env.job().state, JobState::Completed);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_after_the_end_is_recorded_and_changes_nothing() {
    let env = env_with_workflow("exit 1").await;
    env.tick().await;
    env.until_run_is("completed").await;
    env.tick().await;
    env.advance_clock(GRACE);
    env.tick().await;
    let before = env.comments("ENG-1");
    let done = json!({"outcome": "success", "prUrl": env.repo().pull_url(7)});
    assert_eq!(env.report(done.clone()).await, 200);
    assert_eq!(env.report(done).await, 409, "its token is spent");
    assert_eq!(env.job().state.status(), "failed");
    assert!(env.job().result_accepted);
    assert_eq!(env.comments("ENG-1"), before);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unresolved_review_findings_are_posted_without_the_log() {
    let env = env_with_workflow("exit 1").await;
    env.tick().await;
    env.until_run_is("completed").await;
    let number = env.open_pull();
    let url = env.repo().pull_url(number);
    let unapproved = json!({
        "outcome": "failure", "prUrl": url, "failureCode": "REVIEW_UNAPPROVED",
        "unresolved": ["a race between two writers"],
    });
    assert_eq!(env.report(unapproved).await, 200);
    assert_eq!(env.job().state.status(), "review_failed");
    let [opened, unresolved] = &env.comments("ENG-1")[..] else {
        panic!("{:?}", env.comments("ENG-1"))
    };
    assert_eq!(*opened, format!("Pull request opened: [#{number}]({url})"));
    assert_eq!(
        unresolved,
        "The pull request stays a draft: its review left blocking findings open.\n\n- a race between two writers"
    );
    let labels = env.vendors.linear().issue("ENG-1").labels();
    assert_eq!(labels, ["Agent-Implement", "Ready for Review"]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_closed_or_deleted_ticket_is_cancelled_without_a_comment() {
    let ends: [fn(LinearTicket); 3] = [
        |ticket| drop(ticket.cancel()),
        |ticket| drop(ticket.complete()),
        |ticket| drop(ticket.delete()),
    ];
    for end in ends {
        let env = env_with_workflow("sleep 600").await;
        env.tick().await;
        env.until_run_is("in_progress").await;
        env.tick().await;
        assert!(env.job().is_active());
        let id = env.job().id;
        end(env.vendors.linear().issue("ENG-1"));
        env.tick().await;
        env.until_run_is("completed").await;
        let job = env.store.read(|tx| jobs::get(tx, &id)).unwrap();
        assert!(
            matches!(&job.unwrap().state, JobState::Failed { code: Some(FailureCode::Cancelled), reason }
                if reason == "the issue was closed")
        );
        assert!(env.comments("ENG-1").is_empty());
        let why = env.admin_get("/api/why/ENG-1").await;
        assert_ne!(why["decision"]["outcome"], "failed", "{why}");
        // If the issue is reopened, it must not look busy.
        if let Some(left) = env.vendors.linear().issue("ENG-1").snapshot() {
            assert_eq!(left.labels, ["Agent-Implement"]);
        }
        env.finish().await;
    }
}

/// Whatever happened to the response to its dispatch, the run of a closed ticket is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_closed_ticket_is_cancelled_even_if_unseen() {
    for lost in [
        InjectedFault::DropResponse,
        InjectedFault::ReplaceResponseStatus(204),
    ] {
        let env = TestEnv::with_options(TestEnvOptions {
            engine: EngineMode::manual(),
            fake_runs: true,
            ..TestEnvOptions::default()
        })
        .await;
        env.create_labelled_issue("ENG-1", "Add the feature");
        env.vendors
            .faults(FakeService::GitHub)
            .inject_on_match("/dispatches", lost);
        poll_and_dispatch(&env).await;
        assert_eq!((env.run().status.as_str(), env.job().run), ("queued", None));
        env.vendors.linear().issue("ENG-1").cancel();
        engine::poll::run_once(&env.app).await.unwrap();
        assert!(!env.job().is_active());
        env.tick_until_drained().await;
        assert_eq!(env.run().conclusion.as_deref(), Some("cancelled"));
        assert_eq!(env.repo().runs().len(), 1, "it is not started again");
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_only_lost_its_labels_keeps_its_run() {
    let env = env_with_workflow("sleep 600").await;
    env.tick().await;
    env.until_run_is("in_progress").await;
    for label in env.vendors.linear().issue("ENG-1").labels() {
        env.vendors.linear().issue("ENG-1").remove_label(&label);
    }
    env.tick().await;
    assert!(env.job().is_active());
    env.stop().await;
}
