//! The panel under difficult conditions: keyboard only, reloads and Back, two tabs, a slow link, and a service that is
//! killed. The end of a session is tested in `client.rs` and `stepper.rs`.

use domain::job::Job;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use requires::requires;
use serde_json::{Value, json};

use super::actions::focused;
use super::browser::Browser;
use super::client::open_palette;
use super::fixtures::{RUNNING_JOB_ID, empty_env, populated_env};
use super::stepper::{begin, fill_in, step_is};
use super::untrusted_text::UntrustedText;
use crate::api_server::ACCESS_CODE;
use crate::test_env::{Gate, TestEnv, TestEnvOptions};

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const TAB: &str = "\u{E004}";

/// Delay of each request on a slow link, in milliseconds.
const LATENCY_MS: u64 = 400;

/// More stops than any page has.
const MAX_TAB_STOPS: usize = 300;

/// Script that keeps the method and path of every request that changes something, in `window.changes`.
const RECORD_CHANGES: &str = r#"
    window.changes = [];
    const send = window.fetch;
    window.fetch = (path, how) => {
        const method = how?.method ?? "GET";
        if (method !== "GET" && !path.endsWith("/check")) window.changes.push(`${method} ${path}`);
        return send(path, how);
    };
"#;

/// Moves the focus by Tab until it is on an element with this name.
async fn tab_to(browser: &Browser, name: &str) {
    for _ in 0..MAX_TAB_STOPS {
        if focused(browser).await == name {
            return;
        }
        browser.press_keys(TAB).await;
    }
    panic!("Tab does not reach {name}\n{}", browser.text().await);
}

async fn wait_for_path(browser: &Browser, path: &str) {
    browser
        .wait_until(&format!(
            "location.pathname + location.search === {}",
            json!(path)
        ))
        .await;
}

async fn no_dialog(browser: &Browser) {
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
}

/// Signs in, opens an issue, cancels its run and edits its project without a pointer. A second tab shows the end of the
/// run without a reload.
#[requires("browser")]
#[tokio::test]
async fn the_keyboard_is_enough_and_other_tabs_follow() {
    let env = TestEnv::start().await;
    let gate = Gate::new(&env);
    let script = Script::new().pass([gate.wait_step(), ScriptStep::write("cart.txt", "kept\n")]);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Keep the cart");
    env.wait_until("a run is active", || {
        env.jobs("ENG-1").last().is_some_and(Job::is_active)
    })
    .await;
    let browser = Browser::start().await;
    browser.goto(&format!("{}/admin", env.address)).await;
    browser.wait_for_text("Access code").await;
    browser.press_keys(ACCESS_CODE).await;
    browser.press_keys(ENTER).await;
    browser.wait_for_view().await;

    let first = browser.window().await;
    let second = browser.open_window().await;
    browser.open_view(&env.address, "pipelines").await;
    browser
        .wait_until("document.querySelector('.live.ok') && document.querySelector('tbody tr')")
        .await;
    browser.eval("window.here = 'since the beginning'").await;
    browser.switch_window(&first).await;

    open_palette(&browser).await;
    browser.press_keys("eng-1").await;
    browser
        .wait_until("document.querySelector('[role=option][aria-selected=true]')?.innerText.includes('ENG-1')")
        .await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Time line").await;
    tab_to(&browser, "Cancel run of ENG-1").await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text("Cancel for good").await;
    tab_to(&browser, "Cancel run").await;
    browser.press_keys(ENTER).await;
    browser
        .wait_for_text_anywhere("Cancelled the run of ENG-1.")
        .await;
    browser.press_keys(ESCAPE).await;
    no_dialog(&browser).await;

    browser.switch_window(&second).await;
    browser
        .wait_until("document.querySelector('tbody [data-word=cancelled]')")
        .await;
    let here = browser.eval("return window.here").await;
    assert_eq!(here, "since the beginning");
    browser.switch_window(&first).await;
    gate.open();

    open_palette(&browser).await;
    browser.press_keys("pages projects").await;
    browser
        .wait_until(
            "document.querySelector('[role=option][aria-selected=true]')?.innerText === 'Projects'",
        )
        .await;
    browser.press_keys(ENTER).await;
    wait_for_path(&browser, "/admin/projects").await;
    browser.wait_for_view().await;
    tab_to(&browser, "More for ENG").await;
    browser.press_keys(ENTER).await;
    tab_to(&browser, "Edit").await;
    browser.press_keys(ENTER).await;
    browser
        .wait_until("document.activeElement.name === 'maxInProgressAiIssues'")
        .await;
    browser.press_control("a").await;
    browser.press_keys("7").await;
    browser.press_keys(ENTER).await;
    browser.wait_for_text_anywhere("Saved ENG.").await;
    let mappings = env.admin_get("/api/mappings").await;
    assert_eq!(mappings["ENG"]["maxInProgressAiIssues"], 7);
    browser.quit().await;
    env.stop().await;
}

