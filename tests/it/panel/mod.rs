//! The panel in a real browser.

mod actions;
mod assets;
mod browser;
mod client;
mod connections;
mod events;
mod fixtures;
mod issue_drawer;
mod live_updates;
mod numbers;
mod projects;
mod questions;
mod requests;
mod resilience;
mod run_records;
mod run_states;
mod runs;
mod scoreboard;
mod screenshots;
mod speed;
mod stepper;
mod take_over;
mod truth;
mod untrusted_text;
mod views;

use std::path::{Path, PathBuf};

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use crate::api_server::ACCESS_CODE;
use crate::requirements::require;
use crate::test_env::TestEnv;
use browser::Browser;

/// Path and title of every panel.
const PANELS: [(&str, &str); 18] = [
    ("overview", "Overview"),
    ("issues", "Issues"),
    ("pipelines", "Pipelines"),
    ("pulls", "Pull requests"),
    ("questions", "Questions"),
    ("blockers", "Blockers"),
    ("scoreboard", "Scoreboard"),
    ("projects", "Projects"),
    ("steps", "Pipelines and steps"),
    ("models", "Models and providers"),
    ("connections", "Connections"),
    ("runners", "Runners"),
    ("sessions", "Sessions"),
    ("reaper", "Reaper"),
    ("secrets", "Secrets"),
    ("settings", "Settings"),
    ("audit", "Audit log"),
    ("customizations", "Customizations"),
];

/// Drains the outbox of an environment whose engine is driven manually, until it is dropped.
struct OutboxDrain(JoinHandle<()>);

impl OutboxDrain {
    fn start(env: &TestEnv) -> Self {
        let app = env.app.clone();
        Self(tokio::spawn(async move {
            loop {
                engine::outbox_worker::drain(&app).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }))
    }
}

impl Drop for OutboxDrain {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Browser {
    /// Opens a view and signs in if necessary.
    async fn open_view(&self, address: &str, view: &str) {
        self.goto(&format!("{address}/admin/{view}")).await;
        self.wait_until("document.querySelector('#code, h1')").await;
        if self
            .eval("return Boolean(document.querySelector('#code'))")
            .await
            == json!(true)
        {
            self.fill("Access code", ACCESS_CODE).await;
            self.click("Sign in").await;
        }
        self.wait_for_view().await;
    }

    /// Waits until the panel has loaded its data.
    async fn wait_for_view(&self) {
        self.wait_until("document.querySelector('main#main h1') && !document.querySelector('main .loading') && document.querySelector('main').children.length > 1")
            .await;
    }

    /// Switches to another panel by its link.
    async fn switch_panel(&self, panel: &str) {
        self.eval_with(
            "document.querySelector(`nav.side a[href='/admin/${arguments[0]}']`).click()",
            json!([panel]),
        )
        .await;
        self.wait_for_view().await;
    }
}

/// File of the panel's test tools.
fn panel_tool(file: &str) -> PathBuf {
    let dir = std::env::var_os("AGENT_IMPLEMENT_PANEL_TOOLS").filter(|dir| !dir.is_empty());
    let path = dir.map(|dir| Path::new(&dir).join("node_modules").join(file));
    let path = path.filter(|file| file.is_file());
    require(
        "panel-tools",
        path.ok_or("AGENT_IMPLEMENT_PANEL_TOOLS names no folder with it"),
    )
}

/// Console messages except the browser's hint about password forms.
fn console_errors(messages: Vec<String>) -> Vec<String> {
    messages
        .into_iter()
        .filter(|line| !line.contains("[DOM] Password forms should have"))
        // A hint for password managers, about a form with several secrets.
        .filter(|line| !line.contains("[DOM] Multiple forms should be contained"))
        .collect()
}
