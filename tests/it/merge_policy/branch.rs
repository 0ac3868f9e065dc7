//! Branches of merged pull requests.

use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::json;

use super::{audited, env_with, is_merged, open_pull, settle};
use crate::follow_up::{self, register_webhook};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping_with};

const BRANCH: &str = "agent-implement/eng-1";

async fn env() -> TestEnv {
    env_with(json!({"merge": {"mode": "auto"}, "deleteBranch": true})).await
}

fn has_branch(env: &TestEnv) -> bool {
    env.repo().branches().iter().any(|branch| branch == BRANCH)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_branch_of_a_merged_pull_request_is_deleted() {
    let env = env().await;
    let number = open_pull(&env, "ENG-1").await;
    env.repo().add_review(number, "mia", "APPROVED", "");
    settle(&env).await;
    assert!(is_merged(&env, number) && !has_branch(&env));
    let deleted = audited(&env, "branch-deleted").await;
    assert_eq!(
        deleted,
        [(format!("acme/shop#{number}"), BRANCH.to_owned())]
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_branch_is_deleted_after_a_merge_by_a_person() {
    let env = env_with(json!({"deleteBranch": true})).await;
    let number = open_pull(&env, "ENG-1").await;
    env.repo().merge_pull(number).unwrap();
    settle(&env).await;
    assert!(!has_branch(&env));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_somebody_needs_is_kept() {
    // Commits that came after the merge.
    let pushed = env_with(json!({"deleteBranch": true})).await;
    let number = open_pull(&pushed, "ENG-1").await;
    pushed.repo().merge_pull(number).unwrap();
    pushed
        .repo()
        .commit(BRANCH, &[("b.txt", "b\n")], "Person")
        .unwrap();
    settle(&pushed).await;
    assert!(has_branch(&pushed));
    pushed.finish().await;

    // A project that does not ask for it, and a pull request that was closed without a merge.
    for (fields, is_merged) in [(json!({}), true), (json!({"deleteBranch": true}), false)] {
        let env = env_with(fields).await;
        let number = open_pull(&env, "ENG-1").await;
        match is_merged {
            true => drop(env.repo().merge_pull(number).unwrap()),
            false => env.repo().close_pull(number),
        }
        settle(&env).await;
        assert!(has_branch(&env));
        env.finish().await;
    }

    // A branch that another open pull request is based on.
    let stacked = env_with(json!({"deleteBranch": true})).await;
    let number = open_pull(&stacked, "ENG-1").await;
    stacked
        .repo()
        .commit("next", &[("n.txt", "n\n")], "Next")
        .unwrap();
    let next = stacked.repo().open_pull("next", "mia", "Next", "");
    stacked.repo().set_pull_base(next, BRANCH);
    stacked.repo().merge_pull(number).unwrap();
    settle(&stacked).await;
    assert!(has_branch(&stacked));
    stacked.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_of_the_ticket_begins_at_the_base_branch_again() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_with(&json!({"deleteBranch": true}))],
        engine: EngineMode::Running,
        ..follow_up::options()
    })
    .await;
    register_webhook(&env);
    let write = |file| Script::new().pass([ScriptStep::write(file, "done\n")]);
    env.set_agent_script("ENG-1", write("first.txt"));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let first = env.wait_for_job_end("ENG-1").await;
    let first = first.pull.unwrap().number;
    env.repo().merge_pull(first).unwrap();
    env.wait_until("the branch is deleted", || {
        let branches = env.repo().branches();
        !branches.iter().any(|branch| branch.starts_with(BRANCH))
    })
    .await;

    env.set_agent_script("ENG-1", write("second.txt"));
    let ticket = || env.vendors.linear().issue("ENG-1");
    for label in ticket().labels() {
        ticket().remove_label(&label);
    }
    ticket().add_label("Agent-Implement");
    env.wait_until("it runs again", || env.jobs("ENG-1").len() == 2)
        .await;
    let second = env.wait_for_job_end("ENG-1").await.pull.unwrap().number;
    let pulls = env.repo().pulls();
    let pull = pulls.iter().find(|pull| pull.number == second).unwrap();
    assert!(second != first && !pull.merged, "{pulls:?}");
    let commits = env.repo().commits(&pull.head);
    let known = env.repo().commits("main");
    assert_eq!(commits.len(), known.len() + 1, "{commits:?}");
    env.finish().await;
}
