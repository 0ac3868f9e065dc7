//! Fake runs that only report: each reports every second, with the tokens of its dispatch, until its
//! duration is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fake_vendors::{FakeRepo, RunSnapshot};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::http_client::{HttpConnection, encode_request};
use crate::load_env::{LoadEnv, OpenedPull};
use crate::measurements::RequestKind;
use crate::record_error;

/// Duration of a step in seconds.
const STEP_SECONDS: u64 = 10;

/// One of this many runs fails.
const FAILURE_INTERVAL: u64 = 7;

/// Acknowledged reports of a run.
#[derive(Debug, Default)]
pub struct AcknowledgedRun {
    pub job: String,
    /// Last report of each step: its status, and milliseconds since the start of the run.
    pub steps: BTreeMap<String, (&'static str, u64)>,
    /// Expected job status after the acknowledged result.
    pub result: Option<&'static str>,
    pub reports: u64,
}

/// Drives every run that the host starts.
pub async fn drive_all(env: Arc<LoadEnv>) {
    let (mut last, mut runs) = (0, JoinSet::new());
    while !env.is_stopped() {
        for (repo, run) in env.vendors.github().runs_after(last) {
            last = last.max(run.id);
            repo.start_run(run.id);
            let fake_run = FakeRun::new(&env, repo, run);
            runs.spawn(fake_run.run_to_end());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while let Some(ended) = runs.join_next().await {
        ended.expect("a run has panicked");
    }
}

struct FakeRun {
    env: Arc<LoadEnv>,
    repo: FakeRepo,
    run: RunSnapshot,
    rng: Rng,
    connection: HttpConnection,
    acknowledged: AcknowledgedRun,
}

impl FakeRun {
    fn new(env: &Arc<LoadEnv>, repo: FakeRepo, run: RunSnapshot) -> Self {
        env.active_runs.fetch_add(1, Ordering::Relaxed);
        env.recorder.count("runs dispatched", 1);
        Self {
            rng: Rng::with_seed(env.plan.seed ^ run.id),
            connection: HttpConnection::new(env.service),
            acknowledged: AcknowledgedRun::default(),
            env: Arc::clone(env),
            repo,
            run,
        }
    }

    async fn run_to_end(mut self) {
        self.acknowledged.job = self.input("dispatch_id");
        let token = self.input("run_progress_token");
        let started = Instant::now() + Duration::from_millis(self.rng.u64(..1000));
        let (shortest, longest) = self.env.plan.run_duration_secs;
        let duration = self.rng.u64(shortest..=longest);
        for second in 0..duration {
            let scheduled_at = started + Duration::from_secs(second);
            tokio::time::sleep_until(scheduled_at.into()).await;
            if self.env.is_stopped() {
                break;
            }
            self.report(second, &token, scheduled_at).await;
        }
        if !self.env.is_stopped() {
            self.end().await;
        }
        self.env.active_runs.fetch_sub(1, Ordering::Relaxed);
        self.env.acknowledged_runs().push(self.acknowledged);
    }

    fn input(&self, name: &str) -> String {
        let value = self.run.inputs.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    }

    /// Sends one report: usually progress, sometimes a heartbeat or the end of a step.
    async fn report(&mut self, second: u64, token: &str, scheduled_at: Instant) {
        let (id, elapsed) = (format!("step-{:03}", second / STEP_SECONDS), second * 1000);
        let (kind, status) = match second % STEP_SECONDS {
            9 => (RequestKind::Step, "passed"),
            4 => (RequestKind::Heartbeat, "running"),
            _ => (RequestKind::Progress, "running"),
        };
        let mut step = json!({
            "id": id, "type": "feedback-loop", "status": status, "elapsed_ms": elapsed,
            "started_at": "2027-01-15T08:00:00.000Z",
        });
        let mut body = json!({"runId": self.run.id});
        match kind {
            RequestKind::Progress => {
                step["outputs"] = json!({"iteration": 1 + second / STEP_SECONDS, "turn": second});
                body["log"] = self.log().into();
                body["usage"] = json!({
                    "turns": second, "inputTokens": second * 900, "outputTokens": second * 70,
                    "costUsd": second as f64 / 100.0,
                });
            }
            RequestKind::Step => step["ended_at"] = "2027-01-15T08:00:10.000Z".into(),
            _ => {}
        }
        body["step"] = step;
        if self
            .post("/runner/progress", token, &body, kind, scheduled_at)
            .await
        {
            self.acknowledged.steps.insert(id, (status, elapsed));
            self.acknowledged.reports += 1;
        }
    }

    fn log(&mut self) -> String {
        let lines = (0..4).map(|_| {
            format!(
                "reading src/list_{}.rs, line {}: nothing to do\n",
                self.rng.u16(..),
                self.rng.u16(..)
            )
        });
        lines.collect()
    }

    /// Posts a report and returns whether it was acknowledged.
    async fn post(
        &mut self,
        path: &str,
        token: &str,
        body: &Value,
        kind: RequestKind,
        scheduled_at: Instant,
    ) -> bool {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let request = encode_request("POST", path, &headers, body.to_string().as_bytes());
        let recorder = &self.env.recorder;
        match self.connection.send(&request).await {
            Ok(response) if response.status == 200 => {
                recorder.record_response(kind, scheduled_at);
                true
            }
            Ok(response) => {
                let excerpt = response.excerpt();
                recorder.record_error(format!("{}: {} {excerpt}", kind.name(), response.status));
                false
            }
            Err(error) => {
                record_error(recorder, kind.name(), &error);
                false
            }
        }
    }

    /// Opens a pull request or fails, and posts the result.
    async fn end(&mut self) {
        let phase = self.input("phase");
        let fails = self.run.id.is_multiple_of(FAILURE_INTERVAL);
        let mut body = json!({
            "phase": phase, "comments": [], "runId": self.run.id,
            "usage": {"turns": 40, "inputTokens": 120_000, "outputTokens": 9_000, "costUsd": 0.8},
        });
        let (conclusion, status) = match fails {
            true => {
                body["outcome"] = "failure".into();
                body["failureCode"] = "NO_CHANGES".into();
                body["failureReason"] =
                    "Nothing to commit: no file changes in the working tree".into();
                ("failure", "failed")
            }
            false => {
                body["outcome"] = "success".into();
                if phase == "implementation" {
                    body["prUrl"] = self.open_pull().await.into();
                }
                ("success", "completed")
            }
        };
        let token = self.input("run_token");
        // The result is scheduled when it is ready.
        let scheduled_at = Instant::now();
        if self
            .post(
                "/runner/result",
                &token,
                &body,
                RequestKind::Result,
                scheduled_at,
            )
            .await
        {
            self.acknowledged.result = Some(status);
            self.env.recorder.count("results", 1);
        }
        self.repo.complete_run(self.run.id, conclusion);
        if phase == "implementation" {
            let (env, key) = (Arc::clone(&self.env), self.input("issue_identifier"));
            let mut rng = self.rng.fork();
            let creation =
                tokio::task::spawn_blocking(move || env.file_replacement_issue(&key, &mut rng));
            creation.await.unwrap();
        } else {
            self.env.recorder.count("follow-up runs", 1);
        }
    }

    /// Commits and opens a pull request at the host.
    async fn open_pull(&self) -> String {
        let (repo, branch) = (self.repo.clone(), self.input("branch"));
        let meta = json!({
            "issueId": self.input("issue_id"), "identifier": self.input("issue_identifier"),
            "dispatchId": self.acknowledged.job, "jobId": self.acknowledged.job,
        });
        let body = format!("Makes it faster.\n\n<!-- agent-implement-meta {meta} -->\n");
        let opened = tokio::task::spawn_blocking(move || {
            let files = [("feature.txt", "faster\n")];
            repo.commit(&branch, &files, "Make it faster").unwrap();
            let author = "agent-implement[bot]";
            let number = repo.open_pull(&branch, author, "Make it faster", &body);
            OpenedPull { repo, number, body }
        });
        let opened = opened.await.unwrap();
        let url = opened.repo.pull_url(opened.number);
        self.env.opened_pulls().push(opened);
        url
    }
}
