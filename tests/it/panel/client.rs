//! The panel as a client: sessions, URLs, history, focus and lost connections.

use std::time::{Duration, Instant};

use requires::requires;
use serde_json::json;
use store::dispatch_breaker;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::populated_env;
use super::untrusted_text::UntrustedText;
use crate::api_server::ACCESS_CODE;
use crate::test_env::TestEnv;

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const DOWN: &str = "\u{E015}";

async fn plain_env() -> TestEnv {
    populated_env(&UntrustedText::plain()).await
}

/// Path and query of the current page.
async fn location(browser: &Browser) -> String {
    let url = browser
        .eval("return location.pathname + location.search")
        .await;
    url.as_str().unwrap().to_owned()
}

/// Makes every request whose URL contains a text wait for ever, from the next page on.
async fn block_requests(browser: &Browser, part: &str) {
    let source = format!(
        "const send = window.fetch; window.fetch = (path, how) => String(path).includes({}) ? new Promise(() => {{}}) : send(path, how);",
        json!(part)
    );
    let script = json!({ "source": source });
    browser
        .devtools("Page.addScriptToEvaluateOnNewDocument", script)
        .await;
}

async fn block_files(browser: &Browser, files: &[&str]) {
    let cache = json!({"cacheDisabled": true});
    browser.devtools("Network.enable", json!({})).await;
    browser.devtools("Network.setCacheDisabled", cache).await;
    let urls = json!({ "urls": files });
    browser.devtools("Network.setBlockedURLs", urls).await;
}

pub(super) async fn open_palette(browser: &Browser) {
    browser.press_control("k").await;
    browser
        .wait_until("document.activeElement.role === 'combobox'")
        .await;
}

/// A drawer that is opened by its URL does not wait for the panel below.
#[requires("browser")]
#[tokio::test]
async fn a_linked_drawer_opens_before_its_panel() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    block_requests(&browser, "/api/blockers").await;
    let url = format!("{}/admin/blockers?job=01M7A", env.address);
    browser.goto(&url).await;
    browser
        .wait_for_text("Let customers reorder a past purchase")
        .await;
    browser
        .wait_until("document.querySelector('main .loading')")
        .await;
    browser.quit().await;
    env.stop().await;
}

/// If a module cannot be loaded, the page is loaded again. If that does not help, it says so and offers a retry.
#[requires("browser")]
#[tokio::test]
async fn recovers_from_a_module_that_fails_to_load() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    block_files(&browser, &["*panels/blockers.js*"]).await;
    browser.click("Blockers").await;
    browser
        .wait_until("document.querySelector('main .loading')")
        .await;
    block_files(&browser, &[]).await;
    browser.wait_for_text("Waiting issues, the reasons").await;

    // The page was loaded again a moment ago. It is not loaded again and again.
    block_files(&browser, &["*panels/reaper.js*"]).await;
    browser.click("Reaper").await;
    browser.wait_for_text("Could not load this page").await;
    browser.wait_for_text("could not be loaded").await;
    block_files(&browser, &[]).await;
    browser.click("Retry").await;
    browser.wait_for_text("Cleans up leftover machines").await;
    browser.quit().await;
    env.stop().await;
}

/// A module that another one imports is loaded again as well. The view is the same as before.
#[requires("browser")]
#[tokio::test]
async fn recovers_from_an_imported_module_that_fails_to_load() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    block_files(&browser, &["*parts/bulk.js*"]).await;
    browser
        .eval("const link = document.querySelector('nav.side a[href$=blockers]'); link.href += '?q=OPS'; link.click()")
        .await;
    browser
        .wait_until("document.querySelector('main .loading')")
        .await;
    block_files(&browser, &[]).await;
    browser.wait_for_text("Waiting issues, the reasons").await;
    assert_eq!(location(&browser).await, "/admin/blockers?q=OPS");
    browser.quit().await;
    env.stop().await;
}

/// After a drawer was closed, Back leads to the previous panel, and Forward opens the drawer again.
#[requires("browser")]
#[tokio::test]
async fn closing_a_drawer_leaves_no_history_entry() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    browser.switch_panel("blockers").await;
    browser.click_selector("tbody a.row-link").await;
    browser
        .wait_until("document.querySelector('dialog[open]') && location.search")
        .await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog') && !location.search")
        .await;
    browser.eval("history.back()").await;
    browser
        .wait_until("document.querySelector('h1').innerText === 'Settings'")
        .await;
    browser.eval("history.forward()").await;
    browser
        .wait_until("document.querySelector('h1').innerText === 'Blockers'")
        .await;
    browser.eval("history.forward()").await;
    browser
        .wait_until("document.querySelector('dialog[open]')")
        .await;
    browser.quit().await;
    env.stop().await;
}

