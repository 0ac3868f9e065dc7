//! A real browser, driven over WebDriver: a handful of JSON calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::requirements::require;

/// How long may any one thing on a page take?
const PATIENCE: Duration = Duration::from_secs(60);

/// The name under which WebDriver passes an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const CONTROL: char = '\u{E009}';
const RELEASE: char = '\u{E000}';
const BACKSPACE: char = '\u{E003}';

/// Finds what a person would press: by what it is called, in the window that lies on top.
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
    /// None where no browser is installed and the skip is named.
    pub async fn start(test: &str) -> Option<Self> {
        let started = start_driver().ok_or("chromium and chromedriver are not installed");
        let (driver, port) = require("browser", test, started)?;
        let client = Client::builder().timeout(PATIENCE).build().unwrap();
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
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let made = browser.send(Method::POST, "", Some(wanted)).await;
        browser.session = format!(
            "{}/{}",
            browser.session,
            made["sessionId"].as_str().unwrap()
        );
        Some(browser)
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let value = self.try_send(method, path, body).await;
        assert!(value["error"].is_null(), "{path}: {value:#}");
        value
    }

    /// The answer, which may be an error.
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

    /// Runs a script in the page and answers what it returns.
    pub async fn eval(&self, script: &str) -> Value {
        self.eval_with(script, json!([])).await
    }

    pub async fn eval_with(&self, script: &str, arguments: Value) -> Value {
        let body = json!({"script": script, "args": arguments});
        self.post("/execute/sync", body).await
    }

    /// The same for a script that answers a promise.
    pub async fn eval_async(&self, script: &str, arguments: Value) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; (async (...arguments) => {{ {script} }})(...arguments).then(done, (error) => done(String(error)))"
        );
        let body = json!({"script": script, "args": arguments});
        self.post("/execute/async", body).await
    }

    /// A command of the developer tools.
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

    /// `light` or `dark`, as the system would say.
    pub async fn set_color_scheme(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Waits until an expression is true.
    pub async fn wait_until(&self, holds: &str) {
        let began = Instant::now();
        while self.eval(&format!("return Boolean({holds})")).await != json!(true) {
            if began.elapsed() > PATIENCE {
                let page = self.eval("return document.body.innerText").await;
                panic!(
                    "waited in vain until {holds}\n{}\n{:#?}",
                    page.as_str().unwrap_or_default(),
                    self.take_console_log().await
                );
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Waits until a text stands on the page, in the window that lies on top.
    pub async fn wait_for_text(&self, text: &str) {
        let text = json!(text);
        self.wait_until(&format!(
            "([...document.querySelectorAll('dialog[open]')].pop() ?? document.body).innerText.includes({text})"
        ))
        .await;
    }

    /// Waits until a text stands anywhere, over whatever lies below it.
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
        let began = Instant::now();
        loop {
            let found = self.eval_with(script, arguments.clone()).await;
            if let Some(element) = found[ELEMENT].as_str() {
                return element.to_owned();
            }
            if began.elapsed() > PATIENCE {
                panic!("found no {what}\n{}", self.text().await);
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Does something with what a script finds. The page may be drawn anew in between: then it is looked
    /// for again, as a person aims again.
    async fn handle(&self, what: &str, script: &str, name: Value, act: &str, with: Value) {
        let began = Instant::now();
        loop {
            let element = self.find(what, script, name.clone()).await;
            let path = format!("/element/{element}/{act}");
            let done = self.try_send(Method::POST, &path, Some(with.clone())).await;
            match done["error"].as_str() {
                None => return,
                Some("stale element reference") if began.elapsed() < PATIENCE => {}
                Some(_) => panic!("{what}: {done:#}"),
            }
        }
    }

    /// Presses a button, a link or an item of a menu, with the mouse.
    pub async fn click(&self, name: &str) {
        let kinds = "button, a, summary";
        self.handle(name, FIND_BY_NAME, json!([name, kinds]), "click", json!({}))
            .await;
    }

    /// Presses what a selector finds first.
    pub async fn click_selector(&self, selector: &str) {
        let script = "return document.querySelector(arguments[0])";
        self.handle(selector, script, json!([selector]), "click", json!({}))
            .await;
    }

    /// Types into the field of this label, over what stood there.
    pub async fn fill(&self, label: &str, text: &str) {
        // All of it is marked and taken away, as a person would: the page hears of every key.
        let keys = format!("{CONTROL}a{RELEASE}{BACKSPACE}{text}");
        let typed = json!({ "text": keys });
        self.handle(label, FIND_FIELD, json!([label]), "value", typed)
            .await;
    }

    /// Types on the keyboard, wherever the focus is. Private-use characters are WebDriver's keys.
    pub async fn press_keys(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                let stroke = |kind| json!({"type": kind, "value": key.to_string()});
                [stroke("keyDown"), stroke("keyUp")]
            })
            .collect();
        let hands = json!({"actions": [{"type": "key", "id": "hands", "actions": strokes}]});
        self.post("/actions", hands).await;
    }

    /// What the console said since it was last asked.
    pub async fn take_console_log(&self) -> Vec<String> {
        let said = self.post("/se/log", json!({"type": "browser"})).await;
        let lines = said.as_array().unwrap().iter();
        lines
            .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    pub async fn screenshot(&self, file: &Path) {
        let picture = self.send(Method::GET, "/screenshot", None).await;
        let bytes = BASE64.decode(picture.as_str().unwrap().as_bytes()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// Ends it in good order. One that a failed test leaves behind is ended when it is dropped.
    pub async fn quit(self) {
        self.send(Method::DELETE, "", None).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to shut down, the driver takes its browser along; killed, it would leave it behind. It may
        // be gone already.
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
