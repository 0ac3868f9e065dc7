//! The new-project form: eight steps, validated by the service, without entering anything twice.

use requires::requires;
use serde_json::json;
use store::mappings;

use super::browser::Browser;
use super::fixtures::empty_env;
use super::{OutboxDrain, console_errors};

async fn step_is(browser: &Browser, title: &str) {
    browser
        .wait_until(&format!(
            "document.querySelector('.step-panel h2')?.innerText === {}",
            json!(title)
        ))
        .await;
}

/// Creates a mapping from scratch, with an error of the service at every step that it validates.
#[requires("browser")]
#[tokio::test]
async fn creates_a_project_in_eight_steps() {
    let env = empty_env().await;
    let browser = Browser::start().await;
    let outbox_drain = OutboxDrain::start(&env);
    browser.open_view(&env.address, "projects").await;
    browser.click("New project").await;

    step_is(&browser, "Ticketing system").await;
    browser.click_selector("input[value=B]").await;
    browser.click("Continue").await;

    step_is(&browser, "Source").await;
    browser.click("Continue").await;
    browser.wait_for_text("Project key is required.").await;
    browser.fill("Project key", "OPS").await;
    browser.fill("Query", "project = NOWHERE AND (").await;
    browser.fill("Repository field value", "shop").await;
    browser.click("Continue").await;
    browser
        .wait_until(
            "document.querySelector('.error')?.innerText.includes('Error in the JQL Query')",
        )
        .await;
    assert_eq!(
        browser.eval("return document.activeElement.name").await,
        json!("jql")
    );
    browser.fill("Query", "project = OPS").await;
    browser.click("Continue").await;

    step_is(&browser, "Repository").await;
    browser.fill("Owner", "acme/of").await;
    browser.fill("Repository", "shop").await;
    browser.fill("Branch prefix", "bots..").await;
    browser.click("Continue").await;

    step_is(&browser, "Runner").await;
    browser.click_selector("input[value=vm-machines]").await;
    browser.fill("Memory (MB)", "64").await;
    browser.click("Continue").await;

    step_is(&browser, "Provider").await;
    browser.click_selector("input[value=cloud]").await;
    browser.fill("Region", "eu-central-1").await;
    browser.click("Continue").await;

    step_is(&browser, "Capacity").await;
    browser.fill("Concurrent issues", "0").await;
    browser.fill("Model turns", "lots").await;
    browser.click("Continue").await;

    step_is(&browser, "Secrets").await;
    browser.fill("Environment variables", "NO_VALUE").await;
    browser.fill("Name", "TOKEN").await;
    browser.fill("Value", "hush").await;
    browser.click("Continue").await;
    step_is(&browser, "Review").await;
    browser.wait_for_text("Jira, OPS").await;

    // Each error opens the step that it concerns; after the correction the form continues from there.
    let refusals = [
        (
            "Repository",
            "owner must be an account name",
            "Owner",
            "acme",
        ),
        (
            "Provider",
            "provider 'bedrock' is not supported",
            "",
            "direct",
        ),
        (
            "Runner",
            "machineMemoryMb must be an integer >= 256",
            "Memory (MB)",
            "512",
        ),
        (
            "Repository",
            "branchPrefix invalid",
            "Branch prefix",
            "bots",
        ),
        (
            "Secrets",
            "extraEnv values must all be strings",
            "Environment variables",
            "MODE=test=1",
        ),
        (
            "Capacity",
            "maxInProgressAiIssues must be a positive integer",
            "Concurrent issues",
            "2",
        ),
        (
            "Capacity",
            "maxTurns must be a positive integer",
            "Model turns",
            "40",
        ),
    ];
    for (step, message, field, valid) in refusals {
        browser.click("Create project").await;
        step_is(&browser, step).await;
        browser.wait_for_text(message).await;
        if field.is_empty() {
            browser.click_selector("input[value=direct]").await;
        } else {
            browser.fill(field, valid).await;
        }
        while browser
            .eval("return document.querySelector('.step-panel h2').innerText")
            .await
            != json!("Review")
        {
            let now = browser
                .eval("return document.querySelector('.step-panel h2').innerText")
                .await;
            browser.click("Continue").await;
            browser
                .wait_until(&format!(
                    "document.querySelector('.step-panel h2').innerText !== {now}"
                ))
                .await;
        }
    }
    assert!(env.store.read(mappings::all).unwrap().is_empty());

    browser.click("Create project").await;
    step_is(&browser, "Secrets").await;
    browser
        .wait_for_text("could not store the secret TOKEN: Fly sessions config not set")
        .await;
    browser.click("Skip the secret").await;
    browser.wait_for_text("OPS is mapped to acme/shop").await;
    browser.click("Sync workflows").await;
    browser
        .wait_for_text("A pull request with the workflows is open.")
        .await;
    drop(outbox_drain);
    assert_eq!(env.repo().pulls().len(), 1);
    browser.click("Go to projects").await;
    browser.wait_for_text("0 of 2").await;

    let mapping = env.store.read(|tx| mappings::get(tx, &"OPS".into()));
    let mapping = mapping.unwrap().unwrap();
    assert_eq!(
        (mapping.max_turns, mapping.machine_memory_mb),
        (Some(40), 512)
    );
    assert_eq!(mapping.branch_prefix.as_deref(), Some("bots"));
    assert_eq!(mapping.extra_env["MODE"], "test=1");
    let errors = console_errors(browser.take_console_log().await);
    assert!(
        errors
            .iter()
            .all(|line| ["400 (Bad Request)", "503 (Service"]
                .iter()
                .any(|allowed| line.contains(allowed))),
        "{errors:#?}"
    );
    browser.quit().await;
    env.stop().await;
}
