//! Runs that fail, and their reports.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{APPROVE, BRANCH, RunFixture};
use domain::secret::Secret;

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

/// A value that is public in the repository is no secret there. Every other value of the run still is.
#[tokio::test]
async fn a_credential_blocks_only_a_file_that_did_not_hold_it_before() {
    let seed = "mkdir postgres; for f in db.yml old.yml postgres/a.sql; do echo 'user: postgres' > $f; done";
    let blocked = |path: &str| format!("- {path}: tokens and auth files (credential of this run)");
    let rows = [
        (
            "echo 'port: 5432' | tee -a db.yml >> postgres/a.sql; mv old.yml new.yml",
            None,
        ),
        ("echo the-model-key >> db.yml", Some(blocked("db.yml"))),
        (
            "echo 'user: postgres' >> other.yml",
            Some(blocked("other.yml")),
        ),
        ("mv db.yml the-model-key", Some(blocked("[redacted]"))),
    ];
    for (implement, expected) in rows {
        let fixture = RunFixture::new(seed).await;
        let agent = fixture.agent(implement, APPROVE);
        let mut environment = fixture.environment(&agent, fixture.inputs());
        environment.secrets = vec![Secret::new("postgres")];
        let succeeded = fixture.run_in(environment).await;
        let result = fixture.result();
        assert_eq!(succeeded, expected.is_none(), "{implement}: {result}");
        if let Some(expected) = expected {
            let reason = result["failureReason"].as_str().unwrap();
            assert!(reason.ends_with(&expected), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_verify_script_leaves_time_to_convert_the_pull_request_to_a_draft() {
    let verify = "printf -- '---\\nverify: sleep 300\\n---\\n' > WORKFLOW.md";
    let mut fixture = RunFixture::new(verify).await;
    // An agent would get no time of so short a run.
    let root = fixture.dir.path().join("custom");
    let agent = fixture.agent("true", APPROVE);
    std::fs::create_dir_all(root.join("steps")).unwrap();
    let program = root.join("steps/feedback-loop");
    std::fs::write(&program, "#!/bin/bash\necho hello > hello.txt\n").unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fixture.custom_root = Some(root);
    let mut inputs = fixture.inputs();
    inputs.insert("job_timeout_minutes".into(), "1".into());
    assert!(!fixture.run(&agent, inputs).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "VERIFY_FAILED", "{result}");
    assert_eq!(fixture.bodies("/graphql").len(), 1, "it becomes a draft");
}

#[tokio::test]
async fn deletes_its_files_after_the_result_is_reported() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    assert_eq!(*fixture.files_at_result.lock().unwrap(), 1);
}
