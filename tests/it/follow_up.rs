//! Follow-up runs for pull-request feedback: accepted authors, quiet period, daily limit, and at most
//! one active run per branch.

mod crash;
mod timing;

use std::time::{Duration, SystemTime};

use domain::feedback::{PullRequestId, ReviewFindingState};
use domain::ids::{JobId, Repo};
use domain::job::{AfterCancel, Job, JobKind, JobState, PullRequestRef};
use domain::mapping::Mapping;
use domain::report::{ResultReport, RunOutcome, RunPhase};
use domain::transition::JobEvent;
use engine::job_events::{self, BreakerPolicy};
use engine::pull_requests::reconcile;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, WebhookFaults};
use serde_json::{Value, json};
use store::{dedup, jobs, pull_feedback};

use crate::gap_fill::{TRIGGER_SECRET, send_trigger, set_paused};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};
use crate::webhooks::{WEBHOOK_SECRET, meta_block};

const BOT: &str = "agent-implement[bot]";

/// Slightly longer than the quiet period before a follow-up.
const QUIET_PERIOD: Duration = Duration::from_secs(31);

/// Options with webhook and trigger secrets and a manual engine.
pub fn options() -> TestEnvOptions {
    TestEnvOptions {
        extra_flags: vec![
            ("--scm-webhook-secret", WEBHOOK_SECRET.to_owned()),
            ("--gap-fill-trigger-secret", TRIGGER_SECRET.to_owned()),
        ],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    }
}

/// Environment with a manual engine and webhooks, in which runs are dispatched but never start.
pub async fn env_with_pending_runs() -> TestEnv {
    let env = TestEnv::with_options(options()).await;
    let slow = Duration::from_secs(6_000);
    env.vendors.github().set_start_delay(slow);
    set_collaborators(&env);
    register_webhook(&env);
    env
}

pub fn set_collaborators(env: &TestEnv) {
    let repo = env.repo();
    repo.set_collaborator_role("mia", "maintain")
        .set_collaborator_role("guest", "triage");
}

pub fn register_webhook(env: &TestEnv) {
    let url = format!("{}/api/repo-host/webhook", env.address);
    env.repo().set_webhook(&url, WEBHOOK_SECRET);
}

/// Opens the pull request of a completed run of the ticket. Returns its number.
pub async fn open_pull(env: &TestEnv, key: &str) -> u64 {
    let ticket = || env.vendors.linear().issue(key);
    ticket().title("Add the feature").describe("Please.");
    let mut job = crate::api_server::dispatched_job(&format!("01A{key}"), JobKind::Implementation);
    job.issue.id = ticket().snapshot().unwrap().id.as_str().into();
    job.issue.key = key.into();
    job.branch = format!("agent-implement/{}", key.to_lowercase());
    let repo = env.repo();
    repo.commit(&job.branch, &[("a.txt", "a\n")], "A").unwrap();
    let body = meta_block(job.issue.id.as_str(), job.id.as_str());
    let number = repo.open_pull(&job.branch, BOT, &format!("{key}: Add the feature"), &body);
    job.pull = PullRequestRef::from_url(&repo.pull_url(number));
    job.state = JobState::Completed;
    job.reserved_at = env.app.core.now();
    job.finished_at = Some(env.app.core.now());
    let put = env.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    number
}

/// Waits until every webhook is answered, then advances the clock by a second so that later events
/// have a later time.
async fn wait_for_webhooks(env: &TestEnv) {
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.advance_clock(Duration::from_secs(1));
}