/// Filter, chip and order are in the URL. They survive a reload and a drawer, and can be saved under a name.
#[requires("browser")]
#[tokio::test]
async fn filters_are_in_the_url_and_can_be_saved() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "issues").await;
    browser.click("Issue").await;
    browser.press_keys("/").await;
    browser.press_keys("shop").await;
    browser
        .wait_until("location.search === '?sort=issue&q=shop'")
        .await;
    browser.click_selector(".chip").await;
    let filtered = "/admin/issues?sort=issue&q=shop&show=failed";
    assert_eq!(location(&browser).await, filtered);
    browser.click_selector(".chip:nth-child(2)").await;
    let url = "/admin/issues?sort=issue&q=shop&show=waiting";
    assert_eq!(location(&browser).await, url);
    let rows = "document.querySelectorAll('tbody tr').length";
    let shown = browser.eval(&format!("return {rows}")).await;
    browser.goto(&format!("{}{url}", env.address)).await;
    browser.wait_for_view().await;
    browser.wait_until(&format!("{rows} === {shown}")).await;
    assert_eq!(
        browser
            .eval("return document.querySelector('[data-filter]').value")
            .await,
        json!("shop")
    );

    browser.click_selector("tbody a.row-link").await;
    browser
        .wait_until("document.querySelector('dialog[open]')")
        .await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    browser
        .wait_until(&format!("location.pathname + location.search === '{url}'"))
        .await;

    browser.click("Saved views").await;
    browser.click("Save this view").await;
    browser.fill("Name", "Waiting in the shop").await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text_anywhere("Saved the view").await;
    browser.switch_panel("blockers").await;
    open_palette(&browser).await;
    browser.wait_for_text("Saved views").await;
    browser.press_keys("waiting in").await;
    browser
        .wait_until("document.querySelectorAll('[role=option]').length === 1")
        .await;
    browser.press_keys(ENTER).await;
    browser
        .wait_until(&format!("location.pathname + location.search === '{url}'"))
        .await;
    browser.click("Saved views").await;
    browser.click("Manage views").await;
    browser.click("Delete Waiting in the shop").await;
    browser.wait_for_text("No saved views.").await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// The command palette leads to issues, runs and projects, and pauses a project, by keyboard only.
#[requires("browser")]
#[tokio::test]
async fn the_command_palette_goes_and_acts() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    let option = "document.querySelector('[role=option][aria-selected=true]')?.innerText";
    open_palette(&browser).await;
    browser.press_keys("late shop-102").await;
    browser.wait_for_text("Nothing found.").await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;

    open_palette(&browser).await;
    browser.press_keys("delivery dates").await;
    browser
        .wait_until(&format!("{option}?.includes('SHOP-102')"))
        .await;
    browser.press_keys(ENTER).await;
    browser
        .wait_until(
            "location.search === '?issue=SHOP-102' && document.querySelector('dialog[open]')",
        )
        .await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;

    open_palette(&browser).await;
    browser.press_keys("pause project pay").await;
    browser
        .wait_until(&format!("{option}?.includes('Pause project PAY')"))
        .await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Paused PAY.").await;
    assert_eq!(env.admin_get("/api/mappings").await["PAY"]["paused"], true);

    browser.press_keys("?").await;
    browser.wait_for_text("Focus the filter").await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    open_palette(&browser).await;
    browser.press_keys("reaper").await;
    browser.press_keys(DOWN).await;
    browser.press_keys(ENTER).await;
    browser
        .wait_until("location.pathname === '/admin/reaper'")
        .await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// One sign-in serves all tabs, and so does one sign-out. No token is readable by scripts.
#[requires("browser")]
#[tokio::test]
async fn one_session_serves_all_tabs() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "issues").await;
    let first = browser.window().await;
    let second = browser.open_window().await;
    browser
        .goto(&format!("{}/admin/blockers", env.address))
        .await;
    browser.wait_for_view().await;
    browser.wait_for_text("Waiting issues").await;
    browser.switch_window(&first).await;
    browser.click("Sign out").await;
    browser.wait_for_text("You are signed out.").await;
    browser.switch_window(&second).await;
    browser.wait_for_text("You are signed out.").await;
    browser.fill("Access code", ACCESS_CODE).await;
    browser.press_keys(ENTER).await;
    browser.wait_for_view().await;
    assert_eq!(location(&browser).await, "/admin/blockers");
    browser.switch_window(&first).await;
    browser.wait_for_text("SHOP-102").await;
    assert_eq!(location(&browser).await, "/admin/issues");
    browser.quit().await;
    env.stop().await;
}

/// If the session ends while a form is open, the user signs in over it, and the change is saved.
#[requires("browser")]
#[tokio::test]
async fn a_form_survives_the_end_of_the_session() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects?edit=SHOP").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.fill("Max parallel issues", "6").await;
    env.advance_clock(Duration::from_secs(25 * 3600));
    browser.click("Save").await;
    browser.wait_for_text("Your session has ended").await;
    browser.fill("Access code", "wrong").await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Invalid access code").await;
    browser.fill("Access code", ACCESS_CODE).await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text_anywhere("Saved SHOP").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    let saved = env.admin_get("/api/mappings").await;
    assert_eq!(saved["SHOP"]["maxInProgressAiIssues"], 6);
    browser.quit().await;
    env.stop().await;
}