/// Every step of the form for a new project survives a reload with what was entered, and Back leads through them.
#[requires("browser")]
#[tokio::test]
async fn each_step_of_a_new_project_survives_reload_and_back() {
    let env = empty_env().await;
    let browser = begin(&env).await;
    fill_in(&browser).await;
    let steps = [
        ("secrets", "extraEnv", ""),
        ("landing", "maxOpenPulls", ""),
        ("capacity", "maxInProgressAiIssues", "3"),
        ("provider", "provider", ""),
        ("runner", "workflowFile", "agent-implement.yml"),
        ("repository", "repository", "acme/shop"),
        ("source", "teamKey", "ENG"),
        ("system", "ticketingProvider", ""),
    ];
    let reload = |step: &'static str| {
        let url = format!("{}/admin/projects/new/{step}", env.address);
        let browser = &browser;
        async move {
            browser.eval("window.isOld = true").await;
            browser.eval("location.reload()").await;
            browser
                .wait_until("!window.isOld && document.querySelector('.step-panel')")
                .await;
            let now = browser.eval("return location.href").await;
            assert_eq!(now, url);
        }
    };
    reload("review").await;
    browser.wait_for_text("acme/shop").await;
    for (step, field, value) in steps {
        browser.eval("history.back()").await;
        step_is(&browser, step).await;
        reload(step).await;
        if !value.is_empty() {
            let shown = format!("return document.querySelector('[name={field}]').value");
            assert_eq!(browser.eval(&shown).await, value, "{step}");
        }
    }
    browser.eval("history.go(8)").await;
    step_is(&browser, "review").await;
    browser.quit().await;
    env.stop().await;
}

/// Every drawer and dialog with an address is open again after a reload, and Back closes it.
#[requires("browser")]
#[tokio::test]
async fn drawers_survive_reload_and_back() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    let drawers = [
        ("issues", "issue=SHOP-102", "Time line"),
        (
            "pipelines",
            &format!("job={RUNNING_JOB_ID}"),
            "Open run page",
        ),
        ("projects", "edit=PAY", "Max parallel issues"),
        ("projects", "secrets=SHOP", "STRIPE_KEY"),
    ];
    browser.open_view(&env.address, "overview").await;
    for (panel, aside, text) in drawers {
        browser.switch_panel(panel).await;
        let link = "const link = document.createElement('a'); link.href = arguments[0]; document.body.append(link); link.click(); link.remove();";
        browser.eval_with(link, json!([format!("?{aside}")])).await;
        browser.wait_for_text(text).await;
        browser.eval("location.reload()").await;
        browser.wait_for_text(text).await;
        wait_for_path(&browser, &format!("/admin/{panel}?{aside}")).await;
        browser.eval("history.back()").await;
        no_dialog(&browser).await;
        wait_for_path(&browser, &format!("/admin/{panel}")).await;
        browser.wait_for_view().await;
    }
    browser.quit().await;
    env.stop().await;
}

