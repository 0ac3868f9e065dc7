//! Exercises the methods of the GitHub client about merges.

use domain::feedback::PullRequestId;
use domain::ids::Repo;
use domain::merge_policy::MergeMethod;
use fake_vendors::BranchProtection;
use vendors::scm::{GitHub, PullRequestState};

use crate::test_env::TestEnv;

/// Opens a pull request of a branch with one new file.
fn open_pull(env: &TestEnv, branch: &str) -> PullRequestId {
    let file = format!("{}.txt", branch.replace('/', "-"));
    let repo = env.repo();
    repo.commit(branch, &[(file.as_str(), "merged\n")], "Add")
        .unwrap();
    PullRequestId {
        repo: Repo::new("acme", "shop"),
        number: repo.open_pull(branch, "alice", "Add a file", ""),
    }
}

pub async fn merge_pull_requests(env: &TestEnv) {
    let github = env.app.vendors.github.clone().unwrap();
    let repo = Repo::new("acme", "shop");
    let pull = open_pull(env, "merge/one");
    let facts = github.merge_facts(&pull).await.unwrap();
    assert_eq!((facts.changed_files, facts.changed_lines), (1, 1));
    assert_eq!(facts.status.own_login, "agent-implement[bot]");
    let files = github.changed_files(&pull).await.unwrap();
    assert_eq!(files[0].path, "merge-one.txt");
    let head = facts.status.head.as_str();

    let other = "0".repeat(40);
    let moved = github.merge_pull(&pull, &other, MergeMethod::Squash);
    assert_eq!(moved.await.unwrap_err().status(), Some(409));
    env.repo().protect(BranchProtection {
        required_checks: vec!["build".into()],
        ..BranchProtection::default()
    });
    let rules = github.branch_rules(&repo, "main").await.unwrap();
    assert_eq!(rules.required_checks, ["build"]);
    let blocked = github.merge_pull(&pull, head, MergeMethod::Squash);
    assert_eq!(blocked.await.unwrap_err().status(), Some(405));
    arm_and_disarm(env, &github, &pull).await;
    queue(env, &github, &pull).await;
    env.repo().protect(BranchProtection::default());
    assert!(
        !github
            .is_base_of_open_pull(&repo, "merge/one")
            .await
            .unwrap()
    );
    github
        .merge_pull(&pull, head, MergeMethod::Squash)
        .await
        .unwrap();
    let merged = github.merge_status(&pull).await.unwrap();
    assert_eq!(merged.state, PullRequestState::Merged);
    assert!(merged.is_merged_by_us_or_app && merged.head == *head);
    github.delete_branch(&repo, "merge/one").await.unwrap();
    let again = github.delete_branch(&repo, "merge/one").await.unwrap_err();
    assert!(matches!(again.status(), Some(404 | 422)), "{again}");
}

async fn arm_and_disarm(env: &TestEnv, github: &GitHub, pull: &PullRequestId) {
    let repo = &pull.repo;
    let status = github.merge_status(pull).await.unwrap();
    assert!(!status.is_auto_merge_allowed && !status.is_mergeable_now());
    let (id, head) = (status.node_id.as_str(), status.head.as_str());
    let arm = || github.enable_auto_merge(repo, id, head, MergeMethod::Squash);
    assert_eq!(arm().await.unwrap_err().status(), Some(422));
    env.repo().allow_auto_merge();
    let settings = github.merge_settings(repo).await.unwrap();
    assert!(settings.allows_auto_merge && settings.allows(MergeMethod::Squash));
    arm().await.unwrap();
    assert!(github.merge_status(pull).await.unwrap().is_armed_by_us);
    github.disable_auto_merge(repo, id).await.unwrap();
    assert!(!github.merge_status(pull).await.unwrap().is_armed);
}

async fn queue(env: &TestEnv, github: &GitHub, pull: &PullRequestId) {
    let repo = &pull.repo;
    let status = github.merge_status(pull).await.unwrap();
    let (id, head) = (status.node_id.as_str(), status.head.as_str());
    env.repo().protect(BranchProtection {
        has_merge_queue: true,
        ..BranchProtection::default()
    });
    assert!(
        github
            .branch_rules(repo, "main")
            .await
            .unwrap()
            .has_merge_queue
    );
    github.enqueue_pull(repo, id, head).await.unwrap();
    assert!(github.merge_status(pull).await.unwrap().is_queued);
    github.dequeue_pull(repo, id).await.unwrap();
    assert!(!github.merge_status(pull).await.unwrap().is_queued);
}
