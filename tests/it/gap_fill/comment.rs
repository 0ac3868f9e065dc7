//! The comment trigger of target repositories, its script run as CI would run it.

use std::process::Output;

use domain::job::JobState;
use fake_vendors::scripted_agent::ScriptStep;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{INSTRUCTION, SECRET, env_with_open_pull, options, pull_number};
use crate::test_env::{COMMENT_TRIGGER_WORKFLOW, TestEnv};

/// A comment on the pull request.
struct Comment<'a> {
    by: &'a str,
    text: &'a str,
    /// The text of the pull request.
    on: String,
    /// Where the repository believes the orchestrator to be.
    orchestrator: &'a str,
}

impl Comment<'_> {
    /// Runs the workflow's only step on it, with the token that its permissions leave.
    async fn posted(&self, world: &TestEnv) -> Output {
        let workflow: Value = serde_saphyr::from_str(COMMENT_TRIGGER_WORKFLOW).unwrap();
        let script = workflow["jobs"]["trigger"]["steps"][0]["run"]
            .as_str()
            .unwrap();
        let event = json!({
            "issue": {"number": pull_number(world), "body": self.on, "pull_request": {}},
            "comment": {"user": {"login": self.by}, "body": self.text},
        });
        let dir = tempfile::tempdir().unwrap();
        let (event_file, script_file) = (dir.path().join("event.json"), dir.path().join("step.sh"));
        std::fs::write(&event_file, event.to_string()).unwrap();
        std::fs::write(&script_file, script).unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        // Waiting between tries is left out.
        std::os::unix::fs::symlink("/bin/true", bin.join("sleep")).unwrap();
        let token = world.vendors.github().create_installation_token(
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
            .env("GITHUB_API_URL", world.vendors.github_api_url())
            .env("GITHUB_REPOSITORY", "acme/shop")
            .env("GITHUB_TOKEN", token)
            .env("CALLBACK_URL", self.orchestrator)
            .env("TRIGGER_SECRET", SECRET)
            .output()
            .await
            .unwrap()
    }
}

fn told(output: &Output) -> (bool, String) {
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_of_somebody_who_may_write_starts_a_run_and_no_other_does() {
    let world = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    let repo = world.repo();
    repo.set_collaborator_role("writer", "write")
        .set_collaborator_role("keeper", "maintain")
        .set_collaborator_role("guest", "triage");
    let body = repo.pulls()[0].body.clone();
    let comment = |by, text| Comment {
        by,
        text,
        on: body.clone(),
        orchestrator: &world.address,
    };
    let foreign = Comment {
        on: "Somebody's own pull request".to_owned(),
        ..comment("writer", "/agent-implement")
    };
    for (ignored, why) in [
        (comment("guest", "/agent-implement"), "may not write"),
        (
            comment("stranger[bot]", "/agent-implement"),
            "may not write",
        ),
        (comment("writer", "/agent-implementation"), "no command"),
        (foreign, "not opened by Agent Implement"),
    ] {
        let (well, said) = told(&ignored.posted(&world).await);
        assert!(well && said.contains(why), "{said}");
    }
    assert_eq!(world.jobs("ENG-1").len(), 1);

    let hostile =
        format!("{INSTRUCTION}\n\"; $(touch pwned) `touch pwned` ${{IFS}} %0A::error::x \\");
    let text = format!("/agent-implement {hostile}");
    let (well, said) = told(&comment("keeper", &text).posted(&world).await);
    let job = world.wait_for_job_end("ENG-1").await;
    assert!(
        well && said.contains(&format!("Started run {}.", job.id)),
        "{said}"
    );
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(repo.runs()[1].inputs["instruction"], hostile);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_fails_the_job_with_its_reason() {
    let world = env_with_open_pull(options(), ScriptStep::write("a.txt", "A\n")).await;
    world.repo().set_collaborator_role("writer", "write");
    super::set_paused(&world, "ENG", true).await;
    let body = world.repo().pulls()[0].body.clone();
    let comment = |orchestrator| Comment {
        by: "writer",
        text: "/agent-implement",
        on: body.clone(),
        orchestrator,
    };
    let foreign = format!("{}/nowhere/", world.address);
    for (orchestrator, why) in [
        (
            world.address.as_str(),
            "::error::No run was started: project_paused",
        ),
        (&foreign, "::error::No run was started: Not found"),
        ("http://127.0.0.1:9", "could not be reached (curl: 7)"),
        ("", "AGENT_IMPLEMENT_CALLBACK_URL is not set"),
    ] {
        let (well, said) = told(&comment(orchestrator).posted(&world).await);
        assert!(!well && said.contains(why), "{orchestrator}: {said}");
    }
    world.finish().await;
}
