//! Failure messages and codes of runs, on the ticket and in the job. See docs/behaviour.md#run-failures.

use domain::job::RunHandle;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault};
use futures_util::stream::{self, StreamExt};

use crate::jira::mapping_with_query;
use crate::test_env::{TestEnv, mapping};

/// Maximum number of rows tested concurrently.
const MAX_CONCURRENT_ROWS: usize = 4;

/// Failure and its expected message and code.
struct Row {
    name: &'static str,
    /// Sets up the cause of the failure.
    prepare: fn(&TestEnv),
    script: Script,
    code: Option<&'static str>,
    reason: &'static str,
    /// Whether the change is pushed before the failure.
    pushed: bool,
}

fn row(name: &'static str, script: Script, code: &'static str, reason: &'static str) -> Row {
    Row {
        name,
        prepare: |_| {},
        script,
        code: Some(code).filter(|code| !code.is_empty()),
        reason,
        pushed: false,
    }
}

fn write_script() -> Script {
    Script::new().pass([ScriptStep::write("feature.txt", "done\n")])
}

/// Commits a file to the base branch.
fn commit(env: &TestEnv, path: &str, text: &str) {
    env.repo()
        .commit("main", &[(path, text)], "Settings")
        .unwrap();
}

fn rows() -> Vec<Row> {
    vec![
        row(
            "turn budget used up",
            Script::new().pass([ScriptStep::ExhaustTurns]),
            "MAX_TURNS_EXHAUSTED",
            "model invocation failed with exit code 1: Reached max turns (50)",
        ),
        row(
            "the model API refused",
            Script::new().pass([ScriptStep::api_error(529, "Overloaded")]),
            "PROVIDER_UNAVAILABLE",
            "model invocation failed with exit code 1: API Error: 529 Overloaded",
        ),
        row(
            "the agent ended without a result",
            Script::new().pass([ScriptStep::Exit { code: 3 }]),
            "",
            "model invocation failed with exit code 3: it exited without a result",
        ),
        row(
            "no file changes",
            Script::new().pass([ScriptStep::message("There is nothing to do.")]),
            "NO_CHANGES",
            "Nothing to commit: no file changes in the working tree",
        ),
        Row {
            prepare: |env| {
                let github = env.vendors.faults(FakeService::GitHub);
                github.inject_on_match(
                    "POST /repos/acme/shop/pulls",
                    InjectedFault::ErrorStatus(422),
                );
            },
            pushed: true,
            ..row(
                "the host refuses the pull request",
                write_script(),
                "PUSH_REJECTED",
                "PR creation failed with HTTP 422: ",
            )
        },
        Row {
            prepare: |env| {
                let git = env.vendors.faults(FakeService::Git);
                git.inject_next(InjectedFault::ErrorStatus(403));
            },
            ..row(
                "the host denies access",
                write_script(),
                "CLONE_FAILED",
                "git clone failed (exit 128): ",
            )
        },
        Row {
            prepare: |env| {
                let text = "---\nsetup: |\n  echo no database\n  exit 3\n---\n";
                commit(env, "WORKFLOW.md", text);
            },
            ..row(
                "the setup script fails before the model starts",
                write_script(),
                "SETUP_FAILED",
                "setup script of WORKFLOW.md failed: exit code 3\nno database",
            )
        },
        Row {
            prepare: |env| commit(env, "WORKFLOW.md", "---\nsetup: [\n---\n"),
            ..row(
                "the front matter cannot be read",
                write_script(),
                "SETUP_FAILED",
                "cannot read WORKFLOW.md: ",
            )
        },
        Row {
            prepare: |env| {
                let text = "packageManager: apt\n";
                commit(env, ".agent-implement/config.yml", text);
            },
            ..row(
                "an unknown package manager",
                write_script(),
                "INSTALL_FAILED",
                "unknown packageManager apt; known: pnpm, yarn, bun, npm, cargo, go, uv, poetry, pip, \
                 bundler, maven, gradle, none",
            )
        },
        Row {
            prepare: |env| {
                let text = "---\nverify: 'echo 1 test failed; exit 4'\n---\n";
                commit(env, "WORKFLOW.md", text);
            },
            pushed: true,
            ..row(
                "the verify script fails after the push",
                write_script(),
                "VERIFY_FAILED",
                "verify script of WORKFLOW.md failed: exit code 4\nPull request ",
            )
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_its_message_and_code() {
    let rows = rows();
    stream::iter(&rows)
        .for_each_concurrent(MAX_CONCURRENT_ROWS, |row| {
            Box::pin(assert_failure_reported(row))
        })
        .await;
}

async fn assert_failure_reported(row: &Row) {
    let (name, env) = (row.name, TestEnv::start().await);
    // The fault is set up before the dispatch; only the run itself meets it.
    env.set_agent_script("ENG-1", row.script.clone());
    (row.prepare)(&env);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let log = env.admin_get("/api/log").await;
    assert_eq!(log[0]["status"], "failed", "{name}: {job:?}");
    assert_eq!(log[0]["failureCode"].as_str(), row.code, "{name}: {job:?}");
    let comments = env.comments("ENG-1");
    let [comment, excerpt] = &comments[..] else {
        panic!("{name}: {comments:#?}")
    };
    let expected = format!("Implementation failed: {}", row.reason);
    let is_prefix = row.reason.ends_with(' ') && comment.starts_with(&expected);
    assert!(is_prefix || *comment == expected, "{name}: {comment}");
    assert_eq!(excerpt, "Log excerpt (`session_failed`)", "{name}");
    assert!(env.vendors.linear().issue("ENG-1").labels().is_empty());
    let is_pushed = env.repo().branches().contains(&job.branch);
    assert_eq!(is_pushed, row.pushed, "{name}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_posted_as_one_comment_in_a_fixed_order() {
    let env =
        TestEnv::with_mappings([mapping(), mapping_with_query("OPS", "project = OPS", "OPS")])
            .await;
    let idle_script = Script::new().pass([ScriptStep::message(
        "There is nothing to do, @mia: it is done.",
    )]);
    for key in ["ENG-1", "OPS-1"] {
        env.set_agent_script(key, idle_script.clone());
    }
    env.create_labelled_issue("ENG-1", "Add the feature");
    let ticket = env.vendors.jira().issue("OPS-1").title("Add the feature");
    ticket.repo("OPS").status("Ready");
    let job = env.wait_for_job_end("ENG-1").await;
    env.wait_for_job_end("OPS-1").await;

    let comments = env.vendors.linear().issue("ENG-1").comments();
    let [comment] = &comments[..] else {
        panic!("{comments:#?}")
    };
    let run = job.run.as_ref().and_then(RunHandle::log_url).unwrap();
    let prefix = format!(
        "Implementation failed: Nothing to commit: no file changes in the working tree\n\n\
         **What to do:** Describe in the ticket what to change. Then set the label `Agent-Implement` again.\n\n\
         **Last message of the agent:**\n\n> There is nothing to do, @\u{2060}mia: it is done.\n\n\
         [Run]({run})\n\n\
         +++ Log excerpt (session_failed)\n\n```\n"
    );
    assert!(comment.starts_with(&prefix), "{comment}");
    assert!(comment.ends_with("\n```\n\n+++"), "{comment}");
    assert!(!comment.contains("::add-mask::"), "{comment}");

    let shown = env.vendors.jira().issue("OPS-1").snapshot().unwrap();
    let [comment] = &shown.comments[..] else {
        panic!("{:#?}", shown.comments)
    };
    let blocks = comment.body["content"].as_array().unwrap();
    let kinds: Vec<&str> = blocks
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    let expected = [
        "paragraph",
        "paragraph",
        "paragraph",
        "blockquote",
        "paragraph",
        "expand",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(blocks[5]["attrs"]["title"], "Log excerpt (session_failed)");
    assert_eq!(blocks[5]["content"][0]["type"], "codeBlock");
    assert!(
        comment
            .text
            .contains("Then set Agent-Implement Status to Ready again."),
        "{}",
        comment.text
    );
    env.finish().await;
}
