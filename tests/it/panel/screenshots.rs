//! Every view and dialog at every width, in light and dark: no accessibility violations, no horizontal overflow, all
//! controls reachable by Tab, and no console messages. Leaves a picture of each in `target/screenshots`.

use std::path::PathBuf;
use std::time::Duration;

use domain::mapping::Mapping;
use requires::requires;
use serde_json::json;
use store::mappings;

use super::browser::Browser;
use super::client::open_palette;
use super::connections::unconfigured_env;
use super::fixtures::{RUNNING_JOB_ID, empty_env, populated_env};
use super::run_records::FAILED_JOB_ID;
use super::stepper::fill_in;
use super::untrusted_text::UntrustedText;
use super::views::{accessibility_violations, axe_script};
use super::{PANELS, console_errors};
use crate::test_env::TestEnv;

const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const TAB: &str = "\u{E004}";

/// Widths of a desktop, a tablet and a phone.
const WIDTHS: [u32; 3] = [1440, 768, 360];

/// Steps of the form for a new project.
const STEPS: [&str; 9] = [
    "system",
    "source",
    "repository",
    "runner",
    "provider",
    "capacity",
    "landing",
    "secrets",
    "review",
];

/// Nothing loads or moves. A page below a dialog may wait for it.
const SETTLED: &str = "!document.querySelector(document.querySelector('dialog[open]') ? 'dialog .loading' : 'main .loading') && document.getAnimations().every((one) => !(one instanceof CSSTransition))";

/// Elements that are wider than their window, and the text that a badge or button cuts off.
const OVERFLOW: &str = r#"
    const wide = [document.documentElement, ...document.querySelectorAll("dialog[open] .dialog-body")];
    const found = wide.filter((el) => el.scrollWidth > el.clientWidth).map((el) => `${el.tagName}.${el.className} is ${el.scrollWidth} of ${el.clientWidth} wide`);
    for (const el of document.querySelectorAll(".badge, .button, .chip, h1, h2, th, dt")) {
        const style = getComputedStyle(el);
        if (el.checkVisibility() && style.overflow !== "visible" && style.textOverflow !== "ellipsis" && el.scrollWidth > el.clientWidth + 1) found.push(`cut: ${el.innerText}`);
    }
    return found;
"#;