/// Waits for the next second: GitHub's timestamps have a resolution of one second.
pub async fn next_second() {
    let now = SystemTime::now;
    let second = || {
        now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let began = second();
    while second() == began {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for the webhooks, advances the clock past the quiet period and ticks the engine.
pub async fn pass_quiet_period(env: &TestEnv) {
    wait_for_webhooks(env).await;
    env.advance_clock(QUIET_PERIOD);
    env.tick().await;
}

/// Jobs of the ticket that work on its open pull request (follow-ups and gap fills).
pub fn follow_up_jobs(env: &TestEnv, key: &str) -> Vec<Job> {
    let mut jobs = env.jobs(key);
    jobs.retain(|job| job.kind.phase().is_none());
    jobs
}

fn states(env: &TestEnv, number: u64) -> Vec<ReviewFindingState> {
    let pull = PullRequestId {
        repo: mapping().target_repo(),
        number,
    };
    let rows = env
        .store
        .read(|tx| pull_feedback::findings_of_pull(tx, &pull));
    rows.unwrap()
        .into_iter()
        .map(|(_, one)| one.state)
        .collect()
}

/// Applies an event to a job, then drains the outbox.
pub async fn apply_event(env: &TestEnv, id: &JobId, event: JobEvent) {
    let (id, policy, now) = (
        id.clone(),
        BreakerPolicy::from_config(&env.app.core.config),
        env.app.core.now(),
    );
    let happen = env
        .store
        .write(move |tx| job_events::apply(tx, policy, &id, event.clone(), now).map(drop));
    happen.await.unwrap();
    engine::outbox_worker::drain(&env.app).await.unwrap();
}

/// Event of a gap-analysis result with this outcome.
pub fn result_reported(outcome: RunOutcome) -> JobEvent {
    let reason = "Nothing to commit: no file changes in the working tree";
    JobEvent::ResultReported {
        report: ResultReport {
            phase: RunPhase::GapAnalysis,
            outcome,
            pr_url: None,
            comments: vec![],
            failure_reason: (outcome == RunOutcome::Failure).then(|| reason.to_owned()),
            failure_code: None,
            last_agent_message: None,
            retry_at: None,
            unresolved: vec![],
            usage: None,
            agent: None,
            model: None,
            agents_with_credentials: vec![],
            next_agent: None,
            awaits_approval: false,
            merge: None,
            questions: Vec::new(),
            patch_dropped: false,
            patch: None,
            run_id: None,
        },
    }
}

/// Bodies of the service's own comments on a pull request.
fn our_comments(env: &TestEnv, number: u64) -> Vec<String> {
    let comments = env.repo().comments(number).into_iter();
    let ours = comments.filter(|comment| comment.author == BOT);
    ours.map(|comment| comment.body).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_feedback_of_a_maintainer_becomes_a_commit_on_the_same_branch() {
    let env = TestEnv::with_options(options()).await;
    set_collaborators(&env);
    env.set_agent_script(
        "ENG-1",
        Script::new()
            .pass([
                ScriptStep::write("a.txt", "a\n"),
                ScriptStep::message("I wrote a."),
            ])
            .pass_if_prompt_contains(
                "Handle the empty list",
                [
                    ScriptStep::write("a.txt", "A\n"),
                    ScriptStep::message("Handled."),
                ],
            ),
    );
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.vendors.linear().issue("ENG-1").add_label("ui");
    let job_ended = |count: usize| {
        let jobs = env.jobs("ENG-1");
        jobs.len() == count && !jobs[count - 1].is_active()
    };
    env.tick_until("the pull request is open", || job_ended(1))
        .await;
    env.tick().await;
    let repo = env.repo();
    let number = repo.pulls()[0].number;
    register_webhook(&env);
    env.vendors.github().webhooks().set_faults(WebhookFaults {
        duplicate_rate: 1.0,
        reorder: true,
        ..WebhookFaults::default()
    });

    repo.add_review(number, "outsider", "CHANGES_REQUESTED", "Rewrite it all.");
    repo.add_review(number, "guest", "CHANGES_REQUESTED", "Rewrite half of it.");
    repo.add_review(number, "mia", "COMMENTED", "Nice, and not blocking.");
    repo.add_review_comment(number, "mia", "a.txt", 1, "nit: a capital letter");
    repo.add_review_comment(number, "mia", "a.txt", 1, "LGTM");
    let settled = repo.add_review_comment(number, "mia", "a.txt", 1, "This is settled.");
    repo.resolve_thread(settled);
    repo.add_comment(number, BOT, "- [ ] our own words");
    repo.add_comment(number, "helper[bot]", "🔴 an App that is not configured");
    pass_quiet_period(&env).await;
    env.tick().await;
    let sent = env.vendors.github().webhooks().deliveries();
    assert!(
        sent.len() >= 18 && sent.iter().all(|one| one.status == Some(200)),
        "{sent:?}"
    );
    assert_eq!(
        follow_up_jobs(&env, "ENG-1"),
        [],
        "{:?}",
        states(&env, number)
    );

    repo.add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    wait_for_webhooks(&env).await;
    env.advance_clock(Duration::from_secs(25));
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1"), [], "it is not quiet yet");
    env.advance_clock(Duration::from_secs(5));
    env.tick_until("the follow-up has ended", || job_ended(2))
        .await;
    env.tick().await;

    let job = follow_up_jobs(&env, "ENG-1").remove(0);
    let runs = repo.runs();
    let log = repo.run_log(runs[1].id);
    assert_eq!(
        (job.kind, &job.state),
        (JobKind::FollowUp, &JobState::Completed),
        "{log}"
    );
    assert_eq!(job.labels, ["ui"], "those of the ticket");
    let inputs = &runs[1].inputs;
    assert_eq!(inputs["findings"], "1. By mia:\nHandle the empty list.");
    assert_eq!(
        (&inputs["phase"], &inputs["pr_number"]),
        (&json!("gap-analysis"), &json!(number.to_string()))
    );
    let pulls = repo.pulls();
    assert_eq!(pulls.len(), 1, "no second pull request");
    assert_eq!(repo.commits(&pulls[0].head).len(), 3);
    let written = repo.read_file(&pulls[0].head, "a.txt");
    assert_eq!(
        written.as_deref(),
        Some("A\n"),
        "the prompt held the feedback"
    );

    // The finding is resolved: the same text again starts no run.
    repo.add_review(
        number,
        "mia",
        "CHANGES_REQUESTED",
        "Handle the  empty list.",
    );
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 1);
    let settled = ReviewFindingState::Resolved {
        job: job.id.clone(),
    };
    let states = states(&env, number);
    assert!(states.contains(&settled), "{states:?}");
    let is_over =
        |state: &ReviewFindingState| *state == settled || *state == ReviewFindingState::Withdrawn;
    assert!(states.iter().all(is_over), "{states:?}");

    let before = format!("{:?}", env.vendors.linear().issue("ENG-1").snapshot());
    repo.merge_pull(number).unwrap();
    wait_for_webhooks(&env).await;
    env.tick().await;
    assert!(env.store.read(dedup::all).unwrap().is_empty());
    let shown = env.admin_get("/api/pulls").await;
    let pull = &shown["pulls"][0];
    assert_eq!(
        (&pull["state"], &pull["iterations"]),
        (&json!("merged"), &json!(2))
    );
    assert_eq!(
        before,
        format!("{:?}", env.vendors.linear().issue("ENG-1").snapshot())
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feedback_waits_for_the_active_run_and_is_not_lost() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    let repo = env.repo();

    // Feedback waits while the project is paused, and while GitHub cannot return the author's role.
    repo.add_comment(number, "mia", "- [ ] one");
    set_paused(&env, "ENG", true).await;
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);
    set_paused(&env, "ENG", false).await;
    let github = env.vendors.faults(FakeService::GitHub);
    for _ in 0..8 {
        github.inject_on_match("/permission", InjectedFault::ErrorStatus(500));
    }
    pass_quiet_period(&env).await;
    assert_eq!(
        states(&env, number),
        [ReviewFindingState::New],
        "the role is requested again"
    );
    github.clear();
    repo.add_comment(number, "mia", "- [ ] two");
    pass_quiet_period(&env).await;
    let first = follow_up_jobs(&env, "ENG-1");
    assert_eq!(first.len(), 1, "one run for both comments");
    let findings = repo.runs()[0].inputs["findings"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(findings.contains("- [ ] one") && findings.contains("2. By mia:\n- [ ] two"));

    // One run at a time: new feedback and commands wait.
    repo.add_review_comment(number, "mia", "a.txt", 1, "three");
    repo.add_comment(number, "mia", "/agent-implement four");
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 1);
    apply_event(&env, &first[0].id, result_reported(RunOutcome::Success)).await;
    let resolved = ReviewFindingState::Resolved {
        job: first[0].id.clone(),
    };
    assert_eq!(
        states(&env, number)
            .iter()
            .filter(|state| **state == resolved)
            .count(),
        2
    );
    env.tick().await;
    let second = follow_up_jobs(&env, "ENG-1").pop().unwrap();
    assert_eq!(
        second.kind,
        JobKind::GapFill,
        "commands run before follow-ups"
    );
    assert_eq!(repo.runs()[1].inputs["instruction"], "four");
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 2);

    // A cancellation by an operator is reported.
    apply_event(
        &env,
        &second.id,
        JobEvent::Cancelled {
            by: "an operator".into(),
            then: AfterCancel::Release,
        },
    )
    .await;
    let comments = our_comments(&env, number);
    assert!(
        comments.len() == 1 && comments[0].starts_with("Gap fill failed: stopped by an operator"),
        "{comments:?}"
    );
    env.tick().await;
    let third = follow_up_jobs(&env, "ENG-1").pop().unwrap();
    assert_eq!(third.kind, JobKind::FollowUp);
    let findings = repo.runs()[2].inputs["findings"].clone();
    assert_eq!(findings, "1. By mia, at a.txt:1:\nthree");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_follow_up_is_reported_and_retried_within_the_daily_limit() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    let repo = env.repo();
    repo.add_comment(number, "mia", "- [ ] never works");
    pass_quiet_period(&env).await;
    for tries in 1..=4 {
        let jobs = follow_up_jobs(&env, "ENG-1");
        assert_eq!(jobs.len(), tries);
        apply_event(
            &env,
            &jobs[tries - 1].id,
            result_reported(RunOutcome::Failure),
        )
        .await;
        let failures = our_comments(&env, number);
        let failed = "Follow-up failed: Nothing to commit: no file changes in the working tree";
        let failures = failures
            .iter()
            .filter(|comment| comment.starts_with(failed))
            .count();
        assert_eq!(failures, tries, "each failure is reported once");
        env.advance_clock(Duration::from_secs(9 * 60));
        env.tick().await;
        assert_eq!(follow_up_jobs(&env, "ENG-1").len(), tries, "not at once");
        env.advance_clock(Duration::from_secs(61));
        env.tick().await;
    }
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 4);
    assert_eq!(states(&env, number), [ReviewFindingState::Abandoned]);
    let comments = our_comments(&env, number);
    assert_eq!(
        comments
            .iter()
            .filter(|comment| comment.contains("could not be resolved by several follow-ups"))
            .count(),
        1,
        "{comments:?}"
    );

    // More feedback waits until the day is over. One comment reports it.
    repo.add_comment(number, "mia", "- [ ] another");
    pass_quiet_period(&env).await;
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 4);
    let pauses = |env: &TestEnv| {
        let comments = our_comments(env, number);
        comments
            .iter()
            .filter(|comment| comment.contains("4 automatic follow-ups per day"))
            .count()
    };
    assert_eq!(pauses(&env), 1);
    repo.add_comment(number, "mia", "/agent-implement");
    wait_for_webhooks(&env).await;
    env.tick().await;
    let gap_fill = follow_up_jobs(&env, "ENG-1").pop().unwrap();
    assert_eq!(
        gap_fill.kind,
        JobKind::GapFill,
        "commands do not count against the daily limit"
    );
    apply_event(&env, &gap_fill.id, result_reported(RunOutcome::Success)).await;
    env.advance_clock(Duration::from_secs(24 * 60 * 60));
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 6);
    assert_eq!(pauses(&env), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_starts_one_run_whether_webhook_or_trigger_arrives_first() {
    let env = env_with_pending_runs().await;
    let number = open_pull(&env, "ENG-1").await;
    let repo = env.repo();
    let trigger = async |instruction: &str| {
        let body = json!({"issueKey": "ENG-1", "prNumber": number, "instruction": instruction});
        let done = std::sync::atomic::AtomicBool::new(false);
        let (response, ()) = tokio::join!(
            async {
                let response = send_trigger(&env, body).await;
                done.store(true, std::sync::atomic::Ordering::SeqCst);
                response
            },
            async {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    env.tick().await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        );
        response
    };

    // A command of a user without write access is ignored.
    repo.add_comment(number, "guest", "/agent-implement mine it");
    wait_for_webhooks(&env).await;
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);

    // The webhook arrives before the trigger.
    repo.add_comment(number, "mia", "/agent-implement say it\nlouder");
    wait_for_webhooks(&env).await;
    env.tick().await;
    let first = follow_up_jobs(&env, "ENG-1").remove(0);
    let same = trigger("say it\nlouder").await;
    assert_eq!((same.status, &same.body["jobId"]), (200, &json!(first.id)));
    // A second comment with the same text is a second run, queued after the first.
    repo.add_comment(number, "mia", "/agent-implement say it louder");
    wait_for_webhooks(&env).await;
    let waits = trigger("say it louder").await;
    assert_eq!(
        waits.body,
        json!({"ok": true, "dispatched": false, "queued": true})
    );
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 1);
    apply_event(&env, &first.id, result_reported(RunOutcome::Success)).await;
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 2);

    // The trigger arrives before the webhook.
    env.advance_clock(Duration::from_secs(1));
    apply_event(
        &env,
        &follow_up_jobs(&env, "ENG-1")[1].id,
        result_reported(RunOutcome::Success),
    )
    .await;
    let third = trigger("and softer").await;
    assert_eq!(third.status, 200, "{third:?}");
    repo.add_comment(number, "mia", "/agent-implement and softer");
    wait_for_webhooks(&env).await;
    let answer = env
        .vendors
        .github()
        .webhooks()
        .deliveries()
        .pop()
        .unwrap()
        .response_body;
    assert_eq!(
        serde_json::from_str::<Value>(&answer).unwrap()["reason"],
        "known"
    );
    apply_event(
        &env,
        &follow_up_jobs(&env, "ENG-1")[2].id,
        result_reported(RunOutcome::Failure),
    )
    .await;
    env.tick().await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 3);
    let comments = our_comments(&env, number);
    assert!(
        comments.len() == 1 && comments[0].starts_with("Gap fill failed: Nothing to commit"),
        "reported once: {comments:?}"
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciliation_finds_feedback_that_no_webhook_delivered() {
    let env = env_with_pending_runs().await;
    let (number, merged) = (
        open_pull(&env, "ENG-1").await,
        open_pull(&env, "ENG-2").await,
    );
    let repo = env.repo();
    env.vendors.github().webhooks().set_faults(WebhookFaults {
        loss_rate: 1.0,
        ..WebhookFaults::default()
    });
    let file = ".agent-implement/config.yml";
    let named = "reviewCheckNames: [CodeRabbit@coderabbitai]\n";
    repo.commit("main", &[(file, named)], "Name a reviewer")
        .unwrap();
    repo.add_review_comment(number, "mia", "a.txt", 1, "This leaks.");
    let settled = repo.add_review_comment(number, "mia", "a.txt", 1, "This is settled.");
    repo.resolve_thread(settled);
    repo.add_review(
        number,
        "coderabbitai[bot]",
        "CHANGES_REQUESTED",
        "It races.",
    );
    let gone = repo.add_review(number, "mia", "CHANGES_REQUESTED", "Rewrite it.");
    repo.dismiss_review(gone);
    repo.add_comment(number, BOT, "- [ ] our own words");
    pass_quiet_period(&env).await;
    assert_eq!(env.vendors.github().webhooks().deliveries().len(), 0);
    assert_eq!(follow_up_jobs(&env, "ENG-1"), []);

    reconcile::run_once(&env.app).await.unwrap();
    repo.merge_pull(merged).unwrap();
    reconcile::run_once(&env.app).await.unwrap();
    let shown = env.admin_get("/api/pulls").await;
    assert_eq!(
        (&shown["healing"]["sweeps"], &shown["healing"]["found"]),
        (&json!(2), &json!(3))
    );
    let pulls = shown["pulls"].as_array().unwrap();
    let of = |number: u64| {
        pulls
            .iter()
            .find(|pull| pull["prNumber"] == number)
            .unwrap()
    };
    assert_eq!(
        (&of(number)["findingsWaiting"], &of(merged)["state"]),
        (&json!(2), &json!("merged"))
    );

    // Without changes, reconciliation sends one conditional request, and one for all checks and reviews.
    let before = env.vendors.requests().len();
    reconcile::run_once(&env.app).await.unwrap();
    let requests = env.vendors.requests().all().split_off(before);
    let statuses: Vec<_> = requests.iter().map(|one| one.status.unwrap()).collect();
    assert_eq!(statuses, [304, 200], "one list that has not changed");
    assert!(requests[1].url.ends_with("/graphql"), "{}", requests[1].url);

    pass_quiet_period(&env).await;
    let findings = repo.runs()[0].inputs["findings"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        findings.contains("This leaks.") && findings.contains("By coderabbitai:\nIt races."),
        "{findings}"
    );
    assert!(!findings.contains("Rewrite") && !findings.contains("settled"));

    // A command without a webhook is started once.
    apply_event(
        &env,
        &follow_up_jobs(&env, "ENG-1")[0].id,
        result_reported(RunOutcome::Success),
    )
    .await;
    next_second().await;
    repo.add_comment(number, "mia", "/agent-implement once");
    for _ in 0..3 {
        reconcile::run_once(&env.app).await.unwrap();
        env.tick().await;
        for job in follow_up_jobs(&env, "ENG-1")
            .iter()
            .filter(|job| job.is_active())
        {
            apply_event(&env, &job.id, result_reported(RunOutcome::Success)).await;
        }
    }
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 2);

    // Feedback on a closed pull request is withdrawn and starts no run.
    next_second().await;
    repo.add_review_comment(number, "mia", "a.txt", 2, "And this leaks.");
    reconcile::run_once(&env.app).await.unwrap();
    repo.close_pull(number);
    pass_quiet_period(&env).await;
    assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 2);
    assert!(states(&env, number).contains(&ReviewFindingState::Withdrawn));
    env.stop().await;
}

