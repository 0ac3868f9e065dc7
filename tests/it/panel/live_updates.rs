//! The panel while things happen, and while there is much of everything.

use domain::report;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::json;
use store::steps;

use super::browser::Browser;
use super::console_errors;
use super::fixtures::{RUNNING_JOB_ID, large_env, populated_env};
use super::untrusted_text::UntrustedText;
use crate::test_env::{Gate, TestEnv};

/// How much work may a panel be from the press on its link until it stands there, in milliseconds of
/// the page's own processor time? Other tests at work on this machine do not count.
const READY: f64 = 200.0;

/// The same for a letter in a filter, and for a leap of the scroll bar: what a person takes for at once.
const AT_ONCE: f64 = 50.0;

/// How often is each taken? The first takes pay for compiling the page's scripts.
const TAKES: usize = 4;

#[tokio::test]
async fn a_run_is_watched_from_its_dispatch_to_its_pull_request() {
    let world = TestEnv::start().await;
    let Some(browser) = Browser::start("panel::live::watched").await else {
        return world.stop().await;
    };
    let gate = Gate::new(&world);
    let script = Script::new().pass([gate.wait_step(), ScriptStep::write("cart.txt", "kept\n")]);
    world.set_agent_script("ENG-1", script);
    browser.open_view(&world.address, "pipelines").await;
    browser.wait_for_text("No dispatches yet").await;
    browser.eval("window.here = 'since the beginning'").await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    world.create_labelled_issue("ENG-1", "Keep the cart");
    browser.wait_for_text("Keep the cart").await;
    browser.click_selector("tbody a.row-link").await;
    browser.wait_for_text("agent started").await;
    browser
        .wait_until("document.querySelector('.run-line [data-word=running]')")
        .await;
    browser
        .wait_until("document.querySelector('.timeline [data-word=running]')")
        .await;
    gate.open();
    browser
        .wait_until("document.querySelector('.run-line [data-word=completed]')")
        .await;
    browser.wait_for_text("Pull request #1").await;
    browser.wait_until("[...document.querySelectorAll('.timeline .step-name')].some((el) => el.innerText.startsWith('post-push-review'))").await;
    browser.click("Close").await;
    browser.wait_until("document.querySelector('tbody [data-word=completed]') && document.querySelector('tbody a.external')").await;
    assert_eq!(
        browser.eval("return window.here").await,
        json!("since the beginning")
    );
    let said = console_errors(browser.take_console_log().await);
    assert!(said.is_empty(), "{said:#?}");
    browser.quit().await;
    world.finish().await;
}

/// What the page has worked so far: scripts, styles and layout.
async fn work(browser: &Browser) -> f64 {
    let told = browser.devtools("Performance.getMetrics", json!({})).await;
    let metrics = told["metrics"].as_array().unwrap().iter();
    let counted = ["ScriptDuration", "LayoutDuration", "RecalcStyleDuration"];
    let counted = metrics.filter(|one| counted.contains(&one["name"].as_str().unwrap()));
    1000.0
        * counted
            .map(|one| one["value"].as_f64().unwrap())
            .sum::<f64>()
}

/// The least work of a few takes of one thing.
async fn least(browser: &Browser, before: &str, act: &str) -> f64 {
    let still = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));";
    let mut least = f64::MAX;
    for _ in 0..TAKES {
        browser
            .eval_async(&format!("{before}; {still}"), json!([]))
            .await;
        let begun = work(browser).await;
        browser
            .eval_async(&format!("{act}; {still}"), json!([]))
            .await;
        least = least.min(work(browser).await - begun);
    }
    least
}

/// A script that goes to a panel and waits until it is shown.
fn open(panel: &str) -> String {
    format!(
        "if (location.pathname === '/admin/{panel}') return; performance.clearMarks(); \
         document.querySelector(`nav.side a[href='/admin/{panel}']`).click(); \
         while (!performance.getEntriesByName('shown:{panel}').length) await new Promise((done) => setTimeout(done, 5))"
    )
}

