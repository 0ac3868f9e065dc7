//! Run page and drawer of a run: steps, the whole log, and control.

use std::time::Duration;

use domain::ids::JobId;
use domain::job::Job;
use domain::report::StepRecord;
use domain::sensitive_files::PrivateKeyTracker;
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use requires::requires;
use serde_json::{Value, json};
use store::run_logs::NewLines;
use store::{jobs, run_logs, steps};

use super::browser::Browser;
use super::console_errors;
use super::fixtures::{RUNNING_JOB_ID, populated_env};
use super::live_updates::{MAX_INPUT_WORK, MAX_PANEL_WORK, open, relative_work};
use super::run_records::FAILED_JOB_ID;
use super::untrusted_text::UntrustedText;
use crate::test_env::{Gate, TestEnv};

/// ID of a job that failed and has reported no steps.
const ENDED_JOB_ID: &str = "01M68980";

/// Script that answers requests for a log with `window.logText`, and adds its size to the details.
const SERVE_LOG: &str = r#"
    window.originalFetch ??= window.fetch;
    window.fetch = (path, how) => {
        const sized = (details) => new Response(JSON.stringify({ ...details, logBytes: window.logText.length }));
        if (path.endsWith("/details")) return window.originalFetch(path, how).then((response) => response.json()).then(sized);
        if (!/\/log\?offset=\d+$/.test(path)) return window.originalFetch(path, how);
        const bytes = new TextEncoder().encode(window.logText);
        return Promise.resolve(new Response(bytes, { headers: { "x-log-size": bytes.length, "x-log-start": "0" } }));
    };
"#;

/// Script that writes a log of 20,000 lines and four steps into `window.logText`.
const WRITE_LOG: &str = r#"
    const line = (n, text) => `${new Date(Date.UTC(2026, 10, 23, 8) + n * 50).toISOString()} ${text}\n`;
    const lines = [];
    ["clone", "install", "implement.1", "push"].forEach((step, at) => {
        lines.push(line(lines.length, `##[step] ${step}`));
        while (lines.length < (at + 1) * 5000) lines.push(line(lines.length, `test cart::keeps_items_${lines.length + 1} ... ok`));
    });
    lines[12000] = line(12000, "a needle in the haystack");
    window.logText = lines.join("");
"#;

/// Log of 20,000 lines and four steps. It is longer than what the service keeps.
fn log_text() -> String {
    let begin = Timestamp::from_millis(1_800_000_000_000);
    let line = |n: u64| {
        let text = match n {
            0 => "##[step] clone".to_owned(),
            5_000 => "##[step] install".to_owned(),
            6_000 => "\x1b[31mred\x1b[0m \x1b[1;42mgreen ground\x1b[0m <img src=x onerror=\"window.hacked=1\"> \x1b[".to_owned(),
            6_001 => format!("{}after the colors{}", "\x1b[31m".repeat(5000), "x".repeat(20_000)),
            10_000 => "##[step] implement.1".to_owned(),
            12_000 => "a needle in the haystack".to_owned(),
            15_000 => "##[step] push".to_owned(),
            17_000 => "another NEEDLE".to_owned(),
            19_990 => "Error: the push was rejected".to_owned(),
            _ => format!("test cart::keeps_items_{n} ... ok"),
        };
        format!("{} {text}\n", begin + Duration::from_millis(n * 50))
    };
    (0..20_000).map(line).collect()
}

/// Appends lines to the stored log of a run.
pub(super) async fn append_log(env: &TestEnv, job: &str, text: &str) {
    let job = JobId::from(job);
    let prepared = env.store.read(|tx| {
        let before = run_logs::get(tx, &job)?;
        let received = before.as_ref().map_or(0, |log| log.received) + text.len() as u64;
        let new = NewLines {
            text,
            received,
            private_key: PrivateKeyTracker::default(),
            step_marks: 0,
            last_line_at: env.app.core.now(),
            now: env.app.core.now(),
        };
        run_logs::prepare(tx, &job, before, new)
    });
    let prepared = prepared.unwrap();
    let written = env
        .store
        .write(move |tx| run_logs::append(tx, &job, &prepared));
    assert!(written.await.unwrap());
}

