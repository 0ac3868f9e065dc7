//! Every request that our clients send is one that the vendors' published contracts allow.
//!
//! The contracts and their checker are no part of this project. Where they are at hand
//! (`AGENT_IMPLEMENT_CONTRACTS` names their folder, `AGENT_IMPLEMENT_PYTHON` a Python that can run
//! the checker; `tests/run.sh` sets both), every story leaves its town's request log behind and the
//! logs are checked here; elsewhere `needs.rs` decides.

mod verbs;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_vendors::FakeVendors;
use serde_json::{Value, json};

use crate::requirements::require;
use crate::test_env::{TestEnv, TestEnvOptions};

/// What must have been asked at least once for the check to be worth its name.
const CALLS: &str = "\
github GET /app
github GET /user
github GET /repos/acme/shop/installation
github POST /app/installations/N/access_tokens
github GET /repos/acme/shop/contents/README.md
github GET /repos/acme/shop/git/ref/heads/
github GET /repos/acme/shop/git/commits/N
github POST /repos/acme/shop/git/trees
github POST /repos/acme/shop/git/commits
github POST /repos/acme/shop/git/refs
github PATCH /repos/acme/shop/git/refs/heads/
github POST /repos/acme/shop/actions/workflows/agent-implement.yml/dispatches
github GET /repos/acme/shop/actions/runs
github GET /repos/acme/shop/actions/runs/N
github GET /repos/acme/shop/actions/runs/N/jobs
github GET /repos/acme/shop/actions/jobs/N/logs
github POST /repos/acme/shop/actions/runs/N/cancel
github POST /repos/acme/shop/pulls
github GET /repos/acme/shop/pulls
github GET /repos/acme/shop/pulls/N
github PATCH /repos/acme/shop/pulls/N
github GET /repos/acme/shop/issues/N/comments
github POST /repos/acme/shop/issues/N/comments
github PATCH /repos/acme/shop/issues/comments/N
github GET /repos/acme/shop/collaborators/alice/permission
github GET /repos/acme/shop/commits/N/check-runs
github GET /repos/acme/shop/commits/N/statuses
github GET /repos/acme/shop/pulls/N/reviews
github mutation markPullRequestReadyForReview
github mutation convertPullRequestToDraft
github query node
github query repository
linear query issues
linear query issue
linear query viewer
linear query comment
linear mutation issueLabelCreate
linear mutation issueAddLabel
linear mutation issueRemoveLabel
linear mutation commentCreate
linear mutation commentUpdate
linear mutation commentDelete
linear mutation attachmentCreate
jira GET /rest/api/N/myself
jira GET /rest/api/N/field
jira GET /rest/api/N/field/customfield_
jira POST /rest/api/N/jql/parse
jira POST /rest/api/N/search/jql
jira GET /rest/api/N/issue/OPS-
jira PUT /rest/api/N/issue/N
jira GET /rest/api/N/issue/N/comment
jira POST /rest/api/N/issue/N/comment
jira PUT /rest/api/N/issue/N/comment/N
jira DELETE /rest/api/N/issue/N/comment/N
jira POST /rest/api/N/issue/N/remotelink
jira GET /rest/api/N/issue/N/editmeta
jira GET /rest/api/N/issue/createmeta/N/issuetypes
chat POST /services/
chat POST /workflows/
fly GET /v1/apps/sandbox-sessions/machines
fly POST /v1/apps/sandbox-sessions/machines
fly GET /v1/apps/sandbox-sessions/machines/N
fly POST /v1/apps/sandbox-sessions/machines/N/stop
fly DELETE /v1/apps/sandbox-sessions/machines/N
docker GET /containers/json
docker POST /containers/create
docker POST /images/create
docker POST /containers/N/start
docker GET /containers/N/json
docker GET /containers/N/logs
docker POST /containers/N/stop
docker DELETE /containers/N
";

/// The contracts' checker and the Python that runs it.
struct Checker {
    folder: PathBuf,
    python: PathBuf,
}

