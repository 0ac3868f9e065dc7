//! Real browser, driven by WebDriver's JSON calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::requirements::require;

/// Maximum wait for any expected state of a page.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of attempts to start the driver, and of its attempts to start the browser.
const MAX_STARTS: usize = 5;

/// Key under which WebDriver passes an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const CONTROL: char = '\u{E009}';
const RELEASE: char = '\u{E000}';
const BACKSPACE: char = '\u{E003}';

/// Finds an element by its accessible name in the topmost window.
const FIND_BY_NAME: &str = r#"
const [name, kinds] = arguments;
const root = [...document.querySelectorAll("[popover]:popover-open, dialog[open]")].pop() ?? document;
const called = (el) => (el.getAttribute("aria-label") ?? el.innerText ?? "").replace(/\s+/g, " ").trim();
return [...root.querySelectorAll(kinds)].find((el) => called(el) === name && el.checkVisibility()) ?? null;
"#;

const FIND_FIELD: &str = r#"
const root = [...document.querySelectorAll("dialog[open]")].pop() ?? document;
const label = [...root.querySelectorAll("label")].find((el) => el.innerText.replace("optional", "").trim() === arguments[0]);
return label?.control ?? null;
"#;

pub struct Browser {
    driver: Child,
    port: u16,
    client: Client,
    session: String,
}

impl Browser {
    /// Starts the browser.
    pub async fn start() -> Self {
        Self::start_with(json!({"browser": "ALL"})).await
    }

    /// Starts the browser with a log of the network, for [`Browser::received_bytes`].
    pub async fn start_with_network_log() -> Self {
        Self::start_with(json!({"browser": "ALL", "performance": "ALL"})).await
    }

