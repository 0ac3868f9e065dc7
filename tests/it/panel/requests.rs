//! What the panel requests, and what it does if a request fails: pages of lists, sessions, versions and drafts.

use std::time::Duration;

use domain::audit::{Action, Actor};
use domain::job::{Job, JobKind, JobState};
use engine::app::PollOutcome;
use requires::requires;
use serde_json::{Value, json};
use store::{audit, jobs, mappings};

use super::browser::Browser;
use super::fixtures::{RUNNING_JOB_ID, empty_env, populated_env};
use super::runs::{append_log, put_steps};
use super::untrusted_text::UntrustedText;
use crate::api_server::{ACCESS_CODE, dispatched_job};
use crate::test_env::TestEnv;

async fn plain_env() -> TestEnv {
    populated_env(&UntrustedText::plain()).await
}

/// Records audit entries with the target `SEED`.
async fn seed_audit(env: &TestEnv, count: u32) {
    let now = env.app.core.now();
    let written = env.store.write(move |tx| {
        let event = Actor::service().audit_event(Action::RunDispatched, "SEED");
        (0..count).try_for_each(|_| audit::append(tx, &event, now))
    });
    written.await.unwrap();
}

/// Moves the clock of the page on, so that cached lists are due, and sends an event.
async fn reload(env: &TestEnv, browser: &Browser) {
    browser
        .eval("const now = Date.now; Date.now = () => now() + 120_000")
        .await;
    let job = dispatched_job("01M6ZZ", JobKind::Planning);
    let stored = env.store.write(move |tx| jobs::put(tx, &job));
    stored.await.unwrap();
}

/// Loaded pages of the audit stay when new entries arrive, and the end of the log is found.
#[requires("browser")]
#[tokio::test]
async fn keeps_the_loaded_pages_of_the_audit() {
    let env = plain_env().await;
    seed_audit(&env, 400).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "audit?q=SEED").await;
    let shows = |rows: u32| {
        // The head is a row as well.
        let rows = rows + 1;
        format!("document.querySelector('main table')?.getAttribute('aria-rowcount') === '{rows}'")
    };
    let has_more =
        "[...document.querySelectorAll('button')].some((el) => el.innerText === 'Older entries')";
    browser.wait_until(&shows(200)).await;
    browser.click("Older entries").await;
    browser.wait_until(&shows(400)).await;
    browser.click("Older entries").await;
    browser.wait_until(&format!("!{has_more}")).await;
    browser.wait_until(&shows(400)).await;

    seed_audit(&env, 5).await;
    reload(&env, &browser).await;
    browser.wait_until(&shows(405)).await;
    browser.wait_until(&format!("!{has_more}")).await;

    // More new entries than a page has: none is missing in between.
    seed_audit(&env, 250).await;
    reload(&env, &browser).await;
    browser.wait_until(&shows(200)).await;
    for rows in [400, 600, 655] {
        browser.click("Older entries").await;
        browser.wait_until(&shows(rows)).await;
    }
    browser.wait_until(&format!("!{has_more}")).await;
    browser.quit().await;
    env.stop().await;
}

/// The frame above the panels reads some of the same paths. If it gets a newer version than the panel, the panel follows.
#[requires("browser")]
#[tokio::test]
async fn a_panel_reloads_if_something_else_has_read_a_newer_version() {
    let env = empty_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "steps").await;
    let script = r#"
        const { apply, beginLoad, cached, staleDelay } = await import("/admin/assets/js/parts/lists.js");
        const delay = () => String(staleDelay());
        const read = (version) => cached("/api/poll", async () => ({ data: [version], etag: null }));
        let now = Date.now();
        Date.now = () => now;
        const seen = [];
        beginLoad();
        seen.push(await read(1), delay());

        // An event makes it stale a moment before it may be fetched again.
        apply("poll", null);
        now += 4_900;
        beginLoad();
        seen.push(await read(2));
        now += 200;
        const other = read(3);
        seen.push(delay(), await other, delay());

        beginLoad();
        seen.push(await read(4), delay());
        return seen;
    "#;
    let seen = browser.eval_async(script, json!([])).await;
    assert_eq!(
        seen,
        json!([[1], "Infinity", [1], "0", [3], "0", [3], "Infinity"])
    );
    browser.quit().await;
    env.stop().await;
}

/// Makes every request fail whose URL contains a text.
async fn fail_requests(browser: &Browser, part: &str) {
    let script = format!(
        "window.send = window.fetch; window.fetch = (path, how) => String(path).includes({}) ? Promise.reject(new TypeError('gone')) : window.send(path, how)",
        json!(part)
    );
    browser.eval(&script).await;
}

