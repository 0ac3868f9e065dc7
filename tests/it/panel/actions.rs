//! What people do in the panel, and what comes of it.

use std::time::Duration;

use store::{dedup, dispatch_breaker, mappings, outbox};

use reqwest::Method;
use serde_json::json;

use super::browser::Browser;
use super::fixtures::{OTHER_MACHINE_ID, populated_env, populated_env_with};
use super::untrusted_text::UntrustedText;
use super::{OutboxDrain, console_errors};
use crate::api_server::ACCESS_CODE;
use crate::test_env::TestEnv;

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const TAB: &str = "\u{E004}";
const DOWN: &str = "\u{E015}";

async fn focused(browser: &Browser) -> String {
    let script =
        "const el = document.activeElement; return el.getAttribute('aria-label') ?? el.innerText";
    let name = browser.eval(script).await;
    name.as_str().unwrap_or_default().to_owned()
}

fn is_paused(world: &TestEnv, team: &str) -> bool {
    let mapping = world.app.store.read(|tx| mappings::get(tx, &team.into()));
    mapping.unwrap().unwrap().paused
}

#[tokio::test]
async fn who_signs_in_comes_back_to_where_they_were() {
    let words = UntrustedText::plain();
    let world = populated_env(&words).await;
    let Some(browser) = Browser::start("panel::acts::sign_in").await else {
        return world.stop().await;
    };
    browser
        .goto(&format!("{}/admin/pipelines?job=01M7A", world.address))
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
    let kept = "return [Object.keys(localStorage).join(), document.cookie, Object.keys(sessionStorage).join()]";
    assert_eq!(
        browser.eval(kept).await,
        json!(["", "", "agent-implement.token"])
    );
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog') && location.search === ''")
        .await;

    browser
        .goto(&format!("{}/admin/issues", world.address))
        .await;
    browser.wait_for_text("SHOP-102").await;
    // A day passes: the session ends, and a view that asks hears of it.
    world.advance_clock(Duration::from_secs(25 * 3600));
    browser.turn_to_expired("blockers").await;
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
    assert_eq!(browser.eval("return sessionStorage.length").await, json!(0));
    browser.quit().await;
    world.stop().await;
}

impl Browser {
    /// Goes to a panel that will not be shown.
    async fn turn_to_expired(&self, panel: &str) {
        let script = "document.querySelector(`nav.side a[href='/admin/${arguments[0]}']`).click()";
        self.eval_with(script, json!([panel])).await;
    }
}

