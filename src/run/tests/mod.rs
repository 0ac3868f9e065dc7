//! Complete runs with a real repository, real git, a scripted agent, and one server that stands in
//! for the orchestrator and GitHub.

mod failures;
mod merges;
mod mirrors;
mod pull_requests;
mod questions;
mod reviews;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::environment::Environment;
use crate::git::Transport;
use crate::git::tests::{create_bare_repository, path_env_with, shell};
use crate::lifecycle::run;
use crate::orphan_processes::OrphanProcesses;
use domain::ids::Repo;
use domain::run_config::RunInputs;
use domain::secret::Secret;
use test_support::{RecordedRequest, StubReply, TestServer};
use vendors::http::Proxies;

const BRANCH: &str = "agent-implement/eng-1-say-hello";
const APPROVE: &str = r#"{"approved":true,"blocking":[]}"#;
const A_RACE: &str =
    r#"{"approved":false,"blocking":[{"title":"A race","problem":"two writers"}]}"#;
const REPO_TOKEN: &str = "ghs_repositoryaccess0123456789";

/// Decides whether the server rejects a pull request.
type PullFilter = fn(&Value) -> bool;

fn never(_: &Value) -> bool {
    false
}

/// What the server answers about the ticket.
#[derive(Default)]
struct TicketStub {
    /// Context; null if the service is older.
    context: Value,
    /// Contents of attachments by id.
    attachments: Vec<(&'static str, String)>,
}

/// Repository, server and agent of a test.
struct RunFixture {
    dir: TempDir,
    server: TestServer,
    pulls: Arc<Mutex<Vec<Value>>>,
    reject_pulls: Arc<Mutex<PullFilter>>,
    ticket: Arc<Mutex<TicketStub>>,
    /// Number of entries in the folder of temporary files when the result was reported.
    files_at_result: Arc<Mutex<usize>>,
    custom_root: Option<PathBuf>,
    mirror: Option<PathBuf>,
}

impl RunFixture {
    /// Creates a fixture; the script `seed` creates the files of the first commit.
    async fn new(seed: &str) -> Self {
        test_support::install_tls();
        let dir = tempfile::tempdir().unwrap();
        create_bare_repository(dir.path(), "host/o/r.git", seed);
        let pulls: Arc<Mutex<Vec<Value>>> = Arc::default();
        let reject_pulls = Arc::new(Mutex::new(never as PullFilter));
        let ticket: Arc<Mutex<TicketStub>> = Arc::default();
        let (known, filter, stub) = (pulls.clone(), reject_pulls.clone(), ticket.clone());
        let files_at_result: Arc<Mutex<usize>> = Arc::default();
        let (files, temp) = (files_at_result.clone(), dir.path().join("temp"));
        let server = TestServer::start(move |request, _| {
            if request.path == "/runner/result" {
                *files.lock().unwrap() = std::fs::read_dir(&temp).unwrap().count();
            }
            match about_ticket(request, &stub.lock().unwrap()) {
                Some(reply) => reply,
                None => answer(request, &known, *filter.lock().unwrap()),
            }
        })
        .await;
        Self {
            dir,
            server,
            pulls,
            reject_pulls,
            ticket,
            files_at_result,
            custom_root: None,
            mirror: None,
        }
    }

