//! Scoreboard: ranges, explained numbers, links and downloads.

use requires::requires;
use serde_json::{Value, json};

use super::browser::Browser;
use super::console_errors;
use super::fixtures::populated_env;
use super::untrusted_text::UntrustedText;
use super::views::{accessibility_violations, axe_script};
use crate::test_env::TestEnv;

/// Script that answers requests for the scoreboard with fixed numbers, and keeps what is downloaded.
const SERVE_SCORES: &str = r#"
    const original = window.fetch;
    window.asked = [];
    window.saved = [];
    const score = (key, fields) => ({ key, runs: 0, pullRequests: 0, merged: 0, closed: 0, open: 0, mergedShare: null, reviewRounds: null, hoursToPullRequest: null,
        hoursToMerge: null, costUsd: null, costPerMergedUsd: null, humanCommitsAfter: null, failuresByReason: {}, waitsByReason: {}, ...fields });
    const some = { runs: 40, pullRequests: 25, merged: 16, closed: 4, open: 5, mergedShare: 0.8, reviewRounds: 1.25, hoursToPullRequest: { p50: 0.5, p95: 2.25 },
        hoursToMerge: { p50: 7, p95: 49 }, costUsd: 64, costPerMergedUsd: 4, humanCommitsAfter: 0.4, failuresByReason: { TIMEOUT: 1, NO_CHANGES: 3 }, waitsByReason: { concurrency: 7 } };
    window.fetch = (path, how) => {
        if (!path.startsWith("/api/scoreboard?")) return original(path, how);
        const query = new URLSearchParams(path.split("?")[1]);
        window.asked.push(Object.fromEntries(query));
        const rows = query.get("by") === "label" ? [] : [score("OPS", {}), score("=SUM(A1)", some)];
        const body = { from: query.get("from"), to: query.get("to"), rows, total: score("total", some) };
        return Promise.resolve(new Response(JSON.stringify(body), { headers: { "content-type": "application/json" } }));
    };
    const create = URL.createObjectURL;
    URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return create(blob); };
"#;

/// Opens the scoreboard with fixed numbers.
async fn open_scoreboard(env: &TestEnv) -> Browser {
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.open_view(&env.address, "secrets").await;
    browser.eval(SERVE_SCORES).await;
    browser.switch_panel("scoreboard").await;
    browser.wait_for_text("To pull request").await;
    browser
}

async fn last_query(browser: &Browser) -> Value {
    browser.eval("return window.asked.at(-1)").await
}

#[requires("browser")]
#[tokio::test]
async fn explains_links_and_downloads_its_numbers() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = open_scoreboard(&env).await;
    let row = |row: usize| {
        format!(
            "return [...document.querySelectorAll('.board tbody tr, .board tfoot tr')][{row}].innerText.split(/\\s*[\\t\\n]+\\s*/)"
        )
    };
    assert_eq!(
        browser.eval(&row(0)).await,
        json!([
            "=SUM(A1)",
            "40",
            "25",
            "80%",
            "1.3",
            "30 min",
            "p95 2 h 15 min",
            "7 h",
            "p95 2 d 1 h",
            "$64.00",
            "$4.00",
            "0.4"
        ])
    );
    // What is not known is no zero.
    assert_eq!(
        browser.eval(&row(1)).await,
        json!(["OPS", "0", "0", "–", "–", "–", "–", "–", "–", "–"])
    );
    // The focus explains a number in words.
    browser
        .eval("document.querySelector('.board tbody button.tip').focus()")
        .await;
    let tip = "return getComputedStyle(document.activeElement, '::after').content";
    browser.press_keys("\u{E004}").await;
    browser
        .eval("document.querySelector('.board tbody button.tip').focus({ focusVisible: true })")
        .await;
    assert_eq!(
        browser.eval(tip).await,
        json!("\"16 merged, as a share of those merged, closed, or open for 7 days.\"")
    );
    let reasons = "return [...document.querySelectorAll('.reasons li')].map((el) => el.innerText.split(/\\s*\\n\\s*/))";
    assert_eq!(
        browser.eval(reasons).await,
        json!([["No changes", "3"], ["Timeout", "1"], ["At capacity", "7"]])
    );

    browser.click("Download CSV").await;
    browser.wait_until("window.saved.length === 1").await;
    let csv = browser.eval("return window.saved[0]").await;
    let lines: Vec<&str> = csv.as_str().unwrap().split("\r\n").collect();
    // A spreadsheet shows the name and does not compute it.
    assert_eq!(
        lines[2],
        "'=SUM(A1),40,25,16,4,5,0.8,1.25,0.5,2.25,7,49,64,4,0.4"
    );
    assert_eq!(lines[1], "OPS,0,0,0,0,0,,,,,,,,,");
    assert!(
        lines[0].starts_with("team,runs,pullRequests,merged"),
        "{csv}"
    );
    browser.click("Download JSON").await;
    browser.wait_until("window.saved.length === 2").await;
    let saved = browser
        .eval("return JSON.parse(window.saved[1]).total.runs")
        .await;
    assert_eq!(saved, json!(40));

    // A number leads to the list of what it counts.
    let link = "return document.querySelector('.board tbody a.tip').getAttribute('href')";
    let link = browser.eval(link).await;
    let link = link.as_str().unwrap();
    assert!(
        link.starts_with("/admin/pipelines?") && link.contains("team=%3DSUM%28A1%29"),
        "{link}"
    );
    assert!(link.contains("from=") && link.contains("to="), "{link}");
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    env.stop().await;
}

