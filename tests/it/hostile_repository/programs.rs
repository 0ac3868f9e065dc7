//! Programs planted on the run's search path, and processes that watch for its tokens.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::BASE64;
use domain::job::{Job, JobState};
use fake_vendors::FakeService;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use requires::requires;
use serde_json::Value;

use super::traps::{Traps, write_file};
use super::{branch_heads, hostile_env, run_logs};
use crate::requirements::require;
use crate::test_env::TestEnv;

/// Base64 prefix of `x-access-token:` in a basic authorization header.
const ENCODED: &str = "eC1hY2Nlc3MtdG9rZW46";

/// Unprivileged user ID that a run may use.
const USER: u32 = 1001;

/// Programs that the run calls for the repository, and programs that those may call.
const PLANTED: [&str; 5] = ["git", "git-remote-http", "git-remote-https", "ssh", "gpg"];

/// Shell script that records its arguments and environment, then runs the real program.
fn fake_program(traps: &Traps, name: &str) -> String {
    format!(
        "#!/bin/sh\n{{ echo \"$0 $*\"; env; }} >>'{}'\n\
         PATH=/usr/local/bin:/usr/bin:/bin exec {name} \"$@\"\n",
        traps.marker_path(name).display()
    )
}

/// Shell script that records token-like text in the environment and command line of every process.
fn token_scan_script(traps: &Traps) -> String {
    format!(
        "for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do \
         tr '\\0' '\\n' <$file | grep -aF '{ENCODED}'; done >>'{}' 2>/dev/null",
        traps.path("seen").display()
    )
}

/// Tokens issued by the fake GitHub.
fn issued_tokens(env: &TestEnv) -> Vec<String> {
    let github = std::fs::read(env.vendors.dir().join("github.json")).unwrap();
    let github: Value = serde_json::from_slice(&github).unwrap();
    let issued_tokens = github["tokens"].as_object().into_iter().flatten();
    issued_tokens.map(|(token, _)| token.clone()).collect()
}

/// Number of requests for a token with write access to contents.
fn push_token_requests(env: &TestEnv) -> usize {
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let for_runs = requests.iter().filter(|request| {
        request.url.ends_with("/access_tokens")
            && request.body["permissions"]["contents"] == "write"
    });
    for_runs.count()
}

/// Tokens of this environment that a text contains. Tests that run at the same time have other tokens.
fn leaked_tokens(env: &TestEnv, text: &str) -> Vec<String> {
    let issued_tokens = issued_tokens(env);
    let parts = text.match_indices(ENCODED).filter_map(|(at, _)| {
        let word = text[at..].split(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c));
        let pair = BASE64.decode(word.into_iter().next()?.as_bytes()).ok()?;
        let pair = String::from_utf8(pair).ok()?;
        Some(pair.strip_prefix("x-access-token:")?.to_owned())
    });
    parts
        .filter(|token| {
            issued_tokens.contains(token) || *token == env.vendors.github().personal_token()
        })
        .collect()
}

fn read_or_empty(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn git_planted_on_the_path_never_gets_the_token() {
    let (env, traps) = hostile_env().await;
    let before = branch_heads(&env);
    let mut steps = vec![ScriptStep::write("feature.txt", "done\n")];
    // The first folder of the search path holds the agent's program and belongs to the same user.
    for name in PLANTED {
        let source = traps.path(&format!("impostors/{name}"));
        write_file(&source, &fake_program(&traps, name));
        steps.push(ScriptStep::run(&format!(
            "cp '{}' \"$(dirname \"$(command -v claude)\")/{name}\"",
            source.display()
        )));
    }
    let server = env.vendors.github_server_url();
    let settings = format!(
        "[url \"{server}/evil/\"]\\n\\tinsteadOf = {server}/acme/\\n[core]\\n\\tsshCommand = {0}\\n[http]\\n\\tproxy = {server}\\n",
        traps.marker_path("settings").display()
    );
    // The home of scripts, of the user, and of git.
    for home in ["$HOME", "../../../home", "../git-home"] {
        steps.push(ScriptStep::run(&format!(
            "mkdir -p {home}/.config/git && printf '{settings}' | tee {home}/.gitconfig >{home}/.config/git/config && \
             echo 'default login evil password evil' >{home}/.netrc"
        )));
    }
    let watch = format!("while sleep 0.05; do {}; done", token_scan_script(&traps));
    write_file(&traps.path("watch.sh"), &format!("#!/bin/sh\n{watch}\n"));
    steps.push(ScriptStep::run(&format!(
        "setsid sh '{}' >/dev/null 2>&1 </dev/null & sleep 0.2",
        traps.path("watch.sh").display()
    )));
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&env));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&env));
    assert_eq!(
        leaked_tokens(&env, &read_or_empty(&traps.path("seen"))),
        [""; 0]
    );
    let added: Vec<String> = branch_heads(&env)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(added, [format!("acme/shop {}", job.branch)]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_agent_program_never_gets_the_model_key() {
    let (env, traps) = hostile_env().await;
    let replacement = format!(
        "#!/bin/sh\nenv >'{}'\n",
        traps.marker_path("agent").display()
    );
    write_file(&traps.path("replacement"), &replacement);
    let setup = format!(
        "---\nsetup: cp --remove-destination '{}' \"$(command -v claude)\"\n---\n",
        traps.path("replacement").display()
    );
    let files = [("WORKFLOW.md", setup.as_str())];
    env.repo().commit("main", &files, "Set up").unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state.status(), "failed", "{}", run_logs(&env));
    assert_eq!(traps.triggered(), [""; 0]);
    let comments = env.vendors.linear().issue("ENG-1").comments();
    let expected_text = "claude changed during the run and is not started";
    assert!(comments[0].contains(expected_text), "{comments:?}");
    env.finish().await;
}

