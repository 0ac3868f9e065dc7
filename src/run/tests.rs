//! Complete runs with a real repository, real git, a scripted agent, and one server that stands in
//! for the orchestrator and GitHub.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::environment::Environment;
use super::git::Transport;
use super::git::tests::{create_bare_repository, path_env_with, shell};
use super::lifecycle::run;
use super::orphan_processes::OrphanProcesses;
use domain::ids::Repo;
use domain::run_config::RunInputs;
use domain::secret::Secret;
use test_support::{RecordedRequest, StubReply, TestServer};
use vendors::http::Proxies;

const BRANCH: &str = "agent-implement/eng-1-say-hello";
const APPROVE: &str = r#"{"approved":true,"blocking":[]}"#;
const REPO_TOKEN: &str = "ghs_repositoryaccess0123456789";

/// Decides whether the server rejects a pull request.
type PullFilter = fn(&Value) -> bool;

fn never(_: &Value) -> bool {
    false
}

/// Repository, server and agent of a test.
struct RunFixture {
    dir: TempDir,
    server: TestServer,
    pulls: Arc<Mutex<Vec<Value>>>,
    reject_pulls: Arc<Mutex<PullFilter>>,
    custom_root: Option<PathBuf>,
}

impl RunFixture {
    /// Creates a fixture; the script `seed` creates the files of the first commit.
    async fn new(seed: &str) -> Self {
        test_support::install_tls();
        let dir = tempfile::tempdir().unwrap();
        create_bare_repository(dir.path(), "host/o/r.git", seed);
        let pulls: Arc<Mutex<Vec<Value>>> = Arc::default();
        let reject_pulls = Arc::new(Mutex::new(never as PullFilter));
        let (known, filter) = (pulls.clone(), reject_pulls.clone());
        let server =
            TestServer::start(move |request, _| answer(request, &known, *filter.lock().unwrap()))
                .await;
        Self {
            dir,
            server,
            pulls,
            reject_pulls,
            custom_root: None,
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
            run_url: Some("https://host/run/77".into()),
            temp_root: self.dir.path().join("temp"),
            home: None,
            nonce: None,
            proxies: Proxies::default(),
            secrets: Vec::new(),
            workflow_token: Some(Secret::new("ghs_workflowsowntoken0123456789")),
            direct_keys: vec![("ANTHROPIC_API_KEY".into(), Secret::new("the-model-key"))],
            cloud_keys: vec![],
            agent: None,
            agent_command: vec![],
            custom_root: self.custom_root.clone(),
            is_ci: false,
            child_env: path_env_with(agents),
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

#[tokio::test]
async fn opens_a_pull_request_for_a_ticket() {
    let fixture = RunFixture::new("echo a > a.txt; printf -- '---\\nsetup: echo built > built.txt\\n---\\nUse tabs.' > WORKFLOW.md").await;
    let agent = fixture.agent(
        "echo hello > hello.txt; git log -1 --format=%s > /dev/null",
        APPROVE,
    );
    assert!(fixture.run(&agent, fixture.inputs()).await);

    let result = fixture.result();
    assert_eq!(result["outcome"], "success", "{result}");
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    assert_eq!(result["runId"], 77);
    assert_eq!(result["usage"]["turns"], 4);
    assert_eq!(result["usage"]["costUsd"], 0.5);

    let pull = fixture.pulls.lock().unwrap()[0].clone();
    assert_eq!(pull["title"], "ENG-1: Say hello");
    assert_eq!(pull["draft"], false);
    let body = pull["body"].as_str().unwrap();
    assert!(body.contains("\nFixes ENG-1\n"), "{body}");
    assert!(body.contains(
        r#"<!-- agent-implement-meta {"issueId":"uuid-1","identifier":"ENG-1","dispatchId":"01JD","jobId":"01JD"} -->"#
    ));
    assert!(
        !body.contains("@octocat") && !body.contains("#1,"),
        "{body}"
    );
    assert!(body.contains("Cost: $0.50"), "{body}");

    assert_eq!(
        fixture.git(&format!("git rev-list --count main..{BRANCH}")),
        "1"
    );
    assert_eq!(
        fixture.git(&format!("git diff --name-only main {BRANCH}")),
        "hello.txt"
    );
    let message = fixture.git(&format!("git log -1 --format=%B {BRANCH}"));
    assert!(
        message.ends_with("Agent-Implement-Dispatch: 01JD"),
        "{message}"
    );

    let steps = fixture.steps();
    let ids: Vec<&str> = steps.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "clone",
            "install",
            "setup",
            "feedback-loop",
            "implement.1",
            "review.1",
            "preflight",
            "push",
            "verify",
            "post-push-review"
        ]
    );
    assert!(
        steps
            .iter()
            .all(|(_, status)| ["passed", "skipped"].contains(&status.as_str())),
        "{steps:?}"
    );
    let parent = &fixture
        .bodies("/runner/progress")
        .into_iter()
        .find(|report| report["step"]["id"] == "implement.1")
        .unwrap();
    assert_eq!(parent["step"]["parent_step_id"], "feedback-loop");

    let env = std::fs::read_to_string(fixture.dir.path().join("agent-env")).unwrap();
    for secret in [REPO_TOKEN, "ghs_workflow", "result.token", "progress.token"] {
        assert!(!env.contains(secret), "{env}");
    }
    let prompt = std::fs::read_to_string(fixture.dir.path().join("prompt-1")).unwrap();
    assert!(prompt.contains("ENG-1") && prompt.contains("Write hello.txt"));
    assert_eq!(
        fixture.bodies("/api/token").len(),
        3,
        "for the clone, the push, and the state of the review"
    );
}

#[tokio::test]
async fn a_second_attempt_reuses_commit_and_pull_request() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo $RANDOM > hello.txt", APPROVE);
    *fixture.reject_pulls.lock().unwrap() = |_| true;
    assert!(
        !fixture.run(&agent, fixture.inputs()).await,
        "failed after the push"
    );
    assert!(
        fixture.result()["failureReason"]
            .as_str()
            .unwrap()
            .starts_with("PR creation failed with HTTP 422")
    );
    let first = fixture.git(&format!("git rev-parse {BRANCH}"));
    *fixture.reject_pulls.lock().unwrap() = never;
    for attempt in ["opens the pull request", "finds it"] {
        assert!(fixture.run(&agent, fixture.inputs()).await, "{attempt}");
        assert_eq!(
            fixture.result()["prUrl"],
            "https://host/o/r/pull/1",
            "{attempt}"
        );
        assert_eq!(fixture.git(&format!("git rev-parse {BRANCH}")), first);
    }
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
    let passes = std::fs::read_to_string(fixture.dir.path().join("passes")).unwrap();
    assert_eq!(
        passes.lines().count(),
        4,
        "one implement pass; each attempt reviews, because reviews are not shared between attempts"
    );
}

