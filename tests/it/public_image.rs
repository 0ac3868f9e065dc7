//! CI runs in a public image: the program is fetched and checked, the agent is installed and compared.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use domain::agent::CLAUDE;
use domain::crypto::run_token::TokenAudience;
use domain::crypto::sha256_hex;
use domain::ids::JobId;
use domain::job::{Job, JobState};
use domain::report::RunPhase;
use engine::program::OwnProgram;
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use serde_json::Value;

use crate::api_server::send_checked;
use crate::test_env::{
    EngineMode, IMPLEMENTATION_WORKFLOW, TestEnv, TestEnvOptions, mapping, planning_mapping,
};

fn options() -> TestEnvOptions {
    TestEnvOptions {
        public_image: true,
        ..TestEnvOptions::default()
    }
}

/// Log of the only workflow run.
fn run_log(env: &TestEnv) -> String {
    let runs = env.repo().runs();
    assert_eq!(runs.len(), 1, "{runs:#?}");
    env.repo().run_log(runs[0].id)
}

/// Options of the dispatch of the only workflow run.
fn dispatched_options(env: &TestEnv) -> Value {
    let run = env.repo().runs().remove(0);
    let options = run.inputs.get("options").and_then(Value::as_str);
    options.map_or(Value::Null, |options| {
        serde_json::from_str(options).unwrap()
    })
}

async fn run_to_end(env: &TestEnv) -> Job {
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.wait_for_job_end("ENG-1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_fetches_the_program_and_installs_the_pinned_agent() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![planning_mapping()],
        ..options()
    })
    .await;
    env.set_agent_script(
        "ENG-1",
        Script::new().pass([ScriptStep::write("feature.txt", "done\n")]),
    );
    let job = run_to_end(&env).await;
    assert_eq!(job.state, JobState::Completed, "{}", run_log(&env));
    let log = run_log(&env);
    let options = dispatched_options(&env);
    let program = std::fs::read(env!("CARGO_BIN_EXE_agent-implement")).unwrap();
    let mut hasher = domain::crypto::Sha256Hasher::default();
    hasher.update(&program);
    assert_eq!(options["programSha256"], hasher.finish_hex());
    assert_eq!(options["programUrl"], Value::Null, "from the service");

    env.wait_until("the implementation has ended", || {
        env.jobs("ENG-1").len() == 2 && !env.jobs("ENG-1")[1].is_active()
    })
    .await;
    env.wait_for_empty_outbox().await;
    assert_eq!(env.jobs("ENG-1")[1].state, JobState::Completed, "{log}");
    assert_eq!(env.repo().pulls().len(), 1);
    let package = format!("{}@{}", CLAUDE.package, CLAUDE.version);
    let calls = env.vendors.npm_calls();
    assert_eq!(calls.len(), 2, "once in each run: {calls:#?}");
    for call in calls {
        assert!(call.ends_with(&format!(" {package}")), "{call}");
        assert!(call.starts_with("install --ignore-scripts "), "{call}");
    }
    for run in env.repo().runs() {
        let log = env.repo().run_log(run.id);
        assert!(log.contains("Installing Claude Code "), "{log}");
        assert!(log.contains("::add-mask::"), "{log}");
        let token = run.inputs["run_progress_token"].as_str().unwrap();
        let unmasked = log
            .lines()
            .filter(|line| line.contains(token) && !line.contains("::add-mask::"));
        assert_eq!(unmasked.count(), 0, "{log}");
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_another_hash_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let (program, marker) = (dir.path().join("program"), dir.path().join("started"));
    std::fs::write(&program, "#!/bin/sh\nexit 0\n").unwrap();
    let env = TestEnv::with_options(TestEnvOptions {
        program: Some(program.clone()),
        ..options()
    })
    .await;
    let expected = env.app.core.program.facts().await.unwrap().sha256.clone();
    // Longer, so that what is sent has the announced length.
    let evil = format!("#!/bin/sh\ntouch {}\nexit 0\n", marker.display());
    std::fs::write(&program, &evil).unwrap();
    let size = env.app.core.program.facts().await.unwrap().size as usize;
    let found = sha256_hex(&evil[..size]);
    let job = run_to_end(&env).await;
    assert_eq!(job.state.status(), "failed");
    assert!(!marker.exists(), "nothing of it was started");
    let sentence =
        format!("was not started: its SHA-256 is {found}, and the dispatch says {expected}.");
    let log = run_log(&env);
    assert!(log.contains(&sentence), "{log}");
    assert!(env.vendors.npm_calls().is_empty());
    let comments = env.comments("ENG-1");
    assert!(comments[0].contains(&sentence), "{comments:#?}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_fetch_the_program_says_what_to_set() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping()],
        omitted_flags: &["--runner-callback-base-url"],
        ..options()
    })
    .await;
    let job = run_to_end(&env).await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(dispatched_options(&env), Value::Null);
    let log = run_log(&env);
    let sentence = "This image does not contain agent-implement, and the service names no address to fetch it from. Set RUNNER_CALLBACK_BASE_URL";
    assert!(log.contains(sentence), "{log}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_address_and_its_hash_are_named_in_the_dispatch() {
    let hash = "ab".repeat(32);
    let env = TestEnv::with_options(TestEnvOptions {
        extra_flags: vec![
            (
                "--runner-program-url",
                "https://127.0.0.1:1/agent-implement".to_owned(),
            ),
            ("--runner-program-sha256", hash.to_uppercase()),
        ],
        ..options()
    })
    .await;
    let job = run_to_end(&env).await;
    assert_eq!(job.state.status(), "failed");
    let options = dispatched_options(&env);
    assert_eq!(options["programUrl"], "https://127.0.0.1:1/agent-implement");
    assert_eq!(options["programSha256"], hash);
    let log = run_log(&env);
    let sentence = "Cannot fetch the program from https://127.0.0.1:1/agent-implement. Check RUNNER_PROGRAM_URL";
    assert!(log.contains(sentence), "{log}");
    assert!(env.comments("ENG-1")[0].contains(sentence));
    env.finish().await;
}