/// Opens the page of a run whose log was cut.
async fn open_page(env: &TestEnv, browser: &Browser, job: &str) {
    append_log(env, job, &log_text()).await;
    browser
        .open_view(&env.address, &format!("pipelines?job={job}"))
        .await;
    browser.click("Open run page").await;
    browser
        .wait_until("document.querySelectorAll('.log-lines .line').length")
        .await;
}

pub(super) async fn put_steps(env: &TestEnv, job: &'static str, rows: Vec<Value>) {
    let stored = env.store.write(move |tx| {
        for (order, row) in (100..).zip(&rows) {
            let step = StepRecord::parse(Some(row.clone())).unwrap();
            steps::put(tx, &job.into(), &step, order)?;
        }
        Ok(())
    });
    stored.await.unwrap();
}

async fn errors(browser: &Browser) -> Vec<String> {
    console_errors(browser.take_console_log().await)
}

/// Status, left edge and width of the bar, and text of each step.
const BARS: &str = "return [...document.querySelectorAll('.timeline > li')].map((li) => { \
    const bar = li.querySelector('.track i'); \
    return [li.querySelector('.badge').dataset.word, bar ? [parseFloat(bar.style.left), parseFloat(bar.style.width)] : null, li.querySelector('.track').innerText]; })";

#[requires("browser")]
#[tokio::test]
async fn shows_steps_on_one_time_axis() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    for view in ["pipelines?job=", "runs/"] {
        let view = format!("{view}{RUNNING_JOB_ID}");
        browser.open_view(&env.address, &view).await;
        browser
            .wait_until("document.querySelectorAll('.timeline > li').length === 4")
            .await;
        let bars = browser.eval(BARS).await;
        let number = |row: usize, field: usize| bars[row][1][field].as_f64().unwrap();
        // Every bar begins where the one before it ends.
        assert_eq!(number(0, 0), 0.0, "{bars}");
        assert!(number(1, 0) >= number(0, 0) + number(0, 1), "{bars}");
        assert!(number(3, 0) > number(1, 0) + number(1, 1), "{bars}");
        // A skipped step has no bar, but its reason.
        assert_eq!(bars[2], json!(["skipped", null, bars[2][2]]), "{bars}");
        assert!(!bars[2][2].as_str().unwrap().is_empty(), "{bars}");
        let axis = browser
            .eval("return document.querySelector('.axis').innerText")
            .await;
        assert!(axis.as_str().unwrap().contains("2 min"), "{axis}");
        // The bar of a running step grows.
        let width = "parseFloat(document.querySelector('.timeline .running .track i').style.width)";
        let length = format!(
            "{width} / parseFloat(document.querySelector('.timeline .passed .track i').style.width)"
        );
        let before = browser.eval(&format!("return {length}")).await;
        browser.wait_until(&format!("{length} > {before}")).await;
    }
    assert_eq!(errors(&browser).await, [""; 0]);
    browser.quit().await;
    env.stop().await;
}

#[requires("browser")]
#[tokio::test]
async fn steps_of_an_ended_run_do_not_run_on() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    let job = env
        .store
        .read(|tx| jobs::get(tx, &ENDED_JOB_ID.into()))
        .unwrap()
        .unwrap();
    let started: Timestamp = job.started_at.unwrap();
    let open_step = json!({"id": "implement.1", "type": "implement", "status": "running", "started_at": started + Duration::from_secs(60)});
    put_steps(&env, ENDED_JOB_ID, vec![open_step]).await;
    let view = format!("pipelines?job={ENDED_JOB_ID}");
    browser.open_view(&env.address, &view).await;
    browser
        .wait_until("document.querySelector('.timeline > li')")
        .await;
    let row = "return document.querySelector('.timeline > li').innerText";
    let before = browser.eval(row).await;
    assert!(before.as_str().unwrap().contains("Failed"), "{before}");
    assert_eq!(
        browser
            .eval("return document.querySelectorAll('.timeline [data-since], .timeline [data-word=running]').length")
            .await,
        json!(0)
    );
    // The clock of the page moves on by more than one drawing.
    browser
        .eval_async(
            "await new Promise((done) => setTimeout(done, 2500))",
            json!([]),
        )
        .await;
    assert_eq!(browser.eval(row).await, before);
    browser.quit().await;
    env.stop().await;
}