    async fn start_with(logs: Value) -> Self {
        // The driver exits if another process takes its port between two of its own requests for it.
        let started = (0..MAX_STARTS).find_map(|_| start_driver());
        let started = started.ok_or("chromium and chromedriver are not installed");
        let (driver, port) = require("browser", started);
        let client = Client::builder().timeout(TIMEOUT).build().unwrap();
        let mut browser = Self {
            driver,
            port,
            client,
            session: format!("http://127.0.0.1:{port}/session"),
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--window-size=1440,900",
            "--lang=en",
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": logs,
            "goog:chromeOptions": {"args": arguments},
        }}});
        // Chromium itself sometimes exits while it starts on a busy machine.
        for attempt in 1.. {
            let session = browser
                .try_send(Method::POST, "", Some(capabilities.clone()))
                .await;
            if let Some(id) = session["sessionId"].as_str() {
                browser.session = format!("{}/{id}", browser.session);
                break;
            }
            assert!(attempt < MAX_STARTS, "no browser: {session:#}");
        }
        browser
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let value = self.try_send(method, path, body).await;
        assert!(value["error"].is_null(), "{path}: {value:#}");
        value
    }

    /// Sends a command. The response may be an error.
    async fn try_send(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let request = self
            .client
            .request(method, format!("{}{path}", self.session));
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["value"].take()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.send(Method::POST, path, Some(body)).await
    }

    pub async fn goto(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// Runs a script in the page and returns its result.
    pub async fn eval(&self, script: &str) -> Value {
        self.eval_with(script, json!([])).await
    }

    pub async fn eval_with(&self, script: &str, arguments: Value) -> Value {
        let body = json!({"script": script, "args": arguments});
        self.post("/execute/sync", body).await
    }

    /// Runs a script that returns a promise, and waits for its result.
    pub async fn eval_async(&self, script: &str, arguments: Value) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; (async (...arguments) => {{ {script} }})(...arguments).then(done, (error) => done(String(error)))"
        );
        let body = json!({"script": script, "args": arguments});
        self.post("/execute/async", body).await
    }

    /// Sends a command of the developer tools protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.post("/goog/cdp/execute", body).await
    }

    pub async fn resize(&self, width: u32) {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// Emulates the system setting `light` or `dark`.
    pub async fn set_color_scheme(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Waits until an expression is true.
    pub async fn wait_until(&self, holds: &str) {
        let started = Instant::now();
        while self.eval(&format!("return Boolean({holds})")).await != json!(true) {
            if started.elapsed() > TIMEOUT {
                let page = self.eval("return document.body.innerText").await;
                panic!(
                    "timed out waiting until {holds}\n{}\n{:#?}",
                    page.as_str().unwrap_or_default(),
                    self.take_console_log().await
                );
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Waits until the topmost window contains a text.
    pub async fn wait_for_text(&self, text: &str) {
        let text = json!(text);
        self.wait_until(&format!(
            "([...document.querySelectorAll('dialog[open]')].pop() ?? document.body).innerText.includes({text})"
        ))
        .await;
    }

    /// Waits until the page contains a text, in any window.
    pub async fn wait_for_text_anywhere(&self, text: &str) {
        self.wait_until(&format!(
            "document.body.innerText.includes({})",
            json!(text)
        ))
        .await;
    }

    pub async fn text(&self) -> String {
        let text = self.eval("return document.body.innerText").await;
        text.as_str().unwrap().to_owned()
    }

    async fn find(&self, what: &str, script: &str, arguments: Value) -> String {
        let started = Instant::now();
        loop {
            let found = self.eval_with(script, arguments.clone()).await;
            if let Some(element) = found[ELEMENT].as_str() {
                return element.to_owned();
            }
            if started.elapsed() > TIMEOUT {
                panic!("found no {what}\n{}", self.text().await);
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Performs an action on the element that a script finds. If the page is redrawn in between, the
    /// element is searched again.
    async fn handle(&self, what: &str, script: &str, name: Value, action: &str, payload: Value) {
        let started = Instant::now();
        loop {
            let element = self.find(what, script, name.clone()).await;
            let path = format!("/element/{element}/{action}");
            let response = self
                .try_send(Method::POST, &path, Some(payload.clone()))
                .await;
            match response["error"].as_str() {
                None => return,
                Some("stale element reference") if started.elapsed() < TIMEOUT => {}
                Some(_) => panic!("{what}: {response:#}"),
            }
        }
    }

    /// Clicks a button, a link or a menu item by its name.
    pub async fn click(&self, name: &str) {
        let kinds = "button, a, summary";
        self.handle(name, FIND_BY_NAME, json!([name, kinds]), "click", json!({}))
            .await;
    }

    /// Clicks the first element that matches a selector.
    pub async fn click_selector(&self, selector: &str) {
        let script = "return document.querySelector(arguments[0])";
        self.handle(selector, script, json!([selector]), "click", json!({}))
            .await;
    }

    /// Replaces the text of a labelled field.
    pub async fn fill(&self, label: &str, text: &str) {
        // Selects and deletes the old text by keyboard, so that the page receives every key event.
        let keys = format!("{CONTROL}a{RELEASE}{BACKSPACE}{text}");
        let typed = json!({ "text": keys });
        self.handle(label, FIND_FIELD, json!([label]), "value", typed)
            .await;
    }

    /// Types on the keyboard, wherever the focus is. Private-use characters are WebDriver's special
    /// keys.
    pub async fn press_keys(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                let stroke = |kind| json!({"type": kind, "value": key.to_string()});
                [stroke("keyDown"), stroke("keyUp")]
            })
            .collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "hands", "actions": strokes}]});
        self.post("/actions", keyboard).await;
    }

    /// Presses a key while the control key is held.
    pub async fn press_control(&self, key: &str) {
        let control = CONTROL.to_string();
        let stroke = |kind, value: &str| json!({"type": kind, "value": value});
        let strokes = [
            stroke("keyDown", &control),
            stroke("keyDown", key),
            stroke("keyUp", key),
            stroke("keyUp", &control),
        ];
        let keyboard = json!({"actions": [{"type": "key", "id": "hands", "actions": strokes}]});
        self.post("/actions", keyboard).await;
    }

    /// Returns the console messages since the last call.
    pub async fn take_console_log(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({"type": "browser"})).await;
        let lines = log.as_array().unwrap().iter();
        lines
            .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns the number of bytes received from the network since the last call.
    pub async fn received_bytes(&self) -> u64 {
        let log = self.post("/se/log", json!({"type": "performance"})).await;
        let lines = log.as_array().unwrap().iter();
        let events = lines.filter_map(|line| {
            let event: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let message = &event["message"];
            // Headers arrive with a response, contents in parts.
            match message["method"].as_str()? {
                "Network.responseReceived" => {
                    message["params"]["response"]["encodedDataLength"].as_f64()
                }
                "Network.dataReceived" => message["params"]["encodedDataLength"].as_f64(),
                _ => None,
            }
        });
        events.sum::<f64>() as u64
    }

    /// Handle of the current tab.
    pub async fn window(&self) -> String {
        let window = self.send(Method::GET, "/window", None).await;
        window.as_str().unwrap().to_owned()
    }

    /// Opens a tab and switches to it.
    pub async fn open_window(&self) -> String {
        let opened = self.post("/window/new", json!({"type": "tab"})).await;
        let window = opened["handle"].as_str().unwrap().to_owned();
        self.switch_window(&window).await;
        window
    }

    pub async fn switch_window(&self, window: &str) {
        self.post("/window", json!({ "handle": window })).await;
    }

    /// Saves a picture of the whole page, also of what must be scrolled to.
    pub async fn screenshot(&self, file: &Path) {
        let metrics = self.devtools("Page.getLayoutMetrics", json!({})).await;
        let size = &metrics["cssContentSize"];
        let page =
            json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let options = json!({"captureBeyondViewport": true, "clip": page});
        let picture = self.devtools("Page.captureScreenshot", options).await;
        let data = picture["data"].as_str().unwrap();
        let bytes = BASE64.decode(data.as_bytes()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// Ends the session. After a failed test, the browser ends when it is dropped.
    pub async fn quit(self) {
        self.send(Method::DELETE, "", None).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // On shutdown the driver closes its browser; a killed driver would leave it running. The driver
        // may have exited already.
        let _ = shut_down(self.port);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn shut_down(port: u16) -> std::io::Result<()> {
    let mut driver = TcpStream::connect(("127.0.0.1", port))?;
    driver.set_read_timeout(Some(Duration::from_secs(10)))?;
    driver.write_all(b"GET /shutdown HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    driver.read_to_end(&mut Vec::new()).map(drop)
}

fn start_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let lines = BufReader::new(driver.stdout.take()?).lines();
    let port = lines.map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    })?;
    Some((driver, port))
}
