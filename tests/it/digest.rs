//! Daily chat message about what waits for people.

use std::time::Duration;

use domain::feedback::{
    ChecksState, PullRequestChecks, PullRequestId, PullRequestReadiness, PullRequestRecord,
    ReviewDecision,
};
use domain::ids::JobId;
use domain::issue::{IssueRef, Phase};
use domain::plan_approval::PlanGate;
use domain::question::OpenQuestion;
use domain::time::Timestamp;
use engine::clock::Clock;
use engine::maintenance;
use serde_json::json;
use store::dispatch_breaker::ParkedIssue;
use store::{dispatch_breaker, open_questions, outbox, plan_gates, pull_feedback};

use crate::follow_up::{open_pull, options};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Clock at this hour of tomorrow.
fn clock_at(hour: u64) -> Clock {
    let now = Clock::System.now();
    let midnight = now.as_millis() / 86_400_000 * 86_400_000;
    Clock::manual(Timestamp::from_millis(midnight) + DAY + HOUR * hour as u32)
}

fn options_at(clock: Clock, flags: &[(&'static str, &str)]) -> TestEnvOptions {
    let flags = flags
        .iter()
        .map(|(flag, value)| (*flag, (*value).to_owned()));
    TestEnvOptions {
        extra_flags: flags.collect(),
        engine: EngineMode::Manual(clock),
        ..options()
    }
}

async fn maintain(env: &TestEnv) {
    maintenance::run_once(&env.app).await.unwrap();
    engine::outbox_worker::drain(&env.app).await.unwrap();
}

/// Digests that arrived in the chat.
fn digests(env: &TestEnv) -> Vec<String> {
    let messages = env.vendors.chat().messages().into_iter();
    let texts = messages.map(|message| message.body.to_string());
    texts
        .filter(|text| text.contains("Waiting for people"))
        .collect()
}

fn issue(key: &str, title: &str) -> IssueRef {
    IssueRef {
        system: domain::issue::System::Linear,
        id: format!("id-{key}").as_str().into(),
        key: key.into(),
        title: title.into(),
        url: String::new(),
        marker_field: None,
    }
}

/// Stores that a plan of a ticket waits.
async fn add_plan(env: &TestEnv, key: &str, title: &str) {
    let gate = PlanGate {
        issue: issue(key, title),
        team: "ENG".into(),
        job: JobId::new("01PLAN"),
        planned_at: env.app.core.now(),
        hashes: None,
        planned_for: None,
        reminded_at: None,
        objection: None,
        approval: None,
        trigger_seen: false,
        absent_since: None,
    };
    let put = env.store.write(move |tx| plan_gates::put(tx, &gate));
    put.await.unwrap();
}

async fn set_readiness(env: &TestEnv, number: u64, readiness: PullRequestReadiness) {
    let pull = PullRequestId {
        repo: mapping().target_repo(),
        number,
    };
    let write = env.store.write(move |tx| {
        let record = PullRequestRecord {
            readiness: readiness.clone(),
            ..pull_feedback::get_pull(tx, &pull)?
        };
        pull_feedback::put_pull(tx, &pull, &record)
    });
    write.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_names_everything_that_waits_oldest_first() {
    let env = TestEnv::with_options(options_at(clock_at(9), &[])).await;
    let mut numbers = Vec::new();
    for key in ["ENG-1", "ENG-2", "ENG-3"] {
        numbers.push(open_pull(&env, key).await);
        env.advance_clock(DAY);
    }
    let red = PullRequestChecks {
        state: ChecksState::Failure,
        failed: 1,
        total: 2,
    };
    let readiness = PullRequestReadiness {
        checks: Some(red),
        review_decision: Some(ReviewDecision::Approved),
        ..PullRequestReadiness::default()
    };
    set_readiness(&env, numbers[2], readiness).await;
    add_plan(&env, "ENG-4", "Plan <!channel> & <@U1>").await;
    let asked_at = env.app.core.now();
    let write = env.store.write(move |tx| {
        let question: OpenQuestion = serde_json::from_value(json!({
            "issue": issue("ENG-5", "Ask"), "team": "ENG", "job": "01ASK", "phase": "implementation",
            "round": 1, "questions": [], "resumeStage": "implementing", "askedAt": asked_at, "comment": "x",
        }))
        .unwrap();
        open_questions::put(tx, &question)?;
        let parked = ParkedIssue {
            issue: issue("ENG-6", "Fails"),
            repo: mapping().target_repo(),
            phase: Phase::Implementation,
            failures: 3,
            last_conclusion: "failed".into(),
            parked_at: asked_at,
        };
        dispatch_breaker::park(tx, &parked)
    });
    write.await.unwrap();
    maintain(&env).await;
    let found = digests(&env);
    let [digest] = &found[..] else {
        panic!("{found:?}");
    };
    let title =
        "Waiting for people: 2 reviews, 1 question, 1 plan, 1 parked ticket, 1 red pull request";
    assert!(digest.contains(title), "{digest}");
    let [first, second, third] = numbers[..] else {
        unreachable!("three pull requests");
    };
    let reviews = format!(
        "*Reviews*\\nENG-1: Add the feature (acme/shop#{first}, 3 days)\\nENG-2: Add the feature (acme/shop#{second}, 2 days)"
    );
    let reviews = reviews.replace("Add the feature", "Make it work");
    assert!(digest.contains(&reviews), "{digest}");
    let red = format!("(acme/shop#{third}, 1 day)");
    assert!(digest.contains(&red), "{digest}");
    for text in ["ENG-5: Ask (today)", "ENG-6: Fails (today)"] {
        assert!(digest.contains(text), "{digest}");
    }
    assert!(!digest.contains("<!") && !digest.contains("<@"), "{digest}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_sent_once_a_day_also_across_restarts() {
    let clock = clock_at(8);
    let env = TestEnv::with_options(options_at(clock.clone(), &[])).await;
    maintain(&env).await;
    add_plan(&env, "ENG-1", "Plan").await;
    maintain(&env).await;
    assert_eq!(digests(&env).len(), 0, "before the hour");
    env.advance_clock(HOUR + Duration::from_secs(5 * 60));
    maintenance::run_once(&env.app).await.unwrap();
    assert_eq!(env.store.read(outbox::pending).unwrap().len(), 1);
    let mappings = Vec::new;
    let env = env
        .restart_service(TestEnvOptions {
            mappings: mappings(),
            ..options_at(clock.clone(), &[])
        })
        .await;
    maintain(&env).await;
    maintain(&env).await;
    assert_eq!(digests(&env).len(), 1);
    env.advance_clock(HOUR);
    maintain(&env).await;
    env.advance_clock(22 * HOUR + Duration::from_secs(50 * 60));
    maintain(&env).await;
    assert_eq!(digests(&env).len(), 1, "less than a day later");
    env.advance_clock(Duration::from_secs(10 * 60));
    maintain(&env).await;
    maintain(&env).await;
    assert_eq!(digests(&env).len(), 2);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_if_nothing_waits_or_it_is_switched_off() {
    let env = TestEnv::with_options(options_at(clock_at(9), &[])).await;
    maintain(&env).await;
    env.advance_clock(Duration::from_secs(10 * 60));
    add_plan(&env, "ENG-1", "Plan").await;
    maintain(&env).await;
    assert_eq!(
        digests(&env).len(),
        0,
        "the digest of the day had nothing to say"
    );
    env.advance_clock(DAY);
    maintain(&env).await;
    assert_eq!(digests(&env).len(), 1);
    env.stop().await;
    for flags in [
        [("--notify-digest-hour", "off")],
        [("--notify-digest-hour", "17")],
    ] {
        let env = TestEnv::with_options(options_at(clock_at(9), &flags)).await;
        add_plan(&env, "ENG-1", "Plan").await;
        maintain(&env).await;
        assert_eq!(digests(&env).len(), 0, "{flags:?}");
        env.stop().await;
    }
}
