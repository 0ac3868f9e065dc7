//! Mirrors of repositories for runs in local containers. See docs/operate.md#mirrors-of-repositories.
//!
//! The folder of a mirror has generations: bare repositories whose name is the time of their creation in milliseconds.
//! An update links the files of the newest generation into a new folder, fetches there, and then renames the folder.
//! So a generation never changes, whatever process is killed, and a container sees the same files until it ends.

mod files;
mod git;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::app::App;
use crate::periodic_task::ShutdownSignal;
use domain::crypto::sha256_hex;
use domain::git_mirror::{FOLDER, OUTPUT, UNUSABLE};
use domain::ids::{JobId, Repo};
use domain::job::{Job, RunnerKind};
use domain::report::StepRecord;
use domain::time::Timestamp;
use files::{MirrorFolder, NewGeneration};
use git::MirrorGit;
use store::jobs;
use vendors::scm::RepoTokenAccess;

/// Time after the start of a run until the mirror is updated: by then the run has cloned, so that both do not compete.
const DELAY: Duration = Duration::from_secs(5);

/// Time without an update after one that failed. A repository that is too large is fetched in part each time.
const RETRY_DELAY: Duration = Duration::from_secs(60 * 60);

/// Part of a container's memory, as a divisor, that the copy of a mirror may take up. A larger repository is fetched,
/// without what the mirror has gathered over time.
const MEMORY_SHARE: u64 = 4;

/// State of the mirrors that a restart loses.
#[derive(Default)]
pub(crate) struct GitMirrors {
    states: Mutex<HashMap<String, MirrorState>>,
    /// Notified when an update was requested.
    requested: Notify,
}

#[derive(Default)]
struct MirrorState {
    /// Update that was requested.
    update: Option<MirrorUpdate>,
    /// Whether a run could not use the newest generation. No run gets it then.
    is_damaged: bool,
    not_before: Timestamp,
}

/// Requested update of a mirror.
struct MirrorUpdate {
    repo: Repo,
    branch: String,
    due: Instant,
}

impl GitMirrors {
    fn states(&self) -> MutexGuard<'_, HashMap<String, MirrorState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the next update.
    fn next_due(&self) -> Option<Instant> {
        let states = self.states();
        let updates = states.values().filter_map(|state| state.update.as_ref());
        updates.map(|update| update.due).min()
    }

    /// Takes an update that is due.
    fn take_due(&self) -> Option<(String, MirrorUpdate)> {
        let now = Instant::now();
        self.states().iter_mut().find_map(|(key, state)| {
            let update = state.update.take_if(|update| update.due <= now);
            update.map(|update| (key.clone(), update))
        })
    }
}