#[requires("browser")]
#[tokio::test]
async fn reads_searches_and_links_the_whole_log() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    open_page(&env, &browser, FAILED_JOB_ID).await;
    // Only the lines near the visible ones are elements.
    let elements = "return document.querySelectorAll('.log-lines .line').length";
    let shown = browser.eval(elements).await.as_u64().unwrap();
    assert!((50..2000).contains(&shown), "{shown}");
    let sections =
        "return [...document.querySelectorAll('.log-lines summary')].map((el) => el.innerText)";
    assert_eq!(
        browser.eval(sections).await,
        json!(["Start", "install", "implement.1", "push"])
    );
    let facts = r#"
        const lines = (await (await fetch(arguments[0])).text()).split("\n");
        const at = (part) => lines.findIndex((line) => line.includes(part)) + 1;
        const time = (line) => Date.parse(lines[line - 1].slice(0, 24));
        const elapsed = new Date(time(at("the push was rejected")) - time(1)).toISOString().slice(11, 19);
        return { cut: lines[0].slice(25), elapsed, red: at("green ground"), first: at("a needle"), second: at("another NEEDLE"), failure: at("the push was rejected") };
    "#;
    let path = format!("/api/jobs/{FAILED_JOB_ID}/log");
    let facts = browser.eval_async(facts, json!([path])).await;
    let cut = facts["cut"].as_str().unwrap();
    let removed = cut.strip_prefix("##[cut] ").unwrap();
    let first = format!("1 The oldest {removed} of this log were removed.");
    let shown = "return document.querySelector('.log-lines .line').innerText.replace(/\\s+/g, ' ')";
    assert_eq!(browser.eval(shown).await, json!(first));

    // Colors, and text that is no markup.
    let go_to = |line: &Value| format!("location.hash = '#L{line}'");
    browser.eval(&go_to(&facts["red"])).await;
    browser
        .wait_until("document.querySelector('.line.marked span span')")
        .await;
    let colors = "return [...document.querySelectorAll('.line span span')].slice(0, 2).map((el) => [el.className, el.innerText])";
    assert_eq!(
        browser.eval(colors).await,
        json!([["f1", "red"], ["bold b b2", "green ground"]])
    );
    let hostile = "return [typeof window.hacked, document.querySelectorAll('.log-lines img').length, document.body.innerText.includes('<img src=x onerror'), \
        [...document.querySelectorAll('.line')].some((el) => el.innerText.includes('more characters'))]";
    assert_eq!(
        browser.eval(hostile).await,
        json!(["undefined", 0, true, true])
    );

    browser.fill("Search the log", "needle").await;
    browser.wait_for_text("1 of 2").await;
    let current = "return document.querySelector('.line.now').innerText.replace(/\\s+/g, ' ')";
    assert_eq!(
        browser.eval(current).await,
        json!(format!("{} a needle in the haystack", facts["first"]))
    );
    browser.press_keys("\u{E007}").await;
    browser.wait_for_text("2 of 2").await;
    let second = format!("{} another NEEDLE", facts["second"]);
    assert_eq!(browser.eval(current).await, json!(second));
    browser.click("Next match").await;
    browser.wait_for_text("1 of 2").await;
    browser.click("Previous match").await;
    browser.wait_for_text("2 of 2").await;
    let in_view = "const box = document.querySelector('.line.now, .line.marked').getBoundingClientRect(); return box.top > 0 && box.bottom < innerHeight";
    assert_eq!(browser.eval(in_view).await, json!(true));
    browser.fill("Search the log", "nowhere").await;
    browser.wait_for_text("No matches").await;

    browser.click("Jump to failure").await;
    let failure = &facts["failure"];
    browser
        .wait_until(&format!("location.hash === '#L{failure}'"))
        .await;
    let marked = "return document.querySelector('.line.marked').innerText.replace(/\\s+/g, ' ')";
    browser
        .wait_until("document.querySelector('.line.marked')")
        .await;
    assert_eq!(
        browser.eval(marked).await,
        json!(format!("{failure} Error: the push was rejected"))
    );

    // Times, wrapping and folding.
    let content = "getComputedStyle(document.querySelector('.line.marked a'), '::after').content";
    let elapsed = browser.eval(&format!("return {content}")).await;
    let expected = format!("\"{}\"", facts["elapsed"].as_str().unwrap());
    assert_eq!(elapsed, json!(expected));
    browser
        .eval("const times = document.querySelector('.log-bar select'); times.value = 'none'; times.dispatchEvent(new Event('change', { bubbles: true }))")
        .await;
    browser.wait_until(&format!("{content} === 'none'")).await;
    browser.click("Wrap lines").await;
    browser
        .wait_until("getComputedStyle(document.querySelector('.line.marked')).whiteSpace === 'pre'")
        .await;
    browser.click("push").await;
    browser
        .wait_until("!document.querySelector('.line.marked')?.checkVisibility()")
        .await;

    // A link to a line opens its section, also after a reload.
    browser.eval(&go_to(&facts["second"])).await;
    browser
        .wait_until("document.querySelector('.line.marked')?.innerText.includes('another NEEDLE')")
        .await;
    assert_eq!(browser.eval(in_view).await, json!(true));
    assert_eq!(
        browser.eval("return typeof window.hacked").await,
        json!("undefined")
    );
    browser.quit().await;
    env.stop().await;
}