impl Checker {
    fn find() -> Result<Self, String> {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let contracts =
            given("AGENT_IMPLEMENT_CONTRACTS").ok_or("the vendors' contracts are not at hand")?;
        let folder = Path::new(&contracts).join("check");
        if !folder.join("validate.py").exists() {
            return Err(format!("there is no validate.py in {}", folder.display()));
        }
        let python = given("AGENT_IMPLEMENT_PYTHON")
            .ok_or("there is no Python with the checker's libraries")?
            .into();
        Ok(Self { folder, python })
    }

    fn needed(test: &str) -> Option<Self> {
        require("contracts", test, Self::find())
    }

    /// Checks logs; answers whether all is well, and what was said.
    fn check(&self, expected: Option<&Path>, logs: &[PathBuf]) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contracts.py");
        let mut command = Command::new(&self.python);
        command.arg(script).arg(&self.folder);
        if let Some(expected) = expected {
            command.arg("--expect").arg(expected);
        }
        let output = command.args(logs).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

fn log_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/contract-log")
}

/// Where this story's log goes: by the test's name, so that the next time replaces it.
fn log_of_this_story() -> PathBuf {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("story").replace("::", ".");
    log_folder().join(format!("{name}.jsonl"))
}

/// Keeps what a town was asked, for the check. Does nothing where there is no check.
pub fn record_requests(town: &FakeVendors) {
    if Checker::find().is_err() {
        return;
    }
    let log = log_of_this_story();
    fs::create_dir_all(log_folder()).unwrap();
    // Another test may be reading the folder: a log is there whole or not at all.
    let part = log.with_extension("part");
    town.requests().write_jsonl(&part).unwrap();
    fs::rename(part, log).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_every_client_conforms_to_the_vendors_contracts() {
    let Some(checker) = Checker::needed("the vendors' contracts") else {
        return;
    };
    let world = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        ..TestEnvOptions::default()
    })
    .await;
    let log = log_of_this_story();
    verbs::create_many_flagged_issues(&world);
    verbs::run_tickets_with_vendor_faults(&world).await;
    verbs::read_repository_host(&world).await;
    verbs::start_and_stop_runs(&world).await;
    verbs::work_on_a_pull_request(&world).await;
    verbs::exercise_linear(&world).await;
    verbs::exercise_jira(&world).await;
    verbs::post_to_both_chats(&world).await;
    verbs::create_and_destroy_machines(&world).await;
    world.finish().await;

    let expected = log.with_extension("expected");
    fs::write(&expected, CALLS).unwrap();
    let (conforms, said) = checker.check(Some(&expected), &[log]);
    assert!(conforms, "{said}");
    println!("{said}");
}

/// Whatever other stories have left so far. A log that conforms has served its turn; one that does
/// not stays to be looked at until its story is told again.
#[test]
fn every_request_of_earlier_stories_conforms_too() {
    let Some(checker) = Checker::needed("the contracts of earlier stories") else {
        return;
    };
    let Ok(found) = fs::read_dir(log_folder()) else {
        return;
    };
    let logs: Vec<PathBuf> = found
        .map(|entry| entry.unwrap().path())
        .filter(|log| {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            // The story above checks its own log; an empty one tells nothing.
            name.ends_with(".jsonl")
                && !name.starts_with("contracts.")
                && fs::metadata(log).is_ok_and(|found| found.len() > 0)
        })
        .collect();
    if logs.is_empty() {
        return;
    }
    let (conforms, said) = checker.check(None, &logs);
    assert!(conforms, "{said}");
    for log in logs {
        // Told again at this moment, it may be gone or new: checked the next time.
        let _ = fs::remove_file(&log);
    }
}