/// Selected issues are released together, and the focus stays in the table.
#[requires("browser")]
#[tokio::test]
async fn releases_selected_issues_and_keeps_the_focus() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "blockers").await;
    browser
        .click_selector("[aria-label='Select OPS-107']")
        .await;
    browser
        .click_selector("[aria-label='Select OPS-103']")
        .await;
    browser.wait_for_text("2 selected").await;
    browser.click("Unpark 1").await;
    browser.wait_for_text("Unparked OPS-107.").await;
    assert!(env.store.read(dispatch_breaker::all).unwrap().is_empty());
    browser.wait_until("!document.querySelector('.bulk')").await;
    browser
        .wait_until("document.querySelector('main').contains(document.activeElement)")
        .await;
    browser
        .click("Clear the dedup entries of 1 issue of OPS")
        .await;
    browser.wait_for_text("can be dispatched again").await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until(
            "document.activeElement.ariaLabel === 'Clear the dedup entries of 1 issue of OPS'",
        )
        .await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// The menu of a narrow screen closes by Escape, which returns the focus, and by a press outside of it.
#[requires("browser")]
#[tokio::test]
async fn the_menu_closes_by_escape_and_outside() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    browser.resize(360).await;
    let is_open = "document.querySelector('.menu-toggle').ariaExpanded === 'true'";
    browser.click("Panels").await;
    browser.wait_until(is_open).await;
    browser.press_keys(ESCAPE).await;
    browser.wait_until(&format!("!({is_open})")).await;
    assert_eq!(
        browser
            .eval("return document.activeElement.ariaLabel")
            .await,
        json!("Panels")
    );
    browser.click("Panels").await;
    browser.wait_until(is_open).await;
    browser.click_selector(".live").await;
    browser.wait_until(&format!("!({is_open})")).await;
    browser.quit().await;
    env.stop().await;
}

/// A browser has six connections to a service. Pages that were left keep none, and Back connects them again.
#[requires("browser")]
#[tokio::test]
async fn pages_that_were_left_hold_no_connection() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    let started = Instant::now();
    let is_live = "document.querySelector('.live.ok')";
    for team in 0..8 {
        let view = format!("pipelines?q=T{team}");
        browser.open_view(&env.address, &view).await;
        browser.wait_until(is_live).await;
    }
    assert!(started.elapsed() < Duration::from_secs(40));
    browser.eval("history.back()").await;
    browser.wait_until("location.search === '?q=T6'").await;
    browser.wait_until(is_live).await;
    browser.quit().await;
    env.stop().await;
}

/// A browser has six connections to a service, for all tabs. A tab that nobody sees keeps none, and is live when it is seen.
#[requires("browser")]
#[tokio::test]
async fn tabs_that_nobody_sees_hold_no_connection() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    let is_live = "document.querySelector('.live.ok')";
    let first = browser.window().await;
    for team in 0..8 {
        if team > 0 {
            browser.open_window().await;
        }
        let view = format!("pipelines?q=T{team}");
        browser.open_view(&env.address, &view).await;
        browser.wait_until(is_live).await;
    }
    browser.switch_window(&first).await;
    browser.wait_until(is_live).await;
    browser.quit().await;
    env.stop().await;
}

/// A new version of the service is announced, and failed runs stand in the title and the icon.
#[requires("browser")]
#[tokio::test]
async fn announces_a_new_version_and_failed_runs() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    let failed = env.admin_get("/api/summary?window=24h").await["ended"].clone();
    let sum = |names: &[&str]| {
        names
            .iter()
            .map(|name| failed[name].as_u64().unwrap())
            .sum::<u64>()
    };
    let failed = sum(&["failed", "timed_out", "review_failed"]);
    assert!(failed > 0);
    browser.open_view(&env.address, "settings").await;
    browser
        .wait_until(&format!(
            "document.title === '({failed}) Settings · Agent Implement'"
        ))
        .await;
    browser
        .wait_until("document.querySelector('link[rel=icon]').href.endsWith('icon-failed.svg')")
        .await;
    let next = r#"
        const send = window.fetch;
        window.fetch = (path, how) => path === "/"
            ? Promise.resolve(new Response(JSON.stringify({ status: "ok", polls: 1, lastPollAt: null, version: "99.0.0" })))
            : send(path, how);
    "#;
    browser.eval(next).await;
    env.app
        .live
        .heartbeats
        .record_poll(engine::app::PollOutcome::nothing_to_do(env.app.core.now()));
    browser
        .wait_for_text("The service has been updated to version 99.0.0.")
        .await;
    browser.click("Reload").await;
    browser
        .wait_until(
            "!document.body.innerText.includes('99.0.0') && document.querySelector('main h1')",
        )
        .await;
    browser.quit().await;
    env.stop().await;
}
