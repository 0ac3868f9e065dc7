//! Checks every client request against the contracts of the vendors.
//!
//! Every story checks the requests that its fake vendors received against the rules of
//! `src/fake_vendors/contract/`. The story of this file makes every call that the rules know.
//!
//! In addition, requests can be checked against what the vendors publish, which is not part of this project:
//! `AGENT_IMPLEMENT_CONTRACTS` names the folder of the contracts and their checker, `AGENT_IMPLEMENT_PYTHON` a
//! Python that can run it. `tests/run.sh` sets both if they are there. Every test then writes its request log,
//! and the logs are checked here.

mod conversation;
mod issues;
mod kubernetes;
mod merges;
mod verbs;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_vendors::FakeVendors;
use requires::requires;
use serde_json::{Value, json};

use crate::requirements::require;
use crate::test_env::{TestEnv, TestEnvOptions};

/// Calls of the rules that no story makes: Jira's gateway, and an OAuth application of Linear, which unit
/// tests of the clients cover.
const NOT_IN_STORIES: [&str; 2] = ["jira GET /serverInfo", "linear POST /oauth/token"];

/// Contract checker and the Python interpreter that runs it.
struct Checker {
    dir: PathBuf,
    python: PathBuf,
}

impl Checker {
    fn find() -> Result<Self, String> {
        let env_var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let contracts = env_var("AGENT_IMPLEMENT_CONTRACTS")
            .ok_or("the vendors' contracts are not available")?;
        let dir = Path::new(&contracts).join("check");
        if !dir.join("validate.py").exists() {
            return Err(format!("there is no validate.py in {}", dir.display()));
        }
        let python = env_var("AGENT_IMPLEMENT_PYTHON")
            .ok_or("there is no Python with the checker's libraries")?
            .into();
        Ok(Self { dir, python })
    }

    fn require() -> Self {
        require("contracts", Self::find())
    }

    /// Checks logs. Returns whether all requests conform, and the checker's output.
    fn check(&self, logs: &[PathBuf]) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contracts.py");
        let mut command = Command::new(&self.python);
        let output = command
            .arg(script)
            .arg(&self.dir)
            .args(logs)
            .output()
            .unwrap();
        let output_text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&output_text).into_owned(),
        )
    }
}

fn log_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/contract-log")
}

/// Log path of the running test. It is named after the test, so the next execution replaces it.
fn log_of_this_test() -> PathBuf {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("test").replace("::", ".");
    log_dir().join(format!("{name}.jsonl"))
}

/// Returns the requests that violate a vendor's contract. Writes the request log if the checker of the
/// published contracts is available.
pub fn check_requests(vendors: &FakeVendors) -> Vec<String> {
    if Checker::find().is_ok() {
        let log = log_of_this_test();
        fs::create_dir_all(log_dir()).unwrap();
        // Another test may be reading the folder, or another process may write the same log, so it appears by an
        // atomic rename.
        let part = log.with_extension(format!("{}.part", std::process::id()));
        vendors.requests().write_jsonl(&part).unwrap();
        fs::rename(part, log).unwrap();
    }
    vendors.requests().contract_violations()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_request_conforms_to_the_vendor_contracts() {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        ..TestEnvOptions::default()
    })
    .await;
    verbs::create_many_flagged_issues(&env);
    verbs::run_tickets_with_vendor_faults(&env).await;
    verbs::read_repository_host(&env).await;
    verbs::start_and_stop_runs(&env).await;
    verbs::work_on_a_pull_request(&env).await;
    merges::merge_pull_requests(&env).await;
    verbs::exercise_linear(&env).await;
    verbs::exercise_jira(&env).await;
    issues::exercise_github_issues(&env).await;
    conversation::read_tickets(&env).await;
    verbs::post_to_both_chats(&env).await;
    verbs::create_and_destroy_machines(&env).await;
    let requests = env.vendors.requests().clone();
    env.finish().await;

    let missing: Vec<String> = requests.missing_calls().into_iter().collect();
    assert_eq!(missing, NOT_IN_STORIES, "a rule that no call needs");
    if let Ok(checker) = Checker::find() {
        let (conforms, output_text) = checker.check(&[log_of_this_test()]);
        assert!(conforms, "{output_text}");
    }
}

/// Checks the logs that other tests have written. A conforming log is deleted; any other stays for
/// inspection until its test is executed again.
#[requires("contracts")]
#[test]
fn requests_of_other_tests_conform_to_the_published_contracts() {
    let checker = Checker::require();
    let Ok(entries) = fs::read_dir(log_dir()) else {
        return;
    };
    let logs: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|log| {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            // The contract test checks its own log, and an empty log has nothing to check.
            name.ends_with(".jsonl")
                && !name.starts_with("contracts.")
                && fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0)
        })
        .collect();
    if logs.is_empty() {
        return;
    }
    let (conforms, output_text) = checker.check(&logs);
    assert!(conforms, "{output_text}");
    for log in logs {
        // A test may replace or delete the log at this moment; it is checked the next time.
        let _ = fs::remove_file(&log);
    }
}

