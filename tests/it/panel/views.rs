//! Every panel: with data and without, at every width, in both schemes, under hostile text.

use serde_json::json;

use super::browser::Browser;
use super::fixtures::{empty_env, populated_env};
use super::untrusted_text::UntrustedText;
use super::{PANELS, console_errors};
use crate::test_env::TestEnv;

/// Widths of a telephone, a tablet and a desk.
const WIDTHS: [u32; 3] = [360, 768, 1440];

/// What is open over a panel.
const ASIDES: [&str; 4] = [
    "pipelines?job=01M7A",
    "issues?issue=SHOP-102",
    "projects?edit=PAY",
    "projects?secrets=SHOP",
];

/// From now on the service answers its front page as one that is degraded.
const DEGRADED: &str = r#"
    window.was = window.fetch;
    const state = { status: "degraded", polls: 1, lastPollAt: null, version: "1", reasons: ["the store cannot write"] };
    window.fetch = (path, how) => path === "/" ? Promise.resolve(new Response(JSON.stringify(state), { status: 503 })) : window.was(path, how);
"#;

/// The checker of accessibility, where it is installed.
fn checker() -> Option<String> {
    let script = super::panel_tool("axe-core/axe.min.js", "a part of panel::looks")?;
    Some(std::fs::read_to_string(script).unwrap())
}

/// What keeps some people from using the page, serious or critical.
async fn barriers(browser: &Browser, checker: &str, scheme: &str) -> Vec<String> {
    if browser.eval("return typeof axe").await == json!("undefined") {
        let run = json!({"expression": checker, "returnByValue": true});
        browser.devtools("Runtime.evaluate", run).await;
    }
    let script = r#"
        // In the dark only the colours are others.
        const rules = arguments[0] === "dark" ? ["color-contrast", "link-in-text-block"] : ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
        const { violations } = await axe.run(document, { resultTypes: ["violations"], runOnly: rules });
        return violations.filter((one) => ["serious", "critical"].includes(one.impact))
            .map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html.slice(0, 200)} ${node.any[0]?.message ?? ""}`).join(" | ")}`);
    "#;
    let found = browser.eval_async(script, json!([scheme])).await;
    let found = found.as_array().unwrap_or_else(|| panic!("{found}"));
    found
        .iter()
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

async fn overflow(browser: &Browser) -> i64 {
    let script =
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    browser.eval(script).await.as_i64().unwrap()
}

async fn signed_in(world: &TestEnv, test: &str) -> Option<Browser> {
    let browser = Browser::start(test).await?;
    browser.resize(1440).await;
    browser.open_view(&world.address, "overview").await;
    Some(browser)
}

/// With data, in light and dark: nobody is shut out, nothing runs over the edge, the console is silent.
#[tokio::test]
async fn every_panel_is_there_for_everybody() {
    let words = UntrustedText::plain();
    let world = populated_env(&words).await;
    let Some(browser) = signed_in(&world, "panel::looks::everybody").await else {
        return world.stop().await;
    };
    let checker = checker();
    for (panel, title) in PANELS {
        browser.switch_panel(panel).await;
        browser.wait_for_text(title).await;
        for width in WIDTHS {
            browser.resize(width).await;
            assert!(overflow(&browser).await <= 0, "{panel} at {width}");
        }
        for scheme in ["light", "dark"] {
            browser.set_color_scheme(scheme).await;
            if let Some(checker) = &checker {
                assert_eq!(
                    barriers(&browser, checker, scheme).await,
                    [""; 0],
                    "{panel} {scheme}"
                );
            }
        }
    }
    for aside in ASIDES {
        browser
            .goto(&format!("{}/admin/{aside}", world.address))
            .await;
        browser.wait_until("document.querySelector('dialog[open]') && !document.querySelector('dialog .loading')").await;
        for width in WIDTHS {
            browser.resize(width).await;
            let script = "const el = document.querySelector('.dialog-body'); return el.scrollWidth - el.clientWidth";
            assert_eq!(browser.eval(script).await, json!(0), "{aside} at {width}");
        }
        for scheme in ["light", "dark"] {
            browser.set_color_scheme(scheme).await;
            if let Some(checker) = &checker {
                assert_eq!(
                    barriers(&browser, checker, scheme).await,
                    [""; 0],
                    "{aside} {scheme}"
                );
            }
        }
    }
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    world.stop().await;
}

