//! Starts of Jobs: interrupted, refused, delayed, and repeated.

use domain::job::JobState;
use fake_vendors::InjectedFault;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use std::time::Duration;

use super::{HOST, MINUTE, cluster, manual};
use crate::sessions::options_for;
use crate::test_env::{EngineMode, TestEnv};

/// Requests of a start, in their order, with their names in errors.
const START_CALLS: [(&str, &str); 3] = [
    ("POST /apis/batch", "creating the Job"),
    ("/secrets", "creating the Job's Secret"),
    ("PATCH /apis/batch", "resuming the Job"),
];

/// Refusals of an API server: status, reason, message.
const REFUSALS: [(u16, &str, &str); 9] = [
    (
        400,
        "BadRequest",
        "admission webhook \"policy.example.com\" denied the request: images must be signed",
    ),
    (401, "Unauthorized", "Unauthorized"),
    (
        403,
        "Forbidden",
        "jobs.batch is forbidden: User \"runner\" cannot create resource \"jobs\" in API group \"batch\" in the namespace \"agent-runs\"",
    ),
    (404, "NotFound", "namespaces \"agent-runs\" not found"),
    (
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    ),
    // Neither a taken name nor a conflict.
    (
        409,
        "",
        "admission webhook \"policy.example.com\" denied the request: the project is frozen",
    ),
    (
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    ),
    (
        422,
        "Invalid",
        "Job.batch \"x\" is invalid: spec.template.spec.containers[0].image: Required value",
    ),
    (
        500,
        "InternalError",
        "Internal error occurred: failed calling webhook \"policy.example.com\": context deadline exceeded",
    ),
];

/// Statuses after which a start is tried again for a day.
const PASSING: [u16; 4] = [401, 409, 429, 500];

/// Returns why the last attempt of the only effect failed.
fn last_error(env: &TestEnv) -> String {
    let entries = env.store.read(store::outbox::pending).unwrap();
    entries[0].last_error.clone().unwrap()
}

