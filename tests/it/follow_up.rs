//! Feedback on pull requests becomes runs on their branches: whose counts, when, how often, and that
//! no two runs are ever at work on one branch.

mod crash;
mod timing;

use std::time::{Duration, SystemTime};

use domain::feedback::{PullRequestId, ReviewFindingState};
use domain::ids::JobId;
use domain::job::{Job, JobKind, JobState, PullRequestRef};
use domain::report::{ResultReport, RunOutcome, RunPhase};
use domain::transition::JobEvent;
use engine::job_events::{self, BreakerPolicy};
use engine::reconcile;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, WebhookFaults};
use serde_json::{Value, json};
use store::{dedup, jobs, pull_feedback};

use crate::gap_fill::{TRIGGER_SECRET, send_trigger, set_paused};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};
use crate::webhooks::{WEBHOOK_SECRET, meta_block};

const BOT: &str = "agent-implement[bot]";

/// Longer than it must be quiet before a follow-up.
const QUIET_PERIOD: Duration = Duration::from_secs(31);

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

/// A world turned by hand in which runs are dispatched and never begin, with webhooks.
pub async fn env_with_pending_runs() -> TestEnv {
    let world = TestEnv::with_options(options()).await;
    let slow = Duration::from_secs(6_000);
    world.vendors.github().set_start_delay(slow);
    people(&world);
    hook(&world);
    world
}

fn people(world: &TestEnv) {
    let repo = world.repo();
    repo.set_collaborator_role("mia", "maintain")
        .set_collaborator_role("guest", "triage");
}

fn hook(world: &TestEnv) {
    let url = format!("{}/api/repo-host/webhook", world.address);
    world.repo().set_webhook(&url, WEBHOOK_SECRET);
}

/// An open pull request of a ticket, as a run left it.
pub async fn open_pull(world: &TestEnv, key: &str) -> u64 {
    let ticket = || world.vendors.linear().issue(key);
    ticket().title("Add the feature").describe("Please.");
    let mut job = crate::api_server::dispatched_job(&format!("01A{key}"), JobKind::Implementation);
    job.issue.id = ticket().snapshot().unwrap().id.as_str().into();
    job.issue.key = key.into();
    job.branch = format!("agent-implement/{}", key.to_lowercase());
    let repo = world.repo();
    repo.commit(&job.branch, &[("a.txt", "a\n")], "A").unwrap();
    let body = meta_block(job.issue.id.as_str(), job.id.as_str());
    let number = repo.open_pull(&job.branch, BOT, &format!("{key}: Add the feature"), &body);
    job.pull = PullRequestRef::from_url(&repo.pull_url(number));
    job.state = JobState::Completed;
    job.reserved_at = world.app.now();
    job.finished_at = Some(world.app.now());
    let put = world.app.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    number
}

/// Waits until every webhook is answered. A moment passes, so that what follows is later than it.
async fn told(world: &TestEnv) {
    world
        .wait_until("the host has told", || {
            world.vendors.github().is_webhook_queue_empty()
        })
        .await;
    world.advance_clock(Duration::from_secs(1));
}

/// The host tells times in seconds, so what is to be seen as later must wait for the next one.
async fn next_second() {
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

/// Lets it be quiet, and looks.
async fn quiet(world: &TestEnv) {
    told(world).await;
    world.advance_clock(QUIET_PERIOD);
    world.tick().await;
}

/// The runs that a ticket's pull request got beside the first.
pub fn follow_up_jobs(world: &TestEnv, key: &str) -> Vec<Job> {
    let mut jobs = world.jobs(key);
    jobs.retain(|job| job.kind.phase().is_none());
    jobs
}

fn states(world: &TestEnv, number: u64) -> Vec<ReviewFindingState> {
    let pull = PullRequestId {
        repo: mapping().target_repo(),
        number,
    };
    let rows = world
        .app
        .store
        .read(|tx| pull_feedback::findings_of_pull(tx, &pull));
    rows.unwrap()
        .into_iter()
        .map(|(_, one)| one.state)
        .collect()
}

pub async fn apply_event(world: &TestEnv, id: &JobId, event: JobEvent) {
    let (id, policy, now) = (
        id.clone(),
        BreakerPolicy::from_config(&world.app.config),
        world.app.now(),
    );
    let happen = world
        .app
        .store
        .write(move |tx| job_events::apply(tx, policy, &id, event.clone(), now).map(drop));
    happen.await.unwrap();
    engine::outbox_worker::drain(&world.app).await.unwrap();
}

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
            patch: None,
            run_id: None,
        },
    }
}

