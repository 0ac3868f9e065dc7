//! The limit holds under any order of dispatches, ends of runs, merges, closes, missed webhooks and restarts.

use std::time::Duration;

use domain::job::{AfterCancel, Job, JobKind};
use domain::transition::JobEvent;
use engine::job_events::{self, BreakerPolicy};
use fake_vendors::WebhookFaults;
use serde_json::json;
use store::{jobs, pull_feedback};

use super::{end_with_pull, env_with, limited, pull_id, sweep};
use crate::follow_up::{options, register_webhook};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

/// Tickets, all flagged from the beginning.
const TICKETS: u64 = 14;

/// Steps of one order.
const STEPS: usize = 60;

/// Pull requests of the service that are open at GitHub, and runs that may open a further one.
fn open_work(env: &TestEnv) -> (Vec<u64>, Vec<Job>) {
    let mut pulls = env.repo().pulls();
    pulls.retain(|pull| pull.open);
    let has_pull = |job: &Job| pulls.iter().any(|pull| pull.head == job.branch);
    let mut runs = env.store.read(jobs::active).unwrap();
    runs.retain(|job| job.kind == JobKind::Implementation && job.pull.is_none() && !has_pull(job));
    (pulls.iter().map(|pull| pull.number).collect(), runs)
}

async fn cancel(env: &TestEnv, job: &Job) {
    let (id, now) = (job.id.clone(), env.app.core.now());
    let policy = BreakerPolicy::from_config(&env.app.core.config);
    let event = JobEvent::Cancelled {
        by: "somebody".into(),
        then: AfterCancel::Retry,
    };
    let write = env
        .store
        .write(move |tx| job_events::apply(tx, policy, &id, event.clone(), now).map(drop));
    write.await.unwrap();
}

async fn play(seed: u64, env: TestEnv, limit: usize) -> (TestEnv, usize) {
    let (mut env, mut rng, mut reserved) = (env, fastrand::Rng::with_seed(seed), 0);
    for step in 0..STEPS {
        let (open, runs) = open_work(&env);
        let what = rng.usize(..10);
        match what {
            0..=2 => engine::poll::run_once(&env.app).await.unwrap(),
            3 | 4 => {
                if let Some(run) = rng.choice(&runs) {
                    end_with_pull(&env, run).await;
                }
            }
            5 => {
                if let Some(run) = rng.choice(&runs) {
                    cancel(&env, run).await;
                }
            }
            6 => {
                if let Some(number) = rng.choice(&open) {
                    env.repo().merge_pull(*number).unwrap();
                }
            }
            7 => {
                if let Some(number) = rng.choice(&open) {
                    env.repo().close_pull(*number);
                }
            }
            8 => sweep(&env).await,
            _ if rng.u8(..4) == 0 => {
                let clock = env.app.core.clock.clone();
                let restarted = TestEnvOptions {
                    mappings: Vec::new(),
                    engine: EngineMode::Manual(clock),
                    ..options()
                };
                env = env.restart_service(restarted).await;
                register_webhook(&env);
            }
            _ => env.advance_clock(Duration::from_secs(rng.u64(..3_000))),
        }
        engine::outbox_worker::drain(&env.app).await.unwrap();
        let (open, runs) = open_work(&env);
        let keys: Vec<&str> = runs.iter().map(|run| run.issue.key.as_str()).collect();
        assert!(
            open.len() + runs.len() <= limit,
            "seed {seed}, step {step}, event {what}: {open:?} and {keys:?} exceed {limit}"
        );
        reserved = reserved.max(env.store.read(|tx| jobs::latest(tx, 500)).unwrap().len());
    }
    (env, reserved)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_under_any_order_of_events() {
    for seed in 1..=6 {
        let limit = 1 + (seed as usize) % 3;
        let name = if seed % 2 == 0 {
            "maxOpenPulls"
        } else {
            "maxAwaitingReview"
        };
        let env = env_with(vec![limited(&json!({ name: limit }))]).await;
        // Some webhooks are lost: then the service believes more to be open than there is.
        env.vendors.github().webhooks().set_faults(WebhookFaults {
            loss_rate: 0.5,
            ..WebhookFaults::default()
        });
        for number in 1..=TICKETS {
            env.create_labelled_issue(&format!("ENG-{number}"), "Do it");
        }
        let (env, reserved) = play(seed, env, limit).await;
        assert!(
            reserved > limit,
            "seed {seed}: the limit was never released"
        );
        // What is known of GitHub is in the end what is there.
        sweep(&env).await;
        let (open, _) = open_work(&env);
        let known = env.store.read(pull_feedback::open_pulls).unwrap();
        let open: Vec<_> = open.into_iter().map(pull_id).collect();
        assert_eq!(known, open, "seed {seed}");
        env.stop().await;
    }
}
