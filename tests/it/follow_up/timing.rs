//! Whatever happens when, no two runs are at work on one branch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::report::RunOutcome;
use domain::transition::JobEvent;
use engine::{follow_up, reconcile};
use serde_json::json;
use store::jobs;

use super::{apply_event, env_with_pending_runs, open_pull, result_reported};
use crate::gap_fill::send_trigger;
use crate::test_env::TestEnv;

const STEPS: usize = 40;

fn check(world: &TestEnv) {
    let active = world.app.store.read(jobs::active).unwrap();
    let mut on_branch: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &active {
        *on_branch.entry(&job.branch).or_default() += 1;
    }
    assert!(on_branch.values().all(|count| *count == 1), "{active:#?}");
}

/// Two looks, a sweep and whoever asks, all at once.
async fn rush(world: &TestEnv, pull: Option<u64>) {
    let done = AtomicBool::new(pull.is_none());
    let asking = async {
        if let Some(number) = pull {
            let key = format!("ENG-{number}");
            let instruction = format!("ask {}", fastrand::u8(..));
            send_trigger(
                world,
                json!({"issueKey": key, "prNumber": number, "instruction": instruction}),
            )
            .await;
            done.store(true, Ordering::SeqCst);
        }
    };
    let looking = async {
        let (one, two, three) = tokio::join!(
            follow_up::run_once(&world.app),
            follow_up::run_once(&world.app),
            reconcile::run_once(&world.app)
        );
        one.and(two).and(three).unwrap();
        check(world);
        while !done.load(Ordering::SeqCst) {
            world.tick().await;
            check(world);
        }
    };
    tokio::join!(asking, looking);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_branch_never_has_two_runs() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);
    let world = env_with_pending_runs().await;
    let pulls = [
        open_pull(&world, "ENG-1").await,
        open_pull(&world, "ENG-2").await,
    ];
    assert_eq!(pulls, [1, 2]);
    let repo = world.repo();
    for step in 0..STEPS {
        let number = pulls[fastrand::usize(..2)];
        let ask_too = fastrand::u8(..4) == 0;
        match fastrand::u8(..6) {
            0 => drop(repo.add_comment(number, "mia", &format!("- [ ] step {step}"))),
            1 => drop(repo.add_review_comment(number, "mia", "a.txt", 1, &format!("step {step}"))),
            2 => drop(repo.add_comment(number, "mia", &format!("/agent-implement {step}"))),
            3 | 4 => {
                let active = world.app.store.read(jobs::active).unwrap();
                if let Some(job) = fastrand::choice(&active) {
                    let ends = [
                        result_reported(RunOutcome::Success),
                        result_reported(RunOutcome::Failure),
                        JobEvent::Cancelled {
                            by: "an operator".into(),
                        },
                    ];
                    let at = fastrand::usize(..ends.len());
                    apply_event(&world, &job.id, ends[at].clone()).await;
                }
            }
            _ => world.advance_clock(Duration::from_secs(fastrand::u64(..900))),
        }
        rush(&world, ask_too.then_some(number)).await;
    }
    let runs = repo.runs().len();
    assert!(runs >= 3, "{runs} runs prove little");
    world.stop().await;
}
