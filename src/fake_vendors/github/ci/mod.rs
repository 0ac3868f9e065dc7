//! Workflow runs that really run: a controller thread checks every unfinished run and takes the next
//! action.
//!
//! Its only input is the model and the files on disk, so a start after a crash needs no special case.
//! Races that it handles:
//! - Killed between starting a runner and storing that: the runner's claim prevents a second one, and
//!   its pid file is found at the next check.
//! - Runner gone without an exit file (reboot or kill): the run gets a new attempt.
//! - Cancelled while starting: the cancellation is performed at the next check.

pub(crate) mod detached_process;
pub(crate) mod event_runs;
pub(crate) mod expression;
mod expression_parser;
pub(crate) mod log;
pub(crate) mod run_attempt;
pub(crate) mod workflow;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;

use self::run_attempt::RunAttempt;
use self::workflow::Workflow;
use super::GitHubInner;
use super::model::{RunRecord, RunStatus};
use crate::clock;
use crate::persistence::lock;

/// Interval between two checks of all runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(40);

/// Number of checks of all runs between two lookups of new head commits.
const CHECKS_PER_EVENT_LOOKUP: u32 = 4;

/// Maximum time from a cancellation to a kill, in milliseconds.
const CANCEL_TIMEOUT_MS: i64 = 10_000;

/// Maximum time from the start of a runner to its pid file, in milliseconds.
const PID_FILE_TIMEOUT_MS: i64 = 5_000;

pub(crate) struct RunController {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RunController {
    pub(super) fn start(host: Arc<GitHubInner>) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_requested = stop.clone();
        let thread = std::thread::Builder::new()
            .name("sandbox-ci".into())
            .spawn(move || {
                let (mut children, mut checks_in) = (HashMap::new(), 0);
                while !stop_requested.load(Ordering::Relaxed) {
                    if checks_in == 0 {
                        host.start_event_runs();
                        checks_in = CHECKS_PER_EVENT_LOOKUP;
                    }
                    checks_in -= 1;
                    host.check_runs(&mut children);
                    std::thread::park_timeout(CHECK_INTERVAL);
                }
            })?;
        Ok(Self {
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops the thread. Runs continue.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = lock(&self.thread).take() {
            thread.thread().unpark();
            // An error means that the thread panicked; then it has already stopped.
            let _ = thread.join();
        }
    }
}

impl Drop for RunController {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Next action for a run.
enum RunAction {
    Nothing,
    Start,
    Retry,
    Running,
    Terminate(i32),
    Kill(i32, &'static str),
    Finish(String),
}

impl GitHubInner {
    pub(crate) fn attempt_dir(&self, run: u64, attempt: u64) -> PathBuf {
        self.dir
            .join("runs")
            .join(run.to_string())
            .join(attempt.to_string())
    }

    fn unfinished_runs(&self) -> Vec<(String, String, RunRecord)> {
        self.model.read(|model| {
            let repos = model.repos.iter();
            repos
                .flat_map(|repo| {
                    let open = repo
                        .runs
                        .iter()
                        .filter(|run| run.status != RunStatus::Completed);
                    open.map(|run| (repo.owner.clone(), repo.name.clone(), run.clone()))
                })
                .collect()
        })
    }