/// Without data, each panel says what to do next; a service that does not answer is said, and that what
/// is shown is old.
#[tokio::test]
async fn an_empty_service_says_what_to_do_next() {
    let world = empty_env().await;
    let Some(browser) = signed_in(&world, "panel::looks::empty").await else {
        return world.stop().await;
    };
    let next = [
        ("overview", "Connect your first project"),
        ("issues", "No flagged issues"),
        ("pipelines", "No dispatches yet"),
        ("pulls", "No pull requests yet"),
        ("blockers", "Nothing is blocked"),
        ("projects", "No projects yet"),
        ("steps", "feedback-loop"),
        ("models", "No projects yet"),
        ("runners", "As each project says"),
        ("sessions", "No sessions"),
        ("reaper", "Nothing was destroyed"),
        ("secrets", "No projects yet"),
        ("settings", "Secrets cannot be managed here"),
        ("audit", "The ledger is empty"),
        ("customizations", "Nothing is customized"),
    ];
    for (panel, said) in next {
        browser.switch_panel(panel).await;
        browser.wait_for_text(said).await;
        assert!(overflow(&browser).await <= 0, "{panel}");
    }
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);

    browser.eval(DEGRADED).await;
    browser.switch_panel("overview").await;
    browser.wait_for_text("The service is degraded:").await;
    browser.wait_for_text("the store cannot write").await;
    browser.eval("window.fetch = window.was").await;

    browser.switch_panel("pipelines").await;
    browser
        .eval(
            "window.was = window.fetch; window.fetch = () => Promise.reject(new TypeError('gone'))",
        )
        .await;
    browser.switch_panel("blockers").await;
    browser
        .wait_for_text("The service cannot be reached.")
        .await;
    browser.eval("window.fetch = window.was").await;
    browser.click("Try again").await;
    browser.wait_for_text("Nothing is blocked").await;
    browser
        .eval("window.fetch = () => Promise.reject(new TypeError('gone'))")
        .await;
    world.app.heartbeats.record_poll(world.app.now());
    browser.wait_for_text("It could not be refreshed").await;
    browser.wait_for_text("Nothing is blocked").await;
    browser.quit().await;
    world.stop().await;
}

/// On a telephone the menu stays open whatever is drawn anew, until a panel is chosen.
#[tokio::test]
async fn an_open_menu_is_left_open() {
    let world = empty_env().await;
    let Some(browser) = signed_in(&world, "panel::looks::menu").await else {
        return world.stop().await;
    };
    let state = "return [document.querySelector('nav.side').checkVisibility({ visibilityProperty: true }), \
                 document.querySelector('.menu-toggle').ariaExpanded]";
    browser.resize(360).await;
    assert_eq!(browser.eval(state).await, json!([false, "false"]));
    browser.click("Panels").await;
    assert_eq!(browser.eval(state).await, json!([true, "true"]));
    browser
        .eval("document.querySelector('.top [aria-label^=Colours]').click()")
        .await;
    assert_eq!(browser.eval(state).await, json!([true, "true"]));
    browser.switch_panel("issues").await;
    assert_eq!(browser.eval(state).await, json!([false, "false"]));
    browser.click("Panels").await;
    browser.click("Panels").await;
    assert_eq!(browser.eval(state).await, json!([false, "false"]));
    browser.quit().await;
    world.stop().await;
}

/// Strangers' text is text wherever it is shown.
#[tokio::test]
async fn hostile_text_is_text_everywhere() {
    let words = UntrustedText::hostile();
    let world = populated_env(&words).await;
    let Some(browser) = signed_in(&world, "panel::looks::hostile").await else {
        return world.stop().await;
    };
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
    for aside in ["pipelines?job=01M7A", "issues?issue=SHOP-100"] {
        browser
            .goto(&format!("{}/admin/{aside}", world.address))
            .await;
        browser
            .wait_for_text("<script>window.hacked=1</script>")
            .await;
    }
    let elements = "return document.querySelectorAll('img, script:not([src]), b[onclick], a[href^=javascript]').length";
    assert_eq!(browser.eval(elements).await, json!(0));
    browser
        .goto(&format!("{}/admin/pulls", world.address))
        .await;
    browser.wait_for_view().await;
    assert_eq!(browser.eval(elements).await, json!(0));
    assert_eq!(
        browser.eval("return typeof window.hacked").await,
        json!("undefined")
    );
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    world.stop().await;
}