#[tokio::test]
async fn a_sensitive_file_blocks_the_push() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo hello > hello.txt; echo 'KEY=1' > .env", APPROVE);
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "SENSITIVE_FILES_BLOCKED");
    assert_eq!(
        result["failureReason"],
        "🔒 Blocked by security guardrail\n\nPush blocked: 1 sensitive file(s) would be committed:\n\
         - .env: environment and config files (file name)"
    );
    assert_eq!(fixture.git("git branch --list"), "* main");
    assert_eq!(
        fixture.bodies("/api/token").len(),
        1,
        "no token was fetched for a push"
    );
    let steps = fixture.steps();
    assert_eq!(
        steps[7..],
        [
            ("push", "failed"),
            ("verify", "skipped"),
            ("post-push-review", "skipped")
        ]
        .map(|(id, status)| (id.to_owned(), status.to_owned()))
    );
}

#[tokio::test]
async fn opens_a_draft_if_findings_remain() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let review = r#"{"approved":false,"blocking":[{"title":"A race","location":"hello.txt:1","problem":"two writers","requiredFix":"lock"}]}"#;
    let agent = fixture.agent("echo x >> hello.txt", review);
    let mut inputs = fixture.inputs();
    inputs.insert("max_iterations".into(), "2".into());
    assert!(fixture.run(&agent, inputs).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED");
    assert_eq!(
        result["unresolved"],
        json!(["A race (hello.txt:1): two writers"])
    );
    assert_eq!(fixture.pulls.lock().unwrap()[0]["draft"], true);
    let prompt = std::fs::read_to_string(fixture.dir.path().join("prompt-3")).unwrap();
    assert!(prompt.contains("Required fix: lock"), "{prompt}");
    let steps = fixture.steps();
    for id in ["review.2", "mend.1", "gap-analysis.2"] {
        assert!(steps.iter().any(|(step, _)| step == id), "{id}: {steps:?}");
    }
    let comments = fixture.bodies("/repos/o/r/issues/1/comments");
    let comment = comments.last().unwrap()["body"].as_str().unwrap();
    assert!(
        comment.starts_with("<!-- agent-implement-gap-analysis -->")
            && comment.contains("- A race (hello.txt:1): two writers\n"),
        "{comment}"
    );
}