/// Range and grouping are in the URL: they survive a reload, and Back returns to them.
#[requires("browser")]
#[tokio::test]
async fn keeps_its_range_in_the_url() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = open_scoreboard(&env).await;
    let days = "const [from, to] = ['from', 'to'].map((name) => Date.parse(window.asked.at(-1)[name])); return Math.round((to - from) / 86_400_000)";
    assert_eq!(browser.eval(days).await, json!(30));
    assert_eq!(last_query(&browser).await["by"], "team");
    browser.click("7 d").await;
    browser.wait_until("window.asked.length === 2").await;
    assert_eq!(browser.eval(days).await, json!(7));
    browser.click("Model").await;
    browser.wait_until("window.asked.length === 3").await;
    assert_eq!(last_query(&browser).await["by"], "model");
    assert_eq!(browser.eval(days).await, json!(7));
    browser.eval("history.back()").await;
    browser.wait_until("window.asked.length === 4").await;
    assert_eq!(last_query(&browser).await["by"], "team");
    let current =
        "return [...document.querySelectorAll('.chip[aria-current]')].map((el) => el.innerText)";
    browser
        .wait_until("document.querySelector('.chip[aria-current]').innerText === '7 d' && document.querySelectorAll('.chip[aria-current]')[1].innerText === 'Project'")
        .await;
    assert_eq!(browser.eval(current).await, json!(["7 d", "Project"]));

    browser
        .eval("const [from, to] = document.querySelectorAll('.dates input'); from.value = '2026-01-01'; to.value = '2026-01-31'; to.dispatchEvent(new Event('change', { bubbles: true }))")
        .await;
    browser
        .wait_until("location.search.includes('from=2026-01-01')")
        .await;
    browser.wait_until("window.asked.length === 5").await;
    let asked = last_query(&browser).await;
    assert_eq!(
        (asked["from"].as_str(), asked["to"].as_str()),
        (
            Some("2026-01-01T00:00:00.000Z"),
            Some("2026-02-01T00:00:00.000Z")
        )
    );
    browser.click("Label").await;
    browser.wait_for_text("No runs in this range").await;
    browser.quit().await;
    env.stop().await;
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn scoreboard_is_accessible_at_every_width() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = open_scoreboard(&env).await;
    let axe_script = axe_script();
    for width in [360, 768, 1440] {
        browser.resize(width).await;
        let overflow =
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert!(
            browser.eval(overflow).await.as_i64().unwrap() <= 0,
            "at {width}"
        );
    }
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme).await;
        assert_eq!(
            accessibility_violations(&browser, &axe_script, scheme).await,
            [""; 0],
            "{scheme}"
        );
    }
    browser.quit().await;
    env.stop().await;
}
