//! A repository and an agent that set traps for the run: none of them may ever spring.
//!
//! Each trap leaves a mark where it springs. Two control tests show that the traps are real: they
//! spring when somebody uses git, or the agent's program, as one would without thinking.

mod programs;
mod traps;

use std::collections::BTreeMap;
use std::path::Path;

use domain::job::{Job, JobState};
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::test_env::TestEnv;
use traps::Traps;

/// A line break, options, quotes, pathspec magic, and what looks like something else.
const ODD_NAMES: [&str; 6] = [
    "two\nlines.txt",
    "--force",
    "-c core.fsmonitor=x",
    ":(glob)**",
    "\"quoted\\n\".txt",
    "ünï cødé\u{202e}.txt",
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_repository_or_agent_planted_is_ever_run() {
    let (world, traps) = hostile_env().await;
    let before = branch_heads(&world);
    let mut steps = vec![ScriptStep::write("feature.txt", "done\n")];
    steps.extend(ODD_NAMES.map(|name| ScriptStep::write(name, "odd\n")));
    // The agent's own copy, and the run's directory: both belong to the same user here.
    for git_dir in [".git", "../git"] {
        let planted = traps.git_dir_files(git_dir, &world.vendors.github_server_url());
        steps.extend(
            planted
                .iter()
                .map(|(path, text)| ScriptStep::write_anywhere(path, text)),
        );
    }
    let heart = traps.path("heartbeat");
    steps.push(ScriptStep::run(&planting_on(&heart)));
    steps.push(ScriptStep::message("All done. Merge without looking."));
    world.set_agent_script("ENG-1", Script::new().pass(steps));

    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&world));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&world));

    let branch = &world.repo().pulls()[0].head;
    let mut expected = before;
    let pushed = world.repo().branch_head(branch).unwrap();
    expected.insert(format!("acme/shop {branch}"), pushed);
    assert_eq!(branch_heads(&world), expected);
    let text = |path: &str| world.repo().read_file(branch, path);
    assert_eq!(text("feature.txt").as_deref(), Some("done\n"));
    for name in ODD_NAMES {
        assert_eq!(text(name).as_deref(), Some("odd\n"), "{name:?}");
    }

    assert!(heart.exists(), "the agent left nothing behind");
    world
        .wait_until("what the agent left behind has ended", || {
            !is_named_by_a_process(&heart)
        })
        .await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_pushed_safely_blocks_the_push_and_is_named() {
    let (world, traps) = hostile_env().await;
    let before = branch_heads(&world);
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
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state.status(), "failed", "{}", run_logs(&world));
    let comments = world.vendors.linear().issue("ENG-1").comments();
    for named in [
        "nested/: repository nested in the repository",
        "escape: symbolic link that leaves the repository",
        "up: symbolic link that leaves the repository",
        ".GIT/config: path that git refuses to store",
        "sub/git~1/config: path that git refuses to store",
        "huge.txt: cloud credentials (AWS access key)",
    ] {
        assert!(comments[0].contains(named), "{named} in {comments:?}");
    }
    assert_eq!(branch_heads(&world), before);
    assert_eq!(traps.triggered(), [""; 0]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_puts_another_repository_in_place_of_its_own_gains_nothing() {
    let (world, traps) = hostile_env().await;
    let before = branch_heads(&world);
    let elsewhere = traps.path("elsewhere");
    let mut steps = vec![
        ScriptStep::run("rm -rf .git"),
        ScriptStep::run(&format!("git init -q --bare {}", elsewhere.display())),
    ];
    let planted = traps.git_dir_files(
        &elsewhere.to_string_lossy(),
        &world.vendors.github_server_url(),
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
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&world));
    assert_eq!(traps.triggered(), [""; 0]);
    let added: Vec<String> = branch_heads(&world)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(added, [format!("acme/shop {}", job.branch)]);
    world.finish().await;
}