    /// Creates an agent that implements with a script and answers reviews with a text. Returns the
    /// folder of its program.
    fn agent(&self, implement: &str, review: &str) -> PathBuf {
        let folder = self.dir.path().join("agents");
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("claude");
        let event = |text: &str| {
            json!({"type": "result", "subtype": "success", "is_error": false, "num_turns": 2,
                "result": text, "total_cost_usd": 0.25, "usage": {"input_tokens": 10, "output_tokens": 5}})
        };
        let script = format!(
            "#!/bin/bash\nset -e\nN={dir}/passes; echo x >> $N\nenv > {dir}/agent-env\ncat > {dir}/prompt-$(wc -l < $N)\n\
             echo '{{\"type\":\"system\",\"subtype\":\"init\",\"model\":\"m\"}}'\n\
             if [[ \"$*\" == *json-schema* ]]; then cat <<'END'\n{}\nEND\n\
             else {implement}\ncat <<'END'\n{}\nEND\nfi\n",
            event(review),
            event("I said hello. Fixes #1, thanks @octocat."),
            dir = self.dir.path().display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn inputs(&self) -> RunInputs {
        [
            ("dispatch_id", "01JD"),
            ("issue_id", "uuid-1"),
            ("issue_identifier", "ENG-1"),
            ("issue_title", "Say hello"),
            ("issue_description", "Write hello.txt"),
            ("phase", "implementation"),
            ("branch", BRANCH),
            ("callback_url", &self.server.url),
            ("run_token", "result.token.x"),
            ("run_progress_token", "progress.token.x"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// Returns the inputs of a follow-up dispatch on the first pull request.
    fn follow_up_inputs(&self) -> RunInputs {
        let mut inputs = self.inputs();
        for (name, value) in [
            ("dispatch_id", "02JD"),
            ("phase", "gap-analysis"),
            ("pr_number", "1"),
            ("instruction", "Say it louder"),
        ] {
            inputs.insert(name.into(), value.into());
        }
        inputs
    }

    async fn run(&self, agents: &Path, inputs: RunInputs) -> bool {
        self.run_in(self.environment(agents, inputs)).await
    }

    fn environment(&self, agents: &Path, inputs: RunInputs) -> Environment {
        Environment {
            inputs,
            repo: Repo::new("o", "r"),
            server_url: self.dir.path().join("host").to_string_lossy().into_owned(),
            api_url: self.server.url.clone(),
            base_branch: "main".into(),
            run_id: Some(77),
            run_attempt: 1,
            workspace: None,
            run_url: Some("https://host/run/77".into()),
            step_files: None,
            temp_root: self.dir.path().join("temp"),
            home: None,
            nonce: None,
            ends_at: None,
            proxies: Proxies::default(),
            secrets: Vec::new(),
            workflow_token: Some(Secret::new("ghs_workflowsowntoken0123456789")),
            direct_keys: vec![("ANTHROPIC_API_KEY".into(), Secret::new("the-model-key"))],
            cloud_keys: vec![],
            agent: None,
            may_install_agent: false,
            agent_command: vec![],
            custom_root: self.custom_root.clone(),
            is_ci: false,
            child_env: path_env_with(agents),
            mirror: self.mirror.clone(),
            home_template: None,
            transport: Transport::LocalFiles,
            orphan_processes: OrphanProcesses::Leave,
        }
    }

    async fn run_in(&self, environment: Environment) -> bool {
        std::fs::create_dir_all(&environment.temp_root).unwrap();
        let code = run(environment).await;
        let left: Vec<_> = std::fs::read_dir(self.dir.path().join("temp"))
            .unwrap()
            .collect();
        assert!(left.is_empty(), "leftover files: {left:?}");
        format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
    }

    fn bodies(&self, path: &str) -> Vec<Value> {
        self.server
            .requests()
            .iter()
            .filter(|request| request.method == "POST" && request.path == path)
            .map(RecordedRequest::json)
            .collect()
    }

    fn result(&self) -> Value {
        self.bodies("/runner/result").pop().unwrap()
    }

    /// Returns the last status of each step, in order of their start.
    fn steps(&self) -> Vec<(String, String)> {
        let mut steps: Vec<(String, String)> = Vec::new();
        for report in self.bodies("/runner/progress") {
            let field = |name: &str| report["step"][name].as_str().unwrap().to_owned();
            match steps.iter_mut().find(|(id, _)| *id == field("id")) {
                Some(known) => known.1 = field("status"),
                None => steps.push((field("id"), field("status"))),
            }
        }
        steps
    }

    fn git(&self, script: &str) -> String {
        shell(&self.dir.path().join("host/o/r.git"), script)
    }
}

/// Answers requests for the context of the ticket and its attachments.
fn about_ticket(request: &RecordedRequest, ticket: &TicketStub) -> Option<StubReply> {
    let id = request.path.strip_prefix("/runner/attachments/");
    let reply = match (request.path.as_str(), id) {
        ("/runner/ticket-context", _) if !ticket.context.is_null() => {
            StubReply::json(200, &ticket.context)
        }
        (_, Some(id)) => {
            let found = ticket.attachments.iter().find(|(known, _)| *known == id)?;
            StubReply::Response(200, vec![], found.1.clone())
        }
        _ => return None,
    };
    assert_eq!(request.method, "GET");
    assert_eq!(
        request.header("authorization"),
        Some("Bearer progress.token.x")
    );
    Some(reply)
}

/// Answers requests as orchestrator and GitHub.
fn answer(
    request: &RecordedRequest,
    pulls: &Mutex<Vec<Value>>,
    is_rejected: PullFilter,
) -> StubReply {
    let path = request.path.split('?').next().unwrap_or_default();
    let bearer = request.header("authorization").unwrap_or_default();
    match (request.method.as_str(), path) {
        ("POST", "/api/token") => {
            assert_eq!(bearer, "Bearer progress.token.x");
            assert_eq!(request.json(), json!({"owner": "o"}));
            StubReply::json(
                200,
                &json!({"token": REPO_TOKEN, "expiresAt": "2099-01-01T00:00:00Z", "repository": "o/r"}),
            )
        }
        ("POST", "/runner/progress") => {
            assert_eq!(bearer, "Bearer progress.token.x");
            StubReply::json(200, &json!({"acknowledged": true}))
        }
        ("POST", "/runner/result") => {
            assert_eq!(bearer, "Bearer result.token.x");
            StubReply::json(200, &json!({"acknowledged": true, "warnings": []}))
        }
        ("GET", "/repos/o/r/pulls") => {
            StubReply::json(200, &Value::Array(pulls.lock().unwrap().clone()))
        }
        ("POST", "/repos/o/r/pulls") => {
            let new = request.json();
            if is_rejected(&new) {
                return StubReply::json(422, &json!({"message": "Validation Failed"}));
            }
            let mut pulls = pulls.lock().unwrap();
            let number = pulls.len() + 1;
            let pull = json!({
                "number": number, "html_url": format!("https://host/o/r/pull/{number}"), "draft": new["draft"],
                "title": new["title"], "body": new["body"], "node_id": "PR_1", "state": "open",
                "merged_at": null, "head": {"ref": new["head"], "sha": "h"}, "base": {"ref": new["base"], "sha": "b"},
            });
            pulls.push(pull.clone());
            StubReply::json(201, &pull)
        }
        ("GET", "/repos/o/r/issues/1/comments") => StubReply::json(200, &json!([])),
        ("POST", "/repos/o/r/issues/1/comments") => {
            let comment = json!({"id": 1, "body": request.json()["body"], "html_url": "https://host/c/1", "user": null});
            StubReply::json(201, &comment)
        }
        ("GET" | "PATCH", "/repos/o/r/pulls/1") => StubReply::json(200, &pulls.lock().unwrap()[0]),
        _ => StubReply::json(404, &json!({"message": format!("no {path} here")})),
    }
}
