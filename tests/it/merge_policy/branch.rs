//! Branches of merged pull requests.

use serde_json::json;

use super::{audited, env_with, is_merged, open_pull, settle};
use crate::test_env::TestEnv;

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
async fn the_branch_is_deleted_whoever_merges() {
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
