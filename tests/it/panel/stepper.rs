//! The new-project form: nine steps with their own addresses, checked by the service, without entering anything
//! twice.

use requires::requires;
use serde_json::json;
use store::mappings;

use super::browser::Browser;
use super::fixtures::empty_env;
use super::{OutboxDrain, console_errors};
use crate::api_server::ACCESS_CODE;
use crate::test_env::TestEnv;

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const DOWN: &str = "\u{E015}";

pub(super) async fn step_is(browser: &Browser, step: &str) {
    browser
        .wait_until(&format!(
            "location.pathname === '/admin/projects/new/{step}' && document.querySelector('.step-panel')"
        ))
        .await;
}

/// Name of the field that has the focus.
async fn focused_field(browser: &Browser) -> String {
    let name = browser.eval("return document.activeElement.name").await;
    name.as_str().unwrap_or_default().to_owned()
}

/// Errors at fields, in the order of the page.
async fn errors(browser: &Browser) -> Vec<String> {
    let script =
        "return [...document.querySelectorAll('.step-panel .error')].map((el) => el.innerText)";
    let texts = browser.eval(script).await;
    let texts = texts.as_array().unwrap().iter();
    texts
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

async fn continue_to(browser: &Browser, step: &str) {
    browser.click("Continue").await;
    step_is(browser, step).await;
}

pub(super) async fn begin(env: &TestEnv) -> Browser {
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.open_view(&env.address, "projects").await;
    browser.click("New project").await;
    step_is(&browser, "system").await;
    browser
}

/// Fills in the steps up to the review for the Linear team ENG and acme/shop.
pub(super) async fn fill_in(browser: &Browser) {
    continue_to(browser, "source").await;
    browser.fill("Team", "ENG").await;
    continue_to(browser, "repository").await;
    browser.fill("Repository", "acme/shop").await;
    for step in [
        "runner", "provider", "capacity", "landing", "secrets", "review",
    ] {
        continue_to(browser, step).await;
    }
}

/// A project may take the issues of its repository that have a label.
#[requires("browser")]
#[tokio::test]
async fn creates_a_project_for_the_issues_with_a_label() {
    let env = empty_env().await;
    let browser = begin(&env).await;
    browser.click_selector("input[value=C]").await;
    continue_to(&browser, "source").await;
    browser.fill("Project key", "web").await;
    let choose = "const box = document.querySelector('select[name=match]');
        box.value = 'label';
        for (const type of ['input', 'change']) box.dispatchEvent(new Event(type, { bubbles: true }));
        return [...box.options].map((option) => option.value)";
    let offered = browser.eval(choose).await;
    assert_eq!(offered, json!(["", "label"]));
    browser.click("Continue").await;
    browser.wait_for_text("Label is required.").await;
    browser.fill("Label", "repo:web").await;
    continue_to(&browser, "repository").await;
    browser.fill("Repository", "acme/shop").await;
    for step in [
        "runner", "provider", "capacity", "landing", "secrets", "review",
    ] {
        continue_to(&browser, step).await;
    }
    browser.click("Create project").await;
    browser
        .wait_until("location.pathname === '/admin/projects/web'")
        .await;
    let mapping = env.store.read(|tx| mappings::get(tx, &"web".into()));
    let ticketing = serde_json::to_value(mapping.unwrap().unwrap().ticketing).unwrap();
    let expected = json!({"kind": "C", "match": {"label": "repo:web"}});
    assert_eq!(ticketing, expected);
    browser.quit().await;
    env.stop().await;
}

/// Each step shows all problems of its fields in plain words and does not let them pass.
#[requires("browser")]
#[tokio::test]
async fn creates_a_project_in_nine_steps() {
    let env = empty_env().await;
    let browser = begin(&env).await;
    browser.click_selector("input[value=B]").await;
    continue_to(&browser, "source").await;
    browser.click("Continue").await;
    browser.wait_for_text("Project key is required").await;
    let required = ["Project key", "Query", "Repository field value"];
    let required = required.map(|label| format!("{label} is required."));
    assert_eq!(errors(&browser).await, required);
    assert_eq!(focused_field(&browser).await, "teamKey");
    browser.fill("Project key", "OPS").await;
    browser.fill("Query", "project = NOWHERE AND (").await;
    browser.fill("Repository field value", "shop").await;
    browser.click("Continue").await;
    browser.wait_for_text("Error in the JQL Query").await;
    assert_eq!(focused_field(&browser).await, "jql");
    browser.fill("Query", "project = OPS").await;
    continue_to(&browser, "repository").await;

    browser.fill("Repository", "acme/of/shop").await;
    browser.fill("Branch prefix", "bots..").await;
    browser.click("Continue").await;
    browser.wait_for_text("Branch prefix must not").await;
    assert_eq!(errors(&browser).await.len(), 2);
    assert_eq!(focused_field(&browser).await, "repository");
    browser.fill("Repository", "acme/shop").await;
    browser.fill("Branch prefix", "bots").await;
    continue_to(&browser, "runner").await;

    browser.click_selector("input[value=vm-machines]").await;
    browser.click("Continue").await;
    browser
        .wait_for_text("VM sessions are not configured")
        .await;
    browser.click_selector("input[value=ci-workflow]").await;
    continue_to(&browser, "provider").await;

    browser.click_selector("input[value=cloud]").await;
    browser.click("Continue").await;
    browser.wait_for_text("Region is required").await;
    browser.fill("Region", "Frankfurt!").await;
    browser.click("Continue").await;
    browser
        .wait_for_text("Region must be the name of a region")
        .await;
    browser.click_selector("input[value=direct]").await;
    continue_to(&browser, "capacity").await;

    browser.fill("Max parallel issues", "0").await;
    browser.fill("Model turns", "lots").await;
    browser.click("Continue").await;
    browser
        .wait_for_text("Max parallel issues must be at least 1")
        .await;
    let at_least = ["Max parallel issues", "Model turns"];
    let at_least = at_least.map(|label| format!("{label} must be at least 1"));
    assert_eq!(errors(&browser).await, at_least);
    assert_eq!(focused_field(&browser).await, "maxInProgressAiIssues");
    browser.fill("Max parallel issues", "2").await;
    browser.fill("Model turns", "40").await;
    continue_to(&browser, "landing").await;
    browser.fill("Max open pull requests", "5").await;
    browser.fill("Dispatch days", "mon, fri").await;
    browser.fill("From", "8 am").await;
    browser.fill("To", "18:00").await;
    browser.fill("Time zone", "UTC").await;
    browser.click("Continue").await;
    browser
        .wait_for_text("Dispatch hours must be from and to a time such as 08:00")
        .await;
    browser.fill("From", "08:00").await;
    continue_to(&browser, "secrets").await;

    browser.fill("Environment variables", "PATH=/tmp").await;
    browser.click("Continue").await;
    browser.wait_for_text("must not set PATH").await;
    browser.fill("Environment variables", "MODE=test=1").await;
    browser.fill("Name", "TOKEN").await;
    browser.fill("Value", "hush").await;
    continue_to(&browser, "review").await;
    for text in ["Jira", "project = OPS", "acme/shop", "TOKEN", "40"] {
        browser.wait_for_text(text).await;
    }
    assert!(env.store.read(mappings::all).unwrap().is_empty());

    // Each value can be changed, which leads back to the review.
    browser.click("Change Model turns").await;
    step_is(&browser, "capacity").await;
    browser
        .wait_until("document.activeElement.name === 'maxTurns'")
        .await;
    browser.fill("Model turns", "45").await;
    browser.click("Back to the review").await;
    step_is(&browser, "review").await;
    let outbox_drain = OutboxDrain::start(&env);
    browser.click("Create project").await;
    browser
        .wait_for_text("not all of its secrets could be stored: Fly sessions config not set")
        .await;
    browser
        .wait_until("location.pathname === '/admin/projects/OPS'")
        .await;
    browser.click("More for OPS").await;
    browser.click("Sync workflows").await;
    browser
        .wait_for_text("A pull request with the workflows is open.")
        .await;
    drop(outbox_drain);
    assert_eq!(env.repo().pulls().len(), 1);

    let mapping = env.store.read(|tx| mappings::get(tx, &"OPS".into()));
    let mapping = mapping.unwrap().unwrap();
    assert_eq!(mapping.max_turns, Some(45));
    assert_eq!(mapping.branch_prefix.as_deref(), Some("bots"));
    assert_eq!(mapping.extra_env["MODE"], "test=1");
    assert_eq!(mapping.max_open_pulls, Some(5));
    let window = serde_json::to_value(&mapping.dispatch_window).unwrap();
    let expected =
        json!({"days": ["mon", "fri"], "from": "08:00", "to": "18:00", "timeZone": "UTC"});
    assert_eq!(window, expected);
    // The page says that there are no secrets, and does not ask for them.
    browser.wait_for_text_anywhere("None is in use.").await;
    let mut errors = console_errors(browser.take_console_log().await);
    errors.retain(|line| !line.contains("/api/ticketing-b/"));
    assert!(
        matches!(errors.as_slice(), [line] if line.contains("OPS/secrets") && line.contains("503 (Service")),
        "{errors:#?}"
    );
    browser.quit().await;
    env.stop().await;
}

/// A step shows whether the connection that it depends on works, and an unfinished project can be discarded from
/// every step.
#[requires("browser")]
#[tokio::test]
async fn shows_connections_and_discards_the_draft() {
    let env = empty_env().await;
    let browser = begin(&env).await;
    let connection = "return document.querySelector('.step-panel .rows .badge')?.dataset.word";
    browser
        .wait_until("document.querySelector('.step-panel .rows .badge')")
        .await;
    assert_eq!(browser.eval(connection).await, json!("ok"));
    let discard = "return document.querySelectorAll('.step-foot .ghost').length";
    assert_eq!(browser.eval(discard).await, json!(0), "nothing is entered");
    continue_to(&browser, "source").await;
    browser.fill("Team", "ENG").await;
    continue_to(&browser, "repository").await;
    browser.fill("Repository", "acme/shop").await;
    continue_to(&browser, "runner").await;
    browser.click_selector("input[value=vm-machines]").await;
    browser
        .wait_until("document.querySelector('.step-panel .rows .badge')?.dataset.word === 'off'")
        .await;
    browser.click("Discard the unfinished project").await;
    browser.wait_for_text("Discard the new project?").await;
    browser.click_selector("dialog .button.danger").await;
    browser
        .wait_until("location.pathname === '/admin/projects' && document.querySelector('main h1')")
        .await;
    let drafts =
        "return Object.keys(sessionStorage).filter((key) => key.startsWith('draft.')).length";
    assert_eq!(browser.eval(drafts).await, json!(0));
    assert!(!browser.text().await.contains("not finished"));
    browser.quit().await;
    env.stop().await;
}

/// The draft survives a reload, Back and the end of the session. The value of a secret is never stored.
#[requires("browser")]
#[tokio::test]
async fn keeps_the_draft_but_no_secret() {
    let env = empty_env().await;
    let browser = begin(&env).await;
    // A step that was not reached yet leads back.
    browser
        .goto(&format!("{}/admin/projects/new/review", env.address))
        .await;
    step_is(&browser, "system").await;
    fill_in(&browser).await;
    browser.eval("history.back()").await;
    step_is(&browser, "secrets").await;
    browser.fill("Name", "TOKEN").await;
    browser.fill("Value", "hush-hush").await;
    continue_to(&browser, "review").await;
    for step in ["secrets", "landing", "capacity"] {
        browser.eval("history.back()").await;
        step_is(&browser, step).await;
    }
    browser.fill("Model turns", "33").await;
    let stored = "return JSON.stringify({ ...sessionStorage, ...localStorage })";
    let stored = browser.eval(stored).await;
    assert!(!stored.as_str().unwrap().contains("hush-hush"), "{stored}");

    // The session ends in the middle of the form.
    env.advance_clock(std::time::Duration::from_secs(25 * 3600));
    browser.click("Continue").await;
    browser.wait_for_text("Your session has ended").await;
    browser.fill("Access code", ACCESS_CODE).await;
    browser.click("Sign in").await;
    browser
        .wait_until("document.querySelector('.step-panel') && !document.querySelector('#code')")
        .await;
    browser
        .goto(&format!("{}/admin/projects/new/capacity", env.address))
        .await;
    step_is(&browser, "capacity").await;
    let turns = "return document.querySelector('[name=maxTurns]').value";
    assert_eq!(browser.eval(turns).await, json!("33"));
    for step in ["landing", "secrets"] {
        continue_to(&browser, step).await;
    }
    // The name is kept, the value has to be entered again.
    browser.click("Continue").await;
    browser
        .wait_for_text("Enter the value of TOKEN again, or remove it.")
        .await;
    browser.click("Remove TOKEN").await;
    continue_to(&browser, "review").await;

    browser.switch_panel("projects").await;
    browser
        .wait_for_text("New project, not finished: ENG acme/shop")
        .await;
    browser.click("Discard the unfinished project").await;
    browser
        .wait_until("!document.body.innerText.includes('not finished')")
        .await;
    let drafts =
        "return Object.keys(sessionStorage).filter((key) => key.startsWith('draft.')).length";
    assert_eq!(browser.eval(drafts).await, json!(0));
    assert!(env.store.read(mappings::all).unwrap().is_empty());
    browser.quit().await;
    env.stop().await;
}

/// Choices come from the vendors. They are chosen by keyboard, any other text is accepted, and a list that
/// cannot be loaded says why.
#[requires("browser")]
#[tokio::test]
async fn offers_choices_of_the_vendors() {
    let env = empty_env().await;
    let browser = begin(&env).await;
    continue_to(&browser, "source").await;
    browser.click_selector("[name=teamKey]").await;
    browser
        .wait_until("document.querySelector('[role=option]')")
        .await;
    let open = "return document.querySelector('[name=teamKey]').getAttribute('aria-expanded')";
    assert_eq!(browser.eval(open).await, json!("true"));
    browser.press_keys(ESCAPE).await;
    assert_eq!(browser.eval(open).await, json!("false"));
    browser.press_keys(DOWN).await;
    let chosen = browser
        .eval("return document.querySelector('[aria-selected=true] span').innerText")
        .await;
    browser.press_keys(ENTER).await;
    let value = "return document.activeElement.value";
    assert_eq!(browser.eval(value).await, chosen);
    step_is(&browser, "source").await;
    continue_to(&browser, "repository").await;

    browser.fill("Repository", "sho").await;
    browser
        .wait_until("[...document.querySelectorAll('[role=option] span')].some((el) => el.innerText === 'acme/shop')")
        .await;
    browser.press_keys(DOWN).await;
    browser.press_keys(ENTER).await;
    assert_eq!(browser.eval(value).await, json!("acme/shop"));
    browser.click_selector("[name=defaultBranch]").await;
    browser
        .wait_until("[...document.querySelectorAll('[role=option] span')].some((el) => el.innerText === 'main')")
        .await;

    // GitHub does not know this repository: the list of branches and the check of the step say so.
    browser.fill("Repository", "acme/unknown").await;
    browser.click_selector("[name=defaultBranch]").await;
    let unknown = "GitHub shows no repository acme/unknown";
    browser.wait_for_text(unknown).await;
    browser.click("Continue").await;
    browser
        .wait_until("document.activeElement.name === 'repository'")
        .await;
    assert!(errors(&browser).await[0].starts_with(unknown));
    browser.quit().await;
    env.stop().await;
}
