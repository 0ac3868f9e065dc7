//! Branches that are behind, where the rules of the base branch want them up to date.

use std::time::Duration;

use fake_vendors::{FakeService, InjectedFault};

use super::{branch, conflict_jobs, open_pull, record, start, sweep, wait_for_webhooks};
use crate::test_env::TestEnv;

/// Environment with pull requests of tickets `ENG-1` and `ENG-2` that are behind their base. Returns their numbers.
async fn with_branches_behind() -> (TestEnv, [u64; 2]) {
    let env = start().await;
    let one = open_pull(&env, "ENG-1", &[("one.txt", "1\n")]).await;
    let two = open_pull(&env, "ENG-2", &[("two.txt", "2\n")]).await;
    let repo = env.repo();
    repo.require_up_to_date(true);
    repo.commit("main", &[("base.txt", "b\n")], "Move the base")
        .unwrap();
    (env, [one, two])
}

/// Number of merges of the base into the branch of the ticket.
fn merges(env: &TestEnv, key: &str) -> usize {
    let commits = env.repo().commits(&branch(key));
    commits
        .iter()
        .filter(|commit| commit.parents.len() == 2)
        .count()
}

fn requests(env: &TestEnv) -> usize {
    let log = env.vendors.requests().all();
    log.iter()
        .filter(|request| request.url.ends_with("/update-branch"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_updates_one_branch_at_a_time() {
    let (env, [one, two]) = with_branches_behind().await;
    env.repo().add_review(two, "mia", "APPROVED", "");
    wait_for_webhooks(&env).await;
    sweep(&env).await;
    env.tick().await;
    assert_eq!(
        [merges(&env, "ENG-1"), merges(&env, "ENG-2")],
        [0, 1],
        "the approved one first"
    );
    wait_for_webhooks(&env).await;
    env.tick().await;
    wait_for_webhooks(&env).await;
    env.tick().await;
    assert_eq!([merges(&env, "ENG-1"), merges(&env, "ENG-2")], [1, 1]);
    for number in [one, two] {
        let record = record(&env, number);
        let author = &record.readiness.head.as_ref().unwrap().author_email;
        assert!(author.ends_with("users.noreply.github.com"), "{author}");
        assert!(
            record.head_is_ours(),
            "an update that we requested: {record:?}"
        );
    }
    assert_eq!(
        conflict_jobs(&env, "ENG-1").len() + conflict_jobs(&env, "ENG-2").len(),
        0
    );
    assert_eq!(requests(&env), 2);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_and_a_moved_head_update_nothing_twice() {
    let (env, [_, two]) = with_branches_behind().await;
    env.repo().close_pull(two);
    let github = env.vendors.faults(FakeService::GitHub);
    github.inject_on_match("update-branch", InjectedFault::DropResponse);
    sweep(&env).await;
    env.tick().await;
    env.tick_until_drained().await;
    assert_eq!(merges(&env, "ENG-1"), 1);
    assert_eq!(requests(&env), 2, "the repeat finds the head moved");

    // A person pushes between the decision and the request.
    env.repo()
        .commit("main", &[("base.txt", "c\n")], "Move it again")
        .unwrap();
    wait_for_webhooks(&env).await;
    github.inject_on_match("update-branch", InjectedFault::ErrorStatus(502));
    sweep(&env).await;
    env.tick().await;
    let pushed = env
        .repo()
        .commit(&branch("ENG-1"), &[("one.txt", "by hand\n")], "By hand");
    let pushed = pushed.unwrap();
    env.tick_until_drained().await;
    assert_eq!(env.repo().branch_head(&branch("ENG-1")), Some(pushed));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_has_not_computed_is_asked_for_once_a_minute() {
    let (env, [one, _]) = with_branches_behind().await;
    env.repo().set_unknown_reads(2);
    sweep(&env).await;
    env.tick().await;
    assert_eq!(record(&env, one).readiness.mergeable, None);
    let before = env.vendors.requests().all().len();
    env.tick().await;
    env.tick().await;
    let later = env.vendors.requests().all().split_off(before);
    let reads = later
        .iter()
        .filter(|request| request.body.to_string().contains("mergeStateStatus"));
    assert_eq!(reads.count(), 0, "not before a minute has passed");
    for _ in 0..5 {
        env.advance_clock(Duration::from_secs(60));
        env.tick().await;
        wait_for_webhooks(&env).await;
    }
    assert_eq!(merges(&env, "ENG-1"), 1);
    env.finish().await;
}