/// A log of a megabyte is shown and searched without blocking the page.
#[requires("browser")]
#[tokio::test]
async fn a_long_log_does_not_block_the_page() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "secrets").await;
    browser.eval(SERVE_LOG).await;
    browser.eval(WRITE_LOG).await;
    let threads = json!({"timeDomain": "threadTicks"});
    browser.devtools("Performance.enable", threads).await;
    // The log is whole when it is as high as its lines.
    let open_page = format!(
        "const link = document.createElement('a'); link.href = '/admin/runs/{FAILED_JOB_ID}'; document.body.append(link); link.click(); link.remove(); \
         while (!(document.querySelector('.log-lines')?.scrollHeight > 300_000)) await new Promise((done) => setTimeout(done, 5))"
    );
    let opened = relative_work(&browser, &open("secrets"), &open_page).await;
    assert!(
        opened <= MAX_PANEL_WORK,
        "opening is {opened} plain tables of work"
    );
    for (from, to) in [("", "e"), ("e", "needle"), ("needle", "")] {
        let type_text = |text: &str| {
            format!(
                "const box = document.querySelector('.log-bar input'); box.value = '{text}'; box.dispatchEvent(new Event('input', {{ bubbles: true }}))"
            )
        };
        let typed = relative_work(&browser, &type_text(from), &type_text(to)).await;
        assert!(
            typed <= MAX_INPUT_WORK,
            "{to:?} is {typed} plain tables of work"
        );
    }
    let scroll = |to: &str| format!("document.querySelector('.log-lines').scrollTop = {to}");
    let scrolled = relative_work(&browser, &scroll("0"), &scroll("250_000")).await;
    assert!(
        scrolled <= MAX_INPUT_WORK,
        "scrolling is {scrolled} plain tables of work"
    );
    browser.quit().await;
    env.stop().await;
}

