//! Page of a project, and changes of a project by several people.

use requires::requires;
use reqwest::Method;
use serde_json::json;
use store::mappings;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::populated_env;
use super::untrusted_text::UntrustedText;
use crate::test_env::TestEnv;

const ESCAPE: &str = "\u{E00C}";

/// Changes a stored project, as another operator would.
async fn change(
    env: &TestEnv,
    mut change: impl FnMut(&mut domain::mapping::Mapping) + Send + 'static,
) {
    let written = env.store.write(move |tx| {
        let mut mapping = mappings::get(tx, &"SHOP".into())?.unwrap();
        change(&mut mapping);
        mappings::put(tx, &mapping)
    });
    written.await.unwrap();
}

fn stored(env: &TestEnv) -> domain::mapping::Mapping {
    let mapping = env.store.read(|tx| mappings::get(tx, &"SHOP".into()));
    mapping.unwrap().unwrap()
}

async fn open_editor(browser: &Browser) {
    browser.click("Edit").await;
    browser
        .wait_until("document.querySelector('dialog form')")
        .await;
}

#[requires("browser")]
#[tokio::test]
async fn page_shows_the_state_of_one_project() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.open_view(&env.address, "projects").await;
    browser.click_selector("tbody a[href$='/SHOP']").await;
    browser.wait_for_text("Latest runs").await;
    let path = "return location.pathname";
    assert_eq!(browser.eval(path).await, json!("/admin/projects/SHOP"));
    for text in [
        "Linear",
        "Last success:",
        "Sync workflows",
        ".github/workflows/agent-implement.yml",
        "STRIPE_KEY",
        "for this project",
        "ANTHROPIC_API_KEY",
        "Max parallel issues",
        "80",
    ] {
        browser.wait_for_text(text).await;
    }
    let runs = "return [...document.querySelectorAll('section[aria-label=\"Latest runs\"] .key')].map((el) => el.innerText.split('-')[0])";
    let teams = browser.eval(runs).await;
    let teams = teams.as_array().unwrap();
    assert!(
        !teams.is_empty() && teams.iter().all(|team| team == "SHOP"),
        "{teams:?}"
    );
    let all =
        "return document.querySelector('section[aria-label=\"Latest runs\"] .actions a').search";
    assert_eq!(browser.eval(all).await, json!("?team=SHOP"));

    // Range and budget.
    browser.wait_for_text("Runs per day").await;
    browser.click("24 h").await;
    browser.wait_for_text("Runs per hour").await;
    let range = "return location.pathname + location.search";
    assert_eq!(
        browser.eval(range).await,
        json!("/admin/projects/SHOP?range=24h")
    );
    let budget = Some(json!({"budgetUsd": 50}));
    let path = "/api/mappings/SHOP";
    assert_eq!(env.admin_request(Method::PATCH, path, budget).await.0, 200);
    browser
        .goto(&format!("{}/admin/projects/SHOP?range=7d", env.address))
        .await;
    browser.wait_for_text("of $50.00 spent this month").await;
    let line = "document.querySelector('section[aria-label=Budget] polyline').points.length";
    browser.wait_until(&format!("{line} > 0")).await;

    browser.click("Pause SHOP").await;
    browser.wait_for_text("Nothing new starts.").await;
    assert!(stored(&env).paused);
    browser
        .goto(&format!("{}/admin/projects/SHOP", env.address))
        .await;
    browser.wait_for_text("Nothing new starts.").await;

    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);

    browser
        .goto(&format!("{}/admin/projects/NONE", env.address))
        .await;
    browser.wait_for_text("Project not found").await;
    browser.quit().await;
    env.stop().await;
}

