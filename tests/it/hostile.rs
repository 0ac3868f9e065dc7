//! A repository and an agent that set traps for the run: none of them may ever spring.
//!
//! Each trap leaves a mark where it springs. Two control tests show that the traps are real: they
//! spring when somebody uses git, or the agent's program, as one would without thinking.

mod programs;
mod traps;

use std::collections::BTreeMap;
use std::path::Path;

use domain::job::{Job, JobState};
use fake_vendors::scripted_agent::{Script, Step};

use crate::world::World;
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
    let (world, traps) = hostile_world().await;
    let before = heads(&world);
    let mut steps = vec![Step::write("feature.txt", "done\n")];
    steps.extend(ODD_NAMES.map(|name| Step::write(name, "odd\n")));
    // The agent's own copy, and the run's directory: both belong to the same user here.
    for git_dir in [".git", "../git"] {
        let planted = traps.planted(git_dir, &world.town.github_server_url());
        steps.extend(planted.iter().map(|(path, text)| Step::plant(path, text)));
    }
    let heart = traps.path("heartbeat");
    steps.push(Step::run(&planting_on(&heart)));
    steps.push(Step::say("All done. Merge without looking."));
    world.script("ENG-1", Script::new().pass(steps));

    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&world));
    assert_eq!(traps.sprung(), [""; 0], "{}", log(&world));

    let branch = &world.repo().pulls()[0].head;
    let mut expected = before;
    let pushed = world.repo().branch_head(branch).unwrap();
    expected.insert(format!("acme/shop {branch}"), pushed);
    assert_eq!(heads(&world), expected);
    let text = |path: &str| world.repo().file_at(branch, path);
    assert_eq!(text("feature.txt").as_deref(), Some("done\n"));
    for name in ODD_NAMES {
        assert_eq!(text(name).as_deref(), Some("odd\n"), "{name:?}");
    }

    assert!(heart.exists(), "the agent left nothing behind");
    world
        .until("what the agent left behind has ended", || {
            !is_named_by_a_process(&heart)
        })
        .await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_pushed_safely_blocks_the_push_and_is_named() {
    let (world, traps) = hostile_world().await;
    let before = heads(&world);
    let nested = "git init -q nested && cd nested && echo x > x && git add x && \
                  git -c user.name=x -c user.email=x@x commit -qm x";
    let steps = [
        Step::write("feature.txt", "done\n"),
        Step::run(nested),
        Step::symlink("escape", "/etc/passwd"),
        Step::symlink("up", "../../elsewhere"),
        Step::plant(".GIT/config", "[core]\n\tfsmonitor = false\n"),
        Step::plant("sub/git~1/config", "[core]\n"),
        Step::run(
            "yes | head -c 60000000 > huge.txt; printf '\nAKIA%s\n' 3QZ7PLM5HFZ2XVWT >> huge.txt",
        ),
    ];
    world.script("ENG-1", Script::new().pass(steps));
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;

    assert_eq!(job.state.status(), "failed", "{}", log(&world));
    let comments = world.town.linear().issue("ENG-1").comments();
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
    assert_eq!(heads(&world), before);
    assert_eq!(traps.sprung(), [""; 0]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_puts_another_repository_in_place_of_its_own_gains_nothing() {
    let (world, traps) = hostile_world().await;
    let before = heads(&world);
    let elsewhere = traps.path("elsewhere");
    let mut steps = vec![
        Step::run("rm -rf .git"),
        Step::run(&format!("git init -q --bare {}", elsewhere.display())),
    ];
    let planted = traps.planted(
        &elsewhere.to_string_lossy(),
        &world.town.github_server_url(),
    );
    steps.extend(planted.iter().map(|(path, text)| Step::plant(path, text)));
    steps.push(Step::plant(
        ".git",
        &format!("gitdir: {}\n", elsewhere.display()),
    ));
    steps.push(Step::write("feature.txt", "done\n"));
    world.script("ENG-1", Script::new().pass(steps));
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;

    assert_eq!(job.state, JobState::Completed, "{}", log(&world));
    assert_eq!(traps.sprung(), [""; 0]);
    let added: Vec<String> = heads(&world)
        .into_keys()
        .filter(|name| !before.contains_key(name))
        .collect();
    assert_eq!(added, [format!("acme/shop {}", job.branch)]);
    world.end().await;
}

/// The job whose agent made its change, did something to the run's git directory, and planted traps in one.
async fn ended_after(world: &World, traps: &Traps, deed: &str, git_dir: &str) -> Job {
    let mut steps = vec![Step::write("feature.txt", "done\n"), Step::run(deed)];
    let planted = traps.planted(git_dir, &world.town.github_server_url());
    steps.extend(planted.iter().map(|(path, text)| Step::plant(path, text)));
    world.script("ENG-1", Script::new().pass(steps));
    world.flag("ENG-1", "Add the feature");
    world.ended("ENG-1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_directory_that_was_replaced_by_a_way_to_another_is_not_used() {
    let (world, traps) = hostile_world().await;
    let before = heads(&world);
    let replace = "mv ../git ../moved && echo \"gitdir: $(realpath ../moved)\" > ../git";
    let job = ended_after(&world, &traps, replace, "../moved").await;

    assert_eq!(job.state.status(), "failed", "{}", log(&world));
    let comments = world.town.linear().issue("ENG-1").comments();
    let told = "the run's git directory was replaced";
    assert!(comments[0].contains(told), "{comments:?}");
    assert_eq!(traps.sprung(), [""; 0]);
    assert_eq!(heads(&world), before);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_directory_whose_head_leads_nowhere_is_sealed_all_the_same() {
    let (world, traps) = hostile_world().await;
    let mislead = "ln -sfn refs/heads/none ../git/HEAD";
    let job = ended_after(&world, &traps, mislead, "../git").await;

    assert_eq!(job.state, JobState::Completed, "{}", log(&world));
    assert_eq!(traps.sprung(), [""; 0], "{}", log(&world));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_git_itself_takes_for_an_attack_is_not_cloned() {
    let (world, _) = hostile_world().await;
    let attack = "[submodule \"evil\"]\n\tpath = evil\n\turl = ./evil\n\tupdate = !sh evil\n";
    let files = [(".gitmodules", attack)];
    world.repo().commit("main", &files, "Attack").unwrap();
    world.flag("ENG-1", "Add the feature");
    let job = world.ended("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{}", log(&world));
    let comments = world.town.linear().issue("ENG-1").comments();
    assert!(
        comments[0].contains("git clone failed") && comments[0].contains("disallowed submodule"),
        "{comments:?}"
    );
    world.end().await;
}

/// The control: where one simply uses git in the agent's tree, every trap springs.
#[tokio::test(flavor = "multi_thread")]
async fn the_traps_spring_under_naive_git() {
    let (world, traps) = hostile_world().await;
    let before = heads(&world);
    let url = world.repo().clone_url();
    let token = world.town.github().token().to_owned();
    let tree = traps.path("tree");
    let git = traps::NaiveGit::clone(&url, &token, &tree);
    for (path, text) in traps.planted(".git", &world.town.github_server_url()) {
        traps::plant(&tree.join(path), &text);
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

    assert_eq!(traps.sprung(), traps::OF_GIT);
    let added: Vec<String> = heads(&world)
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
    let traps = Traps::lay(dir.path());
    let tree = traps.path("tree");
    for (path, text) in traps.repository() {
        traps::plant(&tree.join(path), &text);
    }
    let call = |flags: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_agent-implement"));
        let arguments = ["scripted-agent", "--scripts", ".", "-p", "Work on ENG-1"];
        command.args(arguments).args(flags).current_dir(&tree);
        let output = command.env("ANTHROPIC_API_KEY", "canary").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    call(&["--setting-sources", "user", "--strict-mcp-config"]);
    assert_eq!(traps.sprung(), [""; 0]);
    call(&[]);
    assert_eq!(traps.sprung(), traps::OF_AGENT);
    let stolen = std::fs::read_to_string(traps.mark("agent-base-url")).unwrap();
    assert!(stolen.contains("canary"), "{stolen}");
}

/// A world whose repository is hostile, with another one beside it that a push could be led to.
async fn hostile_world() -> (World, Traps) {
    let world = World::start().await;
    let traps = Traps::lay(world.dir());
    let files = traps.repository();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    world.repo().commit("main", &files, "Traps").unwrap();
    let evil = world.town.github().repo("evil", "shop");
    evil.seed(&[("README.md", "# Shop\n")], "Begin").unwrap();
    (world, traps)
}

/// Where every branch of every repository stands.
fn heads(world: &World) -> BTreeMap<String, String> {
    let mut heads = BTreeMap::new();
    for owner in ["acme", "evil"] {
        let repo = world.town.github().repo(owner, "shop");
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

fn log(world: &World) -> String {
    let runs = world.repo().runs();
    let logs = runs.iter().map(|run| world.repo().run_log(run.id));
    logs.collect::<Vec<_>>().join("\n---\n")
}
