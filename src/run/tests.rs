//! Whole runs: a real repository, real git, a scripted agent, and one server that plays both the
//! orchestrator and the host.

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

/// Whether the host refuses such a pull request.
type Refuses = fn(&Value) -> bool;

fn none(_: &Value) -> bool {
    false
}

/// One repository, one orchestrator, one agent.
struct Stage {
    dir: TempDir,
    server: TestServer,
    pulls: Arc<Mutex<Vec<Value>>>,
    refuse_pulls: Arc<Mutex<Refuses>>,
    custom_root: Option<PathBuf>,
}

impl Stage {
    /// `seed` fills the repository's first commit.
    async fn new(seed: &str) -> Self {
        test_support::install_tls();
        let dir = tempfile::tempdir().unwrap();
        create_bare_repository(dir.path(), "host/o/r.git", seed);
        let pulls: Arc<Mutex<Vec<Value>>> = Arc::default();
        let refuse_pulls = Arc::new(Mutex::new(none as Refuses));
        let (known, refusal) = (pulls.clone(), refuse_pulls.clone());
        let server =
            TestServer::start(move |asked, _| answer(asked, &known, *refusal.lock().unwrap()))
                .await;
        Self {
            dir,
            server,
            pulls,
            refuse_pulls,
            custom_root: None,
        }
    }

    /// An agent that implements with one script and answers a review with a text; the folder that
    /// it is found in.
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

    /// A later dispatch on the pull request of the first.
    fn more_work(&self) -> RunInputs {
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
        assert!(left.is_empty(), "a run leaves nothing: {left:?}");
        format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS)
    }

    fn bodies(&self, path: &str) -> Vec<Value> {
        self.server
            .requests()
            .iter()
            .filter(|asked| asked.method == "POST" && asked.path == path)
            .map(RecordedRequest::json)
            .collect()
    }

    fn result(&self) -> Value {
        self.bodies("/runner/result").pop().unwrap()
    }

    /// The last status of each step, in the order of their beginning.
    fn steps(&self) -> Vec<(String, String)> {
        let mut steps: Vec<(String, String)> = Vec::new();
        for report in self.bodies("/runner/progress") {
            let word = |name: &str| report["step"][name].as_str().unwrap().to_owned();
            match steps.iter_mut().find(|(id, _)| *id == word("id")) {
                Some(known) => known.1 = word("status"),
                None => steps.push((word("id"), word("status"))),
            }
        }
        steps
    }

    fn git(&self, script: &str) -> String {
        shell(&self.dir.path().join("host/o/r.git"), script)
    }
}

/// The orchestrator and the host in one.
fn answer(asked: &RecordedRequest, pulls: &Mutex<Vec<Value>>, refuses: Refuses) -> StubReply {
    let path = asked.path.split('?').next().unwrap_or_default();
    let bearer = asked.header("authorization").unwrap_or_default();
    match (asked.method.as_str(), path) {
        ("POST", "/api/token") => {
            assert_eq!(bearer, "Bearer progress.token.x");
            assert_eq!(asked.json(), json!({"owner": "o"}));
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
            let asked = asked.json();
            if refuses(&asked) {
                return StubReply::json(422, &json!({"message": "Validation Failed"}));
            }
            let mut pulls = pulls.lock().unwrap();
            let number = pulls.len() + 1;
            let pull = json!({
                "number": number, "html_url": format!("https://host/o/r/pull/{number}"), "draft": asked["draft"],
                "title": asked["title"], "body": asked["body"], "node_id": "PR_1", "state": "open",
                "merged_at": null, "head": {"ref": asked["head"], "sha": "h"}, "base": {"ref": asked["base"], "sha": "b"},
            });
            pulls.push(pull.clone());
            StubReply::json(201, &pull)
        }
        ("GET", "/repos/o/r/issues/1/comments") => StubReply::json(200, &json!([])),
        ("POST", "/repos/o/r/issues/1/comments") => {
            let comment = json!({"id": 1, "body": asked.json()["body"], "html_url": "https://host/c/1", "user": null});
            StubReply::json(201, &comment)
        }
        ("GET" | "PATCH", "/repos/o/r/pulls/1") => StubReply::json(200, &pulls.lock().unwrap()[0]),
        _ => StubReply::json(404, &json!({"message": format!("no {path} here")})),
    }
}

