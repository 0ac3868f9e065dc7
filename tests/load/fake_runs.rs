//! Runs that are no more than their voice: each reports every second, with the tokens that its
//! dispatch carried, until its life is over.

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

/// Seconds that a step takes.
const STEP: u64 = 10;

/// Of so many runs one fails.
const FAILS: u64 = 7;

/// What a run was answered to be kept.
#[derive(Debug, Default)]
pub struct AcknowledgedRun {
    pub job: String,
    /// The last report of each step: its status, and milliseconds since the run began.
    pub steps: BTreeMap<String, (&'static str, u64)>,
    /// The status that the job has then.
    pub result: Option<&'static str>,
    pub reports: u64,
}

/// Gives every run that the host starts a life of its own.
pub async fn drive_all(scene: Arc<LoadEnv>) {
    let (mut last, mut runs) = (0, JoinSet::new());
    while !scene.is_stopped() {
        for (repo, run) in scene.vendors.github().runs_after(last) {
            last = last.max(run.id);
            repo.start_run(run.id);
            let life = Life::of(&scene, repo, run);
            runs.spawn(life.lead());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while let Some(ended) = runs.join_next().await {
        ended.expect("a run has panicked");
    }
}

struct Life {
    scene: Arc<LoadEnv>,
    repo: FakeRepo,
    run: RunSnapshot,
    rng: Rng,
    line: HttpConnection,
    told: AcknowledgedRun,
}

impl Life {
    fn of(scene: &Arc<LoadEnv>, repo: FakeRepo, run: RunSnapshot) -> Self {
        scene.active_runs.fetch_add(1, Ordering::Relaxed);
        scene.recorder.count("runs dispatched", 1);
        Self {
            rng: Rng::with_seed(scene.plan.seed ^ run.id),
            line: HttpConnection::new(scene.service),
            told: AcknowledgedRun::default(),
            scene: Arc::clone(scene),
            repo,
            run,
        }
    }

    async fn lead(mut self) {
        self.told.job = self.input("dispatch_id");
        let token = self.input("run_progress_token");
        let began = Instant::now() + Duration::from_millis(self.rng.u64(..1000));
        let (shortest, longest) = self.scene.plan.run_duration_secs;
        let life = self.rng.u64(shortest..=longest);
        for second in 0..life {
            let meant_for = began + Duration::from_secs(second);
            tokio::time::sleep_until(meant_for.into()).await;
            if self.scene.is_stopped() {
                break;
            }
            self.report(second, &token, meant_for).await;
        }
        if !self.scene.is_stopped() {
            self.end().await;
        }
        self.scene.active_runs.fetch_sub(1, Ordering::Relaxed);
        self.scene.acknowledged_runs().push(self.told);
    }

    fn input(&self, name: &str) -> String {
        let value = self.run.inputs.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    }

    /// One report: progress mostly, now and then a sign of life, and the end of a step.
    async fn report(&mut self, second: u64, token: &str, meant_for: Instant) {
        let (id, elapsed) = (format!("step-{:03}", second / STEP), second * 1000);
        let (kind, status) = match second % STEP {
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
                step["outputs"] = json!({"iteration": 1 + second / STEP, "turn": second});
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
            .post("/runner/progress", token, &body, kind, meant_for)
            .await
        {
            self.told.steps.insert(id, (status, elapsed));
            self.told.reports += 1;
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

    /// Posts a report and says whether it was taken.
    async fn post(
        &mut self,
        path: &str,
        token: &str,
        body: &Value,
        kind: RequestKind,
        meant_for: Instant,
    ) -> bool {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let request = encode_request("POST", path, &headers, body.to_string().as_bytes());
        let book = &self.scene.recorder;
        match self.line.send(&request).await {
            Ok(answer) if answer.status == 200 => {
                book.record_response(kind, meant_for);
                true
            }
            Ok(answer) => {
                let what = answer.excerpt();
                book.record_error(format!("{}: {} {what}", kind.name(), answer.status));
                false
            }
            Err(error) => {
                record_error(book, kind.name(), &error);
                false
            }
        }
    }

    /// Opens a pull request, or fails, and says so.
    async fn end(&mut self) {
        let phase = self.input("phase");
        let fails = self.run.id.is_multiple_of(FAILS);
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
        // It is sent when there is something to send.
        let meant_for = Instant::now();
        if self
            .post(
                "/runner/result",
                &token,
                &body,
                RequestKind::Result,
                meant_for,
            )
            .await
        {
            self.told.result = Some(status);
            self.scene.recorder.count("results", 1);
        }
        self.repo.complete_run(self.run.id, conclusion);
        if phase == "implementation" {
            let (scene, key) = (Arc::clone(&self.scene), self.input("issue_identifier"));
            let mut rng = self.rng.fork();
            let filing =
                tokio::task::spawn_blocking(move || scene.file_replacement_issue(&key, &mut rng));
            filing.await.unwrap();
        } else {
            self.scene.recorder.count("follow-up runs", 1);
        }
    }

    /// What a run does at the host before it reports.
    async fn open_pull(&self) -> String {
        let (repo, branch) = (self.repo.clone(), self.input("branch"));
        let meta = json!({
            "issueId": self.input("issue_id"), "identifier": self.input("issue_identifier"),
            "dispatchId": self.told.job, "jobId": self.told.job,
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
        self.scene.opened_pulls().push(opened);
        url
    }
}