const A_RACE: &str =
    r#"{"approved":false,"blocking":[{"title":"A race","problem":"two writers"}]}"#;

#[tokio::test]
async fn keeps_the_change_if_a_fix_fails() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let out_of_turns = json!({"type": "result", "subtype": "error_max_turns", "is_error": true,
        "num_turns": 9, "result": "", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let implement = format!(
        "if [ -e hello.txt ]; then echo half > half.txt; rm a.txt; echo '{out_of_turns}'; exit 1; fi\n\
         echo hello > hello.txt"
    );
    let agent = fixture.agent(&implement, A_RACE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let (result, steps) = (fixture.result(), fixture.steps());
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(result["unresolved"][0], "A race: two writers");
    let finding = result["unresolved"][1].as_str().unwrap();
    assert!(finding.starts_with("Fixing stopped early: "), "{finding}");
    assert!(steps.contains(&("implement.2".into(), "failed".into())));
    assert!(!steps.iter().any(|(id, _)| id == "review.2"), "{steps:?}");
    let pushed = fixture.git(&format!("git ls-tree --name-only {BRANCH}"));
    assert_eq!(pushed, "a.txt\nhello.txt");
    assert_eq!(fixture.pulls.lock().unwrap()[0]["draft"], true);
}

#[tokio::test]
async fn does_not_fix_an_unreadable_review() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo x >> hello.txt", "Looks good to me!");
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let (result, steps) = (fixture.result(), fixture.steps());
    let unreadable = "The review could not be read: its answer does not match the schema";
    assert_eq!(result["unresolved"], json!([unreadable]));
    assert!(
        !steps.iter().any(|(id, _)| id == "implement.2"),
        "{steps:?}"
    );
}

#[tokio::test]
async fn opens_a_pull_request_where_drafts_are_unsupported() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    *fixture.reject_pulls.lock().unwrap() = |pull| pull["draft"] == true;
    let agent = fixture.agent("echo hello > hello.txt", A_RACE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(fixture.pulls.lock().unwrap()[0]["draft"], false);
}

#[tokio::test]
async fn skips_fixes_near_the_time_limit() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo x >> hello.txt", A_RACE);
    let mut inputs = fixture.inputs();
    inputs.insert("max_iterations".into(), "2".into());
    inputs.insert("job_timeout_minutes".into(), "8".into());
    assert!(fixture.run(&agent, inputs).await);
    let (result, steps) = (fixture.result(), fixture.steps());
    assert_eq!(
        result["unresolved"],
        json!([
            "A race: two writers",
            "Findings were not fixed: not enough time is left in this run"
        ])
    );
    assert!(!steps.iter().any(|(id, _)| id == "mend.1"), "{steps:?}");
}

#[tokio::test]
async fn reports_the_time_limit() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("sleep 30; echo x >> hello.txt", APPROVE);
    let mut inputs = fixture.inputs();
    inputs.insert("job_timeout_minutes".into(), "1".into());
    assert!(!fixture.run(&agent, inputs).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "TIMED_OUT");
    let reason = result["failureReason"].as_str().unwrap();
    assert!(
        reason.ends_with("the run reached its time limit"),
        "{reason}"
    );
}

#[tokio::test]
async fn keeps_a_branch_created_by_others_and_stores_a_patch() {
    let fixture = RunFixture::new("echo a > a.txt; printf '\\0\\1' > binary").await;
    let host = fixture.dir.path().join("host/o/r.git");
    let agent = fixture.agent(
        &format!(
            "echo hello > hello.txt; printf '\\0\\2' > binary; git --git-dir={} branch {BRANCH} main",
            host.display()
        ),
        APPROVE,
    );
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    let (result, theirs) = (fixture.result(), fixture.git("git rev-parse main"));
    assert_eq!(result["failureCode"], "PUSH_REJECTED");
    let reason = result["failureReason"].as_str().unwrap();
    assert!(
        reason.contains(&format!("somebody pushed {theirs}")),
        "{reason}"
    );
    assert_eq!(fixture.git(&format!("git rev-parse {BRANCH}")), theirs);
    let patch = fixture.dir.path().join("change.patch");
    std::fs::write(&patch, result["patch"].as_str().unwrap()).unwrap();
    let applied = shell(
        fixture.dir.path(),
        "git clone -q host/o/r.git clone && cd clone && git apply ../change.patch && cat hello.txt && od -An -tx1 binary",
    );
    assert_eq!(applied, "hello\n 00 02");
}

