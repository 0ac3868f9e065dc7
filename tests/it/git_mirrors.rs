//! Mirrors of repositories for local containers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::job::{Job, JobState};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, MachineSnapshot};
use serde_json::{Value, json};
use store::steps;

use crate::fallback_agents::install_codex;
use crate::test_env::{Gate, TestEnv, TestEnvOptions, mapping, mapping_with};

/// Variable with the path of the mirror.
const VARIABLE: &str = "GIT_MIRROR";

async fn start(extra: Vec<(&'static str, String)>) -> TestEnv {
    let mut extra_flags = vec![("--runner-mode", "local".to_owned())];
    extra_flags.extend(extra);
    let other = mapping_with(&json!({"teamKey": "OTH", "repo": "other"}));
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping(), other],
        session_hosts: true,
        extra_flags,
        ..TestEnvOptions::default()
    })
    .await;
    env.vendors.linear().ensure_team("OTH", "Others");
    env.seed_repo("other");
    env
}

/// Returns the newest generation of each mirror.
fn mirrors(env: &TestEnv) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let of_repos = entries(&env.dir().join("data/git-mirrors")).into_iter();
    let newest = of_repos.filter_map(|folder| {
        let complete = entries(&folder).into_iter().filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.bytes().all(|byte| byte.is_ascii_digit())
        });
        complete.max()
    });
    newest.collect()
}

/// Runs a ticket to its end. Returns the folder of the mirror in its container, and what the clone step reports about it.
async fn run(env: &TestEnv, key: &str) -> (Option<String>, Value) {
    run_together(env, &[key]).await.remove(0)
}

/// Runs tickets at the same time. Returns the same for each.
async fn run_together(env: &TestEnv, keys: &[&str]) -> Vec<(Option<String>, Value)> {
    let gate = Gate::new(env);
    gate.close();
    for key in keys {
        start_run(env, key, &gate);
    }
    for key in keys {
        wait_for_clone(env, key).await;
    }
    let containers = env.vendors.docker().host().snapshots();
    let sources: Vec<_> = containers
        .iter()
        .filter(|container| container.running)
        .map(mounted_mirror)
        .collect();
    assert_eq!(sources.len(), keys.len());
    gate.open();
    let mut runs = Vec::new();
    for (key, source) in keys.iter().zip(sources) {
        let job = env.wait_for_job_end(key).await;
        assert_eq!(job.state, JobState::Completed, "{job:#?}");
        let used = clone_outputs(env, &job).unwrap()["mirror"].clone();
        runs.push((source, used));
    }
    runs
}

/// Starts the run of a ticket, whose agent waits for the gate.
fn start_run(env: &TestEnv, key: &str, gate: &Gate) {
    let script = Script::new().pass([
        gate.wait_step(),
        ScriptStep::write(&format!("{key}.txt"), "done\n"),
    ]);
    env.set_agent_script(key, script);
    env.create_labelled_issue(key, "Add a feature");
}

/// Waits until the run of a ticket has cloned. Returns what the step reports about the mirror.
async fn wait_for_clone(env: &TestEnv, key: &str) -> Value {
    let outputs = || clone_outputs(env, env.jobs(key).last()?);
    env.wait_until("the repository is cloned", || outputs().is_some())
        .await;
    outputs().unwrap()["mirror"].clone()
}

/// Returns the folder of the mirror that is mounted into a container.
fn mounted_mirror(container: &MachineSnapshot) -> Option<String> {
    let mounts = container.create_request["HostConfig"]["Mounts"].as_array();
    let mounts = mounts.cloned().unwrap_or_default();
    let mirror = mounts
        .iter()
        .find(|mount| mount["Target"] == "/run/git-mirror");
    assert!(
        mirror.is_none_or(|mount| mount["ReadOnly"] == true),
        "{mounts:?}"
    );
    assert_eq!(container.env.contains_key(VARIABLE), mirror.is_some());
    mirror.map(|mount| mount["Source"].as_str().unwrap().to_owned())
}

fn clone_outputs(env: &TestEnv, job: &Job) -> Option<Value> {
    let steps = env.store.read(|tx| steps::of_job(tx, &job.id)).unwrap();
    let clone = steps.into_iter().find(|step| step.id == "clone")?;
    clone.outputs.filter(|_| clone.ended_at.is_some())
}