/// If the session has ended when the log is loaded, the user signs in and sees the log.
#[requires("browser")]
#[tokio::test]
async fn the_log_survives_the_end_of_the_session() {
    let env = plain_env().await;
    append_log(
        &env,
        RUNNING_JOB_ID,
        "2027-01-15T08:00:00.000Z the first line\n",
    )
    .await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    fail_requests(&browser, "/log?").await;
    let open = format!(
        "const link = document.createElement('a'); link.href = '/admin/runs/{RUNNING_JOB_ID}'; document.body.append(link); link.click(); link.remove()"
    );
    browser.eval(&open).await;
    browser.wait_for_text("Can't reach the service.").await;
    let statuses = "window.statuses = []; window.fetch = async (path, how) => { const response = await window.send(path, how); if (String(path).includes('/log?')) window.statuses.push(response.status); return response; }";
    browser.eval(statuses).await;
    env.advance_clock(Duration::from_secs(25 * 3600));
    browser
        .eval("[...document.querySelectorAll('main button')].find((el) => el.innerText === 'Retry').click()")
        .await;
    browser.wait_until("window.statuses.includes(401)").await;
    browser.wait_for_text("Your session has ended").await;
    let refused = "return [...document.querySelectorAll('main .error')].map((el) => el.innerText).filter((text) => /401|Unauthorized/.test(text))";
    assert_eq!(browser.eval(refused).await, json!([]));
    browser.fill("Access code", ACCESS_CODE).await;
    browser.click("Sign in").await;
    browser.wait_for_text_anywhere("the first line").await;
    browser.quit().await;
    env.stop().await;
}

/// Behind a proxy that changes ETags, no version is ever current: the change is sent twice, and the panel says why it
/// was refused.
#[requires("browser")]
#[tokio::test]
async fn a_change_is_repeated_once_behind_a_proxy_that_changes_etags() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "settings").await;
    let proxy = r#"
        const send = window.fetch;
        window.patches = 0;
        window.fetch = async (path, how) => {
            if (how?.method === "PATCH" && (window.patches += 1) > 9) throw new TypeError("endless");
            const response = await send(path, how);
            const headers = new Headers(response.headers);
            if (!headers.has("etag")) return response;
            headers.set("etag", headers.get("etag").replace(/"$/, "-gzip\""));
            return new Response(response.status === 304 ? null : await response.blob(), { status: response.status, headers });
        };
    "#;
    browser.eval(proxy).await;
    browser.switch_panel("projects").await;
    browser.click("More for SHOP").await;
    browser.click("Edit").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.fill("Max parallel issues", "7").await;
    browser.click("Save").await;
    browser
        .wait_for_text("The project was changed in the meantime")
        .await;
    assert_eq!(browser.eval("return window.patches").await, json!(2));
    let value = "return document.querySelector('[name=maxInProgressAiIssues]').value";
    assert_eq!(browser.eval(value).await, json!("7"));
    let stored = env.store.read(|tx| mappings::get(tx, &"SHOP".into()));
    assert_eq!(stored.unwrap().unwrap().max_in_progress, 3);
    browser.quit().await;
    env.stop().await;
}

/// A check of what was typed changes nothing, so nothing is fetched again because of it.
#[requires("browser")]
#[tokio::test]
async fn checks_of_a_form_expire_no_list() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects").await;
    // No list is due by its age.
    browser
        .eval("const at = Date.now(); Date.now = () => at; const send = window.fetch; window.paths = []; window.fetch = (path, how) => { window.paths.push(`${how?.method ?? 'GET'} ${path}`); return send(path, how); }")
        .await;
    browser.click("More for SHOP").await;
    browser.click("Edit").await;
    browser.wait_for_text("Max parallel issues").await;
    browser.fill("Max parallel issues", "0").await;
    browser.click("Save").await;
    browser
        .wait_for_text("Max parallel issues must be at least 1")
        .await;
    browser.press_keys("\u{E00C}").await;
    browser.click("Discard").await;
    browser
        .wait_until("!document.querySelector('dialog')")
        .await;
    browser.switch_panel("blockers").await;
    browser.wait_for_text("Waiting issues").await;
    browser.switch_panel("projects").await;
    browser.wait_for_text("SHOP").await;
    let paths: Value = browser.eval("return window.paths").await;
    let paths: Vec<&str> = paths
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(paths.contains(&"POST /api/mappings/check"), "{paths:?}");
    assert!(!paths.contains(&"GET /api/mappings"), "{paths:?}");
    browser.quit().await;
    env.stop().await;
}

