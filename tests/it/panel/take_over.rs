//! Issues that people continue by hand, and the evidence of runs, in the panel.

use data_encoding::BASE64;
use domain::evidence::{EvidenceFile, EvidenceKind};
use domain::ids::JobId;
use domain::job::{Job, JobKind, JobState, PullRequestRef};
use domain::time::Timestamp;
use requires::requires;
use serde_json::json;
use store::{StoreResult, WriteTx, evidence, jobs, patches, take_overs};

use super::browser::Browser;
use super::fixtures::empty_env;
use super::{OutboxDrain, console_errors};
use crate::api_server::dispatched_job;
use crate::test_env::TestEnv;

/// Picture of a page, as a test of a shop takes it.
const SCREENSHOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAHgAAABGCAMAAAAwyqA9AAAACVBMVEX///8oWsjS4frA9Ad0AAAATklEQVR42u3XMQoAIAwDwOr/H+3gGuki4nCZAwfp1BohFXK7V2AwGAwGH+GUGfKiBwaDwWDw7pkVDAaDwf/BVgCDwWCw38k9wWAwGNz2FnfxHYk3/Z7zAAAAAElFTkSuQmCC";

/// Stores a picture and a report of tests as the evidence of a job.
pub(super) fn put_evidence(tx: &WriteTx<'_>, job: &JobId, now: Timestamp) -> StoreResult<()> {
    let file = |name: &str, kind, content: Vec<u8>| EvidenceFile {
        name: name.to_owned(),
        kind,
        content,
    };
    let picture = BASE64.decode(SCREENSHOT.as_bytes()).unwrap();
    let files = [
        file("list-of-orders.png", EvidenceKind::Png, picture),
        file("report.txt", EvidenceKind::Text, b"42 passed\n".repeat(200)),
    ];
    evidence::replace(tx, job, &files, 9, now).map(drop)
}

/// Job whose run opened a pull request and left findings open, then one whose push was rejected.
async fn put_jobs(env: &TestEnv) {
    let now = env.app.core.now();
    let opened = Job {
        state: JobState::ReviewFailed {
            unresolved: vec!["The list <b>is</b> not sorted (src/orders.rs:12)".into()],
        },
        pull: PullRequestRef::from_url("https://github.test/acme/shop/pull/12"),
        branch: "agent-implement/eng-1-list".into(),
        ..dispatched_job("01A", JobKind::Implementation)
    };
    let rejected = Job {
        id: "01B".into(),
        kind: JobKind::FollowUp,
        state: JobState::Failed {
            code: None,
            reason: "push was rejected".into(),
        },
        ..opened.clone()
    };
    let put = env.store.write(move |tx| {
        jobs::put(tx, &opened)?;
        jobs::put(tx, &rejected)?;
        put_evidence(tx, &opened.id, now)?;
        patches::put(tx, &rejected.id, "diff --git a/a b/a\n")
    });
    put.await.unwrap();
}

#[requires("browser")]
#[tokio::test]
async fn a_person_takes_over_copies_the_commands_and_gives_back() {
    let env = empty_env().await;
    put_jobs(&env).await;
    let _drain = OutboxDrain::start(&env);
    let browser = Browser::start().await;
    browser.open_view(&env.address, "pulls").await;
    browser.click("Take over ENG-1").await;
    browser
        .wait_for_text_anywhere("You continue by hand.")
        .await;
    browser.fill("Your name", "Kim <i>Doe</i>").await;
    browser.click_selector("dialog [type=submit]").await;
    browser
        .wait_for_text_anywhere("Continue ENG-1 by hand")
        .await;
    let shown = browser
        .eval("return document.querySelector('dialog').innerText")
        .await;
    let shown = shown.as_str().unwrap().to_owned();
    for text in [
        "git fetch origin agent-implement/eng-1-list\ngit switch agent-implement/eng-1-list",
        "git apply --3way ENG-1.patch",
        "Download ENG-1.patch",
    ] {
        let label = "return [...document.querySelectorAll('dialog [aria-label]')].map((el) => el.ariaLabel).join()";
        let labels = browser.eval(label).await;
        let is_shown = shown.contains(text) || labels.as_str().unwrap().contains(text);
        assert!(is_shown, "{text}\n{shown}");
    }
    let taken = env.store.read(take_overs::all).unwrap();
    assert_eq!(taken[0].by, "Kim <i>Doe</i>");
    browser.click("Close").await;
    browser.wait_for_text("Taken over by Kim <i>Doe</i>").await;

    browser.open_view(&env.address, "runs/01A").await;
    browser.wait_for_text("Automatic work pauses until").await;
    browser
        .click("Continue ENG-1 by hand, or give it back")
        .await;
    browser.wait_for_text_anywhere("git switch").await;
    browser.click("Give ENG-1 back").await;
    browser
        .wait_for_text_anywhere("Nobody has ENG-1 any more.")
        .await;
    browser
        .wait_until("!document.querySelector('main').innerText.includes('Taken over by')")
        .await;
    assert!(env.store.read(take_overs::all).unwrap().is_empty());
    // The name is remembered.
    browser.click("Take over ENG-1").await;
    browser
        .wait_until("document.querySelector('dialog input')?.value === 'Kim <i>Doe</i>'")
        .await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

#[requires("browser")]
#[tokio::test]
async fn the_page_of_a_run_shows_its_evidence() {
    let env = empty_env().await;
    put_jobs(&env).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "runs/01A").await;
    browser.wait_for_text("list-of-orders.png").await;
    let scroll = "document.querySelector('.evidence img').scrollIntoView()";
    browser.eval(scroll).await;
    browser
        .wait_until("document.querySelector('.evidence img').naturalWidth === 120")
        .await;
    let links = "return [...document.querySelectorAll('.evidence a')].map((one) => [one.innerText.replace(/\\s+/g, ' '), one.getAttribute('href'), one.rel])";
    assert_eq!(
        browser.eval(links).await,
        json!([
            [
                "list-of-orders.png 156 bytes (opens in a new tab)",
                "/api/jobs/01A/evidence/list-of-orders.png",
                "noopener"
            ],
            [
                "report.txt 2 KiB (opens in a new tab)",
                "/api/jobs/01A/evidence/report.txt",
                "noopener"
            ],
        ])
    );
    // The browser shows the text as a text.
    let address = format!("{}/api/jobs/01A/evidence/report.txt", env.address);
    browser.goto(&address).await;
    browser
        .wait_until("document.contentType === 'text/plain' && document.body.innerText.startsWith('42 passed')")
        .await;
    browser.quit().await;
    env.stop().await;
}
