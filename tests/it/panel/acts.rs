//! What people do in the panel, and what comes of it.

use std::time::Duration;

use store::{dedup, mappings, outbox, parked};

use reqwest::Method;
use serde_json::json;

use super::browser::Browser;
use super::furnish::{MACHINE, furnished, furnished_with};
use super::words::Words;
use super::{Deliveries, complaints};
use crate::api::ACCESS_CODE;
use crate::world::World;

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const TAB: &str = "\u{E004}";
const DOWN: &str = "\u{E015}";

async fn focused(browser: &Browser) -> String {
    let script =
        "const el = document.activeElement; return el.getAttribute('aria-label') ?? el.innerText";
    let name = browser.js(script).await;
    name.as_str().unwrap_or_default().to_owned()
}

fn is_paused(world: &World, team: &str) -> bool {
    let mapping = world.app.store.read(|tx| mappings::get(tx, &team.into()));
    mapping.unwrap().unwrap().paused
}

#[tokio::test]
async fn who_signs_in_comes_back_to_where_they_were() {
    let words = Words::plain();
    let world = furnished(&words).await;
    let Some(browser) = Browser::start("panel::acts::sign_in").await else {
        return world.stop().await;
    };
    browser
        .go(&format!("{}/admin/pipelines?job=01M7A", world.address))
        .await;
    browser.sees("Sign in with the access code").await;
    assert_eq!(
        browser.js("return document.activeElement.id").await,
        json!("code")
    );
    browser.keys("wrong").await;
    browser.keys(ENTER).await;
    browser.sees("Invalid access code").await;
    assert_eq!(
        browser
            .js("return document.activeElement.getAttribute('aria-describedby')")
            .await,
        json!("code-error")
    );
    browser.keys(ACCESS_CODE).await;
    browser.keys(ENTER).await;
    browser.sees("Let customers reorder a past purchase").await;
    browser.sees("feedback-loop").await;
    let kept = "return [Object.keys(localStorage).join(), document.cookie, Object.keys(sessionStorage).join()]";
    assert_eq!(
        browser.js(kept).await,
        json!(["", "", "agent-implement.token"])
    );
    browser.keys(ESCAPE).await;
    browser
        .until("!document.querySelector('dialog') && location.search === ''")
        .await;

    browser.go(&format!("{}/admin/issues", world.address)).await;
    browser.sees("SHOP-102").await;
    // A day passes: the session ends, and a view that asks hears of it.
    world.wait(Duration::from_secs(25 * 3600));
    browser.turn_to_expired("blockers").await;
    browser.sees("Your session has ended").await;
    browser.fill("Access code", ACCESS_CODE).await;
    browser.press("Sign in").await;
    browser.shown().await;
    assert_eq!(
        browser.js("return location.pathname").await,
        json!("/admin/blockers")
    );
    browser.press("Sign out").await;
    browser.sees("You are signed out").await;
    assert_eq!(browser.js("return sessionStorage.length").await, json!(0));
    browser.quit().await;
    world.stop().await;
}

impl Browser {
    /// Goes to a panel that will not be shown.
    async fn turn_to_expired(&self, panel: &str) {
        let script = "document.querySelector(`nav.side a[href='/admin/${arguments[0]}']`).click()";
        self.js_with(script, json!([panel])).await;
    }
}

