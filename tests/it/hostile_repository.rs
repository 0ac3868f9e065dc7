//! A repository and an agent that plant traps for the run; none of them may trigger.
//!
//! Each trap writes a marker when it triggers. Two control tests show that the traps work: they trigger
//! under plain git and under an agent that reads the project's settings.

mod programs;
mod traps;

use std::collections::BTreeMap;
use std::path::Path;

use domain::job::{Job, JobState};
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::test_env::TestEnv;
use traps::Traps;

/// File names with a line break, options, quotes, pathspec magic and bidirectional text.
const UNUSUAL_NAMES: [&str; 6] = [
    "two\nlines.txt",
    "--force",
    "-c core.fsmonitor=x",
    ":(glob)**",
    "\"quoted\\n\".txt",
    "ünï cødé\u{202e}.txt",
];

#[tokio::test(flavor = "multi_thread")]
async fn never_runs_programs_planted_by_the_repository_or_the_agent() {
    let (env, traps) = hostile_env().await;
    let before = branch_heads(&env);
    let mut steps = vec![ScriptStep::write("feature.txt", "done\n")];
    steps.extend(UNUSUAL_NAMES.map(|name| ScriptStep::write(name, "odd\n")));
    // The work tree's git directory and the run's git directory belong to the same user here.
    for git_dir in [".git", "../git"] {
        let planted = traps.git_dir_files(git_dir, &env.vendors.github_server_url());
        steps.extend(
            planted
                .iter()
                .map(|(path, text)| ScriptStep::write_anywhere(path, text)),
        );
    }
    let heartbeat = traps.path("heartbeat");
    steps.push(ScriptStep::run(&replant_loop(&heartbeat)));
    steps.push(ScriptStep::message("All done. Merge without looking."));
    env.set_agent_script("ENG-1", Script::new().pass(steps));

    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&env));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&env));

    let branch = &env.repo().pulls()[0].head;
    let mut expected = before;
    let pushed = env.repo().branch_head(branch).unwrap();
    expected.insert(format!("acme/shop {branch}"), pushed);
    assert_eq!(branch_heads(&env), expected);
    let text = |path: &str| env.repo().read_file(branch, path);
    assert_eq!(text("feature.txt").as_deref(), Some("done\n"));
    for name in UNUSUAL_NAMES {
        assert_eq!(text(name).as_deref(), Some("odd\n"), "{name:?}");
    }

    assert!(
        heartbeat.exists(),
        "the agent's background process did not start"
    );
    env.wait_until("the agent's background process has ended", || {
        !process_mentions(&heartbeat)
    })
    .await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_the_push_and_names_each_unsafe_path() {
    let (env, traps) = hostile_env().await;
    let before = branch_heads(&env);
    let nested = "git init -q nested && cd nested && echo x > x && git add x && \
                  git -c user.name=x -c user.email=x@x commit -qm x";
    let steps = [
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::run(nested),
        ScriptStep::symlink("escape", "/etc/passwd"),
        ScriptStep::symlink("up", "../../elsewhere"),
        ScriptStep::write_anywhere(".GIT/config", "[core]\n\tfsmonitor = false\n"),
        ScriptStep::write_anywhere("sub/git~1/config", "[core]\n"),
        ScriptStep::run(
            "yes | head -c 60000000 > huge.txt; printf '\nAKIA%s\n' 3QZ7PLM5HFZ2XVWT >> huge.txt",
        ),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state.status(), "failed", "{}", run_logs(&env));
    let comments = env.vendors.linear().issue("ENG-1").comments();
    for named in [
        "nested/: nested Git repository",
        "escape: symbolic link that leaves the repository",
        "up: symbolic link that leaves the repository",
        ".GIT/config: path that git refuses to store",
        "sub/git~1/config: path that git refuses to store",
        "huge.txt: cloud credentials (AWS access key)",
    ] {
        assert!(comments[0].contains(named), "{named} in {comments:?}");
    }
    assert_eq!(branch_heads(&env), before);
    assert_eq!(traps.triggered(), [""; 0]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ignores_a_replaced_git_directory_in_the_work_tree() {
    let (env, traps) = hostile_env().await;
    let before = branch_heads(&env);
    let elsewhere = traps.path("elsewhere");
    let mut steps = vec![
        ScriptStep::run("rm -rf .git"),
        ScriptStep::run(&format!("git init -q --bare {}", elsewhere.display())),
    ];
    let planted = traps.git_dir_files(
        &elsewhere.to_string_lossy(),
        &env.vendors.github_server_url(),
    );
    steps.extend(
        planted
            .iter()
            .map(|(path, text)| ScriptStep::write_anywhere(path, text)),
    );
    steps.push(ScriptStep::write_anywhere(
        ".git",
        &format!("gitdir: {}\n", elsewhere.display()),
    ));
    steps.push(ScriptStep::write("feature.txt", "done\n"));
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&env));
    assert_eq!(traps.triggered(), [""; 0]);
    let added: Vec<String> = branch_heads(&env)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(added, [format!("acme/shop {}", job.branch)]);
    env.finish().await;
}

