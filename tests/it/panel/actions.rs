//! Actions in the panel and their effects.

use std::time::Duration;

use store::{dedup, dispatch_breaker, mappings, outbox};

use requires::requires;
use reqwest::Method;
use serde_json::json;

use super::browser::Browser;
use super::fixtures::{OTHER_MACHINE_ID, empty_env, populated_env, populated_env_with};
use super::untrusted_text::UntrustedText;
use super::{OutboxDrain, console_errors};
use crate::api_server::ACCESS_CODE;
use crate::test_env::TestEnv;

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const TAB: &str = "\u{E004}";
const DOWN: &str = "\u{E015}";

pub(super) async fn focused(browser: &Browser) -> String {
    let script =
        "const el = document.activeElement; return el.getAttribute('aria-label') ?? el.innerText";
    let name = browser.eval(script).await;
    name.as_str().unwrap_or_default().to_owned()
}

fn is_paused(env: &TestEnv, team: &str) -> bool {
    let mapping = env.store.read(|tx| mappings::get(tx, &team.into()));
    mapping.unwrap().unwrap().paused
}

#[requires("browser")]
#[tokio::test]
async fn sign_in_returns_to_the_requested_view() {
    let texts = UntrustedText::plain();
    let env = populated_env(&texts).await;
    let browser = Browser::start().await;
    browser
        .goto(&format!("{}/admin/pipelines?job=01M7A", env.address))
        .await;
    browser.wait_for_text("Sign in with the access code").await;
    assert_eq!(
        browser.eval("return document.activeElement.id").await,
        json!("code")
    );
    browser.press_keys("wrong").await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Invalid access code").await;
    assert_eq!(
        browser
            .eval("return document.activeElement.getAttribute('aria-describedby')")
            .await,
        json!("code-error")
    );
    browser.press_keys(ACCESS_CODE).await;
    browser.press_keys(ENTER).await;
    browser
        .wait_for_text("Let customers reorder a past purchase")
        .await;
    browser.wait_for_text("feedback-loop").await;
    let storage = "return [Object.keys(localStorage).join(), document.cookie, Object.keys(sessionStorage).join()]";
    assert_eq!(
        browser.eval(storage).await,
        json!(["agent-implement.session", "", ""])
    );
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog') && location.search === ''")
        .await;

    browser.goto(&format!("{}/admin/issues", env.address)).await;
    browser.wait_for_text("SHOP-102").await;
    // After a day the session has expired, and the next request of a view reports it.
    env.advance_clock(Duration::from_secs(25 * 3600));
    browser.click_panel_link("blockers").await;
    browser.wait_for_text("Your session has ended").await;
    browser.fill("Access code", ACCESS_CODE).await;
    browser.click("Sign in").await;
    browser.wait_for_view().await;
    assert_eq!(
        browser.eval("return location.pathname").await,
        json!("/admin/blockers")
    );
    browser.click("Sign out").await;
    browser.wait_for_text("You are signed out").await;
    assert_eq!(browser.eval("return localStorage.length").await, json!(0));
    browser.quit().await;
    env.stop().await;
}

impl Browser {
    /// Clicks a panel's link without waiting for the panel, because the session has expired.
    async fn click_panel_link(&self, panel: &str) {
        let script = "document.querySelector(`nav.side a[href='/admin/${arguments[0]}']`).click()";
        self.eval_with(script, json!([panel])).await;
    }
}