#[tokio::test]
async fn a_ticket_becomes_a_pull_request() {
    let stage = Stage::new("echo a > a.txt; printf -- '---\\nsetup: echo built > built.txt\\n---\\nUse tabs.' > WORKFLOW.md").await;
    let agent = stage.agent(
        "echo hello > hello.txt; git log -1 --format=%s > /dev/null",
        APPROVE,
    );
    assert!(stage.run(&agent, stage.inputs()).await);

    let result = stage.result();
    assert_eq!(result["outcome"], "success", "{result}");
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    assert_eq!(result["runId"], 77);
    assert_eq!(result["usage"]["turns"], 4);
    assert_eq!(result["usage"]["costUsd"], 0.5);

    let pull = stage.pulls.lock().unwrap()[0].clone();
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
        stage.git(&format!("git rev-list --count main..{BRANCH}")),
        "1"
    );
    assert_eq!(
        stage.git(&format!("git diff --name-only main {BRANCH}")),
        "hello.txt"
    );
    let message = stage.git(&format!("git log -1 --format=%B {BRANCH}"));
    assert!(
        message.ends_with("Agent-Implement-Dispatch: 01JD"),
        "{message}"
    );

    let steps = stage.steps();
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
    let parent = &stage
        .bodies("/runner/progress")
        .into_iter()
        .find(|report| report["step"]["id"] == "implement.1")
        .unwrap();
    assert_eq!(parent["step"]["parent_step_id"], "feedback-loop");

    let env = std::fs::read_to_string(stage.dir.path().join("agent-env")).unwrap();
    for secret in [REPO_TOKEN, "ghs_workflow", "result.token", "progress.token"] {
        assert!(!env.contains(secret), "{env}");
    }
    let prompt = std::fs::read_to_string(stage.dir.path().join("prompt-1")).unwrap();
    assert!(prompt.contains("ENG-1") && prompt.contains("Write hello.txt"));
    assert_eq!(
        stage.bodies("/api/token").len(),
        3,
        "once to clone, once to push, once to tell how the review stands"
    );
}

#[tokio::test]
async fn a_second_attempt_ends_with_the_same_commit_and_one_pull_request() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo $RANDOM > hello.txt", APPROVE);
    *stage.refuse_pulls.lock().unwrap() = |_| true;
    assert!(
        !stage.run(&agent, stage.inputs()).await,
        "died after the push"
    );
    assert!(
        stage.result()["failureReason"]
            .as_str()
            .unwrap()
            .starts_with("PR creation failed with HTTP 422")
    );
    let first = stage.git(&format!("git rev-parse {BRANCH}"));
    *stage.refuse_pulls.lock().unwrap() = none;
    for attempt in ["opens the pull request", "finds it"] {
        assert!(stage.run(&agent, stage.inputs()).await, "{attempt}");
        assert_eq!(
            stage.result()["prUrl"],
            "https://host/o/r/pull/1",
            "{attempt}"
        );
        assert_eq!(stage.git(&format!("git rev-parse {BRANCH}")), first);
    }
    assert_eq!(stage.pulls.lock().unwrap().len(), 1);
    let passes = std::fs::read_to_string(stage.dir.path().join("passes")).unwrap();
    assert_eq!(
        passes.lines().count(),
        4,
        "the agent worked once; what another attempt reviewed is nobody's knowledge"
    );
}

