//! Programs planted where the run's own are looked for, and what waits for a token beside them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::BASE64;
use domain::job::{Job, JobState};
use fake_vendors::FakeService;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::Value;

use super::traps::{Traps, write_file};
use super::{branch_heads, hostile_env, run_logs};
use crate::requirements::require;
use crate::test_env::TestEnv;

/// How the name and the token of a repository begin, encoded as HTTP wants them.
const ENCODED: &str = "eC1hY2Nlc3MtdG9rZW46";

/// The user without rights that a run may work as.
const USER: u32 = 1001;

/// What the run calls for the repository, and what those could call.
const PLANTED: [&str; 5] = ["git", "git-remote-http", "git-remote-https", "ssh", "gpg"];

/// Notes how it was called and with what environment, and then does what it was called for.
fn impostor(traps: &Traps, name: &str) -> String {
    format!(
        "#!/bin/sh\n{{ echo \"$0 $*\"; env; }} >>'{}'\n\
         PATH=/usr/local/bin:/usr/bin:/bin exec {name} \"$@\"\n",
        traps.marker_path(name).display()
    )
}

/// Notes once what looks like a token in the environment and the command line of every process.
fn look(traps: &Traps) -> String {
    format!(
        "for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do \
         tr '\\0' '\\n' <$file | grep -aF '{ENCODED}'; done >>'{}' 2>/dev/null",
        traps.path("seen").display()
    )
}

/// The tokens that the host has handed out.
fn minted(world: &TestEnv) -> Vec<String> {
    let github = std::fs::read(world.vendors.dir().join("github.json")).unwrap();
    let github: Value = serde_json::from_slice(&github).unwrap();
    let minted = github["tokens"].as_object().into_iter().flatten();
    minted.map(|(token, _)| token.clone()).collect()
}

/// How often the host was asked for a token that a run may push with.
fn handed_out(world: &TestEnv) -> usize {
    let requests = world.vendors.requests().for_service(FakeService::GitHub);
    let for_runs = requests.iter().filter(|request| {
        request.url.ends_with("/access_tokens")
            && request.body["permissions"]["contents"] == "write"
    });
    for_runs.count()
}

/// The tokens of this world that a text holds. Stories beside this one have tokens of their own.
fn stolen(world: &TestEnv, text: &str) -> Vec<String> {
    let minted = minted(world);
    let parts = text.match_indices(ENCODED).filter_map(|(at, _)| {
        let word = text[at..].split(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c));
        let pair = BASE64.decode(word.into_iter().next()?.as_bytes()).ok()?;
        let pair = String::from_utf8(pair).ok()?;
        Some(pair.strip_prefix("x-access-token:")?.to_owned())
    });
    parts
        .filter(|token| minted.contains(token) || *token == world.vendors.github().personal_token())
        .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_that_the_agent_plants_on_the_path_never_gets_the_token() {
    let (world, traps) = hostile_env().await;
    let before = branch_heads(&world);
    let mut steps = vec![ScriptStep::write("feature.txt", "done\n")];
    // The first folder of the path holds the agent's program, and belongs to the same user.
    for name in PLANTED {
        let source = traps.path(&format!("impostors/{name}"));
        write_file(&source, &impostor(&traps, name));
        steps.push(ScriptStep::run(&format!(
            "cp '{}' \"$(dirname \"$(command -v claude)\")/{name}\"",
            source.display()
        )));
    }
    let server = world.vendors.github_server_url();
    let settings = format!(
        "[url \"{server}/evil/\"]\\n\\tinsteadOf = {server}/acme/\\n[core]\\n\\tsshCommand = {0}\\n[http]\\n\\tproxy = {server}\\n",
        traps.marker_path("settings").display()
    );
    // The home of scripts, of the user, and one of git's own.
    for home in ["$HOME", "../../../home", "../git-home"] {
        steps.push(ScriptStep::run(&format!(
            "mkdir -p {home}/.config/git && printf '{settings}' | tee {home}/.gitconfig >{home}/.config/git/config && \
             echo 'default login evil password evil' >{home}/.netrc"
        )));
    }
    let watch = format!("while sleep 0.05; do {}; done", look(&traps));
    write_file(&traps.path("watch.sh"), &format!("#!/bin/sh\n{watch}\n"));
    steps.push(ScriptStep::run(&format!(
        "setsid sh '{}' >/dev/null 2>&1 </dev/null & sleep 0.2",
        traps.path("watch.sh").display()
    )));
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&world));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&world));
    assert_eq!(stolen(&world, &read(&traps.path("seen"))), [""; 0]);
    let added: Vec<String> = branch_heads(&world)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(added, [format!("acme/shop {}", job.branch)]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_a_script_of_the_repository_replaced_is_not_given_the_models_key() {
    let (world, traps) = hostile_env().await;
    let thief = format!(
        "#!/bin/sh\nenv >'{}'\n",
        traps.marker_path("agent").display()
    );
    write_file(&traps.path("thief"), &thief);
    let setup = format!(
        "---\nsetup: cp --remove-destination '{}' \"$(command -v claude)\"\n---\n",
        traps.path("thief").display()
    );
    let files = [("WORKFLOW.md", setup.as_str())];
    world.repo().commit("main", &files, "Set up").unwrap();
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state.status(), "failed", "{}", run_logs(&world));
    assert_eq!(traps.triggered(), [""; 0]);
    let comments = world.vendors.linear().issue("ENG-1").comments();
    let said = "claude was changed while the run was at work, and is not started";
    assert!(comments[0].contains(said), "{comments:?}");
    world.finish().await;
}