#[tokio::test]
async fn a_project_is_edited_paused_and_deleted() {
    let words = UntrustedText::plain();
    let world = populated_env(&words).await;
    let Some(browser) = Browser::start("panel::acts::projects").await else {
        return world.stop().await;
    };
    browser.open_view(&world.address, "projects").await;
    browser.click("Pause SHOP").await;
    browser.wait_for_text("SHOP is paused").await;
    assert!(is_paused(&world, "SHOP"));
    browser.click("Resume SHOP").await;
    browser
        .wait_until("document.querySelector(\"[aria-label='Pause SHOP']\")")
        .await;
    assert!(!is_paused(&world, "SHOP"));

    browser.click("More for SHOP").await;
    browser.click("Edit").await;
    browser.wait_for_text("Capacity and run caps").await;
    browser.fill("Issues at once", "0").await;
    browser.click("Save").await;
    browser
        .wait_for_text("maxInProgressAiIssues must be a positive integer")
        .await;
    browser.fill("Issues at once", "7").await;
    browser.fill("Model turns", "").await;
    browser.fill("Iterations", "4").await;
    browser.fill("Job time-out in minutes", "45").await;
    browser.fill("Budget a month in $", "50.5").await;
    // Somebody else changes another field meanwhile.
    let meanwhile = world.app.store.write(|tx| {
        let mut mapping = mappings::get(tx, &"SHOP".into())?.unwrap();
        mapping.branch_prefix = Some("bots".to_owned());
        mappings::put(tx, &mapping)
    });
    meanwhile.await.unwrap();
    browser.click("Save").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    let saved = world.app.store.read(|tx| mappings::get(tx, &"SHOP".into()));
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
    browser.wait_for_text("2 of 7").await;
    browser.wait_for_text("$0.00 of $50.50").await;
    let told = world.admin_get("/api/mappings").await;
    assert_eq!(told["SHOP"]["budgetUsd"], json!(50.5));
    assert_eq!(told["SHOP"]["resumeAfterLimit"], json!(true));

    browser.click("More for SHOP").await;
    browser.click("Secrets").await;
    browser.wait_for_text("STRIPE_KEY").await;
    browser.fill("Name", "new_one").await;
    browser.fill("Value", "hush").await;
    browser.click("Set secret").await;
    browser.wait_for_text_anywhere("NEW_ONE is stored.").await;
    browser.wait_for_text("NEW_ONE").await;
    browser.click("Delete STRIPE_KEY").await;
    browser
        .wait_for_text("It cannot be shown or brought back.")
        .await;
    browser.click("Delete STRIPE_KEY").await;
    browser
        .wait_for_text_anywhere("STRIPE_KEY is deleted.")
        .await;
    let kept = world.admin_get("/api/mappings/SHOP/secrets").await;
    assert_eq!(kept.as_array().unwrap().len(), 1, "{kept}");
    assert_eq!(kept[0]["name"], "NEW_ONE");
    browser.click("Close").await;

    let deliveries = OutboxDrain::start(&world);
    browser.click("More for SHOP").await;
    browser.click("Sync workflows").await;
    browser
        .wait_for_text("A pull request with the workflows is open.")
        .await;
    drop(deliveries);
    assert_eq!(world.repo().pulls().len(), 1);
    browser.click("Done").await;

    browser.click("More for SHOP").await;
    browser.click("Delete").await;
    browser
        .wait_for_text(
            "Its running jobs are followed to their end. Its stored secrets are deleted.",
        )
        .await;
    browser.click("Cancel").await;
    assert!(
        world
            .app
            .store
            .read(|tx| mappings::get(tx, &"SHOP".into()))
            .unwrap()
            .is_some()
    );
    browser.click("More for SHOP").await;
    browser.click("Delete").await;
    browser.click("Delete project").await;
    browser.wait_for_text_anywhere("SHOP is deleted.").await;
    assert!(
        world
            .app
            .store
            .read(|tx| mappings::get(tx, &"SHOP".into()))
            .unwrap()
            .is_none()
    );
    // The one refusal of the service that was looked for above is said on the console by the browser.
    let said = console_errors(browser.take_console_log().await);
    assert!(
        said.iter().all(|line| line.contains("400 (Bad Request)")),
        "{said:#?}"
    );
    browser.quit().await;
    world.stop().await;
}

#[tokio::test]
async fn what_waits_is_released_and_what_runs_is_destroyed() {
    let words = UntrustedText::plain();
    let world = populated_env(&words).await;
    let Some(browser) = Browser::start("panel::acts::release").await else {
        return world.stop().await;
    };
    browser.open_view(&world.address, "blockers").await;
    browser.click("Unpark OPS-107").await;
    browser.wait_for_text("OPS-107 is released.").await;
    assert!(
        world
            .app
            .store
            .read(dispatch_breaker::all)
            .unwrap()
            .is_empty()
    );
    browser.click("Resume SHOP").await;
    browser.wait_for_text("SHOP dispatches again.").await;
    browser.click("Clear the entry of OPS-103").await;
    browser.wait_for_text("may be dispatched again").await;
    browser.click("Clear the entry of OPS-103").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    assert!(world.app.store.read(dedup::all).unwrap().is_empty());

    browser.switch_panel("overview").await;
    browser.wait_for_text("the chat answered 410 Gone").await;
    drop_a_delivery(&world, &browser).await;
    let deliveries = OutboxDrain::start(&world);
    browser.click_selector("[aria-label^=Retry]").await;
    browser.wait_for_text("It is tried again now.").await;
    world
        .wait_until("it is delivered", || {
            !world.vendors.chat().messages().is_empty()
        })
        .await;
    browser.click("Poll now").await;
    browser
        .wait_for_text("The ticketing systems are asked now.")
        .await;

    browser.switch_panel("runners").await;
    browser.click_selector("[data-mode=vm]").await;
    browser
        .wait_for_text("All runs that start from now on follow it.")
        .await;
    browser.click("Switch").await;
    browser
        .wait_for_text_anywhere("The runner mode is saved.")
        .await;
    // Its provider has no way into a machine.
    browser
        .wait_for_text("provider 'bedrock' is not supported")
        .await;
    assert_eq!(world.admin_get("/api/runner-mode").await["mode"], "vm");

    browser.switch_panel("sessions").await;
    browser.click("Destroy agent-01m7zf5d").await;
    browser.wait_for_text("unpushed work is lost").await;
    browser.click("Destroy agent-01m7zf5d").await;
    browser.wait_for_text_anywhere("is destroyed.").await;
    let there = world.vendors.fly().machines();
    assert!(there.iter().all(|one| one.id != OTHER_MACHINE_ID));
    drop(deliveries);

    browser.switch_panel("settings").await;
    browser
        .wait_for_text("In force: iad, from the environment.")
        .await;
    browser.fill("App", "new-app").await;
    browser.click("Save settings").await;
    browser.wait_for_text("The settings are saved.").await;
    browser.wait_for_text("takes effect after a restart").await;
    let stored = world.admin_get("/api/settings").await;
    assert_eq!(stored["vmSessionsApp"]["storedValue"], "new-app");
    assert_eq!(stored["vmSessionsRegion"]["storedValue"], "fra");
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    world.stop().await;
}

