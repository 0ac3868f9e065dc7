//! Pods that do not start.

use domain::job::JobState;
use fake_vendors::PodProblem;

use super::{HOST, MINUTE, cluster, manual};
use crate::test_env::TestEnv;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_start_ends_its_run_with_the_reason() {
    let pull = PodProblem::Waiting("ImagePullBackOff", "Back-off pulling image \"x\"");
    let name = PodProblem::Waiting("InvalidImageName", "couldn't parse image name");
    let quota = PodProblem::NotCreated("pods \"x\" is forbidden: exceeded quota: runs");
    let standard = PodProblem::NotCreated(
        "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
    );
    let rows = [
        (
            pull,
            3,
            "its container not started: ImagePullBackOff: Back-off pulling image \"x\"",
        ),
        (
            name,
            0,
            "its container not started: InvalidImageName: couldn't parse image name",
        ),
        (
            PodProblem::Unschedulable,
            30,
            "its pod not scheduled: Unschedulable: 0/1 nodes are available: 1 Insufficient memory.",
        ),
        (
            quota,
            30,
            "no pod: FailedCreate: pods \"x\" is forbidden: exceeded quota: runs",
        ),
        (
            standard,
            3,
            "no pod: FailedCreate: pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
        ),
    ];
    for (problem, minutes, reason) in rows {
        let env = TestEnv::with_options(manual()).await;
        cluster(&env).set_pod_problem(Some(problem));
        env.create_labelled_issue("ENG-1", "Add a feature");
        env.tick().await;
        if minutes > 0 {
            env.advance_clock(minutes * MINUTE - MINUTE);
            env.tick().await;
            assert!(
                env.only_job().run_ended_at.is_none(),
                "{reason}: it may pass"
            );
            // The Job is younger than the clock of the test.
            env.advance_clock(2 * MINUTE);
            env.tick().await;
        }
        assert!(env.only_job().run_ended_at.is_some(), "{reason}");
        env.advance_clock(2 * MINUTE);
        env.tick().await;
        let failed = format!(
            "Implementation failed: the session ended with {reason} and reported no result"
        );
        let comments = env.comment_headlines();
        assert!(comments.contains(&failed), "{comments:#?}");
        assert!(env.machines(HOST).is_empty());
        assert!(cluster(&env).secrets().is_empty());
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_that_passes_delays_a_run_only() {
    let env = TestEnv::with_options(manual()).await;
    cluster(&env).set_pod_problem(Some(PodProblem::Unschedulable));
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    env.advance_clock(10 * MINUTE);
    env.tick().await;
    cluster(&env).set_pod_problem(None);
    env.tick_until("the run has ended", || !env.only_job().is_active())
        .await;
    assert_eq!(env.only_job().state, JobState::Completed);
    env.tick_until_drained().await;
    env.finish().await;
}