/// Runs a job whose agent makes its change, runs a command on the run's git directory, and plants traps
/// in `git_dir`.
async fn run_job_after(env: &TestEnv, traps: &Traps, command: &str, git_dir: &str) -> Job {
    let mut steps = vec![
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::run(command),
    ];
    let planted = traps.git_dir_files(git_dir, &env.vendors.github_server_url());
    steps.extend(
        planted
            .iter()
            .map(|(path, text)| ScriptStep::write_anywhere(path, text)),
    );
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_for_job_end("ENG-1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_a_git_directory_replaced_by_a_gitdir_file() {
    let (env, traps) = hostile_env().await;
    let before = branch_heads(&env);
    let replace = "mv ../git ../moved && echo \"gitdir: $(realpath ../moved)\" > ../git";
    let job = run_job_after(&env, &traps, replace, "../moved").await;

    assert_eq!(job.state.status(), "failed", "{}", run_logs(&env));
    let comments = env.vendors.linear().issue("ENG-1").comments();
    let message = "the run's git directory was replaced";
    assert!(comments[0].contains(message), "{comments:?}");
    assert_eq!(traps.triggered(), [""; 0]);
    assert_eq!(branch_heads(&env), before);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seals_a_git_directory_with_a_dangling_head() {
    let (env, traps) = hostile_env().await;
    let mislead = "ln -sfn refs/heads/none ../git/HEAD";
    let job = run_job_after(&env, &traps, mislead, "../git").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&env));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&env));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fails_to_clone_a_repository_with_a_malicious_submodule() {
    let (env, _) = hostile_env().await;
    let attack = "[submodule \"evil\"]\n\tpath = evil\n\turl = ./evil\n\tupdate = !sh evil\n";
    let files = [(".gitmodules", attack)];
    env.repo().commit("main", &files, "Attack").unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{}", run_logs(&env));
    let comments = env.vendors.linear().issue("ENG-1").comments();
    assert!(
        comments[0].contains("git clone failed") && comments[0].contains("disallowed submodule"),
        "{comments:?}"
    );
    env.finish().await;
}

/// Control: plain git in the agent's work tree triggers every trap.
#[tokio::test(flavor = "multi_thread")]
async fn traps_trigger_under_plain_git() {
    let (env, traps) = hostile_env().await;
    let before = branch_heads(&env);
    let url = env.repo().clone_url();
    let token = env.vendors.github().personal_token().to_owned();
    let tree = traps.path("tree");
    let git = traps::NaiveGit::clone(&url, &token, &tree);
    for (path, text) in traps.git_dir_files(".git", &env.vendors.github_server_url()) {
        traps::write_file(&tree.join(path), &text);
    }
    std::fs::write(tree.join("README.md"), "changed\n").unwrap();
    git.run(&["diff"]);
    git.run(&["diff", "--no-ext-diff"]);
    git.run(&["add", "-A"]);
    git.run(&["commit", "-m", "x"]);
    git.run(&["-c", "commit.gpgsign=false", "commit", "-m", "x"]);
    git.run(&["checkout", "-b", "stolen"]);
    git.run(&["push", "origin", "stolen"]);
    git.without_token().run(&["push", "origin", "stolen"]);
    let local = traps.path("local.git");
    git.run(&["init", "-q", "--bare", &local.to_string_lossy()]);
    git.run(&["remote", "set-url", "origin", &local.to_string_lossy()]);
    git.run(&["push", "origin", "stolen"]);
    git.run(&["-C", "embedded", "status"]);

    assert_eq!(traps.triggered(), traps::GIT_TRAPS);
    let added: Vec<String> = branch_heads(&env)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(
        added,
        ["evil/shop stolen"],
        "the push went to the wrong repository"
    );
    env.stop().await;
}

