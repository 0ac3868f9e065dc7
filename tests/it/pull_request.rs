//! What a pull request says beside the change, and what is told of one whose verification failed.

use fake_vendors::PullSnapshot;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::test_env::TestEnv;

/// What models write of themselves when they are asked for a summary.
const SUMMARY: &str = "# Summary\nThe feature is there.\n\n### APPROACH\nIn one file.\n\n\
                       **Test plan**\n- ran it\n\n## Test Plan\n- ran it again\n\n## Checks\nAll good.";

fn writes() -> Script {
    Script::new().pass([
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message(SUMMARY),
    ])
}

/// The headings of a text.
fn headings(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with('#')).collect()
}

fn only_pull(world: &TestEnv) -> PullSnapshot {
    let mut pulls = world.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    pulls.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_section_of_a_pull_request_is_named_once() {
    let world = TestEnv::start().await;
    world.set_agent_script("ENG-1", writes());
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.wait_for_job_end("ENG-1").await;
    let body = only_pull(&world).body;
    let sections = ["## Summary", "## Approach", "## Test plan", "## Checks"];
    assert_eq!(headings(&body), sections, "{body}");
    for said in ["The feature is there.", "- ran it again", "All good."] {
        assert!(body.contains(said), "{body}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_whose_verification_failed_is_a_draft_and_is_named_on_the_ticket() {
    let world = TestEnv::start().await;
    let verify = "---\nverify: 'echo 1 test failed; exit 4'\n---\n";
    let files = [("WORKFLOW.md", verify)];
    world.repo().commit("main", &files, "Verify").unwrap();
    world.set_agent_script("ENG-1", writes());
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{job:?}");
    let pull = only_pull(&world);
    assert!(pull.draft, "{pull:?}");
    let comment = world.vendors.linear().issue("ENG-1").comments().remove(0);
    let first = "Implementation failed: verify script of WORKFLOW.md failed: exit code 4";
    assert_eq!(comment.lines().next(), Some(first), "{comment}");
    let url = world.repo().pull_url(pull.number);
    let named = format!("Pull request {url} is a draft until that passes.");
    assert!(comment.contains(&named), "{comment}");
    assert!(comment.contains("1 test failed"), "{comment}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_misspelt_are_told_in_the_log_the_step_and_the_pull_request() {
    let world = TestEnv::start().await;
    let files = [
        (
            ".agent-implement/config.yml",
            "agnet: codex\nmodels: {implment: big}\n",
        ),
        ("WORKFLOW.md", "---\nmodle: big\n---\nUse tabs.\n"),
    ];
    world.repo().commit("main", &files, "Settings").unwrap();
    world.set_agent_script("ENG-1", writes());
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "completed", "{job:?}");
    let body = only_pull(&world).body;
    let (_, told) = body
        .split_once("\n## Settings without effect\n")
        .expect(&body);
    let log = world.repo().run_log(world.repo().runs()[0].id);
    let steps = world
        .admin_get(&format!("/api/jobs/{}/steps", job.id))
        .await;
    let steps = steps.to_string();
    for sentence in [
        ".agent-implement/config.yml: agnet is not known; did you mean agent?",
        ".agent-implement/config.yml: models.implment is not known; did you mean models.implement?",
        "WORKFLOW.md: modle is not known; did you mean model?",
    ] {
        // Our own name is kept from commanding anything in a body.
        let shown = sentence.replace("agent-implement", "agent\u{2060}-implement");
        assert!(told.contains(&shown), "{body}");
        assert!(log.contains(sentence), "{log}");
        assert!(steps.contains(sentence), "{steps}");
    }
    world.finish().await;
}
