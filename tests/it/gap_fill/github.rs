//! Gap fill for issues of GitHub.

use domain::job::{JobKind, JobState};
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::ScriptStep;
use fake_vendors::{FakeService, InjectedFault};
use serde_json::json;

use super::{
    options, pull_comments, pull_number, send_trigger, set_paused, trigger_body, two_pass_script,
};
use crate::test_env::{TestEnv, TestEnvOptions};
use crate::test_ticket::github_mapping;

const KEY: &str = "shop#12";

/// Environment in which issue `shop#12` has an open pull request.
async fn env_with_open_pull(mappings: Vec<Mapping>) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings,
        ..options()
    })
    .await;
    env.set_agent_script(KEY, two_pass_script(ScriptStep::write("a.txt", "A\n")));
    let issue = env.repo().issue(12).title("Add the feature");
    issue.describe("Please.").add_label("Agent-Implement");
    let job = env.wait_for_job_end(KEY).await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.pull.map(|pull| pull.number), Some(pull_number(&env)));
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_becomes_a_second_commit_and_leaves_the_issue_unchanged() {
    let env = env_with_open_pull(vec![github_mapping("SHOP", "acme", "shop")]).await;
    let snapshot = || format!("{:?}", env.repo().issue(12).snapshot());
    let (number, before) = (pull_number(&env), snapshot());
    let response = send_trigger(&env, trigger_body("Acme/Shop#12", number)).await;
    let job = env.wait_for_job_end(KEY).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(
        (job.kind, job.state),
        (JobKind::GapFill, JobState::Completed)
    );
    let inputs = &env.repo().runs()[1].inputs;
    assert_eq!(inputs["issue_description"], "Please.");
    assert_eq!(inputs["issue_identifier"], KEY);
    let head = &env.repo().pulls()[0].head;
    assert_eq!(env.repo().read_file(head, "a.txt").as_deref(), Some("A\n"));
    let comments = pull_comments(&env);
    assert!(
        comments.len() == 1 && comments[0].contains("I wrote A."),
        "{comments:?}"
    );
    assert_eq!(snapshot(), before);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_other_issues_paused_projects_and_what_cannot_be_read() {
    let env = env_with_open_pull(vec![
        github_mapping("SHOP", "acme", "shop"),
        github_mapping("LIB", "acme", "lib"),
    ])
    .await;
    let number = pull_number(&env);
    env.repo().issue(13).title("Another");
    let github = env.vendors.github();
    github.repo("acme", "lib").issue(12).title("Elsewhere");
    github.repo("acme", "other").issue(12).title("Unmapped");
    for (key, number) in [
        (KEY, number + 1),
        ("shop#13", number),
        ("shop#99", number),
        ("lib#12", number),
        ("other#12", number),
        ("umbrella/shop#12", number),
        // A pull request is no issue.
        (&format!("shop#{number}"), number),
    ] {
        let response = send_trigger(&env, trigger_body(key, number)).await;
        let expected = json!({"error": "mapping_not_found"});
        assert_eq!(
            (response.status, response.body),
            (404, expected),
            "{key} {number}"
        );
    }
    set_paused(&env, "SHOP", true).await;
    let response = send_trigger(&env, trigger_body(KEY, number)).await;
    let expected = json!({"error": "project_paused", "teamKey": "SHOP"});
    assert_eq!((response.status, response.body), (423, expected));
    set_paused(&env, "SHOP", false).await;
    for _ in 0..8 {
        let faults = env.vendors.faults(FakeService::GitHub);
        faults.inject_on_match("issue(number: $number)", InjectedFault::ErrorStatus(503));
    }
    let response = send_trigger(&env, trigger_body(KEY, number)).await;
    assert_eq!(response.error(), (502, "dispatch_failed"));
    let detail = response.body["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("the issue could not be looked up: "),
        "{detail}"
    );
    env.vendors.faults(FakeService::GitHub).clear();
    assert_eq!(env.jobs(KEY).len(), 1);
    env.finish().await;
}