#[test]
fn a_request_outside_of_the_contracts_is_found() {
    let Some(checker) = Checker::needed("the contract checker's own test") else {
        return;
    };
    let github = json!({"authorization": "Bearer [redacted]", "user-agent": "x", "content-type": "application/json"});
    let linear = json!({"authorization": "[redacted]", "content-type": "application/json"});
    let deep = "query { issues(first: 250) { nodes { labels(first: 50) { nodes { name } } } } }";
    let one = |vendor: &str, method: &str, url: &str, headers: &Value, body: Value| json!({"vendor": vendor, "method": method, "url": url, "headers": headers, "body": body, "status": 200});
    let api = |path: &str| format!("https://api.github.com{path}");
    let graphql = "https://api.linear.app/graphql";
    let bad = [
        one(
            "github",
            "PATCH",
            &api("/repos/o/r/pulls/1"),
            &github,
            json!({"draft": true}),
        ),
        one(
            "github",
            "GET",
            &api("/repos/o/r/pulls?per_page=500"),
            &github,
            Value::Null,
        ),
        one("github", "GET", &api("/app"), &github, Value::Null),
        one(
            "github",
            "POST",
            &api("/graphql"),
            &github,
            json!({"query": "query { nothing }"}),
        ),
        one(
            "linear",
            "POST",
            graphql,
            &linear,
            json!({"query": "query { issues(first: 1) { nodes { colour } } }"}),
        ),
        one("linear", "POST", graphql, &linear, json!({"query": deep})),
        one(
            "linear",
            "POST",
            graphql,
            &json!({"authorization": "Bearer [redacted]", "content-type": "application/json"}),
            json!({"query": "query { viewer { name } }"}),
        ),
        one(
            "chat",
            "POST",
            "https://hooks.slack.com/services/x",
            &linear,
            json!({"blocks": "none"}),
        ),
        one(
            "chat",
            "POST",
            "https://x.logic.azure.com/workflows/x",
            &linear,
            json!({"text": "hello"}),
        ),
        one(
            "docker",
            "POST",
            "http://docker/containers/create?name=x",
            &json!({"content-type": "application/json"}),
            json!({"Image": "x", "HostConfig": {"ReadOnlyRootfs": true}}),
        ),
        one(
            "fly",
            "POST",
            "https://api.machines.dev/v1/apps/a/machines",
            &github,
            json!({"config": {"image": "x", "restart": {"policy": "never"}}}),
        ),
        one("post", "POST", "https://example.test", &linear, Value::Null),
    ];
    let good = one("github", "GET", &api("/repos/o/r"), &github, Value::Null);
    let dir = tempfile::tempdir().unwrap();
    let (log, fine) = (dir.path().join("bad.jsonl"), dir.path().join("good.jsonl"));
    let lines: Vec<String> = bad.iter().map(Value::to_string).collect();
    fs::write(&log, lines.join("\n")).unwrap();
    fs::write(&fine, good.to_string()).unwrap();

    let (conforms, said) = checker.check(None, std::slice::from_ref(&log));
    assert!(!conforms, "{said}");
    for number in 1..=bad.len() {
        let place = format!("bad.jsonl:{number}: ");
        assert!(said.contains(&place), "line {number} passed:\n{said}");
    }
    let (conforms, said) = checker.check(None, std::slice::from_ref(&fine));
    assert!(conforms, "{said}");
    let expected = dir.path().join("expected");
    fs::write(&expected, "github GET /user\n").unwrap();
    let (conforms, said) = checker.check(Some(&expected), &[fine]);
    assert!(
        !conforms && said.contains("never called: github GET /user"),
        "{said}"
    );
}

/// A new verb of a client has to be exercised here, too.
#[test]
fn the_contract_story_knows_every_verb_of_the_clients() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = vec![
        root.join("src/vendors/ticketing/mod.rs"),
        root.join("src/vendors/ticketing/jira/mod.rs"),
        root.join("src/vendors/chat.rs"),
        root.join("src/vendors/session_hosts/mod.rs"),
    ];
    let github = fs::read_dir(root.join("src/vendors/scm/github")).unwrap();
    sources.extend(github.map(|entry| entry.unwrap().path()));
    let here = fs::read_to_string(root.join("tests/it/contracts/verbs.rs")).unwrap();
    let mut missing = BTreeSet::new();
    for source in sources.iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = fs::read_to_string(source).unwrap();
        for (at, found) in text.match_indices("pub async fn ") {
            let rest = &text[at + found.len()..];
            let verb: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if !here.contains(&format!(".{verb}(")) {
                missing.insert(verb);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
