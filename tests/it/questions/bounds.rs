//! Bounds of questions: rounds, time, projects that want none, and what questions do not count for.

use std::time::Duration;

use domain::job::Job;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};
use store::dispatch_breaker;
use vendors::http::percent_encode;

use super::{ANSWERED, ASKS, QUIET, Story, asking, question};
use crate::test_env::TestEnvOptions;
use crate::test_ticket::{
    SYSTEMS, TestTicket, example_key, poll_comments, set_clock_ahead, settle,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_asks_twice_and_then_decides() {
    for system in SYSTEMS {
        let story = Story::start(system, |_| ()).await;
        let last = story.finishing("three\n").into_iter();
        let last = last.chain([ScriptStep::ask(json!([{"text": "Third?"}]))]);
        story.set_script(
            Script::new()
                .pass(asking("one\n", json!([{"text": "First?"}])))
                .pass(asking("two\n", json!([{"text": "Second?"}])))
                .pass(last),
        );
        story.ask().await;
        story.ticket.comment("Answer one");
        poll_comments(&story.env).await;
        set_clock_ahead(&story.env, QUIET);
        story.asked(2).await;
        assert_eq!(story.open_questions().await[0]["round"], 2);
        story.ticket.comment("Answer two");
        story.env.advance_clock(QUIET);
        story.complete_after_comment().await;
        assert_eq!(story.jobs().len(), 3);
        assert_eq!(
            (story.ticket.count(ASKS), story.ticket.count(ANSWERED)),
            (2, 2)
        );
        story.assert_continued("one\ntwo\nthree\n");
        let prompt = story.prompt();
        for part in [
            "First?",
            "Answer one",
            "Second?",
            "Answer two",
            "No more questions are possible.",
        ] {
            assert!(prompt.contains(part), "{part}: {prompt}");
        }
        assert!(!prompt.contains("question.json"), "{prompt}");
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_goes_on_with_the_defaults_when_nobody_answers_in_time() {
    for system in SYSTEMS {
        let story =
            Story::start(system, |mapping| mapping.question_timeout_hours = Some(100)).await;
        story.ask().await;
        let open = story.open_questions().await;
        assert!(open[0]["expiresAt"].is_string(), "{open}");
        let comment = story.ticket.comments().pop().unwrap();
        assert!(
            comment.contains("goes on with the defaults at "),
            "{comment}"
        );
        story.env.advance_clock(Duration::from_secs(73 * 3600));
        poll_comments(&story.env).await;
        story.env.advance_clock(Duration::from_secs(26 * 3600));
        poll_comments(&story.env).await;
        settle(&story.env).await;
        assert_eq!(story.ticket.count("Reminder: the question above"), 1);
        let open = story.open_questions().await;
        assert!(open[0]["remindedAt"].is_string(), "{open}");
        assert_eq!(story.jobs().len(), 1);
        story.env.advance_clock(Duration::from_secs(2 * 3600));
        story.complete().await;
        assert_eq!(story.ticket.count("Nobody answered in time."), 1);
        story.assert_continued("begun\ndone\n");
        let prompt = story.prompt();
        assert!(prompt.contains("Which currency?: EUR"), "{prompt}");
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_project_without_questions_decides() {
    for system in SYSTEMS {
        let story = Story::start(system, |mapping| mapping.questions = false).await;
        let steps = story.finishing("alone\n").into_iter();
        let steps = steps.chain([ScriptStep::ask(question())]);
        story.set_script(Script::new().pass(steps));
        story.ticket.trigger();
        story.complete().await;
        assert_eq!(story.jobs().len(), 1);
        story.assert_continued("alone\n");
        let prompt = story.prompt();
        assert!(prompt.contains("Nobody can answer questions."), "{prompt}");
        assert!(!prompt.contains("question.json"), "{prompt}");
        assert_eq!(story.ticket.count(ASKS), 0);
        story.env.finish().await;
    }
}

/// Both tickets ask in both rounds, in a project with one slot, where the first failure parks an issue.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_ask_hold_no_slot_and_count_for_no_breaker() {
    for system in SYSTEMS {
        let options = TestEnvOptions {
            extra_flags: vec![("--dispatch-breaker-threshold", "1".to_owned())],
            ..TestEnvOptions::default()
        };
        let story =
            Story::with_options(system, |mapping| mapping.max_in_progress = 1, options).await;
        let (env, key) = (&story.env, example_key(system, 8));
        let other = TestTicket::create(env, system, &key, "Add a basket");
        for key in [&story.key, &key] {
            let script = Script::new()
                .pass(asking("one\n", question()))
                .pass(asking("two\n", question()))
                .pass(story.finishing("three\n"));
            env.set_agent_script(key, script);
        }
        let tickets = [&story.ticket, &other];
        tickets.iter().for_each(|ticket| ticket.trigger());
        for round in 1..=2 {
            let have_asked = || tickets.iter().all(|ticket| ticket.count(ASKS) == round);
            env.tick_until("both have asked", have_asked).await;
            settle(env).await;
            assert_no_failure(&story, 2).await;
            for key in [&story.key, &key] {
                env.advance_clock(Duration::from_secs(1));
                let path = format!("/api/questions/{}/answer", percent_encode(key));
                let body = Some(json!({"answer": "EUR"}));
                let answered = env.admin_request(Method::POST, &path, body).await;
                assert_eq!(answered.0, 202, "{}", answered.1);
            }
        }
        let are_complete = || {
            let mut keys = [&story.key, &key].into_iter();
            keys.all(|key| env.jobs(key).iter().any(Job::has_opened_pull_request))
        };
        env.tick_until("both are complete", are_complete).await;
        settle(env).await;
        assert_no_failure(&story, 0).await;
        assert_eq!(env.repo().pulls().len(), 2);
        story.env.finish().await;
    }
}

/// Checks that this number of issues waits for an answer, and that nothing counts as a failure or keeps others waiting.
async fn assert_no_failure(story: &Story, questions: usize) {
    let env = &story.env;
    assert!(env.store.read(dispatch_breaker::all).unwrap().is_empty());
    let incidents = env.admin_get("/api/incidents").await;
    assert_eq!(incidents["incidents"], json!([]), "{incidents}");
    env.tick().await;
    let blockers = env.admin_get("/api/blockers?all=true").await;
    let reasons = blockers["blockers"].as_array().unwrap().iter();
    let reasons: Vec<&Value> = reasons.map(|blocker| &blocker["reason"]).collect();
    assert_eq!(reasons, vec!["question"; questions], "{blockers}");
}
