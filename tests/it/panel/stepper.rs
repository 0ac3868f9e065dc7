//! The way of a new project: eight steps, each judged by the service, and nothing typed twice.

use serde_json::json;
use store::mappings;

use super::browser::Browser;
use super::furnish::bare;
use super::{Deliveries, complaints};

async fn step_is(browser: &Browser, title: &str) {
    browser
        .until(&format!(
            "document.querySelector('.step-panel h2')?.innerText === {}",
            json!(title)
        ))
        .await;
}

/// From nothing to a created mapping, with a refusal of the service at every step that it can judge.
#[tokio::test]
async fn a_new_project_in_eight_steps() {
    let world = bare().await;
    let Some(browser) = Browser::start("panel::stepper").await else {
        return world.stop().await;
    };
    let deliveries = Deliveries::of(&world);
    browser.enter(&world.address, "projects").await;
    browser.press("New project").await;

    step_is(&browser, "Ticketing system").await;
    browser.press_at("input[value=B]").await;
    browser.press("Continue").await;

    step_is(&browser, "Source").await;
    browser.press("Continue").await;
    browser.sees("Project key is required.").await;
    browser.fill("Project key", "OPS").await;
    browser.fill("Query", "project = NOWHERE AND (").await;
    browser.fill("Repository field value", "shop").await;
    browser.press("Continue").await;
    browser
        .until("document.querySelector('.error')?.innerText.includes('Error in the JQL Query')")
        .await;
    assert_eq!(
        browser.js("return document.activeElement.name").await,
        json!("jql")
    );
    browser.fill("Query", "project = OPS").await;
    browser.press("Continue").await;

    step_is(&browser, "Repository").await;
    browser.fill("Owner", "acme/of").await;
    browser.fill("Repository", "shop").await;
    browser.fill("Branch prefix", "bots..").await;
    browser.press("Continue").await;

    step_is(&browser, "Runner").await;
    browser.press_at("input[value=vm-machines]").await;
    browser.fill("Memory in MB", "64").await;
    browser.press("Continue").await;

    step_is(&browser, "Provider").await;
    browser.press_at("input[value=cloud]").await;
    browser.fill("Region", "eu-central-1").await;
    browser.press("Continue").await;

    step_is(&browser, "Capacity").await;
    browser.fill("Issues at once", "0").await;
    browser.fill("Model turns", "lots").await;
    browser.press("Continue").await;

    step_is(&browser, "Secrets").await;
    browser.fill("Extra environment", "NO_VALUE").await;
    browser.fill("Name", "TOKEN").await;
    browser.fill("Value", "hush").await;
    browser.press("Continue").await;
    step_is(&browser, "Review").await;
    browser.sees("Jira, OPS").await;

    // Each refusal leads to the step that it is about; mended, the way goes on from there.
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
            "Memory in MB",
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
            "Extra environment",
            "MODE=test=1",
        ),
        (
            "Capacity",
            "maxInProgressAiIssues must be a positive integer",
            "Issues at once",
            "2",
        ),
        (
            "Capacity",
            "maxTurns must be a positive integer",
            "Model turns",
            "40",
        ),
    ];
    for (step, said, field, better) in refusals {
        browser.press("Create project").await;
        step_is(&browser, step).await;
        browser.sees(said).await;
        if field.is_empty() {
            browser.press_at("input[value=direct]").await;
        } else {
            browser.fill(field, better).await;
        }
        while browser
            .js("return document.querySelector('.step-panel h2').innerText")
            .await
            != json!("Review")
        {
            let now = browser
                .js("return document.querySelector('.step-panel h2').innerText")
                .await;
            browser.press("Continue").await;
            browser
                .until(&format!(
                    "document.querySelector('.step-panel h2').innerText !== {now}"
                ))
                .await;
        }
    }
    assert!(world.app.store.read(mappings::all).unwrap().is_empty());

    browser.press("Create project").await;
    step_is(&browser, "Secrets").await;
    browser
        .sees("Its secret TOKEN was refused: Fly sessions config not set")
        .await;
    browser.press("Go on without").await;
    browser.sees("OPS is mapped to acme/shop").await;
    browser.press("Sync workflows").await;
    browser
        .sees("A pull request with the workflows is open.")
        .await;
    drop(deliveries);
    assert_eq!(world.repo().pulls().len(), 1);
    browser.press("Go to projects").await;
    browser.sees("0 of 2").await;

    let made = world.app.store.read(|tx| mappings::get(tx, &"OPS".into()));
    let made = made.unwrap().unwrap();
    assert_eq!((made.max_turns, made.machine_memory_mb), (Some(40), 512));
    assert_eq!(made.branch_prefix.as_deref(), Some("bots"));
    assert_eq!(made.extra_env["MODE"], "test=1");
    let said = complaints(browser.console().await);
    assert!(
        said.iter().all(|line| ["400 (Bad Request)", "503 (Service"]
            .iter()
            .any(|said| line.contains(said))),
        "{said:#?}"
    );
    browser.quit().await;
    world.stop().await;
}