/// A sweep that takes too long is aborted. Repositories in the order of their names would leave out the last ones each
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_begins_with_the_repository_that_was_not_read_for_longest() {
    let lib = Mapping {
        team_key: "LIB".into(),
        repo: "lib".to_owned(),
        ..mapping()
    };
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), lib],
        ..options()
    })
    .await;
    open_pull(&env, "ENG-1").await;
    let lib = env.seed_repo("lib");
    let mut job = env.jobs("ENG-1").remove(0);
    job.id = "01ALIB-1".into();
    job.repo = Repo::new("acme", "lib");
    lib.commit(&job.branch, &[("a.txt", "a\n")], "A").unwrap();
    let number = lib.open_pull(&job.branch, BOT, "Add the feature", "");
    job.pull = PullRequestRef::from_url(&lib.pull_url(number));
    let put = env.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    let sweep = async || {
        env.vendors.requests().clear();
        reconcile::run_once(&env.app).await.unwrap();
        env.advance_clock(Duration::from_secs(1));
        let requests = env.vendors.requests().for_service(FakeService::GitHub);
        let mut lists = requests.into_iter().map(|request| request.url);
        lists.find(|url| url.contains("/pulls?state=open")).unwrap()
    };
    let faults = env.vendors.faults(FakeService::GitHub);
    let unreached = "acme/shop/pulls?state=open";
    faults.inject_on_match(unreached, InjectedFault::ErrorStatus(404));
    assert!(sweep().await.contains("acme/lib"));
    assert!(sweep().await.contains("acme/shop"));
    env.stop().await;
}
