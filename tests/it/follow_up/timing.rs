//! Randomized interleavings: a branch never has two active runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::job::AfterCancel;
use domain::report::RunOutcome;
use domain::transition::JobEvent;
use engine::pull_requests::{follow_up, reconcile};
use serde_json::json;
use store::jobs;

use super::{apply_event, env_with_pending_runs, open_pull, result_reported};
use crate::gap_fill::send_trigger;
use crate::test_env::TestEnv;

const STEPS: usize = 40;

fn assert_one_run_per_branch(env: &TestEnv) {
    let active = env.store.read(jobs::active).unwrap();
    let mut on_branch: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &active {
        *on_branch.entry(&job.branch).or_default() += 1;
    }
    assert!(on_branch.values().all(|count| *count == 1), "{active:#?}");
}

/// Runs two follow-up passes, a reconciliation and optionally a trigger request concurrently.
async fn run_concurrently(env: &TestEnv, pull: Option<u64>) {
    let done = AtomicBool::new(pull.is_none());
    let trigger = async {
        if let Some(number) = pull {
            let key = format!("ENG-{number}");
            let instruction = format!("ask {}", fastrand::u8(..));
            send_trigger(
                env,
                json!({"issueKey": key, "prNumber": number, "instruction": instruction}),
            )
            .await;
            done.store(true, Ordering::SeqCst);
        }
    };
    let passes = async {
        let (one, two, three) = tokio::join!(
            follow_up::run_once(&env.app),
            follow_up::run_once(&env.app),
            reconcile::run_once(&env.app)
        );
        one.and(two).and(three).unwrap();
        assert_one_run_per_branch(env);
        while !done.load(Ordering::SeqCst) {
            env.tick().await;
            assert_one_run_per_branch(env);
        }
    };
    tokio::join!(trigger, passes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_never_has_two_active_runs() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);
    let env = env_with_pending_runs().await;
    let pulls = [
        open_pull(&env, "ENG-1").await,
        open_pull(&env, "ENG-2").await,
    ];
    assert_eq!(pulls, [1, 2]);
    let repo = env.repo();
    for step in 0..STEPS {
        let number = pulls[fastrand::usize(..2)];
        let with_trigger = fastrand::u8(..4) == 0;
        match fastrand::u8(..6) {
            0 => drop(repo.add_comment(number, "mia", &format!("- [ ] step {step}"))),
            1 => drop(repo.add_review_comment(number, "mia", "a.txt", 1, &format!("step {step}"))),
            2 => drop(repo.add_comment(number, "mia", &format!("/agent-implement {step}"))),
            3 | 4 => {
                let active = env.store.read(jobs::active).unwrap();
                if let Some(job) = fastrand::choice(&active) {
                    let ends = [
                        result_reported(RunOutcome::Success),
                        result_reported(RunOutcome::Failure),
                        JobEvent::Cancelled {
                            by: "an operator".into(),
                            then: AfterCancel::Release,
                        },
                    ];
                    let at = fastrand::usize(..ends.len());
                    apply_event(&env, &job.id, ends[at].clone()).await;
                }
            }
            _ => env.advance_clock(Duration::from_secs(fastrand::u64(..900))),
        }
        Box::pin(run_concurrently(&env, with_trigger.then_some(number))).await;
    }
    let runs = repo.runs().len();
    assert!(runs >= 3, "{runs} runs prove little");
    env.stop().await;
}
