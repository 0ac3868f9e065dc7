//! Numbers, and the lists that they lead to.

use domain::job::{Job, JobState};
use domain::report::FailureCode;
use requires::requires;
use store::jobs;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::populated_env;
use super::untrusted_text::UntrustedText;
use crate::test_env::TestEnv;

/// Adds a cancelled run, and a failed shadow run, which no number counts as failed.
async fn add_uncounted_runs(env: &TestEnv) {
    let failed = env
        .store
        .read(|tx| jobs::latest(tx, 100))
        .unwrap()
        .into_iter();
    let failed: Vec<Job> = failed
        .filter(|job| matches!(job.state, JobState::Failed { .. }))
        .take(2)
        .collect();
    let [mut cancelled, mut shadow] = <[Job; 2]>::try_from(failed).unwrap();
    let code = Some(FailureCode::Cancelled);
    let reason = "cancelled by the admin".to_owned();
    cancelled.state = JobState::Failed { code, reason };
    cancelled.id = "01M6CANCELLED".into();
    shadow.id = "01M6SHADOW".into();
    shadow.shadow = true;
    let jobs = [cancelled, shadow];
    let added = env
        .store
        .write(move |tx| jobs.iter().try_for_each(|job| jobs::put(tx, job)));
    added.await.unwrap();
}

/// Clicks a tile, and returns its number and the number of rows of the list behind it.
async fn follow_tile(browser: &Browser, view: &str, label: &str) -> (u64, u64) {
    browser.switch_panel("settings").await;
    browser
        .eval(&format!("history.pushState(null, '', '/admin/{view}'); dispatchEvent(new PopStateEvent('popstate'))"))
        .await;
    let tile = format!(
        "[...document.querySelectorAll('.tile')].find((el) => el.querySelector('.tile-label').innerText === '{label}')"
    );
    browser.wait_until(&tile).await;
    let number = format!("return Number({tile}.querySelector('.tile-value').innerText)");
    let number = browser.eval(&number).await;
    if label == "Failed" {
        // The chart has the same sum.
        let sum = "return Number([...document.querySelectorAll('.chart-foot .legend')].find((el) => el.innerText.includes('Failed')).querySelector('b').innerText)";
        assert_eq!(browser.eval(sum).await, number, "{view}");
    }
    browser.eval(&format!("{tile}.click()")).await;
    browser
        .wait_until("location.pathname === '/admin/pipelines' && document.querySelector('tbody')")
        .await;
    let rows = "return document.querySelectorAll('tbody tr[aria-rowindex]').length";
    let rows = browser.eval(rows).await;
    (number.as_u64().unwrap(), rows.as_u64().unwrap())
}

/// The list behind a number has as many rows: cancelled runs have not failed, shadow runs are not counted, and the
/// time is that of the end.
#[requires("browser")]
#[tokio::test]
async fn numbers_lead_to_lists_of_the_same_length() {
    let env = populated_env(&UntrustedText::plain()).await;
    add_uncounted_runs(&env).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    for view in ["overview", "overview?range=7d", "projects/SHOP"] {
        for label in ["Failed", "Running"] {
            let (number, rows) = follow_tile(&browser, view, label).await;
            assert!(number > 0, "{view} {label}");
            assert_eq!(number, rows, "{view} {label}");
        }
    }
    browser.switch_panel("scoreboard").await;
    browser.wait_for_text("Failures by reason").await;
    let sum = "return [...document.querySelectorAll(\"[aria-label='Failures by reason'] b\")].reduce((sum, el) => sum + Number(el.innerText), 0)";
    let failures = browser.eval(sum).await;
    browser
        .click_selector("[aria-label='Failures by reason'] .actions a")
        .await;
    browser
        .wait_until("document.querySelector('tbody tr')")
        .await;
    let rows = "return document.querySelectorAll('tbody tr[aria-rowindex]').length";
    assert_eq!(browser.eval(rows).await, failures);
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}
