//! Fake runs: each posts its steps and its result like a real run, retries until it gets a response, and
//! records every acknowledgement.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_vendors::RunSnapshot;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::conversation::{PLAN, QUESTION};
use crate::crash_env::{AcknowledgedStep, CrashEnv, TIMEOUT};
use crate::tickets::{ExpectedTicket, FAKE_RUN_REPOS, TicketKind};

/// Retry interval of an unanswered report.
const RETRY_INTERVAL: Duration = Duration::from_millis(80);

/// Drives every run of the fake-run repository until stopped.
pub async fn drive_all(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut seen = HashSet::new();
    let mut tasks = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        let runs = all_runs(&env);
        for run in &runs {
            if is_driven(&env, run, &runs) && seen.insert(run.id) {
                let run = run.clone();
                tasks.spawn(FakeRun::new(Arc::clone(&env), run).run_to_end());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tasks.join_all().await;
}

fn all_runs(env: &CrashEnv) -> Vec<RunSnapshot> {
    let repos = FAKE_RUN_REPOS.iter();
    repos.flat_map(|name| env.repo(name).runs()).collect()
}

/// Whether a run reports. A run that the operator cancels does not, and the run after it only once the
/// operator knows that the retry was accepted: otherwise a repeated retry would start a third run.
fn is_driven(env: &CrashEnv, run: &RunSnapshot, all: &[RunSnapshot]) -> bool {
    let key = run.inputs["issue_identifier"].as_str().unwrap();
    let record = env.record();
    let mut tickets = record.tickets.iter();
    let ticket = tickets.find(|ticket| ticket.key == key).unwrap();
    if !matches!(ticket.kind, TicketKind::Cancelled | TicketKind::Retried) {
        return true;
    }
    let is_of_ticket = |one: &&RunSnapshot| one.inputs["issue_identifier"] == key;
    let first = all.iter().filter(is_of_ticket).map(|one| one.id).min();
    first != Some(run.id) && record.retried.contains(key)
}

struct FakeRun {
    env: Arc<CrashEnv>,
    client: reqwest::Client,
    run: RunSnapshot,
    job: String,
}

impl FakeRun {
    fn new(env: Arc<CrashEnv>, run: RunSnapshot) -> Self {
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .timeout(Duration::from_secs(10));
        let job = run.inputs["dispatch_id"].as_str().unwrap().to_owned();
        Self {
            client: client.build().unwrap(),
            env,
            run,
            job,
        }
    }

    fn input(&self, name: &str) -> &str {
        self.run.inputs[name].as_str().unwrap()
    }

    async fn run_to_end(self) {
        let steps = match self.ticket().kind {
            TicketKind::Conversation(_) => fastrand::u32(1..4),
            _ => fastrand::u32(6..14),
        };
        for number in 0..steps {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(20..300))).await;
            let step = format!("step-{number}");
            self.report(&step).await;
            if fastrand::u8(..) < 25 {
                self.report(&step).await;
            }
        }
        self.end().await;
        std::fs::write(self.env.gates_dir().join(&self.job), "").unwrap();
        // Reports after the result are stored as well.
        self.report("late").await;
    }

    async fn report(&self, step: &str) {
        let body = json!({"runId": self.run.id, "step": {
            "id": step, "type": "implement", "status": "passed", "started_at": "2027-01-15T08:00:00Z",
        }});
        let status = self
            .post("/runner/progress", "run_progress_token", &body)
            .await;
        if status == 200 {
            let acknowledged = AcknowledgedStep {
                job: self.job.clone(),
                step: step.to_owned(),
                at: Instant::now(),
            };
            self.env.record().reports.push(acknowledged);
        } else {
            self.env
                .record_violation(format!("{step} of {} got status {status}", self.job));
        }
    }

    fn ticket(&self) -> ExpectedTicket {
        let key = self.input("issue_identifier");
        let record = self.env.record();
        let mut tickets = record.tickets.iter();
        tickets.find(|ticket| ticket.key == key).unwrap().clone()
    }

    /// Whether the run asks a question: the first one of some tickets does.
    fn asks(&self, ticket: &ExpectedTicket) -> bool {
        let runs = all_runs(&self.env).into_iter();
        let of_ticket = runs.filter(|run| run.inputs["issue_identifier"] == ticket.key.as_str());
        let is_first = of_ticket.map(|run| run.id).min() == Some(self.run.id);
        matches!(ticket.kind, TicketKind::Conversation(one) if is_first && one.asks())
    }

    /// Posts the result.
    async fn end(&self) {
        let (ticket, phase) = (self.ticket(), self.input("phase"));
        let mut body = json!({"phase": phase, "outcome": "success", "comments": []});
        if self.asks(&ticket) {
            body["outcome"] = json!("failure");
            body["failureCode"] = json!("NEEDS_INPUT");
            body["questions"] = json!([{"text": QUESTION, "choices": ["a", "b"]}]);
            body["patch"] = json!("diff --git a/feature.txt b/feature.txt\n");
        } else if phase == "planning" {
            let plan = format!("{PLAN} ({})\n\n## Files\n\n- `feature.txt`", self.job);
            body["comments"] = json!([{ "body": plan }]);
        } else {
            body["prUrl"] = json!(self.open_pull(&ticket));
        }
        // 409 means that an earlier attempt, whose response was lost, was accepted.
        match self.post("/runner/result", "run_token", &body).await {
            200 | 409 => self.env.record().results.push(self.job.clone()),
            status => self
                .env
                .record_violation(format!("the result of {} got status {status}", self.job)),
        }
    }

    /// Opens the pull request like a real run, and returns its URL.
    fn open_pull(&self, ticket: &ExpectedTicket) -> String {
        let (repo, ticket) = (self.env.repo(ticket.repo()), &ticket.key);
        let branch = self.input("branch");
        let message = format!("{ticket}\n\nAgent-Implement-Dispatch: {}", self.job);
        repo.commit(branch, &[("feature.txt", ticket)], &message)
            .unwrap();
        let meta = json!({
            "issueId": self.input("issue_id"), "identifier": ticket, "dispatchId": self.job, "jobId": self.job,
        });
        let text = format!("Done.\n\n<!-- agent-implement-meta {meta} -->\n");
        let number = repo.open_pull(branch, "agent-implement[bot]", ticket, &text);
        repo.pull_url(number)
    }

    /// Posts a body until it gets a response, and returns the status.
    async fn post(&self, path: &str, token: &str, body: &Value) -> u16 {
        let started = Instant::now();
        loop {
            let request = self.client.post(self.env.url(path)).json(body);
            let sent = request.bearer_auth(self.input(token)).send().await;
            match sent.map(|response| response.status().as_u16()) {
                Ok(status) if status < 500 => return status,
                outcome if started.elapsed() > TIMEOUT => {
                    self.env
                        .record_violation(format!("no response to {path}: {outcome:?}"));
                    return 0;
                }
                _ => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }
}
