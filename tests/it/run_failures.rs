//! How a run that fails says so: on the ticket, in the job, and with which code. (spec: *Run failure
//! messages*)

use domain::job::RunHandle;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault};
use futures_util::stream::{self, StreamExt};

use crate::jira::mapping_with_query;
use crate::test_env::{TestEnv, mapping};

/// How many stories are told at once?
const SIDE_BY_SIDE: usize = 4;

/// One situation, and what is told of it.
struct Row {
    name: &'static str,
    /// What is in the way.
    prepare: fn(&TestEnv),
    script: Script,
    code: Option<&'static str>,
    reason: &'static str,
    /// Whether the change had reached the host before.
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

fn works() -> Script {
    Script::new().pass([ScriptStep::write("feature.txt", "done\n")])
}

/// Commits a file to the base branch.
fn commit(world: &TestEnv, path: &str, text: &str) {
    world
        .repo()
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
            "the model's interface refused",
            Script::new().pass([ScriptStep::api_error(529, "Overloaded")]),
            "PROVIDER_UNAVAILABLE",
            "model invocation failed with exit code 1: API Error: 529 Overloaded",
        ),
        row(
            "the agent ended without a result",
            Script::new().pass([ScriptStep::Exit { code: 3 }]),
            "",
            "model invocation failed with exit code 3: it ended without a result",
        ),
        row(
            "no file changes",
            Script::new().pass([ScriptStep::message("There is nothing to do.")]),
            "NO_CHANGES",
            "Nothing to commit: no file changes in the working tree",
        ),
        Row {
            prepare: |world| {
                let github = world.vendors.faults(FakeService::GitHub);
                github.inject_on_match(
                    "POST /repos/acme/shop/pulls",
                    InjectedFault::ErrorStatus(422),
                );
            },
            pushed: true,
            ..row(
                "the host refuses the pull request",
                works(),
                "PUSH_REJECTED",
                "PR creation failed with HTTP 422: ",
            )
        },
        Row {
            prepare: |world| {
                let git = world.vendors.faults(FakeService::Git);
                git.inject_next(InjectedFault::ErrorStatus(403));
            },
            ..row(
                "the host gives no access",
                works(),
                "CLONE_FAILED",
                "git clone failed (exit 128): ",
            )
        },
        Row {
            prepare: |world| {
                let text = "---\nsetup: |\n  echo no database\n  exit 3\n---\n";
                commit(world, "WORKFLOW.md", text);
            },
            ..row(
                "the setup script fails before the model starts",
                works(),
                "SETUP_FAILED",
                "setup script of WORKFLOW.md failed: exit code 3\nno database",
            )
        },
        Row {
            prepare: |world| commit(world, "WORKFLOW.md", "---\nsetup: [\n---\n"),
            ..row(
                "the front matter cannot be read",
                works(),
                "SETUP_FAILED",
                "reading WORKFLOW.md: ",
            )
        },
        Row {
            prepare: |world| {
                let text = "packageManager: apt\n";
                commit(world, ".agent-implement/config.yml", text);
            },
            ..row(
                "an unknown package manager",
                works(),
                "INSTALL_FAILED",
                "packageManager is apt; known are pnpm, yarn, bun, npm, cargo, go, uv, poetry, pip, \
                 bundler, maven, gradle, and none",
            )
        },
        Row {
            prepare: |world| {
                let text = "---\nverify: 'echo 1 test failed; exit 4'\n---\n";
                commit(world, "WORKFLOW.md", text);
            },
            pushed: true,
            ..row(
                "the verify script fails after the push",
                works(),
                "VERIFY_FAILED",
                "verify script of WORKFLOW.md failed: exit code 4\nPull request ",
            )
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_is_told_in_its_words_and_with_its_code() {
    let rows = rows();
    stream::iter(&rows)
        .for_each_concurrent(SIDE_BY_SIDE, |row| Box::pin(tell(row)))
        .await;
}

async fn tell(row: &Row) {
    let (name, world) = (row.name, TestEnv::start().await);
    // The run is started before anything stands in its way: only what it meets itself counts.
    world.set_agent_script("ENG-1", row.script.clone());
    (row.prepare)(&world);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let log = world.admin_get("/api/log").await;
    assert_eq!(log[0]["status"], "failed", "{name}: {job:?}");
    assert_eq!(log[0]["failureCode"].as_str(), row.code, "{name}: {job:?}");
    let comments = world.comments("ENG-1");
    let [told, excerpt] = &comments[..] else {
        panic!("{name}: {comments:#?}")
    };
    let expected = format!("Implementation failed: {}", row.reason);
    let begins = row.reason.ends_with(' ') && told.starts_with(&expected);
    assert!(begins || *told == expected, "{name}: {told}");
    assert_eq!(excerpt, "Log excerpt (`session_failed`)", "{name}");
    assert!(world.vendors.linear().issue("ENG-1").labels().is_empty());
    let is_pushed = world.repo().branches().contains(&job.branch);
    assert_eq!(is_pushed, row.pushed, "{name}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_one_comment_in_the_order_in_which_people_need_it() {
    let world =
        TestEnv::with_mappings([mapping(), mapping_with_query("OPS", "project = OPS", "OPS")])
            .await;
    let says = Script::new().pass([ScriptStep::message(
        "There is nothing to do, @mia: it is done.",
    )]);
    for key in ["ENG-1", "OPS-1"] {
        world.set_agent_script(key, says.clone());
    }
    world.create_labelled_issue("ENG-1", "Add the feature");
    let ticket = world.vendors.jira().issue("OPS-1").title("Add the feature");
    ticket.repo("OPS").status("Ready");
    let job = world.wait_for_job_end("ENG-1").await;
    world.wait_for_job_end("OPS-1").await;

    let comments = world.vendors.linear().issue("ENG-1").comments();
    let [comment] = &comments[..] else {
        panic!("{comments:#?}")
    };
    let run = job.run.as_ref().and_then(RunHandle::log_url).unwrap();
    let begins = format!(
        "Implementation failed: Nothing to commit: no file changes in the working tree\n\n\
         **What to do:** Say in the ticket what is to be changed. Then set the label `Agent-Implement` again.\n\n\
         **The agent's last words:**\n\n> There is nothing to do, @\u{2060}mia: it is done.\n\n\
         [Run]({run})\n\n\
         +++ Log excerpt (session_failed)\n\n```\n"
    );
    assert!(comment.starts_with(&begins), "{comment}");
    assert!(comment.ends_with("\n```\n\n+++"), "{comment}");
    assert!(!comment.contains("::add-mask::"), "{comment}");

    let shown = world.vendors.jira().issue("OPS-1").snapshot().unwrap();
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
    world.finish().await;
}
