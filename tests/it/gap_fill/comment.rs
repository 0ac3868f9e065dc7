//! Comment-trigger workflow of target repositories. Its script runs as in CI.

use std::process::Output;

use domain::job::JobState;
use fake_vendors::scripted_agent::ScriptStep;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{INSTRUCTION, SECRET, env_with_open_pull, options, pull_number};
use crate::test_env::{COMMENT_TRIGGER_WORKFLOW, TestEnv};

/// Comment on the only pull request.
struct Comment<'a> {
    author: &'a str,
    text: &'a str,
    /// Body of the pull request.
    pull_body: String,
    /// Configured callback URL of the service.
    callback_url: &'a str,
}

impl Comment<'_> {
    /// Runs the workflow's only step for the comment, with the token that its permissions allow.
    async fn run_trigger(&self, env: &TestEnv) -> Output {
        let workflow: Value = serde_saphyr::from_str(COMMENT_TRIGGER_WORKFLOW).unwrap();
        let script = workflow["jobs"]["trigger"]["steps"][0]["run"]
            .as_str()
            .unwrap();
        let event = json!({
            "issue": {"number": pull_number(env), "body": self.pull_body, "pull_request": {}},
            "comment": {"user": {"login": self.author}, "body": self.text},
        });
        let dir = tempfile::tempdir().unwrap();
        let (event_file, script_file) = (dir.path().join("event.json"), dir.path().join("step.sh"));
        std::fs::write(&event_file, event.to_string()).unwrap();
        std::fs::write(&script_file, script).unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        // No delay between retries.
        std::os::unix::fs::symlink("/bin/true", bin.join("sleep")).unwrap();
        let token = env.vendors.github().create_installation_token(
            "acme",
            &["shop"],
            &[("metadata", "read")],
        );
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        Command::new("bash")
            .args(["--noprofile", "--norc", "-eo", "pipefail"])
            .arg(&script_file)
            .env_clear()
            .env("PATH", path)
            .env("RUNNER_TEMP", dir.path())
            .env("GITHUB_EVENT_PATH", &event_file)
            .env("GITHUB_API_URL", env.vendors.github_api_url())
            .env("GITHUB_REPOSITORY", "acme/shop")
            .env("GITHUB_TOKEN", token)
            .env("CALLBACK_URL", self.callback_url)
            .env("TRIGGER_SECRET", SECRET)
            .output()
            .await
            .unwrap()
    }
}

fn success_and_output(output: &Output) -> (bool, String) {
    let bytes = [output.stdout.clone(), output.stderr.clone()].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&bytes).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_comment_of_a_user_with_write_access_starts_a_run() {
    let env = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let repo = env.repo();
    repo.set_collaborator_role("writer", "write")
        .set_collaborator_role("keeper", "maintain")
        .set_collaborator_role("guest", "triage");
    let body = repo.pulls()[0].body.clone();
    let comment = |author, text| Comment {
        author,
        text,
        pull_body: body.clone(),
        callback_url: &env.address,
    };
    let foreign = Comment {
        pull_body: "A pull request of a person".to_owned(),
        ..comment("writer", "/agent-implement")
    };
    for (ignored, why) in [
        (comment("guest", "/agent-implement"), "no write access"),
        (
            comment("outsider[bot]", "/agent-implement"),
            "no write access",
        ),
        (comment("writer", "/agent-implementation"), "not a command"),
        (foreign, "not opened by Agent Implement"),
    ] {
        let (is_success, output) = success_and_output(&ignored.run_trigger(&env).await);
        assert!(is_success && output.contains(why), "{output}");
    }
    assert_eq!(env.jobs("ENG-1").len(), 1);

    let hostile =
        format!("{INSTRUCTION}\n\"; $(touch pwned) `touch pwned` ${{IFS}} %0A::error::x \\");
    let text = format!("/agent-implement {hostile}");
    let (is_success, output) =
        success_and_output(&comment("keeper", &text).run_trigger(&env).await);
    let job = env.wait_for_job_end("ENG-1").await;
    assert!(
        is_success && output.contains(&format!("Started run {}.", job.id)),
        "{output}"
    );
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(repo.runs()[1].inputs["instruction"], hostile);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_fails_the_job_with_its_reason() {
    let env = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    env.repo().set_collaborator_role("writer", "write");
    super::set_paused(&env, "ENG", true).await;
    let body = env.repo().pulls()[0].body.clone();
    let comment = |callback_url| Comment {
        author: "writer",
        text: "/agent-implement",
        pull_body: body.clone(),
        callback_url,
    };
    let foreign = format!("{}/nowhere/", env.address);
    for (callback_url, why) in [
        (
            env.address.as_str(),
            "::error::No run was started: project_paused",
        ),
        (&foreign, "::error::No run was started: Not found"),
        ("http://127.0.0.1:9", "is not reachable (curl: 7)"),
        ("", "AGENT_IMPLEMENT_CALLBACK_URL is not set"),
    ] {
        let (is_success, output) =
            success_and_output(&comment(callback_url).run_trigger(&env).await);
        assert!(
            !is_success && output.contains(why),
            "{callback_url}: {output}"
        );
    }
    env.finish().await;
}
