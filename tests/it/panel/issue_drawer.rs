//! Drawer of an issue: its state, and one time line of all its runs.

use domain::issue::IssueRef;
use domain::job::{Job, JobKind, JobState};
use domain::report::FailureCode;
use requires::requires;
use serde_json::json;
use std::time::Duration;
use store::jobs;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::large_env;
use crate::api_server::dispatched_job;

/// An issue whose run is older than the 500 latest runs of all issues.
#[requires("browser")]
#[tokio::test]
async fn lists_every_run_of_an_issue() {
    let env = large_env().await;
    let now = env.app.core.now();
    let ago = |seconds: u64| domain::time::Timestamp::from_millis(now.as_millis() - seconds * 1000);
    let issue = IssueRef {
        id: "issue-of-old-runs".into(),
        ..dispatched_job("00", JobKind::Implementation).issue
    };
    let run = |number: u32, seconds: u64| Job {
        issue: issue.clone(),
        dispatch_number: number,
        attempt: Some(number),
        reserved_at: ago(seconds),
        started_at: Some(ago(seconds)),
        finished_at: Some(ago(seconds) + Duration::from_secs(60)),
        ..dispatched_job(&format!("00{number}"), JobKind::Implementation)
    };
    let old = Job {
        state: JobState::Completed,
        ..run(1, 9000)
    };
    let failed = Job {
        state: JobState::Failed {
            code: Some(FailureCode::NoChanges),
            reason: "Nothing to commit: no file changes in the working tree".into(),
        },
        ..run(2, 6000)
    };
    let stored = env.store.write(move |tx| {
        jobs::put(tx, &old)?;
        jobs::put(tx, &failed)
    });
    stored.await.unwrap();
    let browser = Browser::start().await;
    browser.open_view(&env.address, "issues?issue=ENG-1").await;
    browser.wait_for_text("Implementation, attempt 2").await;
    browser.wait_for_text("Implementation, attempt 1").await;
    // The failure is the headline.
    browser
        .wait_until(
            "document.querySelector('dialog .notice.bad').innerText.includes('Nothing to commit')",
        )
        .await;
    let headline =
        "return document.querySelector('dialog .notice.bad').innerText.startsWith('Failed: ')";
    assert_eq!(browser.eval(headline).await, json!(true));
    let order =
        "return [...document.querySelectorAll('dialog .history a')].map((el) => el.innerText)";
    assert_eq!(
        browser.eval(order).await,
        json!(["Implementation, attempt 2", "Implementation, attempt 1"])
    );
    let retry = "return Boolean(document.querySelector('dialog [aria-label=\"Retry ENG-1\"]'))";
    assert_eq!(browser.eval(retry).await, json!(true));
    browser.click("Implementation, attempt 1").await;
    browser
        .wait_until("location.pathname === '/admin/runs/001'")
        .await;
    browser.wait_for_view().await;
    browser.eval("history.back()").await;
    browser.wait_for_text("Implementation, attempt 2").await;
    let errors = console_errors(browser.take_console_log().await);
    let errors: Vec<_> = errors
        .iter()
        .filter(|line| !line.contains("/log?"))
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    browser.quit().await;
    env.stop().await;
}