#[tokio::test]
async fn a_sensitive_file_blocks_the_push() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo hello > hello.txt; echo 'KEY=1' > .env", APPROVE);
    assert!(!stage.run(&agent, stage.inputs()).await);
    let result = stage.result();
    assert_eq!(result["failureCode"], "SENSITIVE_FILES_BLOCKED");
    assert_eq!(
        result["failureReason"],
        "🔒 Blocked by security guardrail\n\nPush blocked: 1 sensitive file(s) would be committed:\n\
         - .env: environment and config files (file name)"
    );
    assert_eq!(stage.git("git branch --list"), "* main");
    assert_eq!(
        stage.bodies("/api/token").len(),
        1,
        "no token was fetched to push"
    );
    let steps = stage.steps();
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
async fn blockers_that_remain_make_a_draft() {
    let stage = Stage::new("echo a > a.txt").await;
    let review = r#"{"approved":false,"blocking":[{"title":"A race","location":"hello.txt:1","problem":"two writers","requiredFix":"lock"}]}"#;
    let agent = stage.agent("echo x >> hello.txt", review);
    let mut inputs = stage.inputs();
    inputs.insert("max_iterations".into(), "2".into());
    assert!(stage.run(&agent, inputs).await);
    let result = stage.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED");
    assert_eq!(
        result["unresolved"],
        json!(["A race (hello.txt:1): two writers"])
    );
    assert_eq!(stage.pulls.lock().unwrap()[0]["draft"], true);
    let prompt = std::fs::read_to_string(stage.dir.path().join("prompt-3")).unwrap();
    assert!(prompt.contains("Required fix: lock"), "{prompt}");
    let steps = stage.steps();
    for id in ["review.2", "mend.1", "gap-analysis.2"] {
        assert!(steps.iter().any(|(step, _)| step == id), "{id}: {steps:?}");
    }
    let said = stage.bodies("/repos/o/r/issues/1/comments");
    let said = said.last().unwrap()["body"].as_str().unwrap();
    assert!(
        said.starts_with("<!-- agent-implement-gap-analysis -->")
            && said.contains("- A race (hello.txt:1): two writers\n"),
        "{said}"
    );
}

const A_RACE: &str =
    r#"{"approved":false,"blocking":[{"title":"A race","problem":"two writers"}]}"#;

#[tokio::test]
async fn a_change_whose_mending_fails_is_not_lost() {
    let stage = Stage::new("echo a > a.txt").await;
    let out_of_turns = json!({"type": "result", "subtype": "error_max_turns", "is_error": true,
        "num_turns": 9, "result": "", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let implement = format!(
        "if [ -e hello.txt ]; then echo half > half.txt; rm a.txt; echo '{out_of_turns}'; exit 1; fi\n\
         echo hello > hello.txt"
    );
    let agent = stage.agent(&implement, A_RACE);
    assert!(stage.run(&agent, stage.inputs()).await);
    let (result, steps) = (stage.result(), stage.steps());
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(result["unresolved"][0], "A race: two writers");
    let ended = result["unresolved"][1].as_str().unwrap();
    assert!(ended.starts_with("Mending ended early: "), "{ended}");
    assert!(steps.contains(&("implement.2".into(), "failed".into())));
    assert!(!steps.iter().any(|(id, _)| id == "review.2"), "{steps:?}");
    let pushed = stage.git(&format!("git ls-tree --name-only {BRANCH}"));
    assert_eq!(pushed, "a.txt\nhello.txt");
    assert_eq!(stage.pulls.lock().unwrap()[0]["draft"], true);
}

#[tokio::test]
async fn a_review_that_names_nothing_is_not_given_to_the_agent_to_mend() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo x >> hello.txt", "Looks good to me!");
    assert!(stage.run(&agent, stage.inputs()).await);
    let (result, steps) = (stage.result(), stage.steps());
    let unread = "The review could not be read: its answer is not of the form that was asked for";
    assert_eq!(result["unresolved"], json!([unread]));
    assert!(
        !steps.iter().any(|(id, _)| id == "implement.2"),
        "{steps:?}"
    );
}

#[tokio::test]
async fn where_the_host_knows_no_drafts_the_pull_request_is_opened_all_the_same() {
    let stage = Stage::new("echo a > a.txt").await;
    *stage.refuse_pulls.lock().unwrap() = |asked| asked["draft"] == true;
    let agent = stage.agent("echo hello > hello.txt", A_RACE);
    assert!(stage.run(&agent, stage.inputs()).await);
    let result = stage.result();
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(stage.pulls.lock().unwrap()[0]["draft"], false);
}

#[tokio::test]
async fn nothing_is_mended_when_the_time_is_nearly_used_up() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo x >> hello.txt", A_RACE);
    let mut inputs = stage.inputs();
    inputs.insert("max_iterations".into(), "2".into());
    inputs.insert("job_timeout_minutes".into(), "8".into());
    assert!(stage.run(&agent, inputs).await);
    let (result, steps) = (stage.result(), stage.steps());
    assert_eq!(
        result["unresolved"],
        json!([
            "A race: two writers",
            "Nothing more was mended: the run's time is nearly used up"
        ])
    );
    assert!(!steps.iter().any(|(id, _)| id == "mend.1"), "{steps:?}");
}

