//! Panel *Connections*: credentials are saved, tested and removed, and two clicks create the GitHub App.

use requires::requires;
use serde_json::json;

use super::browser::Browser;
use super::console_errors;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

pub(super) async fn unconfigured_env() -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings: Vec::new(),
        omitted_flags: &[
            "--github-app-id",
            "--github-app-private-key",
            "--linear-api-key",
        ],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

#[requires("browser")]
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_tested_saved_and_removed() {
    let env = unconfigured_env().await;
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.open_view(&env.address, "connections").await;
    browser.click("Connect Linear").await;
    browser.fill("API key", "lin_wrong_key").await;
    browser.click("Test and save").await;
    browser.wait_for_text("set LINEAR_API_KEY").await;
    let kind = "return document.querySelector('[name=LINEAR_API_KEY]').type";
    assert_eq!(browser.eval(kind).await, json!("password"));
    browser
        .fill("API key", &env.vendors.linear().api_key())
        .await;
    browser.click("Test and save").await;
    browser.wait_for_text("Saved here.").await;
    assert!(
        !browser
            .text()
            .await
            .contains(&env.vendors.linear().api_key())
    );
    browser.click("Test Linear").await;
    browser.click("Remove Linear").await;
    browser.wait_for_text("The saved values are deleted").await;
    browser.click_selector("dialog .danger").await;
    browser
        .wait_until("!document.body.innerText.includes('Saved here.')")
        .await;
    assert!(
        env.app.latest().vendors.ticketing.len() == 1,
        "Jira is left"
    );
    // The browser logs the response 400 of the wrong key.
    let errors = console_errors(browser.take_console_log().await);
    assert!(errors.iter().all(|one| one.contains("400")), "{errors:?}");
    env.stop().await;
}

#[requires("browser")]
#[tokio::test(flavor = "multi_thread")]
async fn two_clicks_create_the_github_app() {
    let env = unconfigured_env().await;
    let browser = Browser::start().await;
    browser.resize(1440).await;
    // The page that sends the form is loaded again, because another one may not.
    browser.open_view(&env.address, "settings").await;
    browser.click("Connections").await;
    browser.wait_for_text("Model keys").await;
    browser.click("Connect GitHub").await;
    browser.click("Create a GitHub App").await;
    browser
        .wait_until("document.body.innerText.includes('Page of a fake vendor')")
        .await;
    browser.click_selector("form button").await;
    browser
        .wait_until("location.pathname === '/admin/connections' && document.body.innerText.includes('Install the App')")
        .await;
    browser.wait_for_text("Saved here.").await;
    let errors = console_errors(browser.take_console_log().await);
    assert!(errors.is_empty(), "{errors:?}");
    env.stop().await;
}