/// The control: an impostor is what a search by name finds, and a token in an environment is seen.
#[tokio::test(flavor = "multi_thread")]
async fn the_impostors_are_found_by_their_names_and_see_what_they_are_given() {
    let (world, traps) = hostile_env().await;
    write_file(&traps.path("bin/git"), &impostor(&traps, "git"));
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        traps.path("bin").display()
    );
    let pair = format!("x-access-token:{}", world.vendors.github().personal_token());
    let header = format!("Authorization: Basic {}", BASE64.encode(pair.as_bytes()));
    let called = Command::new("git")
        .arg("--version")
        .env("PATH", &path)
        .env("GIT_CONFIG_VALUE_0", &header)
        .status();
    assert!(called.unwrap().success());
    assert_eq!(traps.triggered(), ["git"]);
    let token = [world.vendors.github().personal_token().to_owned()];
    assert_eq!(stolen(&world, &read(&traps.marker_path("git"))), token);

    let witness = Witness::start();
    let mut waiting = Command::new("sleep");
    let mut waiting = waiting
        .arg("60")
        .env("GIT_CONFIG_VALUE_0", &header)
        .spawn()
        .unwrap();
    let looked = Command::new("sh").args(["-c", &look(&traps)]).status();
    // The last process that was looked at may have held nothing.
    looked.unwrap();
    let seen = witness.end();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert_eq!(stolen(&world, &read(&traps.path("seen"))), token);
    assert_eq!(stolen(&world, &seen)[..1], token);
    world.stop().await;
}

/// Somebody of the run's own user who is no descendant of the run: nothing ends it before a push.
struct Witness {
    over: Arc<AtomicBool>,
    seeing: std::thread::JoinHandle<String>,
}

impl Witness {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let seeing = std::thread::spawn(move || {
            let mut seen = String::new();
            while !is_over.load(Ordering::Relaxed) {
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
        Self { over, seeing }
    }

    fn end(self) -> String {
        self.over.store(true, Ordering::Relaxed);
        self.seeing.join().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_beside_the_run_finds_no_token_in_any_process() {
    let (world, _) = hostile_env().await;
    let steps = [
        ScriptStep::write("feature.txt", "done\n"),
        // So large that git first asks whether it may push at all, and then sends it in pieces.
        ScriptStep::run("head -c 3000000 /dev/urandom >large.bin"),
    ];
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    let witness = Witness::start();
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let seen = witness.end();
    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&world));
    assert!(handed_out(&world) >= 2, "for the clone and for the push");
    assert_eq!(stolen(&world, &seen), [""; 0]);
    let large = world.repo().read_file(&job.branch, "large.bin");
    assert!(large.is_some_and(|large| large.len() >= 3_000_000));
    world.finish().await;
}

/// Puts a script in the place of the program that the workflow calls. `prepared` is a shell's words before
/// the run is called; it is `$@` then.
fn wrap(world: &TestEnv, prepared: &str) {
    let program = world.vendors.dir().join("bin/agent-implement");
    let real = program.canonicalize().unwrap();
    std::fs::remove_file(&program).unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in run) set -- '{0}' \"$@\"; {prepared}; exec \"$@\" ;; esac\n\
         exec '{0}' \"$@\"\n",
        real.display()
    );
    write_file(&program, &script);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets the run work as a user who owns its folders and the first folder of its path.
fn as_a_user(world: &TestEnv, traps: &Traps) -> String {
    let marks = traps.marker_path("git").parent().unwrap().to_owned();
    std::fs::set_permissions(marks, PermissionsExt::from_mode(0o777)).unwrap();
    if !is_root() {
        return ":".to_owned();
    }
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.dir(), open).unwrap();
    format!(
        "chown -hR {USER}:{USER} '{}' \"$(dirname \"$RUNNER_TEMP\")\"; \
         set -- setpriv --reuid={USER} --regid={USER} --clear-groups \"$@\"",
        world.vendors.dir().join("bin").display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_write_the_first_folder_of_the_path_gains_nothing_by_it() {
    let (world, traps) = hostile_env().await;
    wrap(&world, &as_a_user(&world, &traps));
    let mut steps = vec![ScriptStep::write("feature.txt", "done\n")];
    for name in PLANTED {
        let source = traps.path(&format!("impostors/{name}"));
        write_file(&source, &impostor(&traps, name));
        steps.push(ScriptStep::run(&format!(
            "cp '{}' \"$(dirname \"$(command -v claude)\")/{name}\"",
            source.display()
        )));
    }
    steps.push(ScriptStep::run(
        "echo \"$(id -u) $(dirname \"$(command -v git)\") $(dirname \"$(command -v claude)\")\" >who.txt",
    ));
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&world));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&world));
    let who = world.repo().read_file(&job.branch, "who.txt").unwrap();
    let who: Vec<&str> = who.split_whitespace().collect();
    let user = rustix::process::geteuid().as_raw();
    let user = if is_root() { USER } else { user };
    assert_eq!(who[0], user.to_string());
    assert_eq!(
        who[1], who[2],
        "the agent's own git is the first of the path"
    );
    world.finish().await;
}