#[tokio::test]
async fn a_run_that_has_no_time_left_says_so() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("sleep 30; echo x >> hello.txt", APPROVE);
    let mut inputs = stage.inputs();
    inputs.insert("job_timeout_minutes".into(), "1".into());
    assert!(!stage.run(&agent, inputs).await);
    let result = stage.result();
    assert_eq!(result["failureCode"], "TIMED_OUT");
    let reason = result["failureReason"].as_str().unwrap();
    assert!(reason.ends_with("the run's time was used up"), "{reason}");
}

#[tokio::test]
async fn a_branch_that_somebody_makes_meanwhile_is_theirs_and_the_work_is_kept() {
    let stage = Stage::new("echo a > a.txt; printf '\\0\\1' > binary").await;
    let host = stage.dir.path().join("host/o/r.git");
    let agent = stage.agent(
        &format!(
            "echo hello > hello.txt; printf '\\0\\2' > binary; git --git-dir={} branch {BRANCH} main",
            host.display()
        ),
        APPROVE,
    );
    assert!(!stage.run(&agent, stage.inputs()).await);
    let (result, theirs) = (stage.result(), stage.git("git rev-parse main"));
    assert_eq!(result["failureCode"], "PUSH_REJECTED");
    let said = result["failureReason"].as_str().unwrap();
    assert!(
        said.contains(&format!("somebody pushed {theirs}")),
        "{said}"
    );
    assert_eq!(stage.git(&format!("git rev-parse {BRANCH}")), theirs);
    let kept = stage.dir.path().join("kept.patch");
    std::fs::write(&kept, result["patch"].as_str().unwrap()).unwrap();
    let applied = shell(
        stage.dir.path(),
        "git clone -q host/o/r.git clone && cd clone && git apply ../kept.patch && cat hello.txt && od -An -tx1 binary",
    );
    assert_eq!(applied, "hello\n 00 02");
}

#[tokio::test]
async fn reviewers_are_named_by_the_pipeline_too_and_one_that_cannot_be_read_has_not_approved() {
    let mut stage = Stage::new("echo a > a.txt").await;
    let root = stage.dir.path().join("custom");
    let steps = "[{id: clone, type: clone}, {id: work, type: feedback-loop}, {id: push, type: push}, \
                 {id: review, type: post-push-review, inputs: {reviewCheckNames: [lint], reviewWaitTimeoutMs: 1}}]";
    std::fs::create_dir_all(root.join("pipelines")).unwrap();
    let file = root.join("pipelines/autonomous.yml");
    std::fs::write(file, format!("id: autonomous\nsteps: {steps}\n")).unwrap();
    stage.custom_root = Some(root);
    let agent = stage.agent("echo h > h", APPROVE);
    assert!(stage.run(&agent, stage.inputs()).await);
    let result = stage.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    let open = result["unresolved"][0].as_str().unwrap();
    assert!(
        open.starts_with("The reviewers' check runs could not be read"),
        "{open}"
    );
}