async fn wait_for_mirrors(env: &TestEnv, holds: impl Fn(&[PathBuf]) -> bool) -> Vec<PathBuf> {
    env.wait_until("the mirrors are up to date", || holds(&mirrors(env)))
        .await;
    mirrors(env)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_clone_from_the_mirror_of_their_own_repository() {
    let env = start(Vec::new()).await;
    assert_eq!(run(&env, "ENG-1").await, (None, Value::Null));
    let first = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1)
        .await
        .remove(0);
    for file in files(&first) {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(
            mode & 0o044,
            0o044,
            "{} is readable for runs",
            file.display()
        );
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        for word in ["Authorization", "extraHeader", "x-access-token", "ghs_"] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
    let source = first.to_str().unwrap().to_owned();
    assert_eq!(
        run(&env, "ENG-2").await,
        (Some(source.clone()), json!("used"))
    );

    // Runs of one repository share its mirror.
    let expected = (Some(source.clone()), json!("used"));
    assert_eq!(
        run_together(&env, &["ENG-3", "ENG-4"]).await,
        [expected.clone(), expected]
    );

    // Another repository has its own mirror.
    assert_eq!(run(&env, "OTH-1").await, (None, Value::Null));
    let both = wait_for_mirrors(&env, |mirrors| mirrors.len() == 2).await;
    let other = both.iter().find(|path| **path != first).unwrap();
    let (mounted, mirror_use) = run(&env, "OTH-2").await;
    assert_eq!(mounted.as_deref(), other.to_str());
    assert_eq!(mirror_use, "used");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_updated_and_a_damaged_one_is_replaced() {
    let env = start(Vec::new()).await;
    run(&env, "ENG-1").await;
    let first = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1)
        .await
        .remove(0);

    // An update that was killed left something behind; the next one fetches what is new.
    let leftover = first.parent().unwrap().join("new");
    std::fs::create_dir_all(leftover.join("objects/pack")).unwrap();
    std::fs::write(leftover.join("shallow.lock"), "").unwrap();
    env.repo()
        .commit("main", &[("later.txt", "x")], "Later")
        .unwrap();
    run(&env, "ENG-2").await;
    let second = wait_for_mirrors(&env, |mirrors| mirrors != [first.clone()])
        .await
        .remove(0);
    assert!(first.exists(), "containers may still copy the previous one");
    assert!(!leftover.exists());

    for pack in files(&second.join("objects/pack")) {
        std::fs::set_permissions(&pack, PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::write(&pack, "damaged").unwrap();
    }
    let source = second.to_str().unwrap().to_owned();
    assert_eq!(run(&env, "ENG-3").await, (Some(source), json!("unusable")));
    let third = wait_for_mirrors(&env, |mirrors| mirrors != [second.clone()])
        .await
        .remove(0);
    let source = third.to_str().unwrap().to_owned();
    assert_eq!(run(&env, "ENG-4").await, (Some(source), json!("used")));

    // A mirror that somebody removes only makes the next run slower.
    std::fs::remove_dir_all(env.dir().join("data/git-mirrors")).unwrap();
    assert_eq!(run(&env, "ENG-5").await, (None, Value::Null));
    env.finish().await;
}

/// Commits a file that makes up most of a mirror.
fn commit_large_file(env: &TestEnv) {
    let mut random = fastrand::Rng::with_seed(1);
    let text = std::iter::repeat_with(|| random.alphanumeric());
    let text: String = text.take(900_000).collect();
    env.repo()
        .commit("main", &[("data.txt", &text)], "Data")
        .unwrap();
}

/// Damages the large file in a mirror. Everything else can be read.
fn damage_large_file(mirror: &Path) {
    let packs = files(&mirror.join("objects/pack")).into_iter();
    let mut packs = packs.filter(|file| file.extension().is_some_and(|end| end == "pack"));
    let pack = packs.next().unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 1_000].fill(0);
    std::fs::set_permissions(&pack, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(&pack, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_is_found_damaged_during_its_update_is_replaced() {
    let env = start(Vec::new()).await;
    commit_large_file(&env);
    run(&env, "ENG-1").await;
    let first = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1).await;
    let gate = Gate::new(&env);
    gate.close();
    start_run(&env, "ENG-2", &gate);
    assert_eq!(wait_for_clone(&env, "ENG-2").await, "used");
    let git = env.vendors.faults(FakeService::Git);
    git.inject_next(InjectedFault::HoldResponse);
    env.wait_until("the update has begun", || git.held() == 1)
        .await;
    damage_large_file(&first[0]);
    start_run(&env, "ENG-3", &gate);
    assert_eq!(wait_for_clone(&env, "ENG-3").await, "unusable");
    git.release();
    wait_for_mirrors(&env, |mirrors| mirrors != first).await;
    gate.open();
    for key in ["ENG-2", "ENG-3"] {
        env.wait_for_job_end(key).await;
    }
    env.finish().await;
}

/// The agent that the ticket chooses does not get the model that the repository names for its own agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_another_agent_clones_again_without_a_damaged_mirror() {
    let env = start(vec![("--openai-api-key", "sk-openai-canary".to_owned())]).await;
    install_codex(&env.vendors.dir().join("bin"));
    commit_large_file(&env);
    let model = [("WORKFLOW.md", "---\nmodel: opus\n---\n")];
    env.repo().commit("main", &model, "Choose a model").unwrap();
    run(&env, "ENG-1").await;
    let mirrors = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1).await;
    damage_large_file(&mirrors[0]);
    let issue = env.vendors.linear().issue("ENG-2").title("Add a feature");
    issue.add_label("agent:codex").add_label("Agent-Implement");
    assert_eq!(wait_for_clone(&env, "ENG-2").await, "unusable");
    let job = env.wait_for_job_end("ENG-2").await;
    assert_eq!(job.state, JobState::Completed, "{job:#?}");
    assert_eq!((job.agent.as_deref(), job.model), (Some("codex"), None));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_above_the_limit_are_removed_and_zero_disables_them() {
    let env = start(vec![("--git-mirror-limit-mb", "1".to_owned())]).await;
    // Two mirrors of 700 KB each are too much.
    let random = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let text = std::iter::repeat_with(|| random.alphanumeric());
        text.take(900_000).collect::<String>()
    };
    for (name, seed) in [("shop", 1), ("other", 2)] {
        let repo = env.vendors.github().repo("acme", name);
        repo.commit("main", &[("data.txt", &random(seed))], "Data")
            .unwrap();
    }
    run(&env, "ENG-1").await;
    let first = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1).await;
    run(&env, "OTH-1").await;
    let second = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1 && mirrors != first).await;
    assert!(!first[0].exists() && second[0].exists());

    // One that is too large by itself is not kept.
    let repo = env.vendors.github().repo("acme", "other");
    repo.commit("main", &[("more.txt", &(random(3) + &random(4)))], "More")
        .unwrap();
    run(&env, "OTH-2").await;
    run(&env, "OTH-3").await;
    // Longer than the time after which a mirror is updated.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let unfinished = second[0].parent().unwrap().join("new");
    env.wait_until("nothing of the other stays", || !unfinished.exists())
        .await;
    assert_eq!(mirrors(&env), second, "the smaller one stays");

    let env = env
        .restart_service(TestEnvOptions {
            mappings: Vec::new(),
            session_hosts: true,
            extra_flags: vec![
                ("--runner-mode", "local".to_owned()),
                ("--git-mirror-limit-mb", "0".to_owned()),
            ],
            ..TestEnvOptions::default()
        })
        .await;
    assert_eq!(run(&env, "OTH-4").await, (None, Value::Null));
    env.finish().await;
}