#[requires("browser")]
#[tokio::test]
async fn edits_pauses_and_deletes_a_project() {
    let texts = UntrustedText::plain();
    let env = populated_env(&texts).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects").await;
    browser.click("Pause SHOP").await;
    browser.wait_for_text("Paused SHOP").await;
    assert!(is_paused(&env, "SHOP"));
    browser.click("Resume SHOP").await;
    browser
        .wait_until("document.querySelector(\"[aria-label='Pause SHOP']\")")
        .await;
    assert!(!is_paused(&env, "SHOP"));

    browser.click("More for SHOP").await;
    browser.click("Edit").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.fill("Max parallel issues", "0").await;
    browser.click("Save").await;
    browser
        .wait_for_text("Max parallel issues must be at least 1")
        .await;
    browser.fill("Max parallel issues", "7").await;
    browser.fill("Model turns", "").await;
    browser.fill("Iterations", "4").await;
    browser.fill("Job timeout (minutes)", "45").await;
    browser.fill("Monthly budget (USD)", "50.5").await;
    // Another operator changes a different field meanwhile.
    let change = env.store.write(|tx| {
        let mut mapping = mappings::get(tx, &"SHOP".into())?.unwrap();
        mapping.branch_prefix = Some("bots".to_owned());
        mappings::put(tx, &mapping)
    });
    change.await.unwrap();
    browser.click("Save").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    let saved = env.store.read(|tx| mappings::get(tx, &"SHOP".into()));
    let saved = saved.unwrap().unwrap();
    assert_eq!(
        (
            saved.max_in_progress,
            saved.max_turns,
            saved.max_iterations,
            saved.max_job_minutes
        ),
        (7, None, Some(4), Some(45))
    );
    assert_eq!(saved.branch_prefix.as_deref(), Some("bots"));
    browser.wait_for_text("3 of 7").await;
    browser.wait_for_text("$0.00 of $50.50").await;
    let mappings_json = env.admin_get("/api/mappings").await;
    assert_eq!(mappings_json["SHOP"]["budgetUsd"], json!(50.5));
    assert_eq!(mappings_json["SHOP"]["resumeAfterLimit"], json!(true));

    browser.click("More for SHOP").await;
    browser.click("Secrets").await;
    browser.wait_for_text("STRIPE_KEY").await;
    browser.fill("Name", "new_one").await;
    browser.fill("Value", "hush").await;
    browser.click("Set secret").await;
    browser.wait_for_text_anywhere("Saved NEW_ONE.").await;
    browser.wait_for_text("NEW_ONE").await;
    browser.click("Delete STRIPE_KEY").await;
    browser.wait_for_text("The value cannot be restored.").await;
    browser.click("Delete STRIPE_KEY").await;
    browser.wait_for_text_anywhere("Deleted STRIPE_KEY.").await;
    let secrets = env.admin_get("/api/mappings/SHOP/secrets").await;
    assert_eq!(secrets.as_array().unwrap().len(), 1, "{secrets}");
    assert_eq!(secrets[0]["name"], "NEW_ONE");
    browser.click("Close").await;

    let outbox_drain = OutboxDrain::start(&env);
    browser.click("More for SHOP").await;
    browser.click("Sync workflows").await;
    browser
        .wait_for_text("A pull request with the workflows is open.")
        .await;
    drop(outbox_drain);
    assert_eq!(env.repo().pulls().len(), 1);
    browser.click("Done").await;

    browser.click("More for SHOP").await;
    browser.click("Delete").await;
    browser
        .wait_for_text("Active runs continue. Stored secrets are deleted.")
        .await;
    browser.click("Cancel").await;
    assert!(
        env.store
            .read(|tx| mappings::get(tx, &"SHOP".into()))
            .unwrap()
            .is_some()
    );
    browser.click("More for SHOP").await;
    browser.click("Delete").await;
    browser.click("Delete project").await;
    browser.wait_for_text_anywhere("Deleted SHOP.").await;
    assert!(
        env.store
            .read(|tx| mappings::get(tx, &"SHOP".into()))
            .unwrap()
            .is_none()
    );
    // The browser logs the change that was based on a stale version.
    let errors = console_errors(browser.take_console_log().await);
    assert!(
        errors
            .iter()
            .all(|line| line.contains("412 (Precondition Failed)")),
        "{errors:#?}"
    );
    browser.quit().await;
    env.stop().await;
}

