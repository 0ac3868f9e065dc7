//! Every panel without data, and with hostile text. `screenshots.rs` checks the looks of each.

use requires::requires;
use serde_json::json;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::{empty_env, populated_env};
use super::untrusted_text::UntrustedText;
use crate::test_env::TestEnv;

/// Widths of a phone, a tablet and a desktop.
const WIDTHS: [u32; 3] = [360, 768, 1440];

/// Script that makes the service's front page respond as degraded.
const DEGRADED: &str = r#"
    window.originalFetch = window.fetch;
    const state = { status: "degraded", polls: 1, lastPollAt: null, version: "1", reasons: ["the store cannot write"] };
    window.fetch = (path, how) => path === "/" ? Promise.resolve(new Response(JSON.stringify(state), { status: 503 })) : window.originalFetch(path, how);
"#;

/// Script of the accessibility checker.
pub(super) fn axe_script() -> String {
    std::fs::read_to_string(super::panel_tool("axe-core/axe.min.js")).unwrap()
}

/// Serious and critical accessibility violations of the page.
pub(super) async fn accessibility_violations(
    browser: &Browser,
    axe_script: &str,
    scheme: &str,
) -> Vec<String> {
    if browser.eval("return typeof axe").await == json!("undefined") {
        let run = json!({"expression": axe_script, "returnByValue": true});
        browser.devtools("Runtime.evaluate", run).await;
    }
    let script = r#"
        // Dark mode changes only colors.
        const rules = arguments[0] === "dark" ? ["color-contrast", "link-in-text-block"] : ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
        const { violations } = await axe.run(document, { resultTypes: ["violations"], runOnly: rules });
        return violations.filter((one) => ["serious", "critical"].includes(one.impact))
            .map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html.slice(0, 200)} ${node.any[0]?.message ?? ""}`).join(" | ")}`);
    "#;
    let found = browser.eval_async(script, json!([scheme])).await;
    let found = found.as_array().unwrap_or_else(|| panic!("{found}"));
    found
        .iter()
        .map(|violation| violation.as_str().unwrap().to_owned())
        .collect()
}

pub(super) async fn overflow(browser: &Browser) -> i64 {
    let script =
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    browser.eval(script).await.as_i64().unwrap()
}

async fn signed_in(env: &TestEnv) -> Browser {
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.open_view(&env.address, "overview").await;
    browser
}

/// Without data, each panel names the next action. If the service is unreachable, the panel reports it and
/// marks its data as old.
#[requires("browser")]
#[tokio::test]
async fn empty_panels_show_the_next_action() {
    let env = empty_env().await;
    let browser = signed_in(&env).await;
    let empty_states = [
        ("overview", "Create the first project"),
        ("issues", "No flagged issues"),
        ("pipelines", "No runs yet"),
        ("pulls", "No pull requests yet"),
        ("questions", "Nothing waits for you"),
        ("blockers", "Nothing is blocked"),
        ("projects", "No projects yet"),
        ("steps", "feedback-loop"),
        ("models", "No projects yet"),
        ("runners", "Per project"),
        ("sessions", "No sessions"),
        ("reaper", "Nothing was destroyed"),
        ("secrets", "No projects yet"),
        ("settings", "Secrets cannot be managed here"),
        ("audit", "Export CSV"),
        ("customizations", "No customizations"),
    ];
    for (panel, expected) in empty_states {
        browser.switch_panel(panel).await;
        browser.wait_for_text(expected).await;
        assert!(overflow(&browser).await <= 0, "{panel}");
    }
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);

    browser.eval(DEGRADED).await;
    browser.switch_panel("overview").await;
    env.app
        .live
        .heartbeats
        .record_poll(engine::app::PollOutcome::nothing_to_do(env.app.core.now()));
    browser.wait_for_text("The service is degraded:").await;
    browser.wait_for_text("the store cannot write").await;
    browser.eval("window.fetch = window.originalFetch").await;

    browser.switch_panel("pipelines").await;
    browser
        .eval(
            "window.originalFetch = window.fetch; window.fetch = () => Promise.reject(new TypeError('gone'))",
        )
        .await;
    // Its data was not read before, so none is cached.
    browser.switch_panel("scoreboard").await;
    browser.wait_for_text("Can't reach the service.").await;
    // Until the click, because the panel also tries again by itself.
    browser
        .eval("addEventListener('click', () => { window.fetch = window.originalFetch }, { capture: true, once: true })")
        .await;
    browser.click("Retry").await;
    browser.wait_for_text("No runs in this range").await;
    browser.switch_panel("blockers").await;
    browser.wait_for_text("Nothing is blocked").await;
    browser
        .eval("window.fetch = () => Promise.reject(new TypeError('gone'))")
        .await;
    env.app
        .live
        .heartbeats
        .record_poll(engine::app::PollOutcome::nothing_to_do(env.app.core.now()));
    browser.wait_for_text("Showing data from").await;
    browser.wait_for_text("Nothing is blocked").await;
    browser.quit().await;
    env.stop().await;
}