/// If two people change the same field, both values are shown and one is chosen. What only one of them has
/// changed is kept.
#[requires("browser")]
#[tokio::test]
async fn shows_both_values_of_a_lost_update() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser
        .open_view(&env.address, "projects/SHOP?edit=SHOP")
        .await;
    browser.wait_for_text("Capacity").await;
    browser.fill("Max parallel issues", "7").await;
    browser.fill("Iterations", "4").await;
    change(&env, |mapping| {
        mapping.max_in_progress = 5;
        mapping.branch_prefix = Some("bots".to_owned());
    })
    .await;
    browser.click("Save").await;
    browser
        .wait_for_text("Somebody else changed this project in the meantime.")
        .await;
    let cards = "return [...document.querySelectorAll('.conflicts .card-text')].map((el) => el.innerText.replace(/\\s+/g, ' '))";
    assert_eq!(
        browser.eval(cards).await,
        json!(["Your value 7", "Saved in the meantime 5"])
    );
    assert_eq!(stored(&env).max_in_progress, 5);
    browser.click("Save").await;
    browser.wait_for_text("Choose which values to keep.").await;
    browser.click_selector(".conflicts input").await;
    browser.click("Save").await;
    browser.wait_for_text_anywhere("Saved SHOP.").await;
    let mapping = stored(&env);
    assert_eq!(
        (mapping.max_in_progress, mapping.max_iterations),
        (7, Some(4))
    );
    assert_eq!(mapping.branch_prefix.as_deref(), Some("bots"));
    browser.quit().await;
    env.stop().await;
}

/// All problems of the form are shown at their fields, the first has the focus, and nothing is saved.
#[requires("browser")]
#[tokio::test]
async fn shows_all_problems_of_an_edit() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects?edit=SHOP").await;
    browser.wait_for_text("Capacity").await;
    browser.fill("Max parallel issues", "0").await;
    browser.fill("Branch prefix", "a..b").await;
    browser.click("Save").await;
    browser
        .wait_for_text("Max parallel issues must be at least 1")
        .await;
    browser.wait_for_text("Branch prefix must not").await;
    let field = "return document.activeElement.name";
    assert_eq!(browser.eval(field).await, json!("maxInProgressAiIssues"));
    assert_eq!(stored(&env).max_in_progress, 3);
    browser.quit().await;
    env.stop().await;
}

/// A change of one environment variable keeps the line breaks in the values of the others.
#[requires("browser")]
#[tokio::test]
async fn keeps_line_breaks_of_environment_variables() {
    let env = populated_env(&UntrustedText::plain()).await;
    let key = ("KEY".to_owned(), "begin\nA=1\nend".to_owned());
    let before = [key.clone(), ("MODE".to_owned(), "test".to_owned())];
    change(&env, move |mapping| {
        mapping.extra_env = before.clone().into();
    })
    .await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects?edit=SHOP").await;
    browser.wait_for_text("Capacity").await;
    let value = "return document.querySelector('[name=extraEnv]').value";
    let shown = browser.eval(value).await;
    assert_eq!(shown, json!("KEY=begin↵A=1↵end\nMODE=test"));
    let changed = shown.as_str().unwrap().replace("test", "production");
    let change_to = "const area = document.querySelector('[name=extraEnv]'); area.value = arguments[0]; area.dispatchEvent(new Event('input', { bubbles: true }))";
    browser.eval_with(change_to, json!([changed])).await;
    browser.click("Save").await;
    browser.wait_for_text_anywhere("Saved SHOP.").await;
    let after = [key, ("MODE".to_owned(), "production".to_owned())];
    assert_eq!(stored(&env).extra_env, after.into());
    browser.quit().await;
    env.stop().await;
}

/// Unsaved changes are never dropped silently: closing asks, and Back keeps them for the next time.
#[requires("browser")]
#[tokio::test]
async fn asks_before_it_drops_unsaved_changes() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects/SHOP").await;
    open_editor(&browser).await;
    browser.press_keys(ESCAPE).await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;

    open_editor(&browser).await;
    browser.fill("Iterations", "9").await;
    for _ in 0..2 {
        browser.press_keys(ESCAPE).await;
        browser.wait_for_text("Discard the changes to SHOP?").await;
        browser.click("Keep editing").await;
        browser
            .wait_until("document.querySelectorAll('dialog').length === 1")
            .await;
    }
    browser.eval("history.back()").await;
    browser.wait_for_text_anywhere("are kept in this tab").await;
    browser.click("Edit").await;
    browser
        .wait_for_text("Your unsaved changes are back.")
        .await;
    let value = "return document.querySelector('[name=maxIterations]').value";
    assert_eq!(browser.eval(value).await, json!("9"));
    browser.click("Cancel").await;
    browser.click("Discard").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    open_editor(&browser).await;
    assert_eq!(browser.eval(value).await, json!(""));
    assert_eq!(stored(&env).max_iterations, None);
    browser.quit().await;
    env.stop().await;
}