/// Control: a fake program is found on the search path, and a token in an environment is detected.
#[tokio::test(flavor = "multi_thread")]
async fn fake_programs_are_found_on_the_path_and_see_their_environment() {
    let (env, traps) = hostile_env().await;
    write_file(&traps.path("bin/git"), &fake_program(&traps, "git"));
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        traps.path("bin").display()
    );
    let pair = format!("x-access-token:{}", env.vendors.github().personal_token());
    let header = format!("Authorization: Basic {}", BASE64.encode(pair.as_bytes()));
    let version_run = Command::new("git")
        .arg("--version")
        .env("PATH", &path)
        .env("GIT_CONFIG_VALUE_0", &header)
        .status();
    assert!(version_run.unwrap().success());
    assert_eq!(traps.triggered(), ["git"]);
    let token = [env.vendors.github().personal_token().to_owned()];
    assert_eq!(
        leaked_tokens(&env, &read_or_empty(&traps.marker_path("git"))),
        token
    );

    let observer = ProcessObserver::start();
    let mut waiting = Command::new("sleep");
    let mut waiting = waiting
        .arg("60")
        .env("GIT_CONFIG_VALUE_0", &header)
        .spawn()
        .unwrap();
    let scan = Command::new("sh")
        .args(["-c", &token_scan_script(&traps)])
        .status();
    // The exit code is that of `grep` on the last process, so it is ignored.
    scan.unwrap();
    let seen = observer.end();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert_eq!(
        leaked_tokens(&env, &read_or_empty(&traps.path("seen"))),
        token
    );
    assert_eq!(leaked_tokens(&env, &seen)[..1], token);
    env.stop().await;
}

/// Thread of the same user that is not a descendant of the run, so nothing ends it before a push.
struct ProcessObserver {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<String>,
}

impl ProcessObserver {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = String::new();
            while !stop_flag.load(Ordering::Relaxed) {
                let processes = std::fs::read_dir("/proc").unwrap().flatten();
                let files = processes.flat_map(|process| {
                    ["environ", "cmdline"].map(|name| process.path().join(name))
                });
                for text in files.filter_map(|file| std::fs::read(file).ok()) {
                    let text = String::from_utf8_lossy(&text);
                    let found = text.split('\0').filter(|part| part.contains(ENCODED));
                    found.for_each(|part| seen.extend([part, "\n"]));
                }
            }
            seen
        });
        Self { stop, thread }
    }

    fn end(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unrelated_process_finds_no_token_in_any_process() {
    let (env, _) = hostile_env().await;
    let steps = [
        ScriptStep::write("feature.txt", "done\n"),
        // Large enough that git first probes the push and then sends it in chunks.
        ScriptStep::run("head -c 3000000 /dev/urandom >large.bin"),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    let observer = ProcessObserver::start();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let seen = observer.end();
    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&env));
    assert!(
        push_token_requests(&env) >= 2,
        "for the clone and for the push"
    );
    assert_eq!(leaked_tokens(&env, &seen), [""; 0]);
    let large = env.repo().read_file(&job.branch, "large.bin");
    assert!(large.is_some_and(|large| large.len() >= 3_000_000));
    env.finish().await;
}

/// Replaces the program that the workflow calls by a wrapper script. `setup` is shell code that runs
/// before the command; the command is in `$@`.
fn wrap_program(env: &TestEnv, setup: &str) {
    let program = env.vendors.dir().join("bin/agent-implement");
    let real = program.canonicalize().unwrap();
    std::fs::remove_file(&program).unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in run) set -- '{0}' \"$@\"; {setup}; exec \"$@\" ;; esac\n\
         exec '{0}' \"$@\"\n",
        real.display()
    );
    write_file(&program, &script);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Shell code that runs the command as a user who owns the run's folders and the first folder of the