/// Whether this user may change what a process sees of the file system.
fn may_mount(test: &str) -> Option<()> {
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    let made = tried.is_ok_and(|status| status.success());
    require(
        "mount",
        test,
        made.then_some(()).ok_or("this user may not mount"),
    )
}

/// Shell words that find the system's programs.
const SYSTEM: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_only_git_belongs_to_its_user_ends_before_it_asks_for_a_token() {
    let Some(()) = may_mount("a machine without a git of its own") else {
        return;
    };
    let (world, traps) = hostile_env().await;
    let planted = world.vendors.dir().join("bin/git");
    write_file(&planted, &impostor(&traps, "git"));
    let hidden =
        format!("for git in $({SYSTEM} which -a git); do mount --bind /dev/null \"$git\"; done");
    let user = as_a_user(&world, &traps);
    wrap(
        &world,
        &format!("{user}; exec unshare --mount sh -c '{hidden}; exec \"$@\"' sh \"$@\""),
    );
    failed(&world).await;
    let comments = world.comments("ENG-1");
    for said in [
        "git cannot be relied on: /",
        "install it where only root may write",
    ] {
        assert!(comments[0].contains(said), "{comments:?}");
    }
    assert_eq!(handed_out(&world), 0);
    assert_eq!(traps.triggered(), [""; 0]);
    world.finish().await;
}

async fn failed(world: &TestEnv) -> Job {
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{}", run_logs(world));
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_git_that_the_agent_changed_as_root_ends_the_run_before_the_token_of_the_push() {
    let Some(()) = may_mount("a git that may be changed") else {
        return;
    };
    let program = format!("$({SYSTEM} command -v git)");
    let library = format!(
        "$(ldd \"$({SYSTEM} git --exec-path)/git-remote-https\" | sed -n \"s/.*libcurl.* => \\([^ ]*\\) .*/\\1/p\")"
    );
    for (name, file, said) in [
        (
            "program",
            program,
            "was changed while the run was at work, and is not started",
        ),
        (
            "library",
            library,
            "was changed while the run was at work, and git loads it",
        ),
    ] {
        let (world, _) = hostile_env().await;
        let before = branch_heads(&world);
        // A copy of the file, which only this run sees.
        let copy = world.dir().join(name);
        let shown = format!(
            "file=$(readlink -f \"{file}\"); cp \"$file\" {0}; mount --bind {0} \"$file\"",
            copy.display()
        );
        let script = world.dir().join("shown.sh");
        write_file(
            &script,
            &format!("#!/bin/sh\nset -e\n{shown}\nexec \"$@\"\n"),
        );
        wrap(
            &world,
            &format!("exec unshare --mount {} \"$@\"", script.display()),
        );
        let change = format!("cp {0} {0}.new && cat {0}.new >{0}", copy.display());
        let steps = [
            ScriptStep::write("feature.txt", "done\n"),
            ScriptStep::run(&change),
        ];
        world.set_agent_script("ENG-1", Script::new().pass(steps));
        failed(&world).await;
        assert!(copy.exists(), "{name}: {}", run_logs(&world));
        let comments = world.comments("ENG-1");
        assert!(comments[0].contains(said), "{name}: {comments:?}");
        assert_eq!(branch_heads(&world), before, "{name}");
        assert_eq!(handed_out(&world), 1, "{name}: for the clone");
        world.finish().await;
    }
}