/// Changes that a hostile agent makes to what the run has installed. The folder of the run is above the work
/// tree. What would run next creates the file `MARKER`.
const ATTACKS: [&str; 4] = [
    "echo 'touch MARKER' > ../agent-program/node_modules/@anthropic-ai/claude-code/bin/claude",
    "cd ../agent-program/node_modules/.bin && rm claude && printf '#!/bin/sh\ntouch MARKER\n' > claude && chmod 755 claude",
    "mkdir -p ../agent-program/node_modules/evil && echo x > ../agent-program/node_modules/evil/index.js",
    "mkdir -p ../node_modules/evil && echo x > ../node_modules/evil/index.js",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_changes_the_installation_is_not_started_again() {
    let env = TestEnv::with_options(options()).await;
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("started");
    for (number, attack) in ATTACKS.iter().enumerate() {
        let key = format!("ENG-{}", number + 1);
        let attack = attack.replace("MARKER", &marker.to_string_lossy());
        let script = Script::new().pass([
            ScriptStep::write(&format!("feature-{number}.txt"), "done\n"),
            ScriptStep::run(&attack),
        ]);
        env.set_agent_script(&key, script.review(ScriptedReview::approve()));
        env.create_labelled_issue(&key, "Add a feature");
        let job = env.wait_for_job_end(&key).await;
        // Nobody has reviewed the change, so its pull request is a draft.
        assert_eq!(job.state.status(), "review_failed", "{attack}");
        let pull = env.repo().pulls().pop().unwrap();
        assert!(pull.draft, "{attack}");
        let run = env.repo().runs();
        let run = run.iter().find(|run| run.title.contains(job.id.as_str()));
        let log = env.repo().run_log(run.unwrap().id);
        let sentence = "changed during the run and is not started";
        assert!(log.contains(sentence), "{attack}: {log}");
        assert!(!marker.exists(), "{attack}");
    }
    assert_eq!(env.repo().pulls().len(), ATTACKS.len());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewritten_program_is_never_started() {
    let env = TestEnv::with_options(options()).await;
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("started");
    let attack = format!(
        "for program in ../../agent-implement-program-*/agent-implement; do \
         printf '#!/bin/sh\\ntouch {}\\n' > evil && chmod 755 evil && mv -f evil \"$program\" && echo replaced > {}; done",
        marker.display(),
        dir.path().join("replaced").display()
    );
    let script = Script::new().pass([
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::run(&attack),
    ]);
    env.set_agent_script("ENG-1", script);
    let job = run_to_end(&env).await;
    assert_eq!(job.state, JobState::Completed, "{}", run_log(&env));
    assert!(dir.path().join("replaced").exists(), "{}", run_log(&env));
    assert!(!marker.exists());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_of_an_older_version_is_dispatched_without_the_options() {
    let env = TestEnv::with_options(TestEnvOptions::default()).await;
    let input = "      options:\n        description: \"Further options of the run, as a JSON object\"\n        required: false\n        type: string\n";
    assert!(IMPLEMENTATION_WORKFLOW.contains(input));
    let old = IMPLEMENTATION_WORKFLOW.replace(input, "");
    let file = (".github/workflows/agent-implement.yml", old.as_str());
    env.repo()
        .commit("main", &[file], "Use an older workflow")
        .unwrap();
    let job = run_to_end(&env).await;
    assert_eq!(job.state, JobState::Completed, "{}", run_log(&env));
    assert_eq!(dispatched_options(&env), Value::Null);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_sent_to_runs_only() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let text = "a program of several parts\n".repeat(20_000);
    std::fs::write(&program, &text).unwrap();
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, permissions).unwrap();
    let env = TestEnv::with_options(TestEnvOptions {
        program: Some(program),
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    let token = |audience| {
        let (tokens, now) = (&env.app.secrets.run_tokens, env.app.core.now());
        let expires = now + Duration::from_secs(60);
        let job = JobId::from("01JPROGRAM");
        tokens.issue(&job, audience, RunPhase::Implementation, now, expires)
    };
    let get = |query: &str, token: Option<String>| {
        let request = reqwest::Client::new().get(format!("{}/runner/program{query}", env.address));
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    };
    let progress = || Some(token(TokenAudience::Progress).expose().to_owned());
    let own = format!("?target={}", OwnProgram::target());
    let sent = send_checked(get(&own, progress())).await;
    assert_eq!(sent.status, 200);
    assert_eq!(sent.header("etag"), format!("\"{}\"", sha256_hex(&text)));
    assert_eq!(sent.header("content-length"), text.len().to_string());
    let body = get(&own, progress())
        .send()
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    assert!(body[..] == *text.as_bytes());

    let result = Some(token(TokenAudience::Result).expose().to_owned());
    for (query, token, status) in [
        (own.as_str(), None, 401),
        (&own, Some("forged.token".to_owned()), 401),
        (&own, result, 401),
        ("", progress(), 400),
        ("?target=../../etc/passwd", progress(), 400),
        ("?target=mips-unknown-linux-gnu", progress(), 404),
    ] {
        let answer = send_checked(get(query, token)).await;
        assert_eq!(answer.status, status, "{query}");
    }

    let held: Vec<_> = std::iter::from_fn(|| env.app.core.program.reserve_download()).collect();
    let refused = send_checked(get(&own, progress())).await;
    assert_eq!(refused.error(), (429, "too_many_downloads"));
    assert_eq!(refused.header("retry-after"), "5");
    drop(held);
    assert_eq!(send_checked(get(&own, progress())).await.status, 200);
    env.finish().await;
}

/// The public image stands in two workflows and in the code that replaces it.
#[test]
fn the_workflows_name_the_same_public_image_by_digest() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/workflows");
    let image = |file: &str| {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let (_, rest) = text.split_once("|| 'docker.io/").unwrap();
        rest.split_once('\'').unwrap().0.to_owned()
    };
    let (name, digest) = (image("agent-implement.yml"), image("agent-plan.yml"));
    assert_eq!(name, digest);
    let (_, digest) = name.split_once("@sha256:").unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
}
