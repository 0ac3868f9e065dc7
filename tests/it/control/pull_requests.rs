//! Cancelled and retried runs on open pull requests.

use std::time::Duration;

use domain::job::{Job, JobKind};
use serde_json::json;

use super::{cancel, retry, settle};
use crate::follow_up::{env_with_pending_runs, follow_up_jobs, open_pull};
use crate::test_env::TestEnv;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Posts a comment of a reviewer and waits until its run is reserved.
async fn run_for(env: &TestEnv, number: u64, comment: &str) -> Job {
    let before = follow_up_jobs(env, "ENG-1").len();
    env.repo().add_comment(number, "mia", comment);
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
    env.advance_clock(Duration::from_secs(60));
    env.tick().await;
    let mut jobs = follow_up_jobs(env, "ENG-1");
    assert_eq!(jobs.len(), before + 1, "{comment}");
    jobs.pop().unwrap()
}

fn comments_about(env: &TestEnv, number: u64, text: &str) -> usize {
    let comments = env.repo().comments(number).into_iter();
    comments
        .filter(|comment| comment.body.contains(text))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_cancelled_run_is_given_up_until_it_is_retried() {
    for (comment, kind, name) in [
        ("- [ ] fix this", JobKind::FollowUp, "Follow-up"),
        ("/agent-implement louder", JobKind::GapFill, "Gap fill"),
    ] {
        let env = env_with_pending_runs().await;
        let number = open_pull(&env, "ENG-1").await;
        let labels = env.vendors.linear().issue("ENG-1").labels();
        let first = run_for(&env, number, comment).await;
        assert_eq!(first.kind, kind);
        assert_eq!(cancel(&env, &first, json!({})).await.0, 200);
        settle(&env).await;
        for _ in 0..3 {
            env.advance_clock(HOUR);
            env.tick().await;
        }
        assert_eq!(follow_up_jobs(&env, "ENG-1").len(), 1, "{comment}");
        let given_up = format!("{name} cancelled by an operator. The feedback");
        assert_eq!(comments_about(&env, number, &given_up), 1, "{comment}");
        assert_eq!(comments_about(&env, number, "is given up"), 1, "{comment}");
        assert_eq!(comments_about(&env, number, "could not be resolved"), 0);
        assert_eq!(env.vendors.linear().issue("ENG-1").labels(), labels);

        assert_eq!(retry(&env, &first).await, (202, json!({"retrying": true})));
        env.tick().await;
        let second = follow_up_jobs(&env, "ENG-1").pop().unwrap();
        assert_ne!(second.id, first.id, "{comment}");
        assert_eq!((second.kind, second.attempt), (kind, Some(2)));
        let runs = env.repo().runs();
        for input in ["instruction", "findings"] {
            assert_eq!(runs[0].inputs.get(input), runs[1].inputs.get(input));
        }

        // Cancelled with retry, it starts again at once. Ids of one millisecond have no order.
        env.advance_clock(Duration::from_secs(1));
        assert_eq!(cancel(&env, &second, json!({"retry": true})).await.0, 200);
        env.tick().await;
        let third = follow_up_jobs(&env, "ENG-1").pop().unwrap();
        assert_ne!(third.id, second.id, "{comment}");
        assert_eq!(comments_about(&env, number, "It starts again."), 1);
        assert_eq!(cancel(&env, &third, json!({})).await.0, 200);
        settle(&env).await;
        env.repo().close_pull(number);
        let closed = json!({"error": "The pull request is not open"});
        assert_eq!(retry(&env, &third).await, (409, closed), "{comment}");
        env.finish().await;
    }
}
