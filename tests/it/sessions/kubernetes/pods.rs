//! Pods that do not start, end by the cluster, or have containers of others.

use domain::job::JobState;
use domain::mapping::Mapping;
use fake_vendors::{FakeService, PodProblem};

use super::{HOST, MINUTE, cluster, manual};
use crate::sessions::env_with_running_job;
use crate::test_env::{TestEnv, TestEnvOptions, mapping};

/// Checks that the run ended and failed for this reason, and that nothing of it is left.
async fn assert_failed(env: &TestEnv, reason: &str) {
    assert!(env.only_job().run_ended_at.is_some(), "{reason}");
    env.advance_clock(2 * MINUTE);
    env.tick().await;
    let failed = format!("Implementation failed: {reason}");
    let comments = env.comment_headlines();
    assert!(comments.contains(&failed), "{comments:#?}");
    assert!(env.machines(HOST).is_empty());
    assert!(cluster(env).secrets().is_empty());
}

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
            10,
            "its container did not start: ImagePullBackOff: Back-off pulling image \"x\"",
        ),
        (
            name,
            0,
            "its container did not start: InvalidImageName: couldn't parse image name",
        ),
        (
            PodProblem::Unschedulable,
            30,
            "its pod was not scheduled: Unschedulable: 0/1 nodes are available: 1 Insufficient memory.",
        ),
        (
            quota,
            30,
            "its pod was not created: FailedCreate: pods \"x\" is forbidden: exceeded quota: runs",
        ),
        (
            standard,
            3,
            "its pod was not created: FailedCreate: pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
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
        assert_failed(&env, &format!("the session failed: {reason}")).await;
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_node_at_the_time_limit_says_so() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![Mapping {
            max_job_minutes: Some(20),
            ..mapping()
        }],
        ..manual()
    })
    .await;
    cluster(&env).set_pod_problem(Some(PodProblem::Unschedulable));
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    env.advance_clock(19 * MINUTE);
    env.tick().await;
    assert!(env.only_job().run_ended_at.is_none(), "it may pass");
    env.advance_clock(MINUTE);
    env.tick().await;
    let reason = "the session failed: its pod was not scheduled: Unschedulable: 0/1 nodes are available: 1 \
                  Insufficient memory.";
    assert_failed(&env, reason).await;
    env.finish().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn the_time_for_an_image_begins_when_the_pod_has_a_node() {
    let env = TestEnv::with_options(manual()).await;
    cluster(&env).set_pod_problem(Some(PodProblem::Unschedulable));
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    // The cluster adds a node. Then its first image pull fails.
    env.advance_clock(20 * MINUTE);
    cluster(&env).shift_clock(20);
    let pull = PodProblem::Waiting("ErrImagePull", "timeout");
    cluster(&env).set_pod_problem(Some(pull));
    for _ in 0..2 {
        env.tick().await;
        assert!(env.only_job().run_ended_at.is_none());
        env.advance_clock(6 * MINUTE);
    }
    env.tick().await;
    let reason = "the session failed: its container did not start: ErrImagePull: timeout";
    assert_failed(&env, reason).await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_its_node_cannot_prepare_ends_its_run_and_a_large_image_does_not() {
    let no_runtime = (
        "FailedCreatePodSandBox",
        "no runtime for \"gvisor\" is configured",
    );
    let unrelated = ("BackOff", "Back-off restarting a container");
    for (event, is_ended) in [
        (Some(no_runtime), true),
        (Some(unrelated), false),
        (None, false),
    ] {
        let env = TestEnv::with_options(manual()).await;
        cluster(&env).set_pod_problem(Some(PodProblem::InPreparation(event)));
        // The events are read when the pod is 3 minutes old by the clock of this machine.
        cluster(&env).shift_clock(-5);
        env.create_labelled_issue("ENG-1", "Add a feature");
        env.tick().await;
        cluster(&env).shift_clock(0);
        env.advance_clock(4 * MINUTE);
        env.tick().await;
        assert!(env.only_job().run_ended_at.is_none(), "{event:?}");
        env.advance_clock(2 * MINUTE);
        env.tick().await;
        assert_eq!(env.only_job().run_ended_at.is_some(), is_ended, "{event:?}");
        if is_ended {
            let reason = "the session failed: its container did not start: FailedCreatePodSandBox: \
                          no runtime for \"gvisor\" is configured";
            assert_failed(&env, reason).await;
            env.finish().await;
        } else {
            env.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_pods_are_not_read_while_pods_start_as_usual() {
    let env = TestEnv::with_options(manual()).await;
    cluster(&env).set_pod_problem(Some(PodProblem::InPreparation(None)));
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    env.tick().await;
    let requests = env.vendors.requests().for_service(FakeService::Kubernetes);
    let mut urls = requests.iter().map(|request| request.url.as_str());
    assert!(urls.clone().any(|url| url.contains("/pods")));
    assert!(!urls.any(|url| url.contains("/events")));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disruption_of_a_pod_is_the_reason_instead_of_its_exit_code() {
    let env = env_with_running_job(HOST).await;
    let id = env.machine(HOST).id;
    let why = "The node was low on resource: memory.";
    cluster(&env).kill_pod(&id, "TerminationByKubelet", why);
    env.tick().await;
    let reason = format!("the session failed: its pod was disrupted: TerminationByKubelet: {why}");
    assert_failed(&env, &reason).await;
    env.finish().await;
}

const DRAIN: (&str, &str) = (
    "EvictionByEvictionAPI",
    "Eviction API: evicting pod for a drain",
);

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_drained_node_reports_that_it_was_stopped_from_outside() {
    let env = env_with_running_job(HOST).await;
    let id = env.machine(HOST).id;
    cluster(&env).disrupt(&id, DRAIN.0, DRAIN.1);
    env.tick_until("the run has ended", || !env.only_job().is_active())
        .await;
    env.tick_until_drained().await;
    let reason = "the run was stopped from outside, for example by a drain of its node, a \
                  preemption or the deletion of its pod";
    let comments = env.vendors.linear().issue("ENG-1").comments();
    let failed = format!(
        "Implementation failed: {reason}\n\n**What to do:** To try again, set the label \
         `Agent-Implement` again."
    );
    let is_failure = |comment: &&String| comment.starts_with(&failed);
    assert_eq!(
        comments.iter().filter(is_failure).count(),
        1,
        "{comments:#?}"
    );
    let names_signal = |comment: &String| comment.contains("stopped by a signal");
    assert!(!comments.iter().any(names_signal), "{comments:#?}");
    assert_eq!(env.only_job().state.status(), "failed");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_pod_was_deleted_before_it_could_report_says_so() {
    let env = env_with_running_job(HOST).await;
    let id = env.machine(HOST).id;
    env.kill(HOST, &id);
    cluster(&env).disrupt(&id, DRAIN.0, DRAIN.1);
    env.tick().await;
    let reason = "the session failed: its pod was deleted, for example by a drain of its node or \
                  a preemption";
    assert_failed(&env, reason).await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_its_own_container_and_not_with_that_of_a_service_mesh() {
    let env = env_with_running_job(HOST).await;
    cluster(&env).add_sidecar();
    env.tick().await;
    assert!(env.only_job().run_ended_at.is_none());
    let machine = env.only_job().run.unwrap().machine().unwrap();
    let log = env.app.vendors.sessions.log_tail(&machine).await.unwrap();
    assert!(log.is_some(), "that of the run");
    env.kill(HOST, &machine.id);
    env.tick().await;
    let reason = "the session ended with exit code 137 and reported no result";
    assert_failed(&env, reason).await;
    assert_eq!(env.only_job().state.status(), "failed");
    env.finish().await;
}
