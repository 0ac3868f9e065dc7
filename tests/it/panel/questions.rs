//! Questions and plans that wait for a person, in the panel.

use std::time::Duration;

use domain::issue::{IssueRef, Phase};
use domain::job::JobKind;
use domain::plan_approval::PlanGate;
use domain::question::{OpenQuestion, Question};
use domain::stage::Stage;
use domain::time::Timestamp;
use requires::requires;
use store::{issue_contexts, open_questions, plan_gates};

use super::browser::Browser;
use super::console_errors;
use super::fixtures::empty_env;
use super::untrusted_text::UntrustedText;
use crate::api_server::dispatched_job;

/// Two open questions of an issue.
pub(super) fn question(issue: &IssueRef, texts: &UntrustedText, at: Timestamp) -> OpenQuestion {
    let choices = [
        "EUR",
        "Both: whatever currency the customer has chosen in the settings of the shop",
    ];
    OpenQuestion {
        issue: issue.clone(),
        team: "SHOP".into(),
        job: format!("asked-{}", issue.id).as_str().into(),
        phase: Phase::Implementation,
        round: 1,
        questions: vec![
            Question {
                text: (texts.title)(1),
                choices: choices.map(str::to_owned).to_vec(),
                default: Some("EUR".into()),
            },
            Question {
                text: "Who approves refunds?".into(),
                choices: vec![texts.name.to_owned(), "Support".into()],
                default: None,
            },
        ],
        asked_at: at,
        reminded_at: None,
        expires_at: Some(at + Duration::from_secs(48 * 60 * 60)),
        comment: "effect".into(),
        candidate: None,
        resume_stage: Stage::Triggered,
        trigger_seen: false,
        absent_since: None,
    }
}

/// Plan of an issue that waits for an approval.
pub(super) fn plan(issue: &IssueRef, texts: &UntrustedText, at: Timestamp) -> PlanGate {
    PlanGate {
        issue: issue.clone(),
        team: "SHOP".into(),
        job: format!("planned-{}", issue.id).as_str().into(),
        planned_at: at,
        hashes: None,
        planned_for: None,
        reminded_at: None,
        objection: Some((texts.title)(2)),
        approval: None,
        trigger_seen: false,
        absent_since: None,
    }
}

fn issue(key: &str) -> IssueRef {
    IssueRef {
        id: format!("id-of-{key}").as_str().into(),
        key: key.into(),
        ..dispatched_job("0", JobKind::Implementation).issue
    }
}

/// Choices fill the answer, a draft survives the live updates of the page, and what was answered or rejected leaves it.
#[requires("browser")]
#[tokio::test]
async fn a_person_answers_a_question_and_rejects_a_plan() {
    let env = empty_env().await;
    let (texts, now) = (UntrustedText::plain(), env.app.core.now());
    let asked = question(&issue("SHOP-1"), &texts, now);
    let planned = plan(&issue("SHOP-2"), &texts, now);
    let stored = env.store.write(move |tx| {
        open_questions::put(tx, &asked)?;
        plan_gates::put(tx, &planned)
    });
    stored.await.unwrap();
    let browser = Browser::start().await;
    browser.open_view(&env.address, "questions").await;
    browser.wait_for_text("Who approves refunds?").await;
    browser.click("Support").await;
    browser.click("EUR").await;
    browser
        .fill("Answer", "2. Support\n1. EUR, with cents")
        .await;

    browser.click("Reject the plan of SHOP-2").await;
    browser
        .wait_for_text_anywhere("The trigger leaves the ticket.")
        .await;
    browser.click("Reject plan").await;
    browser
        .wait_for_text_anywhere("Rejected the plan of SHOP-2.")
        .await;
    browser
        .wait_until("!document.querySelector('[aria-label=\"SHOP-2\"]')")
        .await;
    assert!(env.store.read(plan_gates::all).unwrap().is_empty());

    browser
        .wait_until(
            "document.querySelector('textarea').value === '2. Support\\n1. EUR, with cents'",
        )
        .await;
    browser.click("Send answer").await;
    browser.wait_for_text("Nothing waits for you").await;
    assert!(env.store.read(open_questions::all).unwrap().is_empty());
    let context = env
        .store
        .read(|tx| issue_contexts::get(tx, &"id-of-SHOP-1".into()));
    let [exchange] = &context.unwrap().exchanges[..] else {
        panic!("one exchange");
    };
    assert_eq!(exchange.answer, "2. Support\n1. EUR, with cents");
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
}