/// New lines appear, nothing is read twice, and the view follows the end until somebody scrolls up.
#[requires("browser")]
#[tokio::test]
async fn appends_the_log_of_a_running_run() {
    let env = populated_env(&UntrustedText::plain()).await;
    let browser = Browser::start().await;
    open_page(&env, &browser, RUNNING_JOB_ID).await;
    let at_end = "(() => { const el = document.querySelector('.log-lines'); return el.scrollTop + el.clientHeight >= el.scrollHeight - 24; })()";
    browser.wait_until(at_end).await;
    browser.eval("window.offsets = []; const send = window.fetch; window.fetch = (path, how) => { const offset = /\\/log\\?offset=(\\d+)$/.exec(path)?.[1]; if (offset) window.offsets.push(Number(offset)); return send(path, how); }").await;
    let line = |text: &str| format!("{} {text}\n", env.app.core.now());
    append_log(&env, RUNNING_JOB_ID, &line("the first new line")).await;
    let step = json!({"id": "implement.1", "type": "implement", "status": "running", "started_at": env.app.core.now()});
    put_steps(&env, RUNNING_JOB_ID, vec![step]).await;
    browser.wait_for_text("the first new line").await;
    browser.wait_until(at_end).await;
    let offsets = "return window.offsets.length > 0 && window.offsets.every((offset) => offset > 1_000_000) && window.offsets.length < 10";
    assert_eq!(browser.eval(offsets).await, json!(true));

    browser
        .eval("document.querySelector('.log-lines').scrollTop = 0")
        .await;
    browser
        .wait_until("document.querySelector('.log-bar .chip').ariaPressed === 'false'")
        .await;
    append_log(&env, RUNNING_JOB_ID, &line("the second new line")).await;
    let loads = browser.eval("return window.offsets.length").await;
    let step = json!({"id": "review.1", "type": "review", "status": "running", "started_at": env.app.core.now()});
    put_steps(&env, RUNNING_JOB_ID, vec![step]).await;
    browser.wait_for_text("review.1").await;
    browser
        .wait_until(&format!("window.offsets.length > {loads}"))
        .await;
    assert_eq!(
        browser
            .eval("return document.querySelector('.log-lines').scrollTop")
            .await,
        json!(0)
    );
    browser.click("Follow").await;
    browser.wait_for_text("the second new line").await;
    browser.quit().await;
    env.stop().await;
}

/// Cancels a run for good in its drawer, and retries it on its page.
#[requires("browser")]
#[tokio::test]
async fn cancels_and_retries_a_run() {
    let env = TestEnv::start().await;
    let browser = Browser::start().await;
    let gate = Gate::new(&env);
    let script = Script::new().pass([gate.wait_step(), ScriptStep::write("cart.txt", "kept\n")]);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Keep the cart");
    env.wait_until("a run is active", || {
        env.jobs("ENG-1").last().is_some_and(Job::is_active)
    })
    .await;
    let id = env.jobs("ENG-1")[0].id.clone();
    let drawer = format!("pipelines?job={}", id.as_str());
    browser.open_view(&env.address, &drawer).await;
    browser.click("Cancel run of ENG-1").await;
    browser.wait_for_text("Cancel for good").await;
    let focused = "return document.activeElement.innerText";
    assert_eq!(browser.eval(focused).await, json!("Keep running"));
    browser.click("Keep running").await;
    browser.wait_for_text("Open run page").await;
    assert_eq!(browser.eval(focused).await, json!("Cancel run"));
    assert!(env.jobs("ENG-1")[0].is_active());

    browser.click("Cancel run of ENG-1").await;
    browser
        .wait_for_text("The issue waits until somebody triggers it again.")
        .await;
    browser.click("Cancel run").await;
    browser.wait_for_text("Cancelled the run of ENG-1.").await;
    browser
        .wait_until("document.querySelector('.run-line [data-word=cancelled]')")
        .await;
    assert!(!env.jobs("ENG-1")[0].is_active());
    // Who cancelled is said once, as in the audit.
    let notice = "return document.querySelector('dialog .notice').innerText";
    let notice = browser.eval(notice).await;
    assert_eq!(notice, json!("Cancelled by operator at 127.0.0.1"));
    gate.open();

    browser.click("Open run page").await;
    browser.wait_for_view().await;
    browser.click("Retry ENG-1").await;
    browser
        .wait_for_text("Starts a new run of ENG-1 as soon as there is capacity.")
        .await;
    browser.click("Retry").await;
    browser.wait_for_text_anywhere("Retrying ENG-1.").await;
    env.wait_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    env.wait_for_job_end("ENG-1").await;
    // Another run of the issue is the latest now.
    browser
        .wait_until("!document.querySelector('[aria-label=\"Retry ENG-1\"]')")
        .await;
    assert_eq!(errors(&browser).await, [""; 0]);
    browser.quit().await;
    env.finish().await;
}
