//! Tests of the fake vendors over real HTTP, with real git and real processes.

#![expect(clippy::unwrap_used, reason = "a failed setup step should panic")]

mod github;
mod linear;
mod runs;
mod whole;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::instance::{FakeVendors, FakeVendorsOptions};

const WORKFLOW: &str = r#"
name: Implement
run-name: "implement ${{ inputs.issue }} (${{ inputs.dispatch_id }})"
on:
  workflow_dispatch:
    inputs:
      issue: { required: true, type: string }
      dispatch_id: { required: false, default: none, type: string }
      note: { required: false, type: string }
permissions:
  contents: write
  pull-requests: write
env:
  GREETING: hello
jobs:
  implement:
    runs-on: ubuntu-latest
    timeout-minutes: ${{ fromJSON('5') }}
    steps:
      - uses: actions/checkout@v5
      - id: mask
        run: |
          note=$(sed -n 's/.*"note": "\(.*\)".*/\1/p' "$GITHUB_EVENT_PATH")
          echo "::add-mask::$note"
          echo "shouted=LOUD" >> "$GITHUB_OUTPUT"
          echo "FROM_ENV=kept" >> "$GITHUB_ENV"
      - name: Use it
        if: inputs.issue != '' && steps.mask.outputs.shouted == 'loud'
        env:
          CONFIG: ${{ toJSON(inputs) }}
          KEY: ${{ secrets.MODEL_KEY }}
          TOKEN: ${{ github.token }}
        run: |
          echo "$GREETING ${{ steps.mask.outputs.shouted }} $FROM_ENV $KEY"
          echo "$CONFIG" > "$RUNNER_TEMP/config.json"
          env > "$RUNNER_TEMP/env"
          ${{ inputs.issue == 'SLEEP' && 'sleep 60' || 'true' }}
          ${{ inputs.issue == 'FAIL' && 'exit 3' || 'true' }}
      - name: Never
        if: failure()
        run: echo mended
"#;

async fn start_fake_vendors(dir: &Path) -> FakeVendors {
    let vendors = FakeVendors::start(FakeVendorsOptions::new(dir, "/bin/true"))
        .await
        .unwrap();
    vendors.github().set_start_delay(Duration::from_millis(50));
    vendors
}

fn client() -> reqwest::Client {
    // Fails if another test has installed a provider, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent("fake-vendors-tests")
        .build()
        .unwrap()
}

async fn linear(vendors: &FakeVendors, query: &str, variables: Value) -> (u16, Value) {
    let request = client().post(format!("{}/graphql", vendors.linear_url()));
    let request = request.header("authorization", vendors.linear().api_key());
    let response = request
        .json(&json!({"query": query, "variables": variables}))
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn github(
    vendors: &FakeVendors,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let token = vendors.github().personal_token().to_owned();
    github_as(vendors, &token, method, path, body).await
}

async fn github_as(
    vendors: &FakeVendors,
    token: &str,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let url = format!("{}{path}", vendors.github_api_url());
    let mut request = client()
        .request(method.parse().unwrap(), url)
        .bearer_auth(token);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (
        status,
        serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default(),
    )
}

async fn wait_until<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn seed(vendors: &FakeVendors) -> super::FakeRepo {
    let repo = vendors.github().repo("acme", "shop");
    let files = [
        ("README.md", "shop\n"),
        (".github/workflows/implement.yml", WORKFLOW),
    ];
    repo.seed(&files, "Open the shop").unwrap();
    repo.set_secret("MODEL_KEY", "sk-very-secret");
    repo
}

async fn dispatch(vendors: &FakeVendors, inputs: Value) -> u64 {
    let path = "/repos/acme/shop/actions/workflows/implement.yml/dispatches";
    let body = json!({"ref": "main", "inputs": inputs, "return_run_details": true});
    let (status, response) = github(vendors, "POST", path, Some(body)).await;
    assert_eq!(status, 200, "{response}");
    response["workflow_run_id"].as_u64().unwrap()
}

fn git(dir: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
            "-c",
            "credential.helper=",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}
