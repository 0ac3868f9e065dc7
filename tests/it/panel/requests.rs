//! What the panel requests, and what it does if a request fails: pages of lists, sessions, versions and drafts.

use std::time::Duration;

use domain::audit::{Action, Actor};
use domain::job::JobKind;
use requires::requires;
use serde_json::{Value, json};
use store::{audit, jobs, mappings};

use super::browser::Browser;
use super::fixtures::{RUNNING_JOB_ID, populated_env};
use super::runs::append_log;
use super::untrusted_text::UntrustedText;
use crate::api_server::{ACCESS_CODE, dispatched_job};
use crate::test_env::TestEnv;

async fn plain_env() -> TestEnv {
    populated_env(&UntrustedText::plain()).await
}

/// Records audit entries with the target `SEED`.
async fn seed_audit(env: &TestEnv, count: u32) {
    let now = env.app.core.now();
    let written = env.store.write(move |tx| {
        let event = Actor::service().audit_event(Action::RunDispatched, "SEED");
        (0..count).try_for_each(|_| audit::append(tx, &event, now))
    });
    written.await.unwrap();
}

/// Moves the clock of the page on, so that cached lists are due, and sends an event.
async fn reload(env: &TestEnv, browser: &Browser) {
    browser
        .eval("const now = Date.now; Date.now = () => now() + 120_000")
        .await;
    let job = dispatched_job("01M6ZZ", JobKind::Planning);
    let stored = env.store.write(move |tx| jobs::put(tx, &job));
    stored.await.unwrap();
}

/// Loaded pages of the audit stay when new entries arrive, and the end of the log is found.
#[requires("browser")]
#[tokio::test]
async fn keeps_the_loaded_pages_of_the_audit() {
    let env = plain_env().await;
    seed_audit(&env, 400).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "audit?q=SEED").await;
    let shows = |rows: u32| {
        // The head is a row as well.
        let rows = rows + 1;
        format!("document.querySelector('main table')?.getAttribute('aria-rowcount') === '{rows}'")
    };
    let has_more =
        "[...document.querySelectorAll('button')].some((el) => el.innerText === 'Older entries')";
    browser.wait_until(&shows(200)).await;
    browser.click("Older entries").await;
    browser.wait_until(&shows(400)).await;
    browser.click("Older entries").await;
    browser.wait_until(&format!("!{has_more}")).await;
    browser.wait_until(&shows(400)).await;

    seed_audit(&env, 5).await;
    reload(&env, &browser).await;
    browser.wait_until(&shows(405)).await;
    browser.wait_until(&format!("!{has_more}")).await;

    // More new entries than a page has: none is missing in between.
    seed_audit(&env, 250).await;
    reload(&env, &browser).await;
    browser.wait_until(&shows(200)).await;
    for rows in [400, 600, 655] {
        browser.click("Older entries").await;
        browser.wait_until(&shows(rows)).await;
    }
    browser.wait_until(&format!("!{has_more}")).await;
    browser.quit().await;
    env.stop().await;
}

/// Makes every request fail whose URL contains a text.
async fn fail_requests(browser: &Browser, part: &str) {
    let script = format!(
        "window.send = window.fetch; window.fetch = (path, how) => String(path).includes({}) ? Promise.reject(new TypeError('gone')) : window.send(path, how)",
        json!(part)
    );
    browser.eval(&script).await;
}

/// If the session has ended when the log is loaded, the user signs in and sees the log.
#[requires("browser")]
#[tokio::test]
async fn the_log_survives_the_end_of_the_session() {
    let env = plain_env().await;
    append_log(
        &env,
        RUNNING_JOB_ID,
        "2027-01-15T08:00:00.000Z the first line\n",
    )
    .await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    fail_requests(&browser, "/log?").await;
    let open = format!(
        "const link = document.createElement('a'); link.href = '/admin/runs/{RUNNING_JOB_ID}'; document.body.append(link); link.click(); link.remove()"
    );
    browser.eval(&open).await;
    browser.wait_for_text("Can't reach the service.").await;
    let statuses = "window.statuses = []; window.fetch = async (path, how) => { const response = await window.send(path, how); if (String(path).includes('/log?')) window.statuses.push(response.status); return response; }";
    browser.eval(statuses).await;
    env.advance_clock(Duration::from_secs(25 * 3600));
    browser
        .eval("[...document.querySelectorAll('main button')].find((el) => el.innerText === 'Retry').click()")
        .await;
    browser.wait_until("window.statuses.includes(401)").await;
    browser.wait_for_text("Your session has ended").await;
    let refused = "return [...document.querySelectorAll('main .error')].map((el) => el.innerText).filter((text) => /401|Unauthorized/.test(text))";
    assert_eq!(browser.eval(refused).await, json!([]));
    browser.fill("Access code", ACCESS_CODE).await;
    browser.click("Sign in").await;
    browser.wait_for_text_anywhere("the first line").await;
    browser.quit().await;
    env.stop().await;
}

/// Behind a proxy that changes ETags, no version is ever current: the change is sent twice, and the panel says why it
/// was refused.
#[requires("browser")]
#[tokio::test]
async fn a_change_is_repeated_once_behind_a_proxy_that_changes_etags() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    let proxy = r#"
        const send = window.fetch;
        window.patches = 0;
        window.fetch = async (path, how) => {
            if (how?.method === "PATCH" && (window.patches += 1) > 9) throw new TypeError("endless");
            const response = await send(path, how);
            const headers = new Headers(response.headers);
            if (!headers.has("etag")) return response;
            headers.set("etag", headers.get("etag").replace(/"$/, "-gzip\""));
            return new Response(response.status === 304 ? null : await response.blob(), { status: response.status, headers });
        };
    "#;
    browser.eval(proxy).await;
    browser.switch_panel("projects").await;
    browser.click("More for SHOP").await;
    browser.click("Edit").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.fill("Max parallel issues", "7").await;
    browser.click("Save").await;
    browser
        .wait_for_text("The project was changed in the meantime")
        .await;
    assert_eq!(browser.eval("return window.patches").await, json!(2));
    let value = "return document.querySelector('[name=maxInProgressAiIssues]').value";
    assert_eq!(browser.eval(value).await, json!("7"));
    let stored = env.store.read(|tx| mappings::get(tx, &"SHOP".into()));
    assert_eq!(stored.unwrap().unwrap().max_in_progress, 3);
    browser.quit().await;
    env.stop().await;
}

/// A check of what was typed changes nothing, so nothing is fetched again because of it.
#[requires("browser")]
#[tokio::test]
async fn checks_of_a_form_expire_no_list() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects").await;
    // No list is due by its age.
    browser
        .eval("const at = Date.now(); Date.now = () => at; const send = window.fetch; window.paths = []; window.fetch = (path, how) => { window.paths.push(`${how?.method ?? 'GET'} ${path}`); return send(path, how); }")
        .await;
    browser.click("More for SHOP").await;
    browser.click("Edit").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.fill("Max parallel issues", "0").await;
    browser.click("Save").await;
    browser
        .wait_for_text("Max parallel issues must be at least 1")
        .await;
    browser.press_keys("\u{E00C}").await;
    browser.click("Discard").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    browser.switch_panel("blockers").await;
    browser.wait_for_text("Waiting issues").await;
    browser.switch_panel("projects").await;
    browser.wait_for_text("SHOP").await;
    let paths: Value = browser.eval("return window.paths").await;
    let paths: Vec<&str> = paths
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(paths.contains(&"POST /api/mappings/check"), "{paths:?}");
    assert!(!paths.contains(&"GET /api/mappings"), "{paths:?}");
    browser.quit().await;
    env.stop().await;
}