#[tokio::test]
async fn a_project_is_edited_paused_and_deleted() {
    let words = Words::plain();
    let world = furnished(&words).await;
    let Some(browser) = Browser::start("panel::acts::projects").await else {
        return world.stop().await;
    };
    browser.enter(&world.address, "projects").await;
    browser.press("Pause SHOP").await;
    browser.sees("SHOP is paused").await;
    assert!(is_paused(&world, "SHOP"));
    browser.press("Resume SHOP").await;
    browser
        .until("document.querySelector(\"[aria-label='Pause SHOP']\")")
        .await;
    assert!(!is_paused(&world, "SHOP"));

    browser.press("More for SHOP").await;
    browser.press("Edit").await;
    browser.sees("Capacity and run caps").await;
    browser.fill("Issues at once", "0").await;
    browser.press("Save").await;
    browser
        .sees("maxInProgressAiIssues must be a positive integer")
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
    browser.press("Save").await;
    browser.until("!document.querySelector('dialog')").await;
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
    browser.sees("2 of 7").await;
    browser.sees("$0.00 of $50.50").await;
    let told = world.admin("/api/mappings").await;
    assert_eq!(told["SHOP"]["budgetUsd"], json!(50.5));
    assert_eq!(told["SHOP"]["resumeAfterLimit"], json!(true));

    browser.press("More for SHOP").await;
    browser.press("Secrets").await;
    browser.sees("STRIPE_KEY").await;
    browser.fill("Name", "new_one").await;
    browser.fill("Value", "hush").await;
    browser.press("Set secret").await;
    browser.sees_anywhere("NEW_ONE is stored.").await;
    browser.sees("NEW_ONE").await;
    browser.press("Delete STRIPE_KEY").await;
    browser.sees("It cannot be shown or brought back.").await;
    browser.press("Delete STRIPE_KEY").await;
    browser.sees_anywhere("STRIPE_KEY is deleted.").await;
    let kept = world.admin("/api/mappings/SHOP/secrets").await;
    assert_eq!(kept.as_array().unwrap().len(), 1, "{kept}");
    assert_eq!(kept[0]["name"], "NEW_ONE");
    browser.press("Close").await;

    let deliveries = Deliveries::of(&world);
    browser.press("More for SHOP").await;
    browser.press("Sync workflows").await;
    browser
        .sees("A pull request with the workflows is open.")
        .await;
    drop(deliveries);
    assert_eq!(world.repo().pulls().len(), 1);
    browser.press("Done").await;

    browser.press("More for SHOP").await;
    browser.press("Delete").await;
    browser
        .sees("Its running jobs are followed to their end. Its stored secrets are deleted.")
        .await;
    browser.press("Cancel").await;
    assert!(
        world
            .app
            .store
            .read(|tx| mappings::get(tx, &"SHOP".into()))
            .unwrap()
            .is_some()
    );
    browser.press("More for SHOP").await;
    browser.press("Delete").await;
    browser.press("Delete project").await;
    browser.sees_anywhere("SHOP is deleted.").await;
    assert!(
        world
            .app
            .store
            .read(|tx| mappings::get(tx, &"SHOP".into()))
            .unwrap()
            .is_none()
    );
    // The one refusal of the service that was looked for above is said on the console by the browser.
    let said = complaints(browser.console().await);
    assert!(
        said.iter().all(|line| line.contains("400 (Bad Request)")),
        "{said:#?}"
    );
    browser.quit().await;
    world.stop().await;
}

#[tokio::test]
async fn what_waits_is_released_and_what_runs_is_destroyed() {
    let words = Words::plain();
    let world = furnished(&words).await;
    let Some(browser) = Browser::start("panel::acts::release").await else {
        return world.stop().await;
    };
    browser.enter(&world.address, "blockers").await;
    browser.press("Unpark OPS-107").await;
    browser.sees("OPS-107 is released.").await;
    assert!(world.app.store.read(parked::all).unwrap().is_empty());
    browser.press("Resume SHOP").await;
    browser.sees("SHOP dispatches again.").await;
    browser.press("Clear the entry of OPS-103").await;
    browser.sees("may be dispatched again").await;
    browser.press("Clear the entry of OPS-103").await;
    browser.until("!document.querySelector('dialog')").await;
    assert!(world.app.store.read(dedup::all).unwrap().is_empty());

    browser.turn_to("overview").await;
    browser.sees("the chat answered 410 Gone").await;
    drop_a_delivery(&world, &browser).await;
    let deliveries = Deliveries::of(&world);
    browser.press_at("[aria-label^=Retry]").await;
    browser.sees("It is tried again now.").await;
    world
        .until("it is delivered", || {
            !world.town.chat().messages().is_empty()
        })
        .await;
    browser.press("Poll now").await;
    browser.sees("The ticketing systems are asked now.").await;

    browser.turn_to("runners").await;
    browser.press_at("[data-mode=vm]").await;
    browser
        .sees("All runs that start from now on follow it.")
        .await;
    browser.press("Switch").await;
    browser.sees_anywhere("The runner mode is saved.").await;
    // Its provider has no way into a machine.
    browser.sees("provider 'bedrock' is not supported").await;
    assert_eq!(world.admin("/api/runner-mode").await["mode"], "vm");

    browser.turn_to("sessions").await;
    browser.press("Destroy agent-01m7zf5d").await;
    browser.sees("unpushed work is lost").await;
    browser.press("Destroy agent-01m7zf5d").await;
    browser.sees_anywhere("is destroyed.").await;
    let there = world.town.machines().all();
    assert!(there.iter().all(|one| one.id != MACHINE));
    drop(deliveries);

    browser.turn_to("settings").await;
    browser.sees("In force: iad, from the environment.").await;
    browser.fill("App", "new-app").await;
    browser.press("Save settings").await;
    browser.sees("The settings are saved.").await;
    browser.sees("takes effect after a restart").await;
    let stored = world.admin("/api/settings").await;
    assert_eq!(stored["vmSessionsApp"]["storedValue"], "new-app");
    assert_eq!(stored["vmSessionsRegion"]["storedValue"], "fra");
    assert_eq!(complaints(browser.console().await), [""; 0]);
    browser.quit().await;
    world.stop().await;
}