/// What nobody wants delivered any more is dropped, after one question.
async fn drop_a_delivery(world: &TestEnv, browser: &Browser) {
    let given_up = || world.app.store.read(outbox::dead).unwrap();
    assert_eq!(given_up().len(), 2);
    browser.click_selector("[aria-label^=Drop]").await;
    browser.wait_for_text("is never delivered").await;
    browser.click_selector("dialog .button.danger").await;
    browser.wait_for_text_anywhere("It is dropped.").await;
    assert_eq!(given_up().len(), 1);
    browser
        .wait_until("document.querySelectorAll('[aria-label^=Drop]').length === 1")
        .await;
}

/// The environment's runner mode is shown, and that a choice has no effect until it is unset.
#[tokio::test]
async fn the_environment_overrides_the_runner_mode_and_that_is_said() {
    let words = UntrustedText::plain();
    let world = populated_env_with(&words, &[("--runner-mode", "ci")]).await;
    let Some(browser) = Browser::start("panel::acts::override").await else {
        return world.stop().await;
    };
    let refusal = "RUNNER_MODE env var is set; persisted to DB but has no effect at runtime until the env var is unset";
    let vm = Some(json!({"mode": "vm"}));
    assert_eq!(
        world
            .admin_request(Method::POST, "/api/runner-mode", vm)
            .await
            .0,
        409
    );
    browser.open_view(&world.address, "runners").await;
    browser
        .wait_for_text("RUNNER_MODE is set in the environment.")
        .await;
    assert_eq!(
        browser
            .eval("return document.querySelector('[aria-pressed=true]').dataset.mode")
            .await,
        json!("vm")
    );
    browser.click_selector("[data-mode=shadow]").await;
    browser.click("Switch").await;
    browser.wait_for_text_anywhere(refusal).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    assert_eq!(
        world.admin_get("/api/runner-mode").await["stored"],
        "shadow"
    );
    browser.quit().await;
    world.stop().await;
}

/// With the keyboard alone: skip to the content, filter, walk the rows, open, act, close, and be back.
#[tokio::test]
async fn everything_works_by_keyboard() {
    let words = UntrustedText::plain();
    let world = populated_env(&words).await;
    let Some(browser) = Browser::start("panel::acts::keyboard").await else {
        return world.stop().await;
    };
    browser.open_view(&world.address, "projects").await;
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
    // What destroys is never where the focus falls first.
    assert_eq!(focused(&browser).await, "Cancel");
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    assert_eq!(focused(&browser).await, "More for PAY");
    // The window that an address opens gives the focus back to the page as well.
    browser
        .eval("document.querySelector('tbody a').focus()")
        .await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Capacity and run caps").await;
    assert_eq!(
        browser.eval("return document.activeElement.name").await,
        json!("maxInProgressAiIssues")
    );
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog') && location.search === ''")
        .await;
    browser.quit().await;
    world.stop().await;
}
