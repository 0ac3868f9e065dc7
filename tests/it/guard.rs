//! The sensitive-file guard, from the agent's work tree to the ticket: what is blocked, what is
//! permitted, and what arrives at the host.

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::test_env::TestEnv;

/// A token of a published format. It does not stand in this file, so that nobody takes it for one.
fn token() -> String {
    ["gh", "p_", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW"].concat()
}

fn private_key() -> String {
    let body = "MIIEpAIBAAKCAQEAq7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoWb8Rn";
    let label = "RSA PRIVATE KEY";
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

fn database_url() -> String {
    ["postgres://shop:", "q7Zk9LmTbX2w", "@db.shop-prod.net/shop"].concat()
}

/// One row of the table: the files of a ticket, and the lines of its comment.
type Row = (&'static str, Vec<(&'static str, String)>, Vec<&'static str>);

fn rows() -> Vec<Row> {
    let fine = || ("feature.txt", "done\n".to_owned());
    vec![
        (
            "ENG-1",
            vec![fine(), ("app/.Env.Production", "KEY=1\n".to_owned())],
            vec!["app/.Env.Production: environment and config files (file name)"],
        ),
        (
            "ENG-2",
            vec![
                ("deploy/id_ed25519", "x\n".to_owned()),
                ("docs/setup.md", format!("```\n{}```\n", private_key())),
            ],
            vec![
                "deploy/id_ed25519: private keys and certificates (file name)",
                "docs/setup.md: private keys and certificates (private key)",
            ],
        ),
        (
            "ENG-3",
            vec![
                fine(),
                ("home/.aws/credentials", "[default]\n".to_owned()),
                ("main.tf", ["k = \"AK", "IAQ7ZK2LMTBX2WVRNP\"\n"].concat()),
            ],
            vec![
                "home/.aws/credentials: cloud credentials (file name)",
                "main.tf: cloud credentials (AWS access key)",
            ],
        ),
        (
            "ENG-4",
            vec![
                (".pgpass", "x\n".to_owned()),
                ("src/db.ts", format!("connect('{}');\n", database_url())),
                (".env.example", format!("DATABASE_URL={}\n", database_url())),
            ],
            vec![
                ".env.example: database credentials (database URL with password)",
                ".pgpass: database credentials (file name)",
                "src/db.ts: database credentials (database URL with password)",
            ],
        ),
        (
            "ENG-5",
            vec![
                (".netrc", "x\n".to_owned()),
                ("src/a\n- b.ts", format!("const t = '{}';\n", token())),
            ],
            vec![
                ".netrc: tokens and auth files (file name)",
                "src/a\\u{a}- b.ts: tokens and auth files (GitHub token)",
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_category_blocks_the_push_and_the_ticket_names_every_file() {
    let world = TestEnv::start().await;
    for (key, files, _) in rows() {
        let steps = files
            .iter()
            .map(|(path, text)| ScriptStep::write(path, text));
        world.set_agent_script(key, Script::new().pass(steps));
        world.create_labelled_issue(key, "Add the feature");
    }
    for (key, _, lines) in rows() {
        let job = world.wait_for_job_end(key).await;
        let JobState::Failed { code, .. } = &job.state else {
            panic!("{key}: {:?}", job.state);
        };
        assert_eq!(*code, Some(FailureCode::SensitiveFilesBlocked), "{key}");
        assert_eq!(job.state.status(), "failed");
        let listed: String = lines.iter().map(|line| format!("\n- {line}")).collect();
        let expected = format!(
            "🔒 Blocked by security guardrail\n\nPush blocked: {} sensitive file(s) would be committed:{listed}",
            lines.len()
        );
        assert_eq!(world.comments(key), [expected], "{key}");
    }
    assert_eq!(world.repo().branches(), ["main"], "nothing was pushed");
    assert!(world.repo().pulls().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_base_branch_permits_files_and_never_a_private_key() {
    let world = TestEnv::start().await;
    let permitted = "guard:\n  allow:\n    - \"fixtures/**\"\n";
    let files = [(".agent-implement/config.yml", permitted)];
    world.repo().commit("main", &files, "Permit").unwrap();
    let samples = [
        ScriptStep::write("fixtures/sample.env", "KEY=1\n"),
        ScriptStep::write("fixtures/token.txt", &token()),
    ];
    world.set_agent_script("ENG-1", Script::new().pass(samples));
    let own_list = "guard:\n  allow: [\"**\"]\n";
    let greedy = [
        ScriptStep::write(".agent-implement/config.yml", own_list),
        ScriptStep::write("src/token.txt", &token()),
        ScriptStep::write("fixtures/key.txt", &private_key()),
    ];
    world.set_agent_script("ENG-2", Script::new().pass(greedy));
    world.create_labelled_issue("ENG-1", "Add samples");
    world.create_labelled_issue("ENG-2", "Permit everything");

    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    let text = world.repo().read_file(&job.branch, "fixtures/token.txt");
    assert_eq!(text, Some(token()));
    world.wait_for_job_end("ENG-2").await;
    let comments = world.comments("ENG-2");
    let expected = "Push blocked: 2 sensitive file(s) would be committed:\n\
                    - fixtures/key.txt: private keys and certificates (private key)\n\
                    - src/token.txt: tokens and auth files (GitHub token)";
    assert!(comments[0].ends_with(expected), "{comments:?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_committed_and_took_back_never_arrives() {
    let world = TestEnv::start().await;
    let commit = "git add -A && git -c user.name=x -c user.email=x@x commit -qm";
    let steps = [
        ScriptStep::write("src/token.txt", &token()),
        ScriptStep::run(&format!("{commit} first")),
        ScriptStep::delete("src/token.txt"),
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::run(&format!("{commit} second")),
        ScriptStep::write(
            "src/settings.ts",
            "const apiKey = \"q7Zk9LmTbX2wVr8NpYc5HdJf\";\n",
        ),
        ScriptStep::write(".gitlab-ci.yml", "stages: []\n"),
    ];
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);

    let repo = world.repo();
    let ours = repo.commits(&job.branch).len() - repo.commits("main").len();
    assert_eq!(ours, 1, "the agent's own commits stay where they are");
    let objects = std::process::Command::new("git")
        .args(["cat-file", "--batch-all-objects", "--batch"])
        .current_dir(world.vendors.dir().join("git/acme/shop.git"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&objects.stdout).into_owned();
    assert!(text.contains("const apiKey") && !text.contains(&token()));

    let body = &repo.pulls()[0].body;
    for named in [
        "steer CI, agents or reviews:\n\n- .gitlab-ci.yml\n",
        "- src/settings.ts: tokens and auth files (possible secret)\n",
    ] {
        assert!(body.contains(named), "{named} in {body}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_as_a_name_or_as_the_target_of_a_link_blocks_the_push() {
    let world = TestEnv::start().await;
    let token = token();
    let steps = [
        ScriptStep::write(&format!("docs/{token}.md"), "fine\n"),
        ScriptStep::write(&format!("{token}/deep/fine.txt"), "fine\n"),
        ScriptStep::symlink("link", &format!("docs/{token}")),
        ScriptStep::write("feature.txt", "done\n"),
    ];
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(world.repo().branches(), ["main"], "nothing was pushed");
    let what = "tokens and auth files (GitHub token)";
    let expected = format!(
        "🔒 Blocked by security guardrail\n\nPush blocked: 3 sensitive file(s) would be committed:\n\
         - docs/[redacted]: {what}\n- [redacted]/deep/fine.txt: {what}\n- link: {what}"
    );
    assert_eq!(world.comments("ENG-1"), [expected]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_only_renamed_is_not_new() {
    let world = TestEnv::start().await;
    let old = format!("const t = '{}';\n", token());
    let files = [("config/old.ts", old.as_str()), ("sample.txt", "KEY=1\n")];
    world.repo().commit("main", &files, "Seed").unwrap();
    let renames = "mkdir lib && mv config/old.ts lib/new.ts && mv sample.txt .env";
    world.set_agent_script("ENG-1", Script::new().pass([ScriptStep::run(renames)]));
    let changed =
        "mv config/old.ts new.ts && echo more >>new.ts && mv sample.txt .env && echo B=2 >>.env";
    world.set_agent_script("ENG-2", Script::new().pass([ScriptStep::run(changed)]));
    world.create_labelled_issue("ENG-1", "Move files");
    world.create_labelled_issue("ENG-2", "Move and change files");

    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(
        job.state,
        JobState::Completed,
        "{:?}",
        world.comments("ENG-1")
    );
    assert_eq!(world.repo().read_file(&job.branch, "lib/new.ts"), Some(old));
    world.wait_for_job_end("ENG-2").await;
    let comments = world.comments("ENG-2");
    let expected = "Push blocked: 2 sensitive file(s) would be committed:\n\
                    - .env: environment and config files (file name)\n\
                    - new.ts: tokens and auth files (GitHub token)";
    assert!(comments[0].ends_with(expected), "{comments:?}");
    world.finish().await;
}