/// Returns an environment whose first start created a suspended Job and failed then, and the name of the Job.
async fn env_with_interrupted_start() -> (TestEnv, String) {
    let env = TestEnv::with_options(manual()).await;
    env.faults_of(HOST)
        .inject_on_match("/secrets", InjectedFault::ErrorStatus(500));
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert_eq!(env.only_job().state, JobState::Reserved);
    let job = env.machine(HOST).name;
    (env, job)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_start_is_completed_with_the_same_job() {
    for (call, _) in START_CALLS {
        for fault in [
            InjectedFault::DropRequest,
            InjectedFault::DropResponse,
            InjectedFault::ErrorStatus(500),
            InjectedFault::ReplaceResponseStatus(503),
        ] {
            let env = TestEnv::with_options(options_for(HOST, EngineMode::Running)).await;
            env.faults_of(HOST).inject_on_match(call, fault);
            env.create_labelled_issue("ENG-1", "Add a feature");
            let job = env.wait_for_job_end("ENG-1").await;
            assert_eq!(job.state, JobState::Completed, "{call} {fault:?}");
            assert_eq!(env.faults_of(HOST).pending(), 0);
            let created = cluster(&env).host().created_names();
            assert_eq!(created.len(), 1, "{call} {fault:?}");
            assert!(cluster(&env).secrets().is_empty(), "{call} {fault:?}");
            env.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_never_completed_leaves_nothing_behind() {
    for (at, (call, _)) in START_CALLS.into_iter().enumerate().skip(1) {
        let env = TestEnv::with_options(manual()).await;
        env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
        env.create_labelled_issue("ENG-1", "Add a feature");
        cluster(&env).refuse_next(call, 403, "Forbidden", "no");
        env.tick().await;
        assert_eq!(env.only_job().state.status(), "failed");
        // A refused Secret takes the Job with it. A Job that is not resumed remains for the reaper.
        assert_eq!(env.machines(HOST).len(), at - 1, "{call}");
        assert_eq!(cluster(&env).secrets().len(), at - 1, "{call}");
        assert!(!env.machines(HOST).iter().any(|job| job.running), "{call}");
        env.advance_clock(11 * MINUTE);
        engine::reap::run_once(&env.app).await.unwrap();
        engine::outbox_worker::drain(&env.app).await.unwrap();
        assert!(env.machines(HOST).is_empty(), "{call}");
        assert!(cluster(&env).secrets().is_empty(), "{call}");
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_job_of_the_same_name_is_not_adopted() {
    let env = TestEnv::with_options(manual()).await;
    env.create_labelled_issue("ENG-1", "Add a feature");
    engine::poll::run_once(&env.app).await.unwrap();
    let name = domain::machine::machine_name(&env.only_job().id);
    let labels = [("agent_implement_instance", "somebody-else")];
    cluster(&env)
        .host()
        .add_foreign_machine(&name, &name, &labels);
    env.tick().await;
    let expected = format!(
        "Implementation failed: the run could not be dispatched: creating the Job: Kubernetes answered 409: jobs.batch \"{name}\" already exists"
    );
    assert_eq!(env.comment_headlines(), [expected]);
    let left = env.machines(HOST);
    assert!(left.len() == 1 && left[0].running, "{left:#?}");
    assert!(cluster(&env).secrets().is_empty());
    env.finish().await;
}

/// Page of 200 kB with control characters.
fn large_page() -> String {
    let words = "Blocked\u{0}\u{7}\u{1b}[31m @everyone\r\n".repeat(8_000);
    format!("\u{feff}\n<!DOCTYPE html>\n<html><title>Blocked</title>{words}</html>")
}

/// Checks that a start with this refusal ends in one comment, which is this sentence, at once or after a day.
async fn assert_sentence(refuse: impl Fn(&TestEnv), is_passing: bool, sentence: &str) {
    let env = TestEnv::with_options(manual()).await;
    refuse(&env);
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert_eq!(env.only_job().is_active(), is_passing, "{sentence}");
    if is_passing {
        assert_eq!(env.comments("ENG-1"), [""; 0]);
        // This attempt deletes the Job of the first one, which is too old, so that the last one is refused again.
        env.advance_clock(24 * 60 * MINUTE - MINUTE);
        env.tick().await;
        env.advance_clock(MINUTE);
        env.tick().await;
    }
    let comments = env.comments("ENG-1");
    let undated = { comments.iter() }.map(|comment| comment.split(" until ").next().unwrap());
    let expected = format!("Implementation failed: the run could not be dispatched: {sentence}");
    assert_eq!(undated.collect::<Vec<_>>(), [expected]);
    assert!(!env.machines(HOST).iter().any(|job| job.running));
    env.finish().await;
}

/// Checks the sentences about the refusals of a request of a start.
async fn assert_sentences((call, action): (&str, &str)) {
    for (status, reason, message) in REFUSALS {
        let is_gone = status == 404 && action == "resuming the Job";
        let sentence = match is_gone {
            true => "creating the Job: the Job was deleted during its start".to_owned(),
            false => format!("{action}: Kubernetes answered {status}: {message}"),
        };
        let refuse = |env: &TestEnv| cluster(env).refuse_all(call, status, reason, message);
        let is_passing = is_gone || PASSING.contains(&status);
        assert_sentence(refuse, is_passing, &sentence).await;
    }
    for status in [403, 409, 413, 500] {
        let refuse = |env: &TestEnv| cluster(env).refuse_all_with_page(call, status, &large_page());
        let page = "a web page instead of an error message";
        let sentence = format!("{action}: Kubernetes answered {status}: {page}");
        assert_sentence(refuse, PASSING.contains(&status), &sentence).await;
    }
    let limited = InjectedFault::RateLimited(10 * MINUTE);
    let refuse = |env: &TestEnv| env.faults_of(HOST).inject_on_match(call, limited);
    // Before the limit ends, no request is sent.
    let sentence = "creating the Job: Kubernetes is rate limited";
    assert_sentence(refuse, true, sentence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_to_create_a_job_is_one_sentence_on_the_ticket() {
    assert_sentences(START_CALLS[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_to_create_a_secret_is_one_sentence_on_the_ticket() {
    assert_sentences(START_CALLS[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_to_resume_a_job_is_one_sentence_on_the_ticket() {
    assert_sentences(START_CALLS[2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_a_new_token_for_quota_and_for_a_busy_server() {
    let env = TestEnv::with_options(manual()).await;
    cluster(&env).refuse_next("POST /apis/batch", 401, "Unauthorized", "Unauthorized");
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    let error = last_error(&env);
    assert_eq!(
        error,
        "creating the Job: Kubernetes answered 401: Unauthorized"
    );

    cluster(&env).refuse_next("POST /apis/batch", 403, "Forbidden", USED_UP);
    env.advance_clock(MINUTE);
    env.tick().await;
    let error = last_error(&env);
    assert!(
        error.contains("no capacity for the machine") && error.contains("exceeded quota: runs"),
        "{error}"
    );
    assert_eq!(env.only_job().state, JobState::Reserved);

    let busy = InjectedFault::RateLimited(Duration::from_secs(1));
    env.faults_of(HOST)
        .inject_on_match("POST /apis/batch", busy);
    env.advance_clock(MINUTE);
    env.tick().await;
    let error = last_error(&env);
    assert!(
        error.contains("Kubernetes is rate limited until"),
        "{error}"
    );
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    env.advance_clock(5 * MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    env.stop().await;
}

const USED_UP: &str = "jobs.batch \"x\" is forbidden: exceeded quota: runs, requested: count/jobs.batch=1, used: count/jobs.batch=9, limited: count/jobs.batch=9";

/// A quota is checked before the name, so the refusal does not say that the Job exists, which is part of what is used.
#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_quota_does_not_hide_the_job_of_an_interrupted_start() {
    for created in [false, true] {
        let (env, name) = match created {
            false => env_with_interrupted_start().await,
            true => {
                let env = TestEnv::with_options(manual()).await;
                env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
                env.faults_of(HOST)
                    .inject_on_match("PATCH /apis/batch", InjectedFault::DropResponse);
                env.create_labelled_issue("ENG-1", "Add a feature");
                env.tick().await;
                let name = env.machine(HOST).name;
                (env, name)
            }
        };
        cluster(&env).refuse_next("POST /apis/batch", 403, "Forbidden", USED_UP);
        env.advance_clock(MINUTE);
        env.tick().await;
        assert!(env.only_job().dispatched_at.is_some(), "resumed: {created}");
        assert_eq!(cluster(&env).host().created_names(), [name]);
        env.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_a_quota_of_secrets_without_a_job() {
    let env = TestEnv::with_options(manual()).await;
    cluster(&env).refuse_next("/secrets", 403, "Forbidden", USED_UP);
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    let error = last_error(&env);
    assert!(
        error.contains("no capacity for the machine")
            && error.contains("creating the Job's Secret"),
        "{error}"
    );
    assert!(env.machines(HOST).is_empty());
    env.advance_clock(5 * MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    env.stop().await;
}

/// The server gives up if several requests use a quota, or change an object, at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_repeated_after_a_conflict() {
    let conflict = "Operation cannot be fulfilled on resourcequotas \"runs\": the object has been modified; please apply your changes to the latest version and try again";
    for (call, action) in START_CALLS {
        let env = TestEnv::with_options(manual()).await;
        env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
        cluster(&env).refuse_next(call, 409, "Conflict", conflict);
        env.create_labelled_issue("ENG-1", "Add a feature");
        env.tick().await;
        assert_eq!(
            last_error(&env),
            format!("{action}: Kubernetes answered 409: {conflict}")
        );
        assert!(!env.machines(HOST).iter().any(|job| job.running), "{call}");
        env.advance_clock(MINUTE);
        env.tick().await;
        assert!(env.only_job().dispatched_at.is_some(), "{call}");
        assert!(env.machine(HOST).running, "{call}");
        env.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_token_is_used_at_once() {
    let env = TestEnv::with_options(manual()).await;
    cluster(&env).rotate_token("the-next-token").unwrap();
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_tokens_may_have_expired_is_created_anew() {
    let (env, name) = env_with_interrupted_start().await;
    let uid = env.machine(HOST).create_request["metadata"]["uid"].clone();
    env.advance_clock(11 * MINUTE);
    env.tick().await;
    assert_eq!(
        last_error(&env),
        "creating the Job: the Job of an earlier attempt was too old to be resumed, and was deleted"
    );
    assert!(env.machines(HOST).is_empty());
    env.advance_clock(5 * MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    let job = env.machine(HOST);
    assert_eq!(job.name, name);
    assert_ne!(job.create_request["metadata"]["uid"], uid);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_until_a_job_of_its_name_is_deleted() {
    let (env, name) = env_with_interrupted_start().await;
    cluster(&env).begin_deletion(&name);
    env.advance_clock(MINUTE);
    env.tick().await;
    assert_eq!(
        last_error(&env),
        "creating the Job: the Job of this name is being deleted"
    );
    assert_eq!(env.only_job().state, JobState::Reserved);
    cluster(&env).finish_deletion(&name);
    env.advance_clock(5 * MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    assert_eq!(cluster(&env).host().created_names(), [name.clone(), name]);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_disappears_during_its_adoption_delays_the_start() {
    let (env, _) = env_with_interrupted_start().await;
    cluster(&env).refuse_next(
        "GET /apis/batch/v1/namespaces/agent-runs/jobs/",
        404,
        "NotFound",
        "gone",
    );
    env.advance_clock(MINUTE);
    env.tick().await;
    assert_eq!(
        last_error(&env),
        "creating the Job: the Job of this name was deleted meanwhile"
    );
    env.advance_clock(5 * MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    env.stop().await;
}

/// Its run may have worked, so it is not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_job_that_is_being_deleted_is_not_created_again() {
    let env = TestEnv::with_options(manual()).await;
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    env.faults_of(HOST)
        .inject_on_match("PATCH /apis/batch", InjectedFault::DropResponse);
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    let name = env.machine(HOST).name;
    cluster(&env).begin_deletion(&name);
    env.advance_clock(MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    cluster(&env).finish_deletion(&name);
    env.advance_clock(5 * MINUTE);
    env.tick_until("the run has ended", || !env.only_job().is_active())
        .await;
    assert_eq!(cluster(&env).host().created_names(), [name]);
    env.stop().await;
}