#[requires("browser")]
#[tokio::test]
async fn releases_waiting_issues_and_destroys_sessions() {
    let texts = UntrustedText::plain();
    let env = populated_env(&texts).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "blockers").await;
    browser.click("Unpark OPS-107").await;
    browser.wait_for_text("Unparked OPS-107.").await;
    assert!(env.store.read(dispatch_breaker::all).unwrap().is_empty());
    browser.click("Resume OPS").await;
    browser.wait_for_text("Resumed OPS.").await;
    browser.click("Clear dedup entry of OPS-103").await;
    browser.wait_for_text("can be dispatched again").await;
    browser.click_selector("dialog .button.danger").await;
    browser
        .wait_for_text_anywhere("Cleared the dedup entry of OPS-103.")
        .await;
    assert!(env.store.read(dedup::all).unwrap().is_empty());

    browser.switch_panel("overview").await;
    browser.wait_for_text("the chat answered 410 Gone").await;
    drop_outbox_entry(&env, &browser).await;
    let outbox_drain = OutboxDrain::start(&env);
    browser.click_selector("[aria-label^=Retry]").await;
    browser.wait_for_text("Retrying now.").await;
    env.wait_until("the message is sent", || {
        !env.vendors.chat().messages().is_empty()
    })
    .await;
    browser.click("Poll now").await;
    browser
        .wait_for_text("Started a poll of the ticketing systems.")
        .await;

    browser.switch_panel("runners").await;
    browser.click_selector("[data-mode=vm]").await;
    browser
        .wait_for_text("Applies to all runs that start from now on.")
        .await;
    browser.click("Switch").await;
    browser
        .wait_for_text_anywhere("Saved the runner mode.")
        .await;
    // The provider of one project is not supported in machines.
    browser
        .wait_for_text("Amazon Bedrock works only on GitHub Actions")
        .await;
    assert_eq!(env.admin_get("/api/runner-mode").await["mode"], "vm");

    browser.switch_panel("sessions").await;
    browser.click("Destroy agent-01m7zf5d").await;
    browser.wait_for_text("Unpushed changes are lost").await;
    browser.click("Destroy agent-01m7zf5d").await;
    browser
        .wait_for_text_anywhere("Destroyed agent-01m7zf5d.")
        .await;
    let machines = env.vendors.fly().host().snapshots();
    assert!(machines.iter().all(|one| one.id != OTHER_MACHINE_ID));
    drop(outbox_drain);

    browser.switch_panel("settings").await;
    browser
        .wait_for_text(
            "In force: iad, set by VM_SESSIONS_REGION in the environment of the service.",
        )
        .await;
    browser.fill("App", "new-app").await;
    browser.click("Save settings").await;
    browser.wait_for_text("Saved the settings.").await;
    browser.wait_for_text("take effect after a restart").await;
    let stored = env.admin_get("/api/settings").await;
    assert_eq!(stored["vmSessionsApp"]["storedValue"], "new-app");
    assert_eq!(stored["vmSessionsRegion"]["storedValue"], "fra");
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// Drops a dead outbox entry after a confirmation.
async fn drop_outbox_entry(env: &TestEnv, browser: &Browser) {
    let dead_entries = || env.store.read(outbox::dead).unwrap();
    assert_eq!(dead_entries().len(), 2);
    browser.click_selector("[aria-label^=Drop]").await;
    browser.wait_for_text("will not be sent").await;
    browser.click_selector("dialog .button.danger").await;
    browser.wait_for_text_anywhere("Dropped the update.").await;
    assert_eq!(dead_entries().len(), 1);
    browser
        .wait_until("document.querySelectorAll('[aria-label^=Drop]').length === 1")
        .await;
}

/// The panel shows that the environment sets the runner mode, and that a choice has no effect until it
/// is unset.
#[requires("browser")]
#[tokio::test]
async fn shows_that_the_environment_overrides_the_runner_mode() {
    let texts = UntrustedText::plain();
    let env = populated_env_with(&texts, &[("--runner-mode", "ci")]).await;
    let browser = Browser::start().await;
    let refusal = "RUNNER_MODE env var is set; persisted to DB but has no effect at runtime until the env var is unset";
    let vm = Some(json!({"mode": "vm"}));
    assert_eq!(
        env.admin_request(Method::POST, "/api/runner-mode", vm)
            .await
            .0,
        409
    );
    browser.open_view(&env.address, "runners").await;
    browser
        .wait_for_text("RUNNER_MODE is set in the environment.")
        .await;
    // The mode in force is marked, not the stored one.
    let marked =
        "return [...document.querySelectorAll('[aria-pressed=true]')].map((el) => el.dataset.mode)";
    assert_eq!(browser.eval(marked).await, json!(["ci"]));
    let stored = "return document.querySelector('[data-mode=vm]').innerText";
    let stored = browser.eval(stored).await;
    assert!(stored.as_str().unwrap().contains("Stored, not in force"));
    browser.click_selector("[data-mode=shadow]").await;
    browser.click("Switch").await;
    browser.wait_for_text_anywhere(refusal).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    assert_eq!(env.admin_get("/api/runner-mode").await["stored"], "shadow");
    browser.quit().await;
    env.stop().await;
}