#[tokio::test]
async fn a_run_without_a_pull_request_has_failed() {
    let mut stage = Stage::new("echo a > a.txt").await;
    let root = stage.dir.path().join("custom");
    std::fs::create_dir_all(root.join("pipelines")).unwrap();
    let steps = "[{id: clone, type: clone}, {id: work, type: feedback-loop}, {id: review, type: post-push-review}]";
    let file = root.join("pipelines/autonomous.yml");
    std::fs::write(file, format!("id: autonomous\nsteps: {steps}\n")).unwrap();
    stage.custom_root = Some(root);
    let agent = stage.agent("echo h > h", APPROVE);
    assert!(!stage.run(&agent, stage.inputs()).await);
    assert_eq!(
        stage.result()["failureReason"],
        "the run ended without opening a pull request"
    );
    assert_eq!(
        stage.steps().last().unwrap(),
        &("review".into(), "skipped".into())
    );
}

#[tokio::test]
async fn the_base_branch_is_never_worked_on() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo h > h", APPROVE);
    let (mut inputs, before) = (stage.inputs(), stage.git("git rev-parse main"));
    inputs.insert("branch".into(), "main".into());
    assert!(!stage.run(&agent, inputs).await);
    let reason = "the branch to work on, main, is the base branch itself";
    assert_eq!(stage.result()["failureReason"], reason);
    assert_eq!(stage.git("git rev-parse main"), before);
}

#[tokio::test]
async fn a_run_that_cannot_go_on_says_why() {
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
            ".agent-implement/config.yml: the agent \"copilot\" is not known; \
             there are claude, codex, gemini",
        ),
        (
            settings("agent: gemini"),
            "true",
            "SETUP_FAILED",
            "the agent gemini has no model credential: \
             set GEMINI_API_KEY among the secrets of the repository",
        ),
    ];
    for (seed, implement, code, reason) in rows {
        let stage = Stage::new(&seed).await;
        let agent = stage.agent(implement, APPROVE);
        assert!(!stage.run(&agent, stage.inputs()).await, "{code}");
        let result = stage.result();
        assert_eq!(result["failureCode"], code, "{result}");
        let said = result["failureReason"].as_str().unwrap();
        assert!(said.starts_with(reason), "{said}");
    }
}

#[tokio::test]
async fn the_environment_may_name_the_agent_or_put_a_program_in_its_place() {
    let stage = Stage::new("echo a > a.txt").await;
    let mut unknown = stage.environment(Path::new("/nowhere"), stage.inputs());
    unknown.agent = Some("copilot".into());
    assert!(!stage.run_in(unknown).await);
    let result = stage.result();
    assert_eq!(result["failureCode"], "SETUP_FAILED");
    assert_eq!(
        result["failureReason"],
        "the variable AGENT_IMPLEMENT_AGENT: the agent \"copilot\" is not known; \
         there are claude, codex, gemini, command"
    );

    let script = format!(
        "if [ $AGENT_IMPLEMENT_ROLE = review ]; then echo '{APPROVE}'; else grep -q ENG-1 && echo hello > hello.txt; fi"
    );
    let mut own = stage.environment(Path::new("/nowhere"), stage.inputs());
    own.agent_command = vec![
        "bash".into(),
        stage.dir.path().join("own").display().to_string(),
    ];
    std::fs::write(&own.agent_command[1], script).unwrap();
    assert!(stage.run_in(own).await, "{}", stage.result());
    assert_eq!(stage.git(&format!("git show {BRANCH}:hello.txt")), "hello");
}