/// On a link with a long delay, a button is busy until its request is answered, nothing is sent twice, and a panel that
/// was left is not shown any more when its data arrives.
#[requires("browser")]
#[tokio::test]
async fn a_slow_link_sends_and_shows_nothing_twice() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects").await;
    let slow = json!({"offline": false, "latency": LATENCY_MS, "downloadThroughput": -1, "uploadThroughput": -1});
    browser.devtools("Network.enable", json!({})).await;
    browser
        .devtools("Network.emulateNetworkConditions", slow)
        .await;
    browser.eval(RECORD_CHANGES).await;
    let changes = || browser.eval("return window.changes");
    let press_twice = "const button = document.querySelector(arguments[0]); button.focus(); button.click(); button.click(); return button.ariaBusy";
    let busy = browser
        .eval_with(press_twice, json!(["[aria-label='Pause SHOP']"]))
        .await;
    assert_eq!(busy, "true");
    browser.wait_for_text("Paused SHOP.").await;
    browser
        .wait_until("document.querySelector(\"[aria-label='Resume SHOP']\")")
        .await;
    assert_eq!(changes().await, json!(["PATCH /api/mappings/SHOP"]));
    let toasts = "return document.querySelectorAll('.toast').length";
    assert_eq!(browser.eval(toasts).await, json!(1));

    // A form that is sent by Enter twice.
    browser.click("More for SHOP").await;
    browser.click("Secrets").await;
    browser.wait_for_text("STRIPE_KEY").await;
    browser.eval("window.changes.length = 0").await;
    browser.fill("Name", "ONCE").await;
    browser.fill("Value", "hush").await;
    browser.press_keys(&ENTER.repeat(2)).await;
    browser.wait_for_text_anywhere("Saved ONCE.").await;
    let named = "[...document.querySelectorAll('dialog li code')].filter((el) => el.innerText === 'ONCE').length";
    browser.wait_until(&format!("{named} === 1")).await;
    assert_eq!(changes().await, json!(["POST /api/mappings/SHOP/secrets"]));
    browser.press_keys(ESCAPE).await;
    no_dialog(&browser).await;

    // A form that is sent by Enter and by its button.
    browser.click("More for PAY").await;
    browser.click("Edit").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.eval("window.changes.length = 0").await;
    browser.fill("Max parallel issues", "8").await;
    browser.press_keys(ENTER).await;
    let save =
        "[...document.querySelectorAll('dialog button')].find((el) => el.innerText === 'Save')";
    browser
        .eval(&format!("const save = {save}; save.focus(); save.click();"))
        .await;
    browser.wait_for_text_anywhere("Saved PAY.").await;
    no_dialog(&browser).await;
    assert_eq!(changes().await, json!(["PATCH /api/mappings/PAY"]));

    for panel in ["issues", "blockers", "pulls", "audit"] {
        let go = "document.querySelector(`nav.side a[href='/admin/${arguments[0]}']`).click()";
        browser.eval_with(go, json!([panel])).await;
    }
    browser.wait_for_text("Export CSV").await;
    // Responses of the panels that were left arrive meanwhile.
    let settle = format!(
        "await new Promise((done) => setTimeout(done, {}))",
        2 * LATENCY_MS
    );
    browser.eval_async(&settle, json!([])).await;
    let titles = "return [...document.querySelectorAll('h1')].map((el) => el.innerText)";
    assert_eq!(browser.eval(titles).await, json!(["Audit log"]));
    let tables = "return [...document.querySelectorAll('main table')].map((el) => el.ariaLabel)";
    assert_eq!(browser.eval(tables).await, json!(["audit entries"]));
    browser.quit().await;
    env.stop().await;
}

/// What is entered in a form survives that the service is killed. The panel says that it is disconnected, and saves when
/// the service is back.
#[requires("browser")]
#[tokio::test]
async fn a_form_survives_a_killed_service() {
    let stopped = TestEnv::start().await.stop_service().await;
    let options = TestEnvOptions::default();
    let service = stopped.start_process(&options);
    let address = service.address.clone();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let browser = Browser::start().await;
    browser.open_view(&address, "projects?edit=ENG").await;
    browser
        .wait_until("document.querySelector('dialog form') && document.querySelector('.live.ok')")
        .await;
    browser.fill("Max parallel issues", "9").await;

    service.kill();
    browser
        .wait_until("!document.querySelector('.live.ok')")
        .await;
    browser.click("Save").await;
    browser.wait_for_text("Can't reach the service.").await;
    let value = "return document.querySelector('[name=maxInProgressAiIssues]').value";
    assert_eq!(browser.eval(value).await, "9");

    let service = stopped.start_process_on(port, &options);
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    assert_eq!(browser.eval(value).await, "9");
    browser.click("Save").await;
    browser.wait_for_text_anywhere("Saved ENG.").await;
    no_dialog(&browser).await;
    let stored = "return (await (await fetch('/api/mappings')).json()).ENG.maxInProgressAiIssues";
    let stored: Value = browser.eval_async(stored, json!([])).await;
    assert_eq!(stored, 9);
    browser.quit().await;
    assert_eq!(service.stop(), 0);
}