/// Nothing is announced for a restart that would change nothing, and the origin of each value is named.
#[requires("browser")]
#[tokio::test]
async fn names_the_origin_of_each_setting() {
    let env = empty_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    browser.wait_for_text("In force: iad, the default.").await;
    assert!(!browser.text().await.contains("restart"));
    browser.fill("Region", "-").await;
    browser.click("Save settings").await;
    browser
        .wait_for_text("Region must be letters, digits and '-'")
        .await;
    let field = "return document.activeElement.name";
    assert_eq!(browser.eval(field).await, json!("vmSessionsRegion"));
    browser.fill("Region", "fra").await;
    browser.click("Save settings").await;
    browser
        .wait_for_text("In force until the restart: iad.")
        .await;
    browser.quit().await;
    env.stop().await;
}

/// The region of the environment is in force, whatever is stored. A restart would not change that.
#[requires("browser")]
#[tokio::test]
async fn names_the_region_that_the_environment_sets() {
    // Its environment sets `iad`, and `fra` is stored.
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    browser
        .wait_for_text("In force: iad, set by VM_SESSIONS_REGION in the environment")
        .await;
    let text = browser.text().await;
    assert!(
        !text.contains("In force: fra") && !text.contains("restart"),
        "{text}"
    );
    browser.quit().await;
    env.stop().await;
}

/// After a secret was set by keyboard, the focus is in the form, ready for the next one.
#[requires("browser")]
#[tokio::test]
async fn keeps_the_focus_after_setting_a_secret() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser
        .open_view(&env.address, "projects?secrets=PAY")
        .await;
    let field = "return document.activeElement.name";
    for name in ["FIRST", "SECOND"] {
        browser.fill("Name", name).await;
        browser.fill("Value", "hush").await;
        browser.press_keys(ENTER).await;
        browser
            .wait_until(&format!(
                "[...document.querySelectorAll('dialog li code')].some((el) => el.innerText === '{name}')"
            ))
            .await;
        assert_eq!(browser.eval(field).await, json!("name"), "{name}");
    }
    browser.quit().await;
    env.stop().await;
}

/// Keyboard only: skip link, filter, table rows, menu, dialog, and focus after closing it.
#[requires("browser")]
#[tokio::test]
async fn panel_is_usable_by_keyboard() {
    let texts = UntrustedText::plain();
    let env = populated_env(&texts).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects").await;
    browser.eval("document.activeElement.blur()").await;
    browser.press_keys(TAB).await;
    assert_eq!(focused(&browser).await, "Skip to the content");
    browser.press_keys(ENTER).await;
    assert_eq!(
        browser.eval("return document.activeElement.tagName").await,
        json!("H1")
    );
    browser.press_keys(&[TAB, TAB].concat()).await;
    assert_eq!(
        browser.eval("return document.activeElement.type").await,
        json!("search")
    );
    browser.press_keys("pay").await;
    browser
        .wait_until("document.querySelectorAll('tbody tr').length === 1")
        .await;
    browser
        .eval("const box = document.activeElement; box.select()")
        .await;
    browser.press_keys("\u{E017}").await;
    browser
        .wait_until("document.querySelectorAll('tbody tr').length === 3")
        .await;
    browser
        .eval("document.querySelector('tbody a').focus()")
        .await;
    browser.press_keys(DOWN).await;
    let row = "return document.activeElement.closest('tr').innerText";
    assert!(browser.eval(row).await.as_str().unwrap().starts_with("PAY"));
    browser.press_keys(&[TAB, TAB].concat()).await;
    assert_eq!(focused(&browser).await, "More for PAY");
    browser.press_keys(ENTER).await;
    assert_eq!(focused(&browser).await, "Edit");
    browser.press_keys(&[DOWN, DOWN, DOWN].concat()).await;
    assert_eq!(focused(&browser).await, "Delete");
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Delete the project PAY?").await;
    // The initial focus is never on a destructive button.
    assert_eq!(focused(&browser).await, "Cancel");
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    assert_eq!(focused(&browser).await, "More for PAY");
    // The row leads to the page of the project. A dialog opened by its URL returns the focus to the page as well.
    browser
        .eval("document.querySelector('tbody a').focus()")
        .await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Latest runs").await;
    assert_eq!(
        browser.eval("return document.activeElement.tagName").await,
        json!("H1")
    );
    browser
        .eval("document.querySelector('main a[href^=\"?edit=\"]').focus()")
        .await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Capacity").await;
    assert_eq!(
        browser.eval("return document.activeElement.name").await,
        json!("maxInProgressAiIssues")
    );
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog') && location.search === ''")
        .await;
    assert_eq!(focused(&browser).await, "Edit");
    browser.quit().await;
    env.stop().await;
}