/// A change shows at once, although the list was being fetched when it was made.
#[requires("browser")]
#[tokio::test]
async fn a_change_shows_during_a_slow_request() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "projects").await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    browser
        .eval("const send = window.fetch; window.fetch = async (path, how) => { const response = await send(path, how); if (path === '/api/mappings' && !window.release) await new Promise((done) => { window.release = done; }); return response; }")
        .await;
    reload(&env, &browser).await;
    browser.wait_until("window.release").await;
    browser.click("Pause SHOP").await;
    let is_paused = "document.querySelector('[aria-label=\"Resume SHOP\"]')";
    browser.wait_until(is_paused).await;
    let shown = "performance.getEntriesByName('shown:projects').length";
    let before = browser
        .eval(&format!(
            "const before = {shown}; window.release(); return before"
        ))
        .await;
    browser.wait_until(&format!("{shown} > {before}")).await;
    assert_eq!(
        browser.eval(&format!("return Boolean({is_paused})")).await,
        json!(true)
    );
    browser.quit().await;
    env.stop().await;
}

/// Stores runs of issues of their own, with increasing ids.
async fn put_runs(env: &TestEnv, numbers: std::ops::Range<u32>) {
    let runs = numbers.map(|number| {
        let mut job = dispatched_job(&format!("01M8{number:06}"), JobKind::Implementation);
        job.issue.id = format!("issue-{number}").as_str().into();
        job.issue.key = format!("ENG-{number}").as_str().into();
        job
    });
    let runs: Vec<Job> = runs.collect();
    let stored = env
        .store
        .write(move |tx| runs.iter().try_for_each(|job| jobs::put(tx, job)));
    stored.await.unwrap();
}

/// Runs that start while another filter is shown move no run out of the list: each is on the page or on the next one.
#[requires("browser")]
#[tokio::test]
async fn no_run_is_missing_between_two_pages() {
    let env = empty_env().await;
    put_runs(&env, 100..220).await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "pipelines").await;
    browser.wait_for_text("100 loaded").await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    browser.click("Failed").await;
    browser.wait_for_text("No matches").await;
    // The filtered list is due now, and the other one is still current.
    browser
        .eval("const now = Date.now; Date.now = () => now() + 10_000")
        .await;
    put_runs(&env, 300..303).await;
    let mut shown = dispatched_job("01M8000299", JobKind::Implementation);
    shown.state = JobState::Failed {
        code: None,
        reason: "The tests fail".into(),
    };
    shown.finished_at = Some(shown.reserved_at);
    let stored = env.store.write(move |tx| jobs::put(tx, &shown));
    stored.await.unwrap();
    let key = |key: &str| {
        format!(
            "[...document.querySelectorAll('tbody .key')].some((el) => el.innerText === '{key}')"
        )
    };
    browser.wait_until(&key("ENG-1")).await;
    browser.click("Failed").await;
    browser.wait_until(&key("ENG-302")).await;
    browser.click("Load more").await;
    browser
        .wait_until(
            "![...document.querySelectorAll('button')].some((el) => el.innerText === 'Load more')",
        )
        .await;
    let rows = "return document.querySelector('main table').getAttribute('aria-rowcount')";
    // The head is a row as well.
    assert_eq!(browser.eval(rows).await, json!("125"));
    browser.quit().await;
    env.stop().await;
}

/// A run that has ended leaves the list of active runs, also beyond its first page.
#[requires("browser")]
#[tokio::test]
async fn an_ended_run_leaves_the_list_of_active_runs() {
    let env = empty_env().await;
    put_runs(&env, 100..220).await;
    let browser = Browser::start().await;
    browser
        .open_view(&env.address, "pipelines?status=active")
        .await;
    let rows = |count: u32| {
        let rows = count + 1;
        format!("document.querySelector('main table')?.getAttribute('aria-rowcount') === '{rows}'")
    };
    browser.wait_until(&rows(100)).await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    browser.click("Load more").await;
    browser.wait_until(&rows(120)).await;
    let mut oldest = dispatched_job("01M8000100", JobKind::Implementation);
    oldest.state = JobState::Completed;
    oldest.finished_at = Some(oldest.reserved_at);
    let stored = env.store.write(move |tx| jobs::put(tx, &oldest));
    stored.await.unwrap();
    browser.wait_until(&rows(119)).await;
    browser.quit().await;
    env.stop().await;
}