/// A script that puts a text into the filter.
fn filter(text: &str) -> String {
    format!(
        "const box = document.querySelector('input[type=search]'); box.value = '{text}'; \
         box.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    )
}

#[tokio::test]
async fn five_thousand_issues_and_five_hundred_runs_are_no_burden() {
    let world = large_env().await;
    let Some(browser) = Browser::start("panel::live::crowded").await else {
        return world.stop().await;
    };
    browser.open_view(&world.address, "secrets").await;
    let threads = json!({"timeDomain": "threadTicks"});
    browser.devtools("Performance.enable", threads).await;
    for panel in ["pipelines", "issues"] {
        let ready = least(&browser, &open("secrets"), &open(panel)).await;
        assert!(ready <= READY, "{panel} is {ready} ms of work");
    }
    let rows = "return [document.querySelector('table').ariaRowCount, document.querySelectorAll('tbody tr').length]";
    let shown = browser.eval(rows).await;
    assert_eq!(shown[0], json!("5001"));
    assert!(shown[1].as_u64().unwrap() < 100, "{shown}");
    // What stands for the rows out of sight makes no column of its own, whatever the width shows of the others.
    let left_over = "const right = (el) => el.getBoundingClientRect().right; \
                     const cells = [...document.querySelector('tbody tr[aria-rowindex]').children]; \
                     return Math.round(right(document.querySelector('table')) - Math.max(...cells.map(right)))";
    for width in [1440, 768, 360] {
        browser.resize(width).await;
        let pixels = browser.eval(left_over).await.as_i64().unwrap();
        assert!(pixels.abs() <= 2, "{pixels} at {width}");
    }
    browser.resize(1440).await;
    for (from, to) in [("", "s"), ("s", "shop-23"), ("zzz", "")] {
        let typed = least(&browser, &filter(from), &filter(to)).await;
        assert!(typed <= AT_ONCE, "{to:?} is {typed} ms of work");
    }
    let scrolled = least(&browser, "scrollTo(0, 0)", "scrollTo(0, 90_000)").await;
    assert!(scrolled <= AT_ONCE, "a leap is {scrolled} ms of work");
    // The last row is where the scroll bar says.
    browser
        .eval("scrollTo(0, document.documentElement.scrollHeight)")
        .await;
    browser
        .wait_until("document.querySelector('tbody tr[aria-rowindex=\"5001\"]')")
        .await;
    assert_eq!(console_errors(browser.take_console_log().await), [""; 0]);
    browser.quit().await;
    world.stop().await;
}

#[tokio::test]
async fn a_run_with_more_steps_than_are_kept_says_so_and_is_read_in_pages() {
    let world = populated_env(&UntrustedText::plain()).await;
    let Some(browser) = Browser::start("panel::live::steps").await else {
        return world.stop().await;
    };
    let put = world.app.store.write(|tx| {
        for number in 0..steps::MAX_STEPS + 7 {
            let step = json!({"id": format!("many-{number:04}"), "type": "t", "status": "passed", "started_at": "z"});
            let step = report::StepRecord::parse(Some(step)).unwrap();
            steps::put(tx, &RUNNING_JOB_ID.into(), &step, number)?;
        }
        Ok(())
    });
    put.await.unwrap();
    let place = format!("pipelines?job={RUNNING_JOB_ID}");
    browser.open_view(&world.address, &place).await;
    browser.wait_for_text("the first 100").await;
    browser
        .wait_for_text("went over the limit of 500 steps and 4 MiB")
        .await;
    for shown in [200, 300, 400, 500] {
        browser.click("More steps").await;
        let there = format!("document.querySelectorAll('.timeline > li').length === {shown}");
        browser.wait_until(&there).await;
    }
    browser.wait_for_text("500 steps").await;
    let more = browser
        .eval("return [...document.querySelectorAll('button')].some((el) => el.innerText === 'More steps')")
        .await;
    assert_eq!(more, json!(false));
    let said = console_errors(browser.take_console_log().await);
    assert!(said.is_empty(), "{said:#?}");
    browser.quit().await;
    world.stop().await;
}
