//! Workflow runs that really run: one foreman looks at every unfinished run and does what is due.
//!
//! The foreman takes no input but the model and the files on disk, so starting up after a crash is
//! the same as any other look. The races it lives with: *killed between starting a player and
//! storing it* — the player's own claim keeps a second one out, and its pid file shows it next
//! time; *player gone without an exit file* — machine restart or kill; the same run gets a new
//! attempt; *cancelled while starting* — the cancellation is seen at the next look.

pub(crate) mod expr;
pub(crate) mod job;
pub(crate) mod log;
mod parse;
pub(crate) mod process;
pub(crate) mod workflow;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;

use self::job::Attempt;
use self::workflow::Workflow;
use super::Inner;
use super::model::{Run, Status};
use crate::clock;
use crate::state::lock;

/// How often the foreman looks.
const LOOK: Duration = Duration::from_millis(40);

/// How long a cancelled job may go on before it is killed.
const CANCEL_GRACE_MS: i64 = 10_000;

/// How long a started player may take to write its pid file.
const CLAIM_GRACE_MS: i64 = 5_000;

pub(crate) struct Foreman {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Foreman {
    pub fn start(host: Arc<Inner>) -> anyhow::Result<Self> {
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

impl Drop for Foreman {
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

impl Inner {
    pub(crate) fn attempt_dir(&self, run: u64, attempt: u64) -> PathBuf {
        self.dir
            .join("runs")
            .join(run.to_string())
            .join(attempt.to_string())
    }

    fn unfinished(&self) -> Vec<(String, String, Run)> {
        self.shelf.read(|model| {
            let repos = model.repos.iter();
            repos
                .flat_map(|repo| {
                    let open = repo
                        .runs
                        .iter()
                        .filter(|run| run.status != Status::Completed);
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
                self.finish(&owner, &name, run.id, "startup_failure");
            }
        }
        children.retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn judge(&self, run: &Run, children: &HashMap<u64, Child>) -> Due {
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
        match (process::player(&dir), run.cancelled) {
            (Some(pid), Some(at)) if now > at + CANCEL_GRACE_MS => Due::Kill(pid, "cancelled"),
            (Some(pid), Some(_)) if !dir.join("terminated").exists() => Due::Terminate(pid),
            (Some(pid), None) if run.started.is_some_and(|at| now > at + run.timeout_ms) => {
                Due::Kill(pid, "timed_out")
            }
            (Some(_), _) if run.status == Status::Queued => Due::Running,
            (Some(_), _) => Due::Nothing,
            (None, _) if children.contains_key(&run.id) => Due::Nothing,
            (None, Some(_)) => Due::Finish("cancelled".into()),
            (None, None) if run.status == Status::Queued && !claimed => {
                if now >= run.due {
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
        run: &Run,
        due: Due,
        children: &mut HashMap<u64, Child>,
    ) -> anyhow::Result<()> {
        match due {
            Due::Nothing => {}
            Due::Running => self.started(owner, name, run.id, run.attempt),
            Due::Start => {
                children.insert(run.id, self.play(owner, name, run)?);
                self.started(owner, name, run.id, run.attempt);
            }
            Due::StartAgain => {
                let mut again = run.clone();
                again.attempt += 1;
                children.insert(run.id, self.play(owner, name, &again)?);
                self.started(owner, name, run.id, again.attempt);
            }
            Due::Terminate(pid) => {
                let dir = self.attempt_dir(run.id, run.attempt);
                std::fs::write(dir.join("terminated"), "")?;
                process::signal_session(pid, Signal::TERM);
            }
            Due::Kill(pid, why) => {
                process::signal_session(pid, Signal::KILL);
                self.finish(owner, name, run.id, why);
            }
            Due::Finish(conclusion) => {
                let dir = self.attempt_dir(run.id, run.attempt);
                let pid = std::fs::read_to_string(dir.join("pid")).unwrap_or_default();
                if let Ok(pid) = pid.trim().parse() {
                    // What a step left in the background ends with its job, as on the host.
                    process::signal_session(pid, Signal::KILL);
                }
                self.finish(owner, name, run.id, &conclusion);
            }
        }
        Ok(())
    }

    fn play(&self, owner: &str, name: &str, run: &Run) -> anyhow::Result<Child> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let path = format!(".github/workflows/{}", run.workflow);
        let file = self
            .git(owner, name)
            .file(&run.sha, &path)
            .unwrap_or_default();
        let workflow = Workflow::parse(&String::from_utf8_lossy(&file))?;
        let token = self.job_token(owner, name, run, &workflow);
        let written = self.shelf.read(|model| {
            let repo = model.find(owner, name).map(|at| &model.repos[at]);
            let repo = repo.ok_or_else(|| anyhow::anyhow!("repository gone"))?;
            Attempt {
                repo,
                run,
                workflow: &workflow,
                token: &token,
                dir: dir.clone(),
                bin: &self.dir.join("bin"),
                path: &self.path,
                api: &self.api,
                server: &self.server,
            }
            .write()
        });
        self.shelf.settle()?;
        process::start(&written?, &dir, &self.path)
    }

    pub(super) fn started(&self, owner: &str, name: &str, id: u64, attempt: u64) {
        let now = clock::now_ms();
        self.shelf.commit(|model| {
            if let Some(run) = model.repo(owner, name).run_mut(id) {
                run.status = Status::InProgress;
                run.attempt = attempt;
                run.started = Some(now);
                run.updated = now;
            }
        });
    }

    pub(super) fn finish(&self, owner: &str, name: &str, id: u64, conclusion: &str) {
        let now = clock::now_ms();
        self.shelf.commit(|model| {
            if let Some(run) = model.repo(owner, name).run_mut(id) {
                run.status = Status::Completed;
                run.conclusion = Some(conclusion.trim().to_owned());
                run.updated = now;
            }
            model.tokens.retain(|_, token| token.run != Some(id));
        });
    }

    /// Kills whatever is running, leaving the model as it is.
    pub(crate) fn kill_runs(&self) {
        for (_, _, run) in self.unfinished() {
            if let Some(pid) = process::player(&self.attempt_dir(run.id, run.attempt)) {
                process::kill_session(pid);
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