/// What nobody wants delivered any more is dropped, after one question.
async fn drop_a_delivery(world: &World, browser: &Browser) {
    let given_up = || world.app.store.read(outbox::dead).unwrap();
    assert_eq!(given_up().len(), 2);
    browser.press_at("[aria-label^=Drop]").await;
    browser.sees("is never delivered").await;
    browser.press_at("dialog .button.danger").await;
    browser.sees_anywhere("It is dropped.").await;
    assert_eq!(given_up().len(), 1);
    browser
        .until("document.querySelectorAll('[aria-label^=Drop]').length === 1")
        .await;
}

/// The environment's runner mode is shown, and that a choice has no effect until it is unset.
#[tokio::test]
async fn the_environment_overrides_the_runner_mode_and_that_is_said() {
    let words = Words::plain();
    let world = furnished_with(&words, &[("--runner-mode", "ci")]).await;
    let Some(browser) = Browser::start("panel::acts::override").await else {
        return world.stop().await;
    };
    let refusal = "RUNNER_MODE env var is set; persisted to DB but has no effect at runtime until the env var is unset";
    let vm = Some(json!({"mode": "vm"}));
    assert_eq!(world.ask(Method::POST, "/api/runner-mode", vm).await.0, 409);
    browser.enter(&world.address, "runners").await;
    browser.sees("RUNNER_MODE is set in the environment.").await;
    assert_eq!(
        browser
            .js("return document.querySelector('[aria-pressed=true]').dataset.mode")
            .await,
        json!("vm")
    );
    browser.press_at("[data-mode=shadow]").await;
    browser.press("Switch").await;
    browser.sees_anywhere(refusal).await;
    browser.until("!document.querySelector('dialog')").await;
    assert_eq!(world.admin("/api/runner-mode").await["stored"], "shadow");
    browser.quit().await;
    world.stop().await;
}

/// With the keyboard alone: skip to the content, filter, walk the rows, open, act, close, and be back.
#[tokio::test]
async fn everything_works_by_keyboard() {
    let words = Words::plain();
    let world = furnished(&words).await;
    let Some(browser) = Browser::start("panel::acts::keyboard").await else {
        return world.stop().await;
    };
    browser.enter(&world.address, "projects").await;
    browser.js("document.activeElement.blur()").await;
    browser.keys(TAB).await;
    assert_eq!(focused(&browser).await, "Skip to the content");
    browser.keys(ENTER).await;
    assert_eq!(
        browser.js("return document.activeElement.tagName").await,
        json!("H1")
    );
    browser.keys(&[TAB, TAB].concat()).await;
    assert_eq!(
        browser.js("return document.activeElement.type").await,
        json!("search")
    );
    browser.keys("pay").await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 1")
        .await;
    browser
        .js("const box = document.activeElement; box.select()")
        .await;
    browser.keys("\u{E017}").await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 3")
        .await;
    browser
        .js("document.querySelector('tbody a').focus()")
        .await;
    browser.keys(DOWN).await;
    let row = "return document.activeElement.closest('tr').innerText";
    assert!(browser.js(row).await.as_str().unwrap().starts_with("PAY"));
    browser.keys(&[TAB, TAB].concat()).await;
    assert_eq!(focused(&browser).await, "More for PAY");
    browser.keys(ENTER).await;
    assert_eq!(focused(&browser).await, "Edit");
    browser.keys(&[DOWN, DOWN, DOWN].concat()).await;
    assert_eq!(focused(&browser).await, "Delete");
    browser.keys(ENTER).await;
    browser.sees("Delete the project PAY?").await;
    // What destroys is never where the focus falls first.
    assert_eq!(focused(&browser).await, "Cancel");
    browser.keys(ESCAPE).await;
    browser.until("!document.querySelector('dialog')").await;
    assert_eq!(focused(&browser).await, "More for PAY");
    // The window that an address opens gives the focus back to the page as well.
    browser
        .js("document.querySelector('tbody a').focus()")
        .await;
    browser.keys(ENTER).await;
    browser.sees("Capacity and run caps").await;
    assert_eq!(
        browser.js("return document.activeElement.name").await,
        json!("maxInProgressAiIssues")
    );
    browser.keys(ESCAPE).await;
    browser
        .until("!document.querySelector('dialog') && location.search === ''")
        .await;
    browser.quit().await;
    world.stop().await;
}