#[tokio::test]
async fn a_missing_repository_and_unfit_inputs_are_told_too() {
    let stage = Stage::new("echo a > a.txt").await;
    std::fs::remove_dir_all(stage.dir.path().join("host/o/r.git")).unwrap();
    let agent = stage.agent("true", APPROVE);
    assert!(!stage.run(&agent, stage.inputs()).await);
    let result = stage.result();
    assert_eq!(result["failureCode"], "CLONE_FAILED");
    assert!(
        result["failureReason"]
            .as_str()
            .unwrap()
            .starts_with("git clone failed (exit 128): "),
        "{result}"
    );

    let mut inputs = stage.inputs();
    inputs.insert("max_turns".into(), "0".into());
    assert!(!stage.run(&agent, inputs).await);
    assert_eq!(
        stage.result()["failureReason"],
        "the run's input max_turns is not valid: 0"
    );
}

#[tokio::test]
async fn a_branch_of_somebody_else_is_left_alone() {
    let stage = Stage::new("echo a > a.txt").await;
    stage.git(&format!(
        "git -c user.name=x -c user.email=x@x branch {BRANCH} $(git -c user.name=x -c user.email=x@x commit-tree -p main -m theirs main^{{tree}})"
    ));
    let agent = stage.agent("echo h > h", APPROVE);
    assert!(!stage.run(&agent, stage.inputs()).await);
    let result = stage.result();
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
async fn more_work_goes_to_the_same_branch_and_is_told_in_a_comment() {
    let stage = Stage::new("echo a > a.txt").await;
    assert!(
        stage
            .run(
                &stage.agent("echo hello > hello.txt", APPROVE),
                stage.inputs()
            )
            .await
    );
    let louder = stage.agent("echo HELLO > hello.txt", APPROVE);
    assert!(stage.run(&louder, stage.more_work()).await);
    assert_eq!(stage.pulls.lock().unwrap().len(), 1);
    assert_eq!(
        stage.git(&format!("git rev-list --count main..{BRANCH}")),
        "2"
    );
    let result = stage.result();
    assert_eq!(result["phase"], "gap-analysis");
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    let said = stage.bodies("/repos/o/r/issues/1/comments");
    let said = said[1]["body"].as_str().unwrap();
    assert!(
        said.starts_with("<!-- agent-implement-follow-up 02JD -->"),
        "{said}"
    );
    let prompt = std::fs::read_to_string(stage.dir.path().join("prompt-3")).unwrap();
    assert!(prompt.contains("Say it louder"));
}

#[tokio::test]
async fn no_work_is_put_into_a_pull_request_that_is_over_or_of_another_branch() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo hello > hello.txt", APPROVE);
    assert!(stage.run(&agent, stage.inputs()).await);
    let change = |pointer: &str, value: &str| {
        let mut pulls = stage.pulls.lock().unwrap();
        *pulls[0].pointer_mut(pointer).unwrap() = value.into();
    };
    for (pointer, value, reason) in [
        (
            "/head/ref",
            "somebody/else",
            "pull request #1 is not of the branch",
        ),
        ("/state", "closed", "pull request #1 is not open any more"),
    ] {
        change(pointer, value);
        assert!(!stage.run(&agent, stage.more_work()).await);
        let failure = stage.result()["failureReason"].clone();
        assert!(failure.as_str().unwrap().starts_with(reason), "{failure}");
    }
    assert_eq!(stage.pulls.lock().unwrap().len(), 1);
    let passes = std::fs::read_to_string(stage.dir.path().join("passes")).unwrap();
    assert_eq!(passes.lines().count(), 2, "the agent was not asked in vain");
}

#[tokio::test]
async fn without_an_orchestrator_the_workflows_own_token_is_used_and_told() {
    let stage = Stage::new("echo a > a.txt").await;
    let agent = stage.agent("echo hello > hello.txt", APPROVE);
    let mut inputs = stage.inputs();
    inputs.remove("callback_url");
    assert!(stage.run(&agent, inputs).await);
    let pull = stage.pulls.lock().unwrap()[0].clone();
    assert!(
        pull["body"]
            .as_str()
            .unwrap()
            .contains("The orchestrator could not be asked for access")
    );
}