#[tokio::test]
async fn an_unreadable_reviewer_of_the_pipeline_has_not_approved() {
    let mut fixture = RunFixture::new("echo a > a.txt").await;
    let root = fixture.dir.path().join("custom");
    let steps = "[{id: clone, type: clone}, {id: work, type: feedback-loop}, {id: push, type: push}, \
                 {id: review, type: post-push-review, inputs: {reviewCheckNames: [lint], reviewWaitTimeoutMs: 1}}]";
    std::fs::create_dir_all(root.join("pipelines")).unwrap();
    let file = root.join("pipelines/autonomous.yml");
    std::fs::write(file, format!("id: autonomous\nsteps: {steps}\n")).unwrap();
    fixture.custom_root = Some(root);
    let agent = fixture.agent("echo h > h", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    let open = result["unresolved"][0].as_str().unwrap();
    assert!(
        open.starts_with("The reviewers' check runs could not be read"),
        "{open}"
    );
}

#[tokio::test]
async fn fails_a_run_without_a_pull_request() {
    let mut fixture = RunFixture::new("echo a > a.txt").await;
    let root = fixture.dir.path().join("custom");
    std::fs::create_dir_all(root.join("pipelines")).unwrap();
    let steps = "[{id: clone, type: clone}, {id: work, type: feedback-loop}, {id: review, type: post-push-review}]";
    let file = root.join("pipelines/autonomous.yml");
    std::fs::write(file, format!("id: autonomous\nsteps: {steps}\n")).unwrap();
    fixture.custom_root = Some(root);
    let agent = fixture.agent("echo h > h", APPROVE);
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    assert_eq!(
        fixture.result()["failureReason"],
        "the run ended without opening a pull request"
    );
    assert_eq!(
        fixture.steps().last().unwrap(),
        &("review".into(), "skipped".into())
    );
}

#[tokio::test]
async fn never_works_on_the_base_branch() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo h > h", APPROVE);
    let (mut inputs, before) = (fixture.inputs(), fixture.git("git rev-parse main"));
    inputs.insert("branch".into(), "main".into());
    assert!(!fixture.run(&agent, inputs).await);
    let reason = "branch main is the base branch; runs never work on it";
    assert_eq!(fixture.result()["failureReason"], reason);
    assert_eq!(fixture.git("git rev-parse main"), before);
}

#[tokio::test]
async fn reports_why_a_run_cannot_continue() {
    let settings =
        |text: &str| format!("mkdir .agent-implement; echo '{text}' > .agent-implement/config.yml");
    let failing = |setup: &str| format!("printf -- '---\\nsetup: {setup}\\n---\\n' > WORKFLOW.md");
    let rows = [
        (
            "echo a > a.txt".to_owned(),
            "true",
            "NO_CHANGES",
            "Nothing to commit: no file changes in the working tree",
        ),
        (
            failing("echo broken; exit 7"),
            "echo h > h",
            "SETUP_FAILED",
            "setup script of WORKFLOW.md failed: exit code 7\nbroken",
        ),
        (
            "echo a > a.txt; echo '{\"lockfileVersion\":1' > package-lock.json; mkdir bin"
                .to_owned(),
            "echo h > h",
            "INSTALL_FAILED",
            "install: npm ci",
        ),
        (
            settings("agent: copilot"),
            "true",
            "SETUP_FAILED",
            ".agent-implement/config.yml: unknown agent \"copilot\"; \
             known agents: claude, codex, gemini",
        ),
        (
            settings("agent: gemini"),
            "true",
            "SETUP_FAILED",
            "agent gemini has no model credential: \
             set GEMINI_API_KEY in the secrets of the repository",
        ),
    ];
    for (seed, implement, code, reason) in rows {
        let fixture = RunFixture::new(&seed).await;
        let agent = fixture.agent(implement, APPROVE);
        assert!(!fixture.run(&agent, fixture.inputs()).await, "{code}");
        let result = fixture.result();
        assert_eq!(result["failureCode"], code, "{result}");
        let message = result["failureReason"].as_str().unwrap();
        assert!(message.starts_with(reason), "{message}");
    }
}