/// On a phone the menu stays open across redraws, until a panel is chosen.
#[requires("browser")]
#[tokio::test]
async fn keeps_an_open_menu_open() {
    let env = empty_env().await;
    let browser = signed_in(&env).await;
    let state = "return [document.querySelector('nav.side').checkVisibility({ visibilityProperty: true }), \
                 document.querySelector('.menu-toggle').ariaExpanded]";
    browser.resize(360).await;
    assert_eq!(browser.eval(state).await, json!([false, "false"]));
    browser.click("Panels").await;
    assert_eq!(browser.eval(state).await, json!([true, "true"]));
    browser
        .eval("document.querySelector('.top [aria-label^=Theme]').click()")
        .await;
    assert_eq!(browser.eval(state).await, json!([true, "true"]));
    browser.switch_panel("issues").await;
    assert_eq!(browser.eval(state).await, json!([false, "false"]));
    browser.click("Panels").await;
    browser.click("Panels").await;
    assert_eq!(browser.eval(state).await, json!([false, "false"]));
    browser.quit().await;
    env.stop().await;
}

/// Text from outsiders is never interpreted as markup.
#[requires("browser")]
#[tokio::test]
async fn shows_hostile_text_as_plain_text() {
    let texts = UntrustedText::hostile();
    let env = populated_env(&texts).await;
    let browser = signed_in(&env).await;
    let titles = [
        ("overview", "<script>window.hacked=1</script>"),
        ("issues", "<script>window.hacked=1</script>"),
        ("pipelines", "\"'><img src=x onerror=\"window.hacked=1\">"),
        ("pulls", "<script>window.hacked=1</script>"),
        ("blockers", "👩‍👩‍👧‍👦"),
        ("sessions", "<b onclick=\"hacked=1\">m</b>"),
        ("reaper", "<b onclick=\"hacked=1\">m</b>"),
        ("steps", "<script>window.hacked=1</script>"),
        ("audit", "<script>window.hacked=1</script>"),
        ("customizations", "<b onclick=\"hacked=1\">m</b>"),
    ];
    for (panel, text) in titles {
        browser.switch_panel(panel).await;
        browser.wait_for_text(text).await;
        for width in WIDTHS {
            browser.resize(width).await;
            assert!(overflow(&browser).await <= 0, "{panel} at {width}");
        }
    }
    for dialog in ["pipelines?job=01M7A", "issues?issue=SHOP-100"] {
        browser
            .goto(&format!("{}/admin/{dialog}", env.address))
            .await;
        browser
            .wait_for_text("<script>window.hacked=1</script>")
            .await;
    }
    let elements = "return document.querySelectorAll('img, script:not([src]), b[onclick], a[href^=javascript]').length";
    assert_eq!(browser.eval(elements).await, json!(0));
    browser.goto(&format!("{}/admin/pulls", env.address)).await;
    browser.wait_for_view().await;
    assert_eq!(browser.eval(elements).await, json!(0));
    assert_eq!(
        browser.eval("return typeof window.hacked").await,
        json!("undefined")
    );
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}
