//! Workflow runs that really run: one foreman looks at every unfinished run and does what is due.
//!
//! The foreman takes no input but the model and the files on disk, so starting up after a crash is
//! the same as any other look. The races it lives with: *killed between starting a player and
//! storing it* — the player's own claim keeps a second one out, and its pid file shows it next
//! time; *player gone without an exit file* — machine restart or kill; the same run gets a new
//! attempt; *cancelled while starting* — the cancellation is seen at the next look.

pub(crate) mod detached_process;
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

/// How often the foreman looks.
const LOOK: Duration = Duration::from_millis(40);

/// How long a cancelled job may go on before it is killed.
const CANCEL_GRACE_MS: i64 = 10_000;

/// How long a started player may take to write its pid file.
const CLAIM_GRACE_MS: i64 = 5_000;

pub(crate) struct RunController {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RunController {
    pub fn start(host: Arc<GitHubInner>) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::Builder::new()
            .name("sandbox-ci".into())
            .spawn(move || {
                let mut children = HashMap::new();
                while !seen.load(Ordering::Relaxed) {
                    host.look(&mut children);
                    std::thread::park_timeout(LOOK);
                }
            })?;
        Ok(Self {
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Stops looking; runs go on.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = lock(&self.thread).take() {
            thread.thread().unpark();
            // A foreman that panicked has nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl Drop for RunController {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a look at one run found to do.
enum Due {
    Nothing,
    Start,
    StartAgain,
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

    fn unfinished(&self) -> Vec<(String, String, RunRecord)> {
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

    fn look(&self, children: &mut HashMap<u64, Child>) {
        for (owner, name, run) in self.unfinished() {
            let due = self.judge(&run, children);
            if let Err(error) = self.act(&owner, &name, &run, due, children) {
                tracing::warn!("sandbox run {}: {error:#}", run.id);
                self.mark_run_completed(&owner, &name, run.id, "startup_failure");
            }
        }
        children.retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn judge(&self, run: &RunRecord, children: &HashMap<u64, Child>) -> Due {
        let now = clock::now_ms();
        let dir = self.attempt_dir(run.id, run.attempt);
        if let Ok(conclusion) = std::fs::read_to_string(dir.join("exit")) {
            // Whatever the job made of being asked to end, it was cancelled.
            let was_cancelled = dir.join("terminated").exists();
            return Due::Finish(if was_cancelled {
                "cancelled".into()
            } else {
                conclusion
            });
        }
        let claimed = dir.join("claim").exists();
        match (detached_process::running_pid(&dir), run.cancel_requested_at) {
            (Some(pid), Some(at)) if now > at + CANCEL_GRACE_MS => Due::Kill(pid, "cancelled"),
            (Some(pid), Some(_)) if !dir.join("terminated").exists() => Due::Terminate(pid),
            (Some(pid), None) if run.started_at.is_some_and(|at| now > at + run.timeout_ms) => {
                Due::Kill(pid, "timed_out")
            }
            (Some(_), _) if run.status == RunStatus::Queued => Due::Running,
            (Some(_), _) => Due::Nothing,
            (None, _) if children.contains_key(&run.id) => Due::Nothing,
            (None, Some(_)) => Due::Finish("cancelled".into()),
            (None, None) if run.status == RunStatus::Queued && !claimed => {
                if now >= run.start_at {
                    Due::Start
                } else {
                    Due::Nothing
                }
            }
            (None, None) if claimed && !dir.join("pid").exists() && fresh(&dir, now) => {
                Due::Nothing
            }
            (None, None) => Due::StartAgain,
        }
    }

    fn act(
        &self,
        owner: &str,
        name: &str,
        run: &RunRecord,
        due: Due,
        children: &mut HashMap<u64, Child>,
    ) -> anyhow::Result<()> {
        match due {
            Due::Nothing => {}
            Due::Running => self.mark_run_started(owner, name, run.id, run.attempt),
            Due::Start => {
                children.insert(run.id, self.play(owner, name, run)?);
                self.mark_run_started(owner, name, run.id, run.attempt);
            }
            Due::StartAgain => {
                let mut again = run.clone();
                again.attempt += 1;
                children.insert(run.id, self.play(owner, name, &again)?);
                self.mark_run_started(owner, name, run.id, again.attempt);
            }
            Due::Terminate(pid) => {
                let dir = self.attempt_dir(run.id, run.attempt);
                std::fs::write(dir.join("terminated"), "")?;
                detached_process::signal_session(pid, Signal::TERM);
            }
            Due::Kill(pid, why) => {
                detached_process::signal_session(pid, Signal::KILL);
                self.mark_run_completed(owner, name, run.id, why);
            }
            Due::Finish(conclusion) => {
                let dir = self.attempt_dir(run.id, run.attempt);
                let pid = std::fs::read_to_string(dir.join("pid")).unwrap_or_default();
                if let Ok(pid) = pid.trim().parse() {
                    // What a step left in the background ends with its job, as on the host.
                    detached_process::signal_session(pid, Signal::KILL);
                }
                self.mark_run_completed(owner, name, run.id, &conclusion);
            }
        }
        Ok(())
    }

    fn play(&self, owner: &str, name: &str, run: &RunRecord) -> anyhow::Result<Child> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let path = format!(".github/workflows/{}", run.workflow);
        let file = self
            .git(owner, name)
            .read_file(&run.sha, &path)
            .unwrap_or_default();
        let workflow = Workflow::parse(&String::from_utf8_lossy(&file))?;
        let token = self.create_job_token(owner, name, run, &workflow);
        let written = self.model.read(|model| {
            let repo = model.find_repo(owner, name).map(|at| &model.repos[at]);
            let repo = repo.ok_or_else(|| anyhow::anyhow!("repository gone"))?;
            RunAttempt {
                repo,
                run,
                workflow: &workflow,
                token: &token,
                dir: dir.clone(),
                bin_dir: &self.dir.join("bin"),
                search_path: &self.search_path,
                api_url: &self.api_url,
                server_url: &self.server_url,
            }
            .write()
        });
        self.model.flush()?;
        detached_process::spawn_session(&written?, &dir, &self.search_path)
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
    }

    /// Kills whatever is running, leaving the model as it is.
    pub(crate) fn kill_runs(&self) {
        for (_, _, run) in self.unfinished() {
            if let Some(pid) = detached_process::running_pid(&self.attempt_dir(run.id, run.attempt))
            {
                detached_process::kill_session(pid);
            }
        }
    }
}

fn fresh(dir: &std::path::Path, now: i64) -> bool {
    let claimed = std::fs::metadata(dir.join("claim")).and_then(|meta| meta.modified());
    let claimed = claimed
        .ok()
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    claimed.is_some_and(|at| now < at.as_millis() as i64 + CLAIM_GRACE_MS)
}
