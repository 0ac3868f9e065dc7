//! Pull-request bodies, failed verification, and warnings about unknown settings.

use fake_vendors::PullSnapshot;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::test_env::TestEnv;

/// Summary as models write it, with irregular headings.
const SUMMARY: &str = "# Summary\nThe feature is there.\n\n### APPROACH\nIn one file.\n\n\
                       **Test plan**\n- ran it\n\n## Test Plan\n- ran it again\n\n## Checks\nAll good.";

fn write_script() -> Script {
    Script::new().pass([
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message(SUMMARY),
    ])
}

/// Heading lines of a text.
fn headings(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with('#')).collect()
}

fn only_pull(env: &TestEnv) -> PullSnapshot {
    let mut pulls = env.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    pulls.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_body_has_each_section_once() {
    let env = TestEnv::start().await;
    env.set_agent_script("ENG-1", write_script());
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.wait_for_job_end("ENG-1").await;
    let body = only_pull(&env).body;
    let sections = ["## Summary", "## Approach", "## Test plan", "## Checks"];
    assert_eq!(headings(&body), sections, "{body}");
    for text in ["The feature is there.", "- ran it again", "All good."] {
        assert!(body.contains(text), "{body}");
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_verification_keeps_the_draft_and_links_it_on_the_ticket() {
    let env = TestEnv::start().await;
    let verify = "---\nverify: 'echo 1 test failed; exit 4'\n---\n";
    let files = [("WORKFLOW.md", verify)];
    env.repo().commit("main", &files, "Verify").unwrap();
    env.set_agent_script("ENG-1", write_script());
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed", "{job:?}");
    let pull = only_pull(&env);
    assert!(pull.draft, "{pull:?}");
    let comment = env.vendors.linear().issue("ENG-1").comments().remove(0);
    let first = "Implementation failed: verify script of WORKFLOW.md failed: exit code 4";
    assert_eq!(comment.lines().next(), Some(first), "{comment}");
    let url = env.repo().pull_url(pull.number);
    let named = format!("Pull request {url} is a draft until the script passes.");
    assert!(comment.contains(&named), "{comment}");
    assert!(comment.contains("1 test failed"), "{comment}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_settings_are_reported_in_the_log_the_step_and_the_pull_request() {
    let env = TestEnv::start().await;
    let files = [
        (
            ".agent-implement/config.yml",
            "agnet: codex\nmodels: {implment: big}\n",
        ),
        ("WORKFLOW.md", "---\nmodle: big\n---\nUse tabs.\n"),
    ];
    env.repo().commit("main", &files, "Settings").unwrap();
    env.set_agent_script("ENG-1", write_script());
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "completed", "{job:?}");
    let body = only_pull(&env).body;
    let (_, section) = body
        .split_once("\n## Settings without effect\n")
        .expect(&body);
    let log = env.repo().run_log(env.repo().runs()[0].id);
    let steps = env.admin_get(&format!("/api/jobs/{}/steps", job.id)).await;
    let steps = steps.to_string();
    for sentence in [
        ".agent-implement/config.yml: unknown setting agnet; did you mean agent?",
        ".agent-implement/config.yml: unknown setting models.implment; did you mean models.implement?",
        "WORKFLOW.md: unknown setting modle; did you mean model?",
    ] {
        // The service's own name is escaped in a body, so that it is no command.
        let shown = sentence.replace("agent-implement", "agent\u{2060}-implement");
        assert!(section.contains(&shown), "{body}");
        assert!(log.contains(sentence), "{log}");
        assert!(steps.contains(sentence), "{steps}");
    }
    env.finish().await;
}
