//! The panel while things happen, and while there is much of everything.

use agent_implement::sandbox::scripted_agent::{Script, Step};
use serde_json::json;

use super::browser::Browser;
use super::complaints;
use super::furnish::crowded;
use crate::world::{Gate, World};

/// How long after its data arrived may a panel be busy?
const READY: f64 = 200.0;

/// How often is a speed taken? Of other tests at work on this machine the best of them is free.
const TAKES: usize = 6;

#[tokio::test]
async fn a_run_is_watched_from_its_dispatch_to_its_pull_request() {
    let world = World::start().await;
    let Some(browser) = Browser::start("panel::live::watched").await else {
        return world.stop().await;
    };
    let gate = Gate::of(&world);
    let script = Script::new().pass([
        gate.wait(),
        Step::write("cart.txt", "kept\n"),
    ]);
    world.script("ENG-1", script);
    browser.enter(&world.address, "pipelines").await;
    browser.sees("No dispatches yet").await;
    browser.js("window.here = 'since the beginning'").await;
    browser.until("document.querySelector('.live.ok')").await;
    world.flag("ENG-1", "Keep the cart");
    browser.sees("Keep the cart").await;
    browser.press_at("tbody a.row-link").await;
    browser.sees("agent started").await;
    browser.until("document.querySelector('.run-line [data-word=running]')").await;
    browser.until("document.querySelector('.timeline [data-word=running]')").await;
    gate.open();
    browser.until("document.querySelector('.run-line [data-word=completed]')").await;
    browser.sees("Pull request #1").await;
    browser.until("[...document.querySelectorAll('.timeline .step-name')].some((el) => el.innerText.startsWith('post-push-review'))").await;
    browser.press("Close").await;
    browser.until("document.querySelector('tbody [data-word=completed]') && document.querySelector('tbody a.external')").await;
    assert_eq!(browser.js("return window.here").await, json!("since the beginning"));
    let said = complaints(browser.console().await);
    assert!(said.is_empty(), "{said:#?}");
    browser.quit().await;
    world.end().await;
}

async fn best(browser: &Browser, script: &str, arguments: serde_json::Value) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..TAKES {
        let took = browser.js_later(script, arguments.clone()).await;
        best = best.min(took.as_f64().unwrap_or_else(|| panic!("{took}")));
    }
    best
}

/// From the arrival of the data until the page has drawn it and answers.
const READY_SCRIPT: &str = r#"
    const [panel] = arguments;
    const press = (name) => document.querySelector(`nav.side a[href='/admin/${name}']`).click();
    const still = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    press("secrets");
    while (document.querySelector("h1")?.innerText !== "Secrets" || document.querySelector(".loading")) await still();
    performance.clearMarks();
    press(panel);
    while (!performance.getEntriesByName(`shown:${panel}`).length) await still();
    await still();
    return performance.now() - performance.getEntriesByName(`data:${panel}`)[0].startTime;
"#;

/// The longest wait for a frame while a filter is typed into, letter by letter.
const TYPE_SCRIPT: &str = r#"
    const box = document.querySelector("input[type=search]");
    let longest = 0;
    for (const text of ["s", "sh", "sho", "shop", "shop-", "shop-2", "shop-23", "", "price", "zzz", ""]) {
        const began = performance.now();
        box.value = text;
        box.dispatchEvent(new Event("input", { bubbles: true }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        longest = Math.max(longest, performance.now() - began);
    }
    return longest;
"#;

/// The longest frame on the way from the first row to the last.
const SCROLL_SCRIPT: &str = r#"
    let longest = 0;
    const end = document.documentElement.scrollHeight;
    for (let top = 0; top <= end; top += end / 60) {
        const began = performance.now();
        scrollTo(0, top);
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        longest = Math.max(longest, performance.now() - began);
        if (!document.querySelector("tbody tr[aria-rowindex]")) return Infinity;
    }
    scrollTo(0, 0);
    return longest;
"#;

#[tokio::test]
async fn five_thousand_issues_and_five_hundred_runs_are_no_burden() {
    let world = crowded().await;
    let Some(browser) = Browser::start("panel::live::crowded").await else {
        return world.stop().await;
    };
    browser.enter(&world.address, "secrets").await;
    for panel in ["pipelines", "issues"] {
        let ready = best(&browser, READY_SCRIPT, json!([panel])).await;
        assert!(ready <= READY, "{panel} was ready {ready} ms after its data");
    }
    let rows = "return [document.querySelector('table').ariaRowCount, document.querySelectorAll('tbody tr').length]";
    let shown = browser.js(rows).await;
    assert_eq!(shown[0], json!("5001"));
    assert!(shown[1].as_u64().unwrap() < 100, "{shown}");
    let typed = best(&browser, TYPE_SCRIPT, json!([])).await;
    assert!(typed <= 100.0, "a letter took {typed} ms");
    let scrolled = best(&browser, SCROLL_SCRIPT, json!([])).await;
    assert!(scrolled <= 100.0, "a frame took {scrolled} ms");
    // The last row is where the scroll bar says, and looks as the first.
    browser.js("scrollTo(0, document.documentElement.scrollHeight)").await;
    browser.until("document.querySelector('tbody tr[aria-rowindex=\"5001\"]')").await;
    assert_eq!(complaints(browser.console().await), [""; 0]);
    browser.quit().await;
    world.stop().await;
}