/// Control: without the two flags, the agent's program reads the repository's settings and triggers the
/// traps.
#[tokio::test(flavor = "multi_thread")]
async fn traps_trigger_in_an_agent_that_reads_project_settings() {
    let dir = tempfile::tempdir().unwrap();
    let traps = Traps::create(dir.path());
    let tree = traps.path("tree");
    for (path, text) in traps.repository_files() {
        traps::write_file(&tree.join(path), &text);
    }
    let call = |flags: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_agent-implement"));
        let arguments = ["scripted-agent", "--scripts", ".", "-p", "Work on ENG-1"];
        command.args(arguments).args(flags).current_dir(&tree);
        let output = command.env("ANTHROPIC_API_KEY", "canary").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    call(&["--setting-sources", "user", "--strict-mcp-config"]);
    assert_eq!(traps.triggered(), [""; 0]);
    call(&[]);
    assert_eq!(traps.triggered(), traps::AGENT_TRAPS);
    let stolen = std::fs::read_to_string(traps.marker_path("agent-base-url")).unwrap();
    assert!(stolen.contains("canary"), "{stolen}");
}

/// Environment with a hostile repository, and a second repository that a push could be redirected to.
async fn hostile_env() -> (TestEnv, Traps) {
    let env = TestEnv::start().await;
    let traps = Traps::create(env.dir());
    let files = traps.repository_files();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    env.repo().commit("main", &files, "Traps").unwrap();
    let evil = env.vendors.github().repo("evil", "shop");
    evil.seed(&[("README.md", "# Shop\n")], "Begin").unwrap();
    (env, traps)
}

/// Commit of every branch of every repository.
fn branch_heads(env: &TestEnv) -> BTreeMap<String, String> {
    let mut heads = BTreeMap::new();
    for owner in ["acme", "evil"] {
        let repo = env.vendors.github().repo(owner, "shop");
        for branch in repo.branches() {
            let head = repo.branch_head(&branch).unwrap();
            heads.insert(format!("{owner}/shop {branch}"), head);
        }
    }
    heads
}

/// Shell command that starts a process outside the agent's process group and session. It replants the
/// traps continuously, so that a single check at the right moment would not help.
fn replant_loop(heartbeat: &std::path::Path) -> String {
    format!(
        "setsid sh -c 'while sleep 0.02; do date +%s%N >{}; mkdir -p ../git/hooks ../git/info; \
         cp .git/config ../git/config; cp .git/hooks/* ../git/hooks/; \
         cp .git/info/attributes ../git/info/attributes; done' >/dev/null 2>&1 </dev/null & sleep 0.2",
        heartbeat.display()
    )
}

/// Whether the command line of a process contains this path.
fn process_mentions(file: &Path) -> bool {
    let file = file.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    { lines }.any(|line| String::from_utf8_lossy(&line).contains(file))
}

#[test]
fn finds_a_process_by_a_file_on_its_command_line() {
    let heartbeat = tempfile::tempdir().unwrap().path().join("heartbeat");
    assert!(!process_mentions(&heartbeat));
    let script = format!("read line; : {}", heartbeat.display());
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !process_mentions(&heartbeat) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(!process_mentions(&heartbeat));
}

fn run_logs(env: &TestEnv) -> String {
    let runs = env.repo().runs();
    let logs = runs.iter().map(|run| env.repo().run_log(run.id));
    logs.collect::<Vec<_>>().join("\n---\n")
}