/// The list of a filter that was left before it arrived is not shown for the next filter.
#[requires("browser")]
#[tokio::test]
async fn a_late_list_does_not_replace_the_one_of_the_next_filter() {
    let env = plain_env().await;
    let browser = Browser::start().await;
    browser.open_view(&env.address, "pipelines").await;
    browser
        .eval("const send = window.fetch; window.fetch = async (path, how) => { const response = await send(path, how); if (String(path).includes('status=completed')) await new Promise((done) => { window.release = done; }); return response; }")
        .await;
    browser.click("Completed").await;
    browser.wait_until("window.release").await;
    browser.click("Failed").await;
    let words = "[...document.querySelectorAll('tbody .badge')].map((el) => el.dataset.word)";
    let all_failed = format!("{words}.length && !{words}.includes('completed')");
    browser.wait_until(&all_failed).await;
    let release = "window.release(); await new Promise((done) => setTimeout(done, 200)); document.querySelector('[title^=\"Theme\"]').click()";
    browser.eval_async(release, json!([])).await;
    let all_failed = format!("return Boolean({all_failed})");
    assert_eq!(browser.eval(&all_failed).await, json!(true));
    browser.quit().await;
    env.stop().await;
}

/// What is appended to a log during a request for it is requested afterwards.
#[requires("browser")]
#[tokio::test]
async fn the_end_of_a_log_is_loaded_after_a_slow_request() {
    let env = plain_env().await;
    let line = |text: &str| format!("2027-01-15T08:00:00.000Z {text}\n");
    append_log(&env, RUNNING_JOB_ID, &line("the first line")).await;
    let browser = Browser::start().await;
    browser
        .open_view(&env.address, &format!("runs/{RUNNING_JOB_ID}"))
        .await;
    browser.wait_for_text("the first line").await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    // The next response with a part of the log waits until it is released.
    browser
        .eval("const send = window.fetch; window.fetch = async (path, how) => { const response = await send(path, how); if (String(path).includes('/log?') && !window.release) await new Promise((done) => { window.release = done; }); return response; }")
        .await;
    let step = |id: &str| json!({"id": id, "type": "implement", "status": "running", "started_at": env.app.core.now()});
    put_steps(&env, RUNNING_JOB_ID, vec![step("implement.8")]).await;
    browser.wait_until("window.release").await;
    append_log(&env, RUNNING_JOB_ID, &line("the last line")).await;
    put_steps(&env, RUNNING_JOB_ID, vec![step("implement.9")]).await;
    browser.wait_for_text("implement.9").await;
    browser.eval("window.release()").await;
    browser.wait_for_text("the last line").await;
    browser.quit().await;
    env.stop().await;
}

/// The result of a requested poll is that of a poll that began after the request, not one that was read or running before.
#[requires("browser")]
#[tokio::test]
async fn a_requested_poll_reports_its_own_result() {
    let env = plain_env().await;
    let heartbeats = &env.app.live.heartbeats;
    let record = |dispatched: usize, seconds: u64| {
        let at = env.app.core.now() + Duration::from_secs(seconds);
        heartbeats.record_poll(PollOutcome {
            dispatched,
            ..PollOutcome::nothing_to_do(at)
        });
    };
    record(1, 0);
    let browser = Browser::start().await;
    browser.open_view(&env.address, "overview").await;
    browser
        .wait_until("document.querySelector('.live.ok')")
        .await;
    browser
        .eval("window.reads = 0; const send = window.fetch; window.fetch = (path, how) => { if (path === '/api/poll' && how?.method !== 'POST') window.reads += 1; return send(path, how); }")
        .await;
    let reported = |count: &str| {
        format!(
            "[...document.querySelectorAll('.toast')].some((el) => el.innerText.includes('{count} started'))"
        )
    };
    browser.click("Poll now").await;
    browser
        .wait_for_text("Started a poll of the ticketing systems.")
        .await;
    // The overview reads the state during the poll, so that the cache has the previous result.
    let reads = browser.eval("return window.reads").await;
    put_runs(&env, 100..101).await;
    browser.wait_until(&format!("window.reads > {reads}")).await;
    record(2, 1);
    browser.wait_until(&reported("2 runs")).await;

    // A poll that runs already ends first.
    let count = "window.polls = 0; return import('/admin/assets/js/live.js').then((live) => live.subscribe(({ type }) => { if (type === 'poll') window.polls += 1; }))";
    browser
        .eval_async(&format!("{count}.then(() => null)"), json!([]))
        .await;
    let running = heartbeats.begin_poll();
    browser
        .wait_until("!document.querySelector('.toast')")
        .await;
    browser.click("Poll now").await;
    browser
        .wait_for_text("Started a poll of the ticketing systems.")
        .await;
    drop(running);
    record(3, 2);
    browser.wait_until("window.polls === 1").await;
    record(4, 3);
    browser.wait_until(&reported("4 runs")).await;
    assert_eq!(
        browser
            .eval(&format!("return {}", reported("3 runs")))
            .await,
        json!(false)
    );
    browser.quit().await;
    env.stop().await;
}