/// search path.
fn run_as_user_script(env: &TestEnv, traps: &Traps) -> String {
    let marks = traps.marker_path("git").parent().unwrap().to_owned();
    std::fs::set_permissions(marks, PermissionsExt::from_mode(0o777)).unwrap();
    if !is_root() {
        return ":".to_owned();
    }
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.dir(), open).unwrap();
    format!(
        "chown -hR {USER}:{USER} '{}' \"$(dirname \"$RUNNER_TEMP\")\"; \
         set -- setpriv --reuid={USER} --regid={USER} --clear-groups \"$@\"",
        env.vendors.dir().join("bin").display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn user_with_write_access_to_the_path_gains_nothing() {
    let (env, traps) = hostile_env().await;
    wrap_program(&env, &run_as_user_script(&env, &traps));
    let mut steps = vec![ScriptStep::write("feature.txt", "done\n")];
    for name in PLANTED {
        let source = traps.path(&format!("impostors/{name}"));
        write_file(&source, &fake_program(&traps, name));
        steps.push(ScriptStep::run(&format!(
            "cp '{}' \"$(dirname \"$(command -v claude)\")/{name}\"",
            source.display()
        )));
    }
    steps.push(ScriptStep::run(
        "echo \"$(id -u) $(dirname \"$(command -v git)\") $(dirname \"$(command -v claude)\")\" >who.txt",
    ));
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&env));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&env));
    let identity = env.repo().read_file(&job.branch, "who.txt").unwrap();
    let identity: Vec<&str> = identity.split_whitespace().collect();
    let user = rustix::process::geteuid().as_raw();
    let user = if is_root() { USER } else { user };
    assert_eq!(identity[0], user.to_string());
    assert_eq!(
        identity[1], identity[2],
        "the agent's own git is the first of the path"
    );
    env.finish().await;
}

/// Requires the permission to mount file systems.
fn require_mount() {
    let status = Command::new("unshare").args(["--mount", "true"]).status();
    let can_mount = status.is_ok_and(|status| status.success());
    require(
        "mount",
        can_mount.then_some(()).ok_or("this user may not mount"),
    );
}

/// Search path of the system's programs, as a shell assignment.
const SYSTEM: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[requires("mount")]
#[tokio::test(flavor = "multi_thread")]
async fn run_with_only_a_user_owned_git_ends_before_requesting_a_token() {
    require_mount();
    let (env, traps) = hostile_env().await;
    let planted = env.vendors.dir().join("bin/git");
    write_file(&planted, &fake_program(&traps, "git"));
    let hide_git =
        format!("for git in $({SYSTEM} which -a git); do mount --bind /dev/null \"$git\"; done");
    let user = run_as_user_script(&env, &traps);
    wrap_program(
        &env,
        &format!("{user}; exec unshare --mount sh -c '{hide_git}; exec \"$@\"' sh \"$@\""),
    );
    failed_job(&env).await;
    let comments = env.comments("ENG-1");
    for expected_text in [
        "cannot trust git: /",
        "Install it where only root can write",
    ] {
        assert!(comments[0].contains(expected_text), "{comments:?}");
    }
    assert_eq!(push_token_requests(&env), 0);
    assert_eq!(traps.triggered(), [""; 0]);
    env.finish().await;
}

async fn failed_job(env: &TestEnv) -> Job {
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{}", run_logs(env));
    job
}

#[requires("mount")]
#[tokio::test(flavor = "multi_thread")]
async fn run_with_a_modified_git_file_ends_before_requesting_the_push_token() {
    require_mount();
    let program = format!("$({SYSTEM} command -v git)");
    let library = format!(
        "$(ldd \"$({SYSTEM} git --exec-path)/git-remote-https\" | sed -n \"s/.*libcurl.* => \\([^ ]*\\) .*/\\1/p\")"
    );
    for (name, file, expected_text) in [
        (
            "program",
            program,
            "changed during the run and is not started",
        ),
        (
            "library",
            library,
            "changed during the run. Git loads this file",
        ),
    ] {
        let (env, _) = hostile_env().await;
        let before = branch_heads(&env);
        // A copy of the file that only this run sees.
        let copy = env.dir().join(name);
        let mount_script = format!(
            "file=$(readlink -f \"{file}\"); cp \"$file\" {0}; mount --bind {0} \"$file\"",
            copy.display()
        );
        let script = env.dir().join("mount.sh");
        write_file(
            &script,
            &format!("#!/bin/sh\nset -e\n{mount_script}\nexec \"$@\"\n"),
        );
        wrap_program(
            &env,
            &format!("exec unshare --mount {} \"$@\"", script.display()),
        );
        let modify = format!("cp {0} {0}.new && cat {0}.new >{0}", copy.display());
        let steps = [
            ScriptStep::write("feature.txt", "done\n"),
            ScriptStep::run(&modify),
        ];
        env.set_agent_script("ENG-1", Script::new().pass(steps));
        failed_job(&env).await;
        assert!(copy.exists(), "{name}: {}", run_logs(&env));
        let comments = env.comments("ENG-1");
        assert!(comments[0].contains(expected_text), "{name}: {comments:?}");
        assert_eq!(branch_heads(&env), before, "{name}");
        assert_eq!(push_token_requests(&env), 1, "{name}: for the clone");
        env.finish().await;
    }
}