    fn check_runs(&self, children: &mut HashMap<u64, Child>) {
        for (owner, name, run) in self.unfinished_runs() {
            let action = self.next_action(&run, children);
            if let Err(error) = self.perform(&owner, &name, &run, action, children) {
                tracing::warn!("Failed to control run {}: {error:#}", run.id);
                self.mark_run_completed(&owner, &name, run.id, "startup_failure");
            }
        }
        children.retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn next_action(&self, run: &RunRecord, children: &HashMap<u64, Child>) -> RunAction {
        let now = clock::now_ms();
        let dir = self.attempt_dir(run.id, run.attempt);
        if let Ok(conclusion) = std::fs::read_to_string(dir.join("exit")) {
            // A terminated job is cancelled, whatever its own conclusion.
            let was_cancelled = dir.join("terminated").exists();
            return RunAction::Finish(if was_cancelled {
                "cancelled".into()
            } else {
                conclusion
            });
        }
        let claimed = dir.join("claim").exists();
        match (detached_process::running_pid(&dir), run.cancel_requested_at) {
            (Some(pid), Some(at)) if now > at + CANCEL_TIMEOUT_MS => {
                RunAction::Kill(pid, "cancelled")
            }
            (Some(pid), Some(_)) if !dir.join("terminated").exists() => RunAction::Terminate(pid),
            (Some(pid), None) if run.started_at.is_some_and(|at| now > at + run.timeout_ms) => {
                RunAction::Kill(pid, "timed_out")
            }
            (Some(_), _) if run.status == RunStatus::Queued => RunAction::Running,
            (Some(_), _) => RunAction::Nothing,
            (None, _) if children.contains_key(&run.id) => RunAction::Nothing,
            (None, Some(_)) => RunAction::Finish("cancelled".into()),
            (None, None) if run.status == RunStatus::Queued && !claimed => {
                if now >= run.start_at {
                    RunAction::Start
                } else {
                    RunAction::Nothing
                }
            }
            (None, None)
                if claimed && !dir.join("pid").exists() && is_recently_claimed(&dir, now) =>
            {
                RunAction::Nothing
            }
            (None, None) => RunAction::Retry,
        }
    }

    fn perform(
        &self,
        owner: &str,
        name: &str,
        run: &RunRecord,
        action: RunAction,
        children: &mut HashMap<u64, Child>,
    ) -> anyhow::Result<()> {
        match action {
            RunAction::Nothing => {}
            RunAction::Running => self.mark_run_started(owner, name, run.id, run.attempt),
            RunAction::Start => {
                children.insert(run.id, self.start_attempt(owner, name, run)?);
                self.mark_run_started(owner, name, run.id, run.attempt);
            }
            RunAction::Retry => {
                let mut retry = run.clone();
                retry.attempt += 1;
                children.insert(run.id, self.start_attempt(owner, name, &retry)?);
                self.mark_run_started(owner, name, run.id, retry.attempt);
            }
            RunAction::Terminate(pid) => {
                let dir = self.attempt_dir(run.id, run.attempt);
                std::fs::write(dir.join("terminated"), "")?;
                detached_process::signal_session(pid, Signal::TERM);
            }
            RunAction::Kill(pid, conclusion) => {
                detached_process::signal_session(pid, Signal::KILL);
                self.mark_run_completed(owner, name, run.id, conclusion);
            }
            RunAction::Finish(conclusion) => {
                let dir = self.attempt_dir(run.id, run.attempt);
                let pid = std::fs::read_to_string(dir.join("pid")).unwrap_or_default();
                if let Ok(pid) = pid.trim().parse() {
                    // As on GitHub, background processes of the steps end with their job.
                    detached_process::signal_session(pid, Signal::KILL);
                }
                self.mark_run_completed(owner, name, run.id, &conclusion);
            }
        }
        Ok(())
    }

    fn start_attempt(&self, owner: &str, name: &str, run: &RunRecord) -> anyhow::Result<Child> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let path = format!(".github/workflows/{}", run.workflow);
        let file = self
            .git(owner, name)
            .read_file(&run.sha, &path)
            .unwrap_or_default();
        let workflow = Workflow::parse_any(&String::from_utf8_lossy(&file))?;
        let token = self.create_job_token(owner, name, run, &workflow);
        let script = self.model.read(|model| {
            let repo = model.find_repo(owner, name).map(|at| &model.repos[at]);
            let repo = repo.ok_or_else(|| anyhow::anyhow!("Repository does not exist"))?;
            RunAttempt {
                repo,
                run,
                workflow: &workflow,
                token: &token,
                dir: dir.clone(),
                bin_dir: &self.dir.join("bin"),
                search_path: &self.search_path,
                git_dir: &self.git(owner, name).dir,
                api_url: &self.api_url,
                server_url: &self.server_url,
            }
            .write()
        });
        self.model.flush()?;
        if run.event != event_runs::DISPATCH && run.attempt > 1 {
            let before = self.attempt_dir(run.id, run.attempt - 1);
            run_attempt::carry_over(&before, &dir)?;
        }
        detached_process::spawn_session(&script?, &dir, &self.search_path)
    }

    pub(super) fn mark_run_started(&self, owner: &str, name: &str, id: u64, attempt: u64) {
        let now = clock::now_ms();
        self.model.update_and_flush(|model| {
            if let Some(run) = model.ensure_repo(owner, name).run_mut(id) {
                run.status = RunStatus::InProgress;
                run.attempt = attempt;
                run.started_at = Some(now);
                run.updated_at = now;
            }
        });
    }

    pub(super) fn mark_run_completed(&self, owner: &str, name: &str, id: u64, conclusion: &str) {
        let now = clock::now_ms();
        self.model.update_and_flush(|model| {
            if let Some(run) = model.ensure_repo(owner, name).run_mut(id) {
                run.status = RunStatus::Completed;
                run.conclusion = Some(conclusion.trim().to_owned());
                run.updated_at = now;
            }
            model.tokens.retain(|_, token| token.run_id != Some(id));
        });
        self.send_run_webhooks(owner, name, id);
    }

    /// Kills all runs without changing the model.
    pub(crate) fn kill_runs(&self) {
        for (_, _, run) in self.unfinished_runs() {
            if let Some(pid) = detached_process::running_pid(&self.attempt_dir(run.id, run.attempt))
            {
                detached_process::kill_session(pid);
            }
        }
    }
}

fn is_recently_claimed(dir: &std::path::Path, now: i64) -> bool {
    let claimed = std::fs::metadata(dir.join("claim")).and_then(|meta| meta.modified());
    let claimed = claimed
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    claimed.is_some_and(|at| now < at.as_millis() as i64 + PID_FILE_TIMEOUT_MS)
}