/// Whether a process works in a folder or below it.
fn is_worked_in(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let dirs = processes.filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok());
    { dirs }.any(|dir| dir.starts_with(folder))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_becomes_too_large_ends_with_all_of_its_processes() {
    let env = start(vec![("--git-mirror-limit-mb", "1".to_owned())]).await;
    let gate = Gate::new(&env);
    gate.close();
    start_run(&env, "ENG-1", &gate);
    wait_for_clone(&env, "ENG-1").await;
    let git = env.vendors.faults(FakeService::Git);
    git.inject_next(InjectedFault::HoldResponse);
    env.wait_until("the update has begun", || git.held() == 1)
        .await;

    let root = env.dir().join("data/git-mirrors").canonicalize().unwrap();
    let mut mirrors = std::fs::read_dir(&root).unwrap();
    let unfinished = mirrors.next().unwrap().unwrap().path().join("new");
    assert!(is_worked_in(&unfinished));
    std::fs::write(unfinished.join("fetched"), vec![0; 2 << 20]).unwrap();
    env.wait_until("it is removed", || !unfinished.exists())
        .await;
    env.wait_until("its processes have ended", || !is_worked_in(&root))
        .await;
    git.release();
    gate.open();
    env.wait_for_job_end("ENG-1").await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_were_removed_from_a_branch_do_not_stay_in_its_mirror() {
    let env = start(Vec::new()).await;
    let files = [("leaked.txt", "to be removed")];
    let removed = env.repo().commit("main", &files, "Leak").unwrap();
    run(&env, "ENG-1").await;
    let first = wait_for_mirrors(&env, |mirrors| mirrors.len() == 1).await;
    assert!(has_commit(&first[0], &removed));

    let repository = env.repo().git_dir();
    let parent = format!("{removed}^");
    git(&repository, &["update-ref", "refs/heads/main", &parent]);
    env.repo()
        .commit("main", &[("other.txt", "x")], "Go on")
        .unwrap();
    run(&env, "ENG-2").await;
    let second = wait_for_mirrors(&env, |mirrors| mirrors != first).await;
    assert!(!has_commit(&second[0], &removed));
    env.finish().await;
}

fn has_commit(repository: &Path, commit: &str) -> bool {
    git(repository, &["cat-file", "-e", commit])
}

/// Runs git on a bare repository. Returns whether it succeeded.
fn git(repository: &Path, args: &[&str]) -> bool {
    let mut git = std::process::Command::new("git");
    git.arg("--git-dir").arg(repository).args(args);
    git.status().unwrap().success()
}