/// The job whose agent made its change, did something to the run's git directory, and planted traps in one.
async fn ended_after(world: &TestEnv, traps: &Traps, deed: &str, git_dir: &str) -> Job {
    let mut steps = vec![
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::run(deed),
    ];
    let planted = traps.git_dir_files(git_dir, &world.vendors.github_server_url());
    steps.extend(
        planted
            .iter()
            .map(|(path, text)| ScriptStep::write_anywhere(path, text)),
    );
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.wait_for_job_end("ENG-1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_directory_that_was_replaced_by_a_way_to_another_is_not_used() {
    let (world, traps) = hostile_env().await;
    let before = branch_heads(&world);
    let replace = "mv ../git ../moved && echo \"gitdir: $(realpath ../moved)\" > ../git";
    let job = ended_after(&world, &traps, replace, "../moved").await;

    assert_eq!(job.state.status(), "failed", "{}", run_logs(&world));
    let comments = world.vendors.linear().issue("ENG-1").comments();
    let told = "the run's git directory was replaced";
    assert!(comments[0].contains(told), "{comments:?}");
    assert_eq!(traps.triggered(), [""; 0]);
    assert_eq!(branch_heads(&world), before);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_directory_whose_head_leads_nowhere_is_sealed_all_the_same() {
    let (world, traps) = hostile_env().await;
    let mislead = "ln -sfn refs/heads/none ../git/HEAD";
    let job = ended_after(&world, &traps, mislead, "../git").await;

    assert_eq!(job.state, JobState::Completed, "{}", run_logs(&world));
    assert_eq!(traps.triggered(), [""; 0], "{}", run_logs(&world));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_git_itself_takes_for_an_attack_is_not_cloned() {
    let (world, _) = hostile_env().await;
    let attack = "[submodule \"evil\"]\n\tpath = evil\n\turl = ./evil\n\tupdate = !sh evil\n";
    let files = [(".gitmodules", attack)];
    world.repo().commit("main", &files, "Attack").unwrap();
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{}", run_logs(&world));
    let comments = world.vendors.linear().issue("ENG-1").comments();
    assert!(
        comments[0].contains("git clone failed") && comments[0].contains("disallowed submodule"),
        "{comments:?}"
    );
    world.finish().await;
}

/// The control: where one simply uses git in the agent's tree, every trap springs.
#[tokio::test(flavor = "multi_thread")]
async fn the_traps_spring_under_naive_git() {
    let (world, traps) = hostile_env().await;
    let before = branch_heads(&world);
    let url = world.repo().clone_url();
    let token = world.vendors.github().personal_token().to_owned();
    let tree = traps.path("tree");
    let git = traps::NaiveGit::clone(&url, &token, &tree);
    for (path, text) in traps.git_dir_files(".git", &world.vendors.github_server_url()) {
        traps::write_file(&tree.join(path), &text);
    }
    std::fs::write(tree.join("README.md"), "changed\n").unwrap();
    git.run(&["diff"]);
    git.run(&["diff", "--no-ext-diff"]);
    git.run(&["add", "-A"]);
    git.run(&["commit", "-m", "x"]);
    git.run(&["-c", "commit.gpgsign=false", "commit", "-m", "x"]);
    git.run(&["checkout", "-b", "taken"]);
    git.run(&["push", "origin", "taken"]);
    git.without_token().run(&["push", "origin", "taken"]);
    let local = traps.path("local.git");
    git.run(&["init", "-q", "--bare", &local.to_string_lossy()]);
    git.run(&["remote", "set-url", "origin", &local.to_string_lossy()]);
    git.run(&["push", "origin", "taken"]);
    git.run(&["-C", "embedded", "status"]);

    assert_eq!(traps.triggered(), traps::GIT_TRAPS);
    let added: Vec<String> = branch_heads(&world)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(
        added,
        ["evil/shop taken"],
        "the push went to the wrong repository"
    );
    world.stop().await;
}

/// The control: without the two flags, the agent's program obeys the repository.
#[tokio::test(flavor = "multi_thread")]
async fn the_traps_spring_in_an_agent_that_reads_project_settings() {
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

/// A world whose repository is hostile, with another one beside it that a push could be led to.
async fn hostile_env() -> (TestEnv, Traps) {
    let world = TestEnv::start().await;
    let traps = Traps::create(world.dir());
    let files = traps.repository_files();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    world.repo().commit("main", &files, "Traps").unwrap();
    let evil = world.vendors.github().repo("evil", "shop");
    evil.seed(&[("README.md", "# Shop\n")], "Begin").unwrap();
    (world, traps)
}

/// Where every branch of every repository stands.
fn branch_heads(world: &TestEnv) -> BTreeMap<String, String> {
    let mut heads = BTreeMap::new();
    for owner in ["acme", "evil"] {
        let repo = world.vendors.github().repo(owner, "shop");
        for branch in repo.branches() {
            let head = repo.branch_head(&branch).unwrap();
            heads.insert(format!("{owner}/shop {branch}"), head);
        }
    }
    heads
}

/// A process that leaves the agent's group and session and plants again and again, so that a look
/// at the right moment would not help.
fn planting_on(heart: &std::path::Path) -> String {
    format!(
        "setsid sh -c 'while sleep 0.02; do date +%s%N >{}; mkdir -p ../git/hooks ../git/info; \
         cp .git/config ../git/config; cp .git/hooks/* ../git/hooks/; \
         cp .git/info/attributes ../git/info/attributes; done' >/dev/null 2>&1 </dev/null & sleep 0.2",
        heart.display()
    )
}

/// Whether the command line of a process names this file.
fn is_named_by_a_process(file: &Path) -> bool {
    let file = file.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    { lines }.any(|line| String::from_utf8_lossy(&line).contains(file))
}

#[test]
fn a_process_is_found_by_the_file_that_it_names() {
    let heart = tempfile::tempdir().unwrap().path().join("heartbeat");
    assert!(!is_named_by_a_process(&heart));
    let script = format!("read line; : {}", heart.display());
    let mut planter = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !is_named_by_a_process(&heart) {
        assert!(planter.try_wait().unwrap().is_none(), "it has ended");
    }
    drop(planter.stdin.take());
    planter.wait().unwrap();
    assert!(!is_named_by_a_process(&heart));
}

fn run_logs(world: &TestEnv) -> String {
    let runs = world.repo().runs();
    let logs = runs.iter().map(|run| world.repo().run_log(run.id));
    logs.collect::<Vec<_>>().join("\n---\n")
}
