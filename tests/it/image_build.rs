//! `agent-implement image build`: the runner image from the program that is running.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use domain::agent::NAMED_AGENTS;
use requires::requires;
use serde_json::Value;

use crate::container_engine::{RealEngine, root_file_system};
use crate::process::{command, exit_and_output};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const IMAGE: &str = "agent-implement-runner:local";

/// Runs `image build` and returns exit code, standard output and standard error.
async fn build_image(docker_host: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = command(&["image", "build", "--docker-host", docker_host]);
    command.args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    exit_and_output(&output.await.unwrap())
}

fn options() -> TestEnvOptions {
    TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "local".to_owned())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn issues_wait_until_the_image_is_built_from_the_running_program() {
    let env = TestEnv::with_options(options()).await;
    env.vendors.docker().remove_image(IMAGE);
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert!(env.jobs("ENG-1").is_empty(), "nothing starts");
    let history = env
        .app
        .core
        .store()
        .read(|tx| store::decisions::get(tx, &"ENG-1".into()));
    let history = history.unwrap().unwrap();
    assert_eq!(
        history.current().unwrap().message,
        format!(
            "The image {IMAGE} is not on this machine. Run \"agent-implement image build\", or set LOCAL_RUNNER_IMAGE."
        )
    );

    let (code, stdout, stderr) = build_image(&env.vendors.docker_socket(), &[]).await;
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("Step 1/"), "{stdout}");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        stdout.contains(&format!(
            "\nBuilt {IMAGE}: agent-implement {version}, Claude Code "
        )),
        "{stdout}"
    );
    let image = env.vendors.docker().built_images().remove(0);
    assert_eq!(
        (image.tag.as_str(), image.base.as_str()),
        (IMAGE, "node:22-bookworm-slim")
    );
    let mut labels = BTreeMap::from([
        ("agent_implement_runner".to_owned(), "1".to_owned()),
        ("agent_implement_version".to_owned(), version.to_owned()),
    ]);
    labels.extend(NAMED_AGENTS.map(|agent| {
        (
            format!("agent_implement_{}", agent.name),
            agent.version.to_owned(),
        )
    }));
    assert_eq!(image.labels, labels);
    let program = std::fs::read(env!("CARGO_BIN_EXE_agent-implement")).unwrap();
    let (mode, copied) = &image.files["agent-implement"];
    assert_eq!((image.files.len(), *mode), (1, 0o755));
    assert!(copied[..] == program[..], "the program differs");

    env.tick().await;
    assert_eq!(env.jobs("ENG-1").len(), 1, "the run starts");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_build_ends_with_a_sentence() {
    let env = TestEnv::with_options(options()).await;
    let (docker, socket) = (env.vendors.docker(), env.vendors.docker_socket());
    let missing = env.vendors.docker_socket() + ".not";
    /// Failing step with its output, engine, arguments, expected sentence.
    type Row<'a> = (Option<(&'a str, &'a str)>, &'a str, &'a [&'a str], &'a str);
    let rows: [Row<'_>; 7] = [
        (
            Some((
                "RUN apt-get",
                "E: \u{1b}[31mNo space\u{1b}[0m left\u{202e} on device\n",
            )),
            &socket,
            &[],
            "building the image failed: The command '/bin/sh -c RUN apt-get' returned a non-zero code: 1",
        ),
        (
            Some((
                "RUN agent-implement --version",
                "version `GLIBC_2.39' not found\n",
            )),
            &socket,
            &[],
            "This program cannot run in that image",
        ),
        (
            None,
            &socket,
            &["--from", "acme/secret-base:1"],
            "pull access denied for acme/secret-base:1",
        ),
        (
            None,
            &missing,
            &[],
            "there is no container engine at unix://",
        ),
        (
            None,
            "http://127.0.0.1:1",
            &[],
            "building the image failed: ",
        ),
        (None, "ssh://host", &[], "DOCKER_HOST must be unix:///path"),
        (
            None,
            &socket,
            &["--codex-version", "1; rm -rf /"],
            "the version of Codex is not valid",
        ),
    ];
    for (failure, host, arguments, sentence) in rows {
        if let Some((instruction, output)) = failure {
            docker.fail_build_at(instruction, output);
        }
        let (code, stdout, stderr) = build_image(host, arguments).await;
        assert_eq!(code, 1, "{sentence}: {stdout}{stderr}");
        assert!(stderr.contains(sentence), "{sentence}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(!stdout.contains(['\u{1b}', '\u{202e}']), "{stdout:?}");
        assert!(!stdout.contains("Built "), "{stdout}");
    }
    assert!(docker.built_images().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_the_dockerfile_and_builds_nothing() {
    let arguments = [
        "--dry-run",
        "--from",
        "debian:13",
        "--gemini-cli-version",
        "9.9.9",
    ];
    let (code, stdout, _) = build_image("unix:///nowhere", &arguments).await;
    assert_eq!(code, 0);
    for expected in [
        "#   --build-arg BASE_IMAGE=debian:13\n",
        "GEMINI_CLI_VERSION=9.9.9\n",
        "\nFROM ${BASE_IMAGE}\n",
        "\nCOPY agent-implement ",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
}

#[test]
fn the_tests_use_the_pinned_versions_of_the_agents() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents/package.json");
    let package: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let pinned = NAMED_AGENTS.map(|agent| (agent.package.to_owned(), agent.version.into()));
    assert_eq!(
        package["dependencies"],
        Value::Object(serde_json::Map::from_iter(pinned))
    );
}

/// Programs that the Dockerfile calls. Nothing can be downloaded here, so they do nothing.
const INSTALLERS: [&str; 5] = ["apt-get", "npm", "corepack", "chmod", "useradd"];

#[requires("engine")]
#[tokio::test(flavor = "multi_thread")]
async fn a_real_engine_builds_the_image_from_the_running_program() {
    let engine = RealEngine::require();
    let dir = tempfile::tempdir().unwrap();
    let tar = root_file_system(dir.path());
    let root = dir.path().join("root");
    std::fs::remove_file(root.join("usr/local/bin/agent-implement")).unwrap();
    for program in INSTALLERS {
        std::fs::write(root.join("usr/bin").join(program), "#!/bin/sh\nexit 0\n").unwrap();
    }
    let script = "chmod 755 usr/bin/* && tar -cf \"$TAR\" .";
    let packed = Command::new("bash")
        .args(["-c", script])
        .current_dir(&root)
        .env("TAR", &tar)
        .status();
    assert!(packed.unwrap().success());
    engine.import(tar, "agent-implement-base:engine-test").await;
    let image = "agent-implement-runner:build-test";
    let arguments = ["--from", "agent-implement-base:engine-test", "--tag", image];
    let (code, stdout, stderr) = build_image(engine.host(), &arguments).await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    // Printed by the program inside the image.
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        stdout.contains(&format!("\nagent-implement {version}\n")),
        "{stdout}"
    );
    let inspected = engine
        .request(reqwest::Method::GET, &format!("/images/{image}/json"))
        .await;
    let config = &inspected["Config"];
    assert_eq!(config["Labels"]["agent_implement_version"], version);
    assert_eq!(config["User"], "1001:1001");

    let missing = build_image(
        engine.host(),
        &["--from", "localhost:1/nowhere:1", "--tag", image],
    )
    .await;
    assert_eq!(missing.0, 1, "{missing:?}");
}
