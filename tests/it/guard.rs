//! The sensitive-file guard from the agent's work tree to the ticket: blocked files, allowed files, and
//! what reaches the repository host.

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::test_env::TestEnv;

/// Token in a published format. It is assembled, so that no scanner reports this file.
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

/// Ticket key, its files, and the expected lines of its comment.
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
async fn blocks_each_category_and_names_every_file() {
    let env = TestEnv::start().await;
    for (key, files, _) in rows() {
        let steps = files
            .iter()
            .map(|(path, text)| ScriptStep::write(path, text));
        env.set_agent_script(key, Script::new().pass(steps));
        env.create_labelled_issue(key, "Add the feature");
    }
    for (key, _, lines) in rows() {
        let job = env.wait_for_job_end(key).await;
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
        assert_eq!(env.comments(key), [expected], "{key}");
    }
    assert_eq!(env.repo().branches(), ["main"], "nothing was pushed");
    assert!(env.repo().pulls().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn honors_the_allow_list_of_the_base_branch_except_for_private_keys() {
    let env = TestEnv::start().await;
    let permitted = "guard:\n  allow:\n    - \"fixtures/**\"\n";
    let files = [(".agent-implement/config.yml", permitted)];
    env.repo().commit("main", &files, "Permit").unwrap();
    let samples = [
        ScriptStep::write("fixtures/sample.env", "KEY=1\n"),
        ScriptStep::write("fixtures/token.txt", &token()),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(samples));
    let allow_everything = "guard:\n  allow: [\"**\"]\n";
    let overreaching = [
        ScriptStep::write(".agent-implement/config.yml", allow_everything),
        ScriptStep::write("src/token.txt", &token()),
        ScriptStep::write("fixtures/key.txt", &private_key()),
    ];
    env.set_agent_script("ENG-2", Script::new().pass(overreaching));
    env.create_labelled_issue("ENG-1", "Add samples");
    env.create_labelled_issue("ENG-2", "Permit everything");

    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    let text = env.repo().read_file(&job.branch, "fixtures/token.txt");
    assert_eq!(text, Some(token()));
    env.wait_for_job_end("ENG-2").await;
    let comments = env.comments("ENG-2");
    let expected = "Push blocked: 2 sensitive file(s) would be committed:\n\
                    - fixtures/key.txt: private keys and certificates (private key)\n\
                    - src/token.txt: tokens and auth files (GitHub token)";
    assert!(comments[0].ends_with(expected), "{comments:?}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn never_pushes_what_the_agent_committed_and_removed() {
    let env = TestEnv::start().await;
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
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);

    let repo = env.repo();
    let ours = repo.commits(&job.branch).len() - repo.commits("main").len();
    assert_eq!(ours, 1, "the agent's own commits are not pushed");
    let objects = std::process::Command::new("git")
        .args(["cat-file", "--batch-all-objects", "--batch"])
        .current_dir(env.vendors.dir().join("git/acme/shop.git"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&objects.stdout).into_owned();
    assert!(text.contains("const apiKey") && !text.contains(&token()));

    let body = &repo.pulls()[0].body;
    for named in [
        "control CI, agents or reviews:\n\n- .gitlab-ci.yml\n",
        "- src/settings.ts: tokens and auth files (possible secret)\n",
    ] {
        assert!(body.contains(named), "{named} in {body}");
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_tokens_in_file_names_and_link_targets() {
    let env = TestEnv::start().await;
    let token = token();
    let steps = [
        ScriptStep::write(&format!("docs/{token}.md"), "fine\n"),
        ScriptStep::write(&format!("{token}/deep/fine.txt"), "fine\n"),
        ScriptStep::symlink("link", &format!("docs/{token}")),
        ScriptStep::write("feature.txt", "done\n"),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(env.repo().branches(), ["main"], "nothing was pushed");
    let what = "tokens and auth files (GitHub token)";
    let expected = format!(
        "🔒 Blocked by security guardrail\n\nPush blocked: 3 sensitive file(s) would be committed:\n\
         - docs/[redacted]: {what}\n- [redacted]/deep/fine.txt: {what}\n- link: {what}"
    );
    assert_eq!(env.comments("ENG-1"), [expected]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn treats_a_renamed_file_as_unchanged() {
    let env = TestEnv::start().await;
    let old = format!("const t = '{}';\n", token());
    let files = [("config/old.ts", old.as_str()), ("sample.txt", "KEY=1\n")];
    env.repo().commit("main", &files, "Seed").unwrap();
    let renames = "mkdir lib && mv config/old.ts lib/new.ts && mv sample.txt .env";
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::run(renames)]));
    let changed =
        "mv config/old.ts new.ts && echo more >>new.ts && mv sample.txt .env && echo B=2 >>.env";
    env.set_agent_script("ENG-2", Script::new().pass([ScriptStep::run(changed)]));
    env.create_labelled_issue("ENG-1", "Move files");
    env.create_labelled_issue("ENG-2", "Move and change files");

    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        job.state,
        JobState::Completed,
        "{:?}",
        env.comments("ENG-1")
    );
    assert_eq!(env.repo().read_file(&job.branch, "lib/new.ts"), Some(old));
    env.wait_for_job_end("ENG-2").await;
    let comments = env.comments("ENG-2");
    let expected = "Push blocked: 2 sensitive file(s) would be committed:\n\
                    - .env: environment and config files (file name)\n\
                    - new.ts: tokens and auth files (GitHub token)";
    assert!(comments[0].ends_with(expected), "{comments:?}");
    env.finish().await;
}