#[requires("contracts")]
#[test]
fn checker_reports_requests_that_violate_a_contract() {
    let checker = Checker::require();
    let github = json!({"authorization": "Bearer [redacted]", "user-agent": "x", "content-type": "application/json"});
    let linear = json!({"authorization": "[redacted]", "content-type": "application/json"});
    let deep_query =
        "query { issues(first: 250) { nodes { labels(first: 50) { nodes { name } } } } }";
    let request = |vendor: &str, method: &str, url: &str, headers: &Value, body: Value| json!({"vendor": vendor, "method": method, "url": url, "headers": headers, "body": body, "status": 200});
    let api = |path: &str| format!("https://api.github.com{path}");
    let graphql = "https://api.linear.app/graphql";
    let invalid_requests = [
        request(
            "github",
            "PATCH",
            &api("/repos/o/r/pulls/1"),
            &github,
            json!({"draft": true}),
        ),
        request(
            "github",
            "GET",
            &api("/repos/o/r/pulls?per_page=500"),
            &github,
            Value::Null,
        ),
        request("github", "GET", &api("/app"), &github, Value::Null),
        request(
            "github",
            "POST",
            &api("/graphql"),
            &github,
            json!({"query": "query { nothing }"}),
        ),
        request(
            "linear",
            "POST",
            graphql,
            &linear,
            json!({"query": "query { issues(first: 1) { nodes { colour } } }"}),
        ),
        request(
            "linear",
            "POST",
            graphql,
            &linear,
            json!({"query": deep_query}),
        ),
        request(
            "linear",
            "POST",
            graphql,
            &json!({"authorization": "Bearer [redacted]", "content-type": "application/json"}),
            json!({"query": "query { viewer { name } }"}),
        ),
        request(
            "chat",
            "POST",
            "https://hooks.slack.com/services/x",
            &linear,
            json!({"blocks": "none"}),
        ),
        request(
            "chat",
            "POST",
            "https://x.logic.azure.com/workflows/x",
            &linear,
            json!({"text": "hello"}),
        ),
        request(
            "docker",
            "POST",
            "http://docker/containers/create?name=x",
            &json!({"content-type": "application/json"}),
            json!({"Image": "x", "HostConfig": {"ReadOnlyRootfs": true}}),
        ),
        request(
            "fly",
            "POST",
            "https://api.machines.dev/v1/apps/a/machines",
            &github,
            json!({"config": {"image": "x", "restart": {"policy": "never"}}}),
        ),
        request("post", "POST", "https://example.test", &linear, Value::Null),
    ];
    let valid_request = request("github", "GET", &api("/repos/o/r"), &github, Value::Null);
    let dir = tempfile::tempdir().unwrap();
    let (log, good_log) = (dir.path().join("bad.jsonl"), dir.path().join("good.jsonl"));
    let lines: Vec<String> = invalid_requests.iter().map(Value::to_string).collect();
    fs::write(&log, lines.join("\n")).unwrap();
    fs::write(&good_log, valid_request.to_string()).unwrap();

    let (conforms, output_text) = checker.check(&[log]);
    assert!(!conforms, "{output_text}");
    for number in 1..=invalid_requests.len() {
        let log_line = format!("bad.jsonl:{number}: ");
        assert!(
            output_text.contains(&log_line),
            "line {number} passed:\n{output_text}"
        );
    }
    let (conforms, output_text) = checker.check(&[good_log]);
    assert!(conforms, "{output_text}");
}

/// Every new client method must be exercised in `verbs.rs` or `issues.rs`.
#[test]
fn contract_test_exercises_every_client_method() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = vec![
        root.join("src/vendors/ticketing/mod.rs"),
        root.join("src/vendors/chat.rs"),
        root.join("src/vendors/session_hosts/mod.rs"),
    ];
    for folder in ["scm/github", "ticketing/jira", "ticketing/github_issues"] {
        let entries = fs::read_dir(root.join("src/vendors").join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        sources.extend(paths.filter(|path| path.is_file()));
    }
    let exercised = ["verbs.rs", "issues.rs", "conversation.rs", "merges.rs"].map(|name| {
        let path = root.join("tests/it/contracts").join(name);
        fs::read_to_string(path).unwrap()
    });
    let exercised_source = exercised.concat();
    let mut missing = BTreeSet::new();
    for source in sources.iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = fs::read_to_string(source).unwrap();
        for (offset, prefix) in text.match_indices("pub async fn ") {
            let rest = &text[offset + prefix.len()..];
            let method: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if !exercised_source.contains(&format!(".{method}(")) {
                missing.insert(method);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