/// What we said on a pull request.
fn our_comments(world: &TestEnv, number: u64) -> Vec<String> {
    let comments = world.repo().comments(number).into_iter();
    let ours = comments.filter(|comment| comment.author == BOT);
    ours.map(|comment| comment.body).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintainers_word_becomes_a_commit_on_the_same_branch_and_nobody_elses_does() {
    let world = TestEnv::with_options(options()).await;
    people(&world);
    world.set_agent_script(
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
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job_ended = |count: usize| {
        let jobs = world.jobs("ENG-1");
        jobs.len() == count && !jobs[count - 1].is_active()
    };
    world
        .tick_until("the pull request is open", || job_ended(1))
        .await;
    world.tick().await;
    let repo = world.repo();
    let number = repo.pulls()[0].number;
    hook(&world);
    world.vendors.github().set_webhook_faults(WebhookFaults {
        duplicate_rate: 1.0,
        reorder: true,
        ..WebhookFaults::default()
    });

    repo.add_review(number, "stranger", "CHANGES_REQUESTED", "Rewrite it all.");
    repo.add_review(number, "guest", "CHANGES_REQUESTED", "Rewrite half of it.");
    repo.add_review(number, "mia", "COMMENTED", "Nice, and not blocking.");
    repo.add_review_comment(number, "mia", "a.txt", 1, "nit: a capital letter");
    repo.add_review_comment(number, "mia", "a.txt", 1, "LGTM");
    let settled = repo.add_review_comment(number, "mia", "a.txt", 1, "This is settled.");
    repo.resolve_thread(settled);
    repo.add_comment(number, BOT, "- [ ] our own words");
    repo.add_comment(number, "helper[bot]", "🔴 an App that nobody named");
    quiet(&world).await;
    world.tick().await;
    let sent = world.vendors.github().webhook_deliveries();
    assert!(
        sent.len() >= 18 && sent.iter().all(|one| one.status == Some(200)),
        "{sent:?}"
    );
    assert_eq!(
        follow_up_jobs(&world, "ENG-1"),
        [],
        "{:?}",
        states(&world, number)
    );

    repo.add_review(number, "mia", "CHANGES_REQUESTED", "Handle the empty list.");
    told(&world).await;
    world.advance_clock(Duration::from_secs(25));
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1"), [], "it is not quiet yet");
    world.advance_clock(Duration::from_secs(5));
    world
        .tick_until("the follow-up has ended", || job_ended(2))
        .await;
    world.tick().await;

    let job = follow_up_jobs(&world, "ENG-1").remove(0);
    let runs = repo.runs();
    let log = repo.run_log(runs[1].id);
    assert_eq!(
        (job.kind, &job.state),
        (JobKind::FollowUp, &JobState::Completed),
        "{log}"
    );
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

    // It was dealt with; the same words again ask for nothing.
    repo.add_review(
        number,
        "mia",
        "CHANGES_REQUESTED",
        "Handle the  empty list.",
    );
    quiet(&world).await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 1);
    let settled = ReviewFindingState::Resolved {
        job: job.id.clone(),
    };
    let states = states(&world, number);
    assert!(states.contains(&settled), "{states:?}");
    let is_over =
        |state: &ReviewFindingState| *state == settled || *state == ReviewFindingState::Withdrawn;
    assert!(states.iter().all(is_over), "{states:?}");

    let before = format!("{:?}", world.vendors.linear().issue("ENG-1").snapshot());
    repo.merge_pull(number).unwrap();
    told(&world).await;
    world.tick().await;
    assert!(world.app.store.read(dedup::all).unwrap().is_empty());
    let shown = world.admin_get("/api/pulls").await;
    let pull = &shown["pulls"][0];
    assert_eq!(
        (&pull["state"], &pull["iterations"]),
        (&json!("merged"), &json!(2))
    );
    assert_eq!(
        before,
        format!("{:?}", world.vendors.linear().issue("ENG-1").snapshot())
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feedback_waits_for_its_turn_and_is_never_lost() {
    let world = env_with_pending_runs().await;
    let number = open_pull(&world, "ENG-1").await;
    let repo = world.repo();

    // Paused, unmapped, or nobody can be asked: it waits.
    repo.add_comment(number, "mia", "- [ ] one");
    set_paused(&world, "ENG", true).await;
    quiet(&world).await;
    assert_eq!(follow_up_jobs(&world, "ENG-1"), []);
    set_paused(&world, "ENG", false).await;
    let github = world.vendors.faults(FakeService::GitHub);
    for _ in 0..8 {
        github.inject_on_match("/permission", InjectedFault::ErrorStatus(500));
    }
    quiet(&world).await;
    assert_eq!(
        states(&world, number),
        [ReviewFindingState::New],
        "it is asked again"
    );
    github.clear();
    repo.add_comment(number, "mia", "- [ ] two");
    quiet(&world).await;
    let first = follow_up_jobs(&world, "ENG-1");
    assert_eq!(first.len(), 1, "one for both");
    let findings = repo.runs()[0].inputs["findings"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(findings.contains("- [ ] one") && findings.contains("2. By mia:\n- [ ] two"));

    // One at a time: what is said meanwhile waits, and so does a command.
    repo.add_review_comment(number, "mia", "a.txt", 1, "three");
    repo.add_comment(number, "mia", "/agent-implement four");
    quiet(&world).await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 1);
    apply_event(&world, &first[0].id, result_reported(RunOutcome::Success)).await;
    let resolved = ReviewFindingState::Resolved {
        job: first[0].id.clone(),
    };
    assert_eq!(
        states(&world, number)
            .iter()
            .filter(|state| **state == resolved)
            .count(),
        2
    );
    world.tick().await;
    let second = follow_up_jobs(&world, "ENG-1").pop().unwrap();
    assert_eq!(
        second.kind,
        JobKind::GapFill,
        "what people ask for goes first"
    );
    assert_eq!(repo.runs()[1].inputs["instruction"], "four");
    quiet(&world).await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 2);

    // An operator's stop is told.
    apply_event(
        &world,
        &second.id,
        JobEvent::Cancelled {
            by: "an operator".into(),
        },
    )
    .await;
    let said = our_comments(&world, number);
    assert!(
        said.len() == 1 && said[0].starts_with("Gap fill failed: stopped by an operator"),
        "{said:?}"
    );
    world.tick().await;
    let third = follow_up_jobs(&world, "ENG-1").pop().unwrap();
    assert_eq!(third.kind, JobKind::FollowUp);
    let findings = repo.runs()[2].inputs["findings"].clone();
    assert_eq!(findings, "1. By mia, at a.txt:1:\nthree");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_follow_up_is_told_and_tried_again_within_the_budget() {
    let world = env_with_pending_runs().await;
    let number = open_pull(&world, "ENG-1").await;
    let repo = world.repo();
    repo.add_comment(number, "mia", "- [ ] never works");
    quiet(&world).await;
    for tries in 1..=4 {
        let jobs = follow_up_jobs(&world, "ENG-1");
        assert_eq!(jobs.len(), tries);
        apply_event(
            &world,
            &jobs[tries - 1].id,
            result_reported(RunOutcome::Failure),
        )
        .await;
        let failures = our_comments(&world, number);
        let failed = "Follow-up failed: Nothing to commit: no file changes in the working tree";
        let failures = failures
            .iter()
            .filter(|said| said.starts_with(failed))
            .count();
        assert_eq!(failures, tries, "each is told once");
        world.advance_clock(Duration::from_secs(9 * 60));
        world.tick().await;
        assert_eq!(follow_up_jobs(&world, "ENG-1").len(), tries, "not at once");
        world.advance_clock(Duration::from_secs(61));
        world.tick().await;
    }
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 4);
    assert_eq!(states(&world, number), [ReviewFindingState::Abandoned]);
    let said = our_comments(&world, number);
    assert_eq!(
        said.iter()
            .filter(|said| said.contains("could not be worked in"))
            .count(),
        1,
        "{said:?}"
    );

    // More waits until the day is over, and people are told so once.
    repo.add_comment(number, "mia", "- [ ] another");
    quiet(&world).await;
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 4);
    let pauses = |world: &TestEnv| {
        let said = our_comments(world, number);
        said.iter()
            .filter(|said| said.contains("4 automatic follow-ups of a day"))
            .count()
    };
    assert_eq!(pauses(&world), 1);
    repo.add_comment(number, "mia", "/agent-implement");
    told(&world).await;
    world.tick().await;
    let asked = follow_up_jobs(&world, "ENG-1").pop().unwrap();
    assert_eq!(
        asked.kind,
        JobKind::GapFill,
        "what people ask for counts against nothing"
    );
    apply_event(&world, &asked.id, result_reported(RunOutcome::Success)).await;
    world.advance_clock(Duration::from_secs(24 * 60 * 60));
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 6);
    assert_eq!(pauses(&world), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_is_one_run_whoever_tells_of_it() {
    let world = env_with_pending_runs().await;
    let number = open_pull(&world, "ENG-1").await;
    let repo = world.repo();
    let trigger = async |instruction: &str| {
        let body = json!({"issueKey": "ENG-1", "prNumber": number, "instruction": instruction});
        let done = std::sync::atomic::AtomicBool::new(false);
        let (told, ()) = tokio::join!(
            async {
                let told = send_trigger(&world, body).await;
                done.store(true, std::sync::atomic::Ordering::SeqCst);
                told
            },
            async {
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    world.tick().await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        );
        told
    };

    // A stranger's command is none.
    repo.add_comment(number, "guest", "/agent-implement mine it");
    told(&world).await;
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1"), []);

    // The webhook first.
    repo.add_comment(number, "mia", "/agent-implement say it\nlouder");
    told(&world).await;
    world.tick().await;
    let first = follow_up_jobs(&world, "ENG-1").remove(0);
    let same = trigger("say it\nlouder").await;
    assert_eq!((same.status, &same.body["jobId"]), (200, &json!(first.id)));
    // A second comment of the same words is a second run, in its turn, whoever tells of it first.
    repo.add_comment(number, "mia", "/agent-implement say it louder");
    told(&world).await;
    let waits = trigger("say it louder").await;
    assert_eq!(
        waits.body,
        json!({"ok": true, "dispatched": false, "queued": true})
    );
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 1);
    apply_event(&world, &first.id, result_reported(RunOutcome::Success)).await;
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 2);

    // The workflow first.
    world.advance_clock(Duration::from_secs(1));
    apply_event(
        &world,
        &follow_up_jobs(&world, "ENG-1")[1].id,
        result_reported(RunOutcome::Success),
    )
    .await;
    let third = trigger("and softer").await;
    assert_eq!(third.status, 200, "{third:?}");
    repo.add_comment(number, "mia", "/agent-implement and softer");
    told(&world).await;
    let answer = world
        .vendors
        .github()
        .webhook_deliveries()
        .pop()
        .unwrap()
        .response_body;
    assert_eq!(
        serde_json::from_str::<Value>(&answer).unwrap()["reason"],
        "known"
    );
    apply_event(
        &world,
        &follow_up_jobs(&world, "ENG-1")[2].id,
        result_reported(RunOutcome::Failure),
    )
    .await;
    world.tick().await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 3);
    let said = our_comments(&world, number);
    assert!(
        said.len() == 1 && said[0].starts_with("Gap fill failed: Nothing to commit"),
        "told once: {said:?}"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_webhook_told_is_found_by_looking() {
    let world = env_with_pending_runs().await;
    let (number, merged) = (
        open_pull(&world, "ENG-1").await,
        open_pull(&world, "ENG-2").await,
    );
    let repo = world.repo();
    world.vendors.github().set_webhook_faults(WebhookFaults {
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
    quiet(&world).await;
    assert_eq!(world.vendors.github().webhook_deliveries().len(), 0);
    assert_eq!(follow_up_jobs(&world, "ENG-1"), []);

    reconcile::run_once(&world.app).await.unwrap();
    repo.merge_pull(merged).unwrap();
    reconcile::run_once(&world.app).await.unwrap();
    let shown = world.admin_get("/api/pulls").await;
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

    // While nothing changes, nothing is read but a list that has not changed.
    let before = world.vendors.requests().len();
    reconcile::run_once(&world.app).await.unwrap();
    let asked = world.vendors.requests().all().split_off(before);
    let asked: Vec<_> = asked.iter().map(|one| one.status.unwrap()).collect();
    assert_eq!(asked, [304], "one list that has not changed");

    quiet(&world).await;
    let findings = repo.runs()[0].inputs["findings"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        findings.contains("This leaks.") && findings.contains("By coderabbitai:\nIt races."),
        "{findings}"
    );
    assert!(!findings.contains("Rewrite") && !findings.contains("settled"));

    // A command that nobody told of is started, once.
    apply_event(
        &world,
        &follow_up_jobs(&world, "ENG-1")[0].id,
        result_reported(RunOutcome::Success),
    )
    .await;
    next_second().await;
    repo.add_comment(number, "mia", "/agent-implement once");
    for _ in 0..3 {
        reconcile::run_once(&world.app).await.unwrap();
        world.tick().await;
        for job in follow_up_jobs(&world, "ENG-1")
            .iter()
            .filter(|job| job.is_active())
        {
            apply_event(&world, &job.id, result_reported(RunOutcome::Success)).await;
        }
    }
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 2);

    // Nothing is done on a pull request that is closed, and it is done when it is open again.
    next_second().await;
    repo.add_review_comment(number, "mia", "a.txt", 2, "And this leaks.");
    reconcile::run_once(&world.app).await.unwrap();
    repo.close_pull(number);
    quiet(&world).await;
    assert_eq!(follow_up_jobs(&world, "ENG-1").len(), 2);
    assert!(states(&world, number).contains(&ReviewFindingState::Withdrawn));
    world.stop().await;
}