/// Performs requested updates until shutdown is requested: one at a time, because they compete with runs for the machine
/// and the network. An update in progress is interrupted.
pub(crate) async fn run(app: App, stop: ShutdownSignal) {
    let mirrors = &app.live.git_mirrors;
    let work = async {
        loop {
            while let Some((key, wanted)) = mirrors.take_due() {
                update_and_record(&app.latest(), &wanted, key).await;
            }
            tokio::select! {
                () = mirrors.requested.notified() => {}
                () = sleep_until(mirrors.next_due()) => {}
            }
        }
    };
    tokio::select! {
        never = work => never,
        () = stop.requested() => {}
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the folder of the newest mirror of a repository, as the container engine sees it, for a container with this
/// memory, which holds the copy. `None` without one.
pub(crate) fn newest(app: &App, repo: &Repo, memory_mb: u32) -> Option<String> {
    let config = &app.core.config;
    let key = key(app, repo).filter(|_| config.mirrors_repositories())?;
    let states = app.live.git_mirrors.states();
    if states.get(&key).is_some_and(|state| state.is_damaged) {
        return None;
    }
    drop(states);
    let max_bytes = (u64::from(memory_mb) << 20) / MEMORY_SHARE;
    let generation = MirrorFolder::new(&config.data_dir, &key).newest_up_to(max_bytes)?;
    let on_host = config.data_dir_on_host().ok()?.join(FOLDER).join(key);
    on_host.join(generation).into_os_string().into_string().ok()
}

/// Requests an update of the mirror of a repository, which is created if there is none.
pub(crate) fn update_later(app: &App, repo: &Repo, branch: &str) {
    let Some(key) = key(app, repo).filter(|_| app.core.config.mirrors_repositories()) else {
        return;
    };
    let mirrors = &app.live.git_mirrors;
    let mut states = mirrors.states();
    let state = states.entry(key).or_default();
    if state.update.is_none() && app.core.now() >= state.not_before {
        state.update = Some(MirrorUpdate {
            repo: repo.clone(),
            branch: branch.to_owned(),
            due: Instant::now() + DELAY,
        });
        mirrors.requested.notify_one();
    }
}

async fn update_and_record(app: &App, wanted: &MirrorUpdate, key: String) {
    let repo = &wanted.repo;
    let was_damaged = {
        let states = app.live.git_mirrors.states();
        states.get(&key).is_some_and(|state| state.is_damaged)
    };
    let updated = update(app, repo, &wanted.branch, &key, !was_damaged).await;
    let mut states = app.live.git_mirrors.states();
    let state = states.entry(key).or_default();
    match updated {
        Ok(()) if was_damaged => state.is_damaged = false,
        // A mark that was set during the update is about files that the new generation may have.
        Ok(()) => {}
        Err(error) => {
            state.not_before = app.core.now() + RETRY_DELAY;
            let error = app.secrets.redactor.sanitize(&error);
            tracing::warn!(%repo, error, "Failed to update the mirror of a repository.");
        }
    }
}

/// Stops the use of a mirror that the clone step of a run reports as unusable, until it is replaced. A hostile run can
/// thereby only make other runs of its repository slower.
pub(crate) fn examine_step(app: &App, job: &JobId, step: &StepRecord) {
    let outputs = step.outputs.as_ref().filter(|_| step.id == "clone");
    if outputs.is_none_or(|outputs| outputs[OUTPUT] != UNUSABLE) {
        return;
    }
    let job = app.core.store.read(|tx| jobs::get(tx, job));
    let Ok(Some(Job { repo, runner, .. })) = job else {
        return;
    };
    if let Some(key) = key(app, &repo).filter(|_| runner == RunnerKind::Local) {
        tracing::warn!(%repo, "A run could not use the mirror of its repository.");
        let mut states = app.live.git_mirrors.states();
        states.entry(key).or_default().is_damaged = true;
    }
}

/// Name of the folder of a mirror. The name of a repository need not be a valid name of a file.
fn key(app: &App, repo: &Repo) -> Option<String> {
    let url = url(app, repo)?.to_lowercase();
    Some(sha256_hex(&url)[..32].to_owned())
}

fn url(app: &App, repo: &Repo) -> Option<String> {
    let github = app.vendors.github.as_ref()?;
    let server = github.server_url();
    Some(format!("{}/{repo}.git", server.trim_end_matches('/')))
}

/// Fetches a branch into a new generation, which begins with what the newest one has, or empty.
///
/// # Errors
/// If git is missing, or if the branch cannot be fetched.
async fn update(
    app: &App,
    repo: &Repo,
    branch: &str,
    key: &str,
    begins_with_newest: bool,
) -> Result<(), String> {
    let config = &app.core.config;
    let (Some(github), Some(url)) = (&app.vendors.github, url(app, repo)) else {
        return Ok(());
    };
    let token = github.repo_token(repo, RepoTokenAccess::Read).await;
    let token = token.map_err(|error| error.to_string())?.token;
    let limit = u64::from(config.containers.mirror_limit_mb) << 20;
    // The store is on the same disk.
    let free = store::free_bytes(&config.data_dir).unwrap_or_default();
    let git = MirrorGit::new(&config.proxy, &url, &token, limit.min(free / 2));
    let folder = MirrorFolder::new(&config.data_dir, key);
    let fetched = fetch(&git, &folder, branch, begins_with_newest).await;
    let (data_dir, now): (PathBuf, _) = (config.data_dir.clone(), app.core.now());
    blocking(folder, move |folder| {
        match &fetched {
            Ok(fresh) => folder.publish(fresh, now)?,
            Err(_) => folder.discard()?,
        }
        files::remove_above(&data_dir, limit)?;
        Ok(fetched.map(drop))
    })
    .await?
}

/// Fetches a branch into the folder of a new generation.
async fn fetch(
    git: &MirrorGit<'_>,
    folder: &MirrorFolder,
    branch: &str,
    begins_with_newest: bool,
) -> Result<NewGeneration, String> {
    let prepare = move |folder: &MirrorFolder| folder.prepare(begins_with_newest);
    let fresh = blocking(folder.clone(), prepare).await?;
    let fetched = git.fetch(&fresh.path, branch).await;
    let fresh = match fetched {
        Ok(()) => fresh,
        // The newest generation may be damaged or too large, or the branch was rewritten: what was removed from it must
        // not stay.
        Err(_) if fresh.is_copy => {
            let fresh = blocking(folder.clone(), |folder| folder.prepare(false)).await?;
            git.fetch(&fresh.path, branch).await?;
            fresh
        }
        Err(error) => return Err(error),
    };
    if blocking(fresh.path.clone(), |path| files::has_many_packs(path)).await? {
        git.repack(&fresh.path).await?;
    }
    Ok(fresh)
}

/// Works with files on a thread of its own.
async fn blocking<A: Send + 'static, T: Send + 'static>(
    on: A,
    work: impl FnOnce(&A) -> std::io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let done = tasks::spawn_blocking(move || work(&on)).await;
    done.map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}