#[tokio::test]
async fn the_environment_selects_the_agent_or_a_custom_program() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let mut unknown = fixture.environment(Path::new("/nowhere"), fixture.inputs());
    unknown.agent = Some("copilot".into());
    assert!(!fixture.run_in(unknown).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "SETUP_FAILED");
    assert_eq!(
        result["failureReason"],
        "AGENT_IMPLEMENT_AGENT: unknown agent \"copilot\"; \
         known agents: claude, codex, gemini, command"
    );

    let script = format!(
        "if [ $AGENT_IMPLEMENT_ROLE = review ]; then echo '{APPROVE}'; else grep -q ENG-1 && echo hello > hello.txt; fi"
    );
    let mut own = fixture.environment(Path::new("/nowhere"), fixture.inputs());
    own.agent_command = vec![
        "bash".into(),
        fixture.dir.path().join("own").display().to_string(),
    ];
    std::fs::write(&own.agent_command[1], script).unwrap();
    assert!(fixture.run_in(own).await, "{}", fixture.result());
    assert_eq!(
        fixture.git(&format!("git show {BRANCH}:hello.txt")),
        "hello"
    );
}

#[tokio::test]
async fn reports_a_missing_repository_and_invalid_inputs() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    std::fs::remove_dir_all(fixture.dir.path().join("host/o/r.git")).unwrap();
    let agent = fixture.agent("true", APPROVE);
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "CLONE_FAILED");
    assert!(
        result["failureReason"]
            .as_str()
            .unwrap()
            .starts_with("git clone failed (exit 128): "),
        "{result}"
    );

    let mut inputs = fixture.inputs();
    inputs.insert("max_turns".into(), "0".into());
    assert!(!fixture.run(&agent, inputs).await);
    assert_eq!(
        fixture.result()["failureReason"],
        "the run's input max_turns is not valid: 0"
    );
}

#[tokio::test]
async fn leaves_a_branch_of_others_alone() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    fixture.git(&format!(
        "git -c user.name=x -c user.email=x@x branch {BRANCH} $(git -c user.name=x -c user.email=x@x commit-tree -p main -m theirs main^{{tree}})"
    ));
    let agent = fixture.agent("echo h > h", APPROVE);
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "CLONE_FAILED");
    assert!(
        result["failureReason"]
            .as_str()
            .unwrap()
            .contains("somebody else"),
        "{result}"
    );
}

#[tokio::test]
async fn a_follow_up_uses_the_same_branch_and_adds_a_comment() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    assert!(
        fixture
            .run(
                &fixture.agent("echo hello > hello.txt", APPROVE),
                fixture.inputs()
            )
            .await
    );
    let louder = fixture.agent("echo HELLO > hello.txt", APPROVE);
    assert!(fixture.run(&louder, fixture.follow_up_inputs()).await);
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
    assert_eq!(
        fixture.git(&format!("git rev-list --count main..{BRANCH}")),
        "2"
    );
    let result = fixture.result();
    assert_eq!(result["phase"], "gap-analysis");
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    let comments = fixture.bodies("/repos/o/r/issues/1/comments");
    let comment = comments[1]["body"].as_str().unwrap();
    assert!(
        comment.starts_with("<!-- agent-implement-follow-up 02JD -->"),
        "{comment}"
    );
    let prompt = std::fs::read_to_string(fixture.dir.path().join("prompt-3")).unwrap();
    assert!(prompt.contains("Say it louder"));
}

#[tokio::test]
async fn rejects_a_pull_request_that_is_closed_or_of_another_branch() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let change = |pointer: &str, value: &str| {
        let mut pulls = fixture.pulls.lock().unwrap();
        *pulls[0].pointer_mut(pointer).unwrap() = value.into();
    };
    for (pointer, value, reason) in [
        (
            "/head/ref",
            "somebody/else",
            "pull request #1 does not belong to branch",
        ),
        ("/state", "closed", "pull request #1 is no longer open"),
    ] {
        change(pointer, value);
        assert!(!fixture.run(&agent, fixture.follow_up_inputs()).await);
        let failure = fixture.result()["failureReason"].clone();
        assert!(failure.as_str().unwrap().starts_with(reason), "{failure}");
    }
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
    let passes = std::fs::read_to_string(fixture.dir.path().join("passes")).unwrap();
    assert_eq!(passes.lines().count(), 2, "the agent was not started again");
}

#[tokio::test]
async fn uses_the_workflow_token_without_an_orchestrator() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    let mut inputs = fixture.inputs();
    inputs.remove("callback_url");
    assert!(fixture.run(&agent, inputs).await);
    let pull = fixture.pulls.lock().unwrap()[0].clone();
    assert!(
        pull["body"]
            .as_str()
            .unwrap()
            .contains("The orchestrator could not be reached")
    );
}
