//! Runs that this test plays: each reports its steps and its result as a run does, again and again
//! until it is answered, and every answer is remembered.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_vendors::RunSnapshot;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::crash_env::{CrashEnv, TIMEOUT};

/// How soon is what nobody answered reported again?
const AGAIN: Duration = Duration::from_millis(80);

/// Plays every run of the repository of puppets until told to stop.
pub async fn drive_all(world: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut known = HashSet::new();
    let mut playing = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        for run in world.repo("puppets").runs() {
            if known.insert(run.id) {
                playing.spawn(Puppet::new(Arc::clone(&world), run).play());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    playing.join_all().await;
}

struct Puppet {
    world: Arc<CrashEnv>,
    client: reqwest::Client,
    run: RunSnapshot,
    job: String,
}

impl Puppet {
    fn new(world: Arc<CrashEnv>, run: RunSnapshot) -> Self {
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .timeout(Duration::from_secs(10));
        let job = run.inputs["dispatch_id"].as_str().unwrap().to_owned();
        Self {
            client: client.build().unwrap(),
            world,
            run,
            job,
        }
    }

    fn input(&self, name: &str) -> &str {
        self.run.inputs[name].as_str().unwrap()
    }

    async fn play(self) {
        let steps = fastrand::u32(6..14);
        for number in 0..steps {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(20..300))).await;
            let step = format!("step-{number}");
            self.report(&step).await;
            if fastrand::u8(..) < 25 {
                self.report(&step).await;
            }
        }
        self.end().await;
        std::fs::write(self.world.gates_dir().join(&self.job), "").unwrap();
        // What comes after the end is kept as well.
        self.report("late").await;
    }

    async fn report(&self, step: &str) {
        let body = json!({"runId": self.run.id, "step": {
            "id": step, "type": "implement", "status": "passed", "started_at": "2027-01-15T08:00:00Z",
        }});
        let status = self
            .tell("/runner/progress", "run_progress_token", &body)
            .await;
        if status == 200 {
            let report = (self.job.clone(), step.to_owned());
            self.world.record().reports.push(report);
        } else {
            self.world
                .record_violation(format!("{step} of {} was answered {status}", self.job));
        }
    }

    /// Opens the pull request as a run does, and says so.
    async fn end(&self) {
        let repo = self.world.repo("puppets");
        let branch = self.input("branch");
        let ticket = self.input("issue_identifier");
        let message = format!("{ticket}\n\nAgent-Implement-Dispatch: {}", self.job);
        repo.commit(branch, &[("feature.txt", ticket)], &message)
            .unwrap();
        let meta = json!({
            "issueId": self.input("issue_id"), "identifier": ticket, "dispatchId": self.job, "jobId": self.job,
        });
        let text = format!("Done.\n\n<!-- agent-implement-meta {meta} -->\n");
        let number = repo.open_pull(branch, "agent-implement[bot]", ticket, &text);
        let body = json!({
            "phase": "implementation", "outcome": "success", "prUrl": repo.pull_url(number), "comments": [],
        });
        // 409 says that a try whose answer was lost has counted.
        match self.tell("/runner/result", "run_token", &body).await {
            200 | 409 => self.world.record().results.push(self.job.clone()),
            status => self
                .world
                .record_violation(format!("the result of {} was answered {status}", self.job)),
        }
    }

    /// Tells it until it is answered.
    async fn tell(&self, path: &str, token: &str, body: &Value) -> u16 {
        let began = Instant::now();
        loop {
            let request = self.client.post(self.world.url(path)).json(body);
            let sent = request.bearer_auth(self.input(token)).send().await;
            match sent.map(|answer| answer.status().as_u16()) {
                Ok(status) if status < 500 => return status,
                told if began.elapsed() > TIMEOUT => {
                    self.world
                        .record_violation(format!("nobody takes {path}: {told:?}"));
                    return 0;
                }
                _ => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