/// Elements that a person reaches by Tab, in the topmost window.
const TAB_STOPS: &str = r#"
    const top = [...document.querySelectorAll("dialog[open], [popover]:popover-open")].pop() ?? document;
    const first = (el) => top.querySelector(`input[name="${el.name}"]:checked`) ?? top.querySelector(`input[name="${el.name}"]`);
    const isOtherRadio = (el) => el.type === "radio" && el !== first(el);
    window.tabStops = [...top.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
        .filter((el) => el.tabIndex >= 0 && !el.disabled && !isOtherRadio(el) && el.checkVisibility({ visibilityProperty: true }));
    if (top.popover) top.querySelector("button").focus();
    window.reached = new Set([document.activeElement]);
    window.onReach = (event) => window.reached.add(event.target);
    document.addEventListener("focusin", window.onReach);
    if (top === document) { document.activeElement.blur(); scrollTo(0, 0); }
    // The parts of a date are stops of their own.
    return window.tabStops.length + 4 * window.tabStops.filter((el) => el.type === "date").length;
"#;

/// Tab stops that Tab did not reach.
const NOT_REACHED: &str = r#"
    return window.tabStops.filter((el) => el.isConnected && !window.reached.has(el)).map((el) => el.outerHTML.slice(0, 160));
"#;

const STOP_RECORDING: &str = "document.removeEventListener('focusin', window.onReach);";

/// Visits views, takes their pictures and collects what is wrong with them.
struct Gallery {
    browser: Browser,
    axe_script: String,
    folder: PathBuf,
    problems: Vec<String>,
}

impl Gallery {
    async fn open(env: &TestEnv) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let browser = Browser::start().await;
        browser.resize(WIDTHS[0]).await;
        browser.goto(&format!("{}/admin", env.address)).await;
        browser.wait_for_text("Access code").await;
        Self {
            browser,
            axe_script: axe_script(),
            folder,
            problems: Vec::new(),
        }
    }

    /// Opens a view without loading the page again.
    async fn follow(&self, view: &str) {
        let script = "const link = document.createElement('a'); link.href = `/admin/${arguments[0]}`; document.body.append(link); link.click(); link.remove();";
        self.browser.eval_with(script, json!([view])).await;
        self.browser
            .wait_until(&format!(
                "location.pathname + location.search + location.hash === {}",
                json!(format!("/admin/{view}"))
            ))
            .await;
        self.browser.wait_for_view().await;
        if view.contains('?') && !view.contains("tab=") {
            self.browser
                .wait_until("document.querySelector('dialog[open] .dialog-body')?.innerText")
                .await;
        }
    }

    async fn show(&mut self, name: &str, view: &str) {
        self.follow(view).await;
        self.capture(name).await;
    }

    /// Checks the current view at every width and in both color schemes.
    async fn capture(&mut self, name: &str) {
        for width in WIDTHS {
            self.capture_at(name, width).await;
        }
        self.browser.resize(WIDTHS[0]).await;
    }

    async fn capture_at(&mut self, name: &str, width: u32) {
        self.browser.resize(width).await;
        let away = json!({"type": "mouseMoved", "x": 0, "y": 0});
        self.browser
            .devtools("Input.dispatchMouseEvent", away)
            .await;
        self.browser.eval("scrollTo(0, 0)").await;
        self.browser.wait_until(SETTLED).await;
        for scheme in ["light", "dark"] {
            let picture = format!("{name}-{width}-{scheme}");
            self.browser.set_color_scheme(scheme).await;
            self.browser.wait_until(SETTLED).await;
            let file = self.folder.join(format!("{picture}.png"));
            self.browser.screenshot(&file).await;
            // The width changes no color.
            if (width, scheme) != (768, "dark") {
                let violations =
                    accessibility_violations(&self.browser, &self.axe_script, scheme).await;
                self.report(&picture, violations);
            }
        }
        self.browser.set_color_scheme("light").await;
        let overflow = self.browser.eval(OVERFLOW).await;
        let unreachable = match width {
            768 => json!([]),
            _ => self.unreachable().await,
        };
        let texts = |found: serde_json::Value| -> Vec<String> {
            let found = found.as_array().unwrap().iter();
            found.map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let picture = format!("{name}-{width}");
        self.report(&picture, texts(overflow));
        self.report(&format!("{picture} by Tab"), texts(unreachable));
        let mut messages = console_errors(self.browser.take_console_log().await);
        // The browser logs requests that are refused because the session has ended.
        messages.retain(|line| !line.contains("401 (Unauthorized)"));
        self.report(&format!("{picture} console"), messages);
    }

    async fn unreachable(&self) -> serde_json::Value {
        let count = self.browser.eval(TAB_STOPS).await.as_u64().unwrap() as usize;
        let mut unreachable = json!([]);
        // An update of the page in between adds stops, so that the first round ends early.
        for _ in 0..3 {
            self.browser.press_keys(&TAB.repeat(count + 3)).await;
            unreachable = self.browser.eval(NOT_REACHED).await;
            if unreachable == json!([]) {
                break;
            }
        }
        self.browser.eval(STOP_RECORDING).await;
        unreachable
    }

    fn report(&mut self, picture: &str, found: Vec<String>) {
        let found = found.into_iter().map(|one| format!("{picture}: {one}"));
        self.problems.extend(found);
    }

    /// Closes the topmost dialog.
    async fn close(&self) {
        let count = "document.querySelectorAll('dialog[open]').length";
        let before = self.browser.eval(&format!("return {count}")).await;
        self.browser.press_keys(ESCAPE).await;
        self.browser
            .wait_until(&format!("{count} < {before}"))
            .await;
    }

    async fn end(self, env: TestEnv) {
        assert!(self.problems.is_empty(), "{:#?}", self.problems);
        self.browser.quit().await;
        env.stop().await;
    }
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn every_panel_is_accessible_and_fits_every_width() {
    let env = populated_env(&UntrustedText::plain()).await;
    let mut gallery = Gallery::open(&env).await;
    gallery.capture("sign-in").await;
    gallery.browser.open_view(&env.address, "overview").await;
    for (panel, _) in PANELS {
        gallery.show(panel, panel).await;
    }
    gallery.show("project", "projects/SHOP").await;
    gallery.show("dedup", "audit?tab=dedup").await;
    gallery.show("missing", "nowhere").await;
    for (name, job) in [
        ("run-active", RUNNING_JOB_ID),
        ("run-failed", FAILED_JOB_ID),
    ] {
        gallery.follow(&format!("runs/{job}")).await;
        gallery
            .browser
            .wait_until("document.querySelectorAll('.log-lines .line').length")
            .await;
        gallery.capture(name).await;
    }
    gallery.end(env).await;
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn every_form_is_accessible_and_fits_every_width() {
    let env = populated_env(&UntrustedText::plain()).await;
    let mut gallery = Gallery::open(&env).await;
    gallery
        .browser
        .open_view(&env.address, "projects/new")
        .await;
    fill_in(&gallery.browser).await;
    for step in STEPS {
        gallery
            .show(&format!("new-{step}"), &format!("projects/new/{step}"))
            .await;
    }
    gallery.follow("projects").await;
    gallery.show("edit", "projects?edit=PAY").await;
    gallery.close().await;
    gallery
        .show("project-secrets", "projects?secrets=SHOP")
        .await;
    gallery.close().await;

    gallery.follow("projects?edit=SHOP").await;
    gallery.browser.wait_for_text("Capacity").await;
    gallery.browser.fill("Max parallel issues", "7").await;
    let change = env.store.write(|tx| {
        let mapping = mappings::get(tx, &"SHOP".into())?.unwrap();
        let changed = Mapping {
            max_in_progress: 5,
            ..mapping
        };
        mappings::put(tx, &changed)
    });
    change.await.unwrap();
    gallery.browser.click("Save").await;
    gallery
        .browser
        .wait_for_text("Somebody else changed this project")
        .await;
    // The browser logs the response to the change that was based on an old version.
    gallery.browser.take_console_log().await;
    gallery.capture("conflict").await;
    gallery.browser.press_keys(ESCAPE).await;
    gallery
        .browser
        .wait_for_text("Discard the changes to SHOP?")
        .await;
    gallery.capture("discard").await;
    gallery.end(env).await;
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn connection_forms_are_accessible_and_fit_every_width() {
    let env = unconfigured_env().await;
    let mut gallery = Gallery::open(&env).await;
    let address = &env.address;
    gallery.browser.open_view(address, "connections").await;
    for connection in ["Connect GitHub", "Connect Linear"] {
        gallery.browser.click(connection).await;
    }
    gallery.browser.fill("API key", "lin_wrong_key").await;
    gallery
        .browser
        .click_selector("[name=LINEAR_API_KEY]")
        .await;
    gallery.browser.press_keys(ENTER).await;
    gallery.browser.wait_for_text("set LINEAR_API_KEY").await;
    // The browser logs the response to the wrong key.
    gallery.browser.take_console_log().await;
    gallery.capture("connection-forms").await;
    gallery.end(env).await;
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn every_dialog_is_accessible_and_fits_every_width() {
    let env = populated_env(&UntrustedText::plain()).await;
    let mut gallery = Gallery::open(&env).await;
    gallery.browser.open_view(&env.address, "issues").await;
    gallery.show("issue-drawer", "issues?issue=SHOP-102").await;
    gallery.close().await;
    gallery
        .show("failed-issue-drawer", "issues?issue=OPS-111")
        .await;
    gallery.close().await;
    let drawer = format!("pipelines?job={RUNNING_JOB_ID}");
    gallery.show("run-drawer", &drawer).await;
    gallery.browser.click("Cancel run of SHOP-100").await;
    gallery.browser.wait_for_text("Cancel for good").await;
    gallery.capture("cancel").await;
    gallery.close().await;
    gallery.close().await;
    gallery
        .follow(&format!("pipelines?job={FAILED_JOB_ID}"))
        .await;
    gallery.browser.click("Retry OPS-111").await;
    gallery
        .browser
        .wait_for_text("as soon as there is capacity")
        .await;
    gallery.capture("retry").await;
    gallery.close().await;
    gallery.close().await;
    gallery.follow(&format!("runs/{FAILED_JOB_ID}")).await;
    gallery.browser.click("Take over OPS-111").await;
    gallery.browser.wait_for_text("You continue by hand.").await;
    gallery.capture("take-over").await;
    gallery.browser.click_selector("dialog [type=submit]").await;
    gallery.browser.wait_for_text("git switch").await;
    gallery.capture("by-hand").await;
    gallery.close().await;
    gallery.capture("run-taken-over").await;

    gallery.follow("blockers").await;
    for issue in ["OPS-103", "OPS-107"] {
        let checkbox = format!("[aria-label='Select {issue}']");
        gallery.browser.click_selector(&checkbox).await;
    }
    gallery.browser.wait_for_text("2 selected").await;
    gallery.capture("selection").await;
    gallery.browser.click("Clear 1").await;
    gallery
        .browser
        .wait_for_text("can be dispatched again")
        .await;
    gallery.capture("bulk").await;
    gallery.close().await;

    gallery.follow("issues").await;
    gallery.browser.click("Saved views").await;
    gallery.capture("views-menu").await;
    gallery.browser.click("Save this view").await;
    gallery.browser.fill("Name", "All issues").await;
    gallery.capture("save-view").await;
    gallery.browser.click("Save").await;
    gallery.browser.click("Saved views").await;
    gallery.browser.click("Manage views").await;
    gallery.capture("manage-views").await;
    gallery.close().await;
    open_palette(&gallery.browser).await;
    gallery.browser.press_keys("shop").await;
    gallery
        .browser
        .wait_until("document.querySelector('[role=option]')?.innerText.includes('SHOP-')")
        .await;
    gallery.capture("palette").await;
    gallery.close().await;
    gallery.browser.press_keys("?").await;
    gallery.browser.wait_for_text("Focus the filter").await;
    gallery.capture("keys").await;
    gallery.close().await;

    gallery.browser.resize(360).await;
    gallery.browser.click("Panels").await;
    gallery.capture_at("menu", 360).await;
    gallery.browser.press_keys(ESCAPE).await;
    gallery.browser.resize(WIDTHS[0]).await;
    env.advance_clock(Duration::from_secs(25 * 3600));
    let link = "document.querySelector(\"nav.side a[href='/admin/secrets']\").click()";
    gallery.browser.eval(link).await;
    gallery
        .browser
        .wait_for_text("Your session has ended")
        .await;
    // The browser logs the response to the request without a session.
    gallery.browser.take_console_log().await;
    gallery.capture("sign-in-again").await;
    gallery.end(env).await;
}

#[requires("browser", "panel-tools")]
#[tokio::test]
async fn the_empty_service_is_accessible_and_fits_every_width() {
    let env = empty_env().await;
    let mut gallery = Gallery::open(&env).await;
    gallery.browser.open_view(&env.address, "overview").await;
    for panel in [
        "overview",
        "issues",
        "pipelines",
        "pulls",
        "scoreboard",
        "projects",
    ] {
        gallery.show(&format!("{panel}-empty"), panel).await;
    }
    gallery.end(env).await;
}
