//! The repository host: REST, a little GraphQL, git over HTTP, and workflow runs that really run.
//!
//! The model holds what git does not: pull requests, comments, runs, tokens. Branches, commits and
//! files live in real bare repositories and are asked of git each time, so the two cannot disagree.

mod actions;
mod apps;
mod auth;
mod by_hand;
mod checks;
mod ci;
mod comments;
mod contents;
mod git;
mod git_data;
mod git_http;
mod graphql;
mod hooks;
mod jobs;
mod model;
mod pulls;
mod repo;
mod rest;
mod reviewers;
mod shapes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

pub(crate) use self::ci::process;
pub use self::git::CommitSnapshot;
pub use self::hooks::Delivered;
pub use self::model::Means;
pub use self::repo::{CommentSnapshot, PullSnapshot, Repo, RunSnapshot};
pub use self::reviewers::CheckReport;

use self::ci::Foreman;
use self::git::Git;
use self::model::Model;
use crate::clock;
use crate::http::{Reply, Request};
use crate::post::HookDial;
use crate::state::{Shelf, lock};

/// The stand-in repository host. Clones are the same host.
#[derive(Clone)]
pub struct GitHub {
    inner: Arc<Inner>,
    /// None where runs are only records.
    foreman: Option<Arc<Foreman>>,
}

/// How a host is set up.
pub(crate) struct Setup {
    pub dir: PathBuf,
    /// Base of the REST API.
    pub api: String,
    /// Base of pages and git.
    pub server: String,
    pub static_token: String,
    pub app_id: u64,
    pub app_slug: String,
    pub app_key_pem: Option<String>,
    /// Runs are only records: none is started, and a test tells what becomes of each.
    pub runs_by_hand: bool,
}

pub(crate) struct Inner {
    pub dir: PathBuf,
    pub api: String,
    pub server: String,
    pub shelf: Shelf<Model>,
    pub app: auth::App,
    /// The machine's own search path, which jobs get behind their tools.
    pub path: String,
    timing: Mutex<Timing>,
    quota: Mutex<Quota>,
    /// Short-lived addresses of logs: secret, then where it leads and until when.
    downloads: Mutex<HashMap<String, (jobs::Download, i64)>>,
    /// Whom to tell of pushes, by repository.
    watchers: Mutex<Vec<(String, reviewers::Watcher)>>,
    pub hooks: hooks::Hooks,
    runs_by_hand: bool,
}

/// How slow the host is about runs.
#[derive(Clone, Copy)]
struct Timing {
    start_delay: Duration,
    listing_delay: Duration,
}

/// Requests in this hour, by token.
struct Quota {
    limit: u64,
    used: HashMap<String, u64>,
    reset: i64,
}

impl GitHub {
    pub(crate) fn open(setup: Setup) -> anyhow::Result<Self> {
        let Setup {
            dir,
            api,
            server,
            static_token,
            app_id,
            app_slug,
            app_key_pem,
            runs_by_hand,
        } = setup;
        std::fs::create_dir_all(dir.join("git"))?;
        git::unlock(&dir.join("git"))?;
        std::fs::create_dir_all(dir.join("runs"))?;
        let inner = Arc::new(Inner {
            shelf: Shelf::open(dir.join("github.json"))?,
            app: auth::App::new(app_id, app_slug, static_token, app_key_pem.as_deref())?,
            path: search_path()?,
            timing: Mutex::new(Timing {
                start_delay: Duration::from_millis(200),
                listing_delay: Duration::ZERO,
            }),
            quota: Mutex::new(Quota {
                limit: 15_000,
                used: HashMap::new(),
                reset: 0,
            }),
            downloads: Mutex::default(),
            watchers: Mutex::default(),
            hooks: hooks::Hooks::start(),
            runs_by_hand,
            dir,
            api,
            server,
        });
        let foreman = match runs_by_hand {
            true => None,
            false => Some(Arc::new(Foreman::start(inner.clone())?)),
        };
        Ok(Self { inner, foreman })
    }

    /// A repository, there or not; `seed` or any setting makes it.
    pub fn repo(&self, owner: &str, name: &str) -> Repo {
        Repo::new(self.inner.clone(), owner, name)
    }

    /// The personal token that may do everything.
    pub fn token(&self) -> &str {
        &self.inner.app.static_token
    }

    /// The App's id, which its JWTs must name as issuer.
    pub fn app_id(&self) -> u64 {
        self.inner.app.id
    }

    /// How long a dispatched run stays queued. Holds for runs dispatched from now on.
    pub fn set_start_delay(&self, delay: Duration) {
        lock(&self.inner.timing).start_delay = delay;
    }

    /// How long a dispatched run is missing from listings.
    pub fn set_listing_delay(&self, delay: Duration) {
        lock(&self.inner.timing).listing_delay = delay;
    }

    /// The runs of all repositories that were dispatched after this one, each with its repository.
    pub fn runs_after(&self, id: u64) -> Vec<(Repo, RunSnapshot)> {
        let new = self.inner.shelf.read(|model| {
            let of = |repo: &model::Repo| {
                let newest_first = repo.runs.iter().rev();
                let new = newest_first
                    .take_while(|run| run.id > id)
                    .map(repo::snapshot);
                let place = (repo.owner.clone(), repo.name.clone());
                new.map(|run| (place.clone(), run)).collect::<Vec<_>>()
            };
            model.repos.iter().flat_map(of).collect::<Vec<_>>()
        });
        let named = new.into_iter();
        named
            .map(|((owner, name), run)| (self.repo(&owner, &name), run))
            .collect()
    }

    /// Sets how many requests an hour each token may make, and starts the hour again.
    pub fn set_quota(&self, requests_per_hour: u64) {
        *lock(&self.inner.quota) = Quota {
            limit: requests_per_hour,
            used: HashMap::new(),
            reset: 0,
        };
    }

    /// What goes wrong with webhooks from now on.
    pub fn set_hook_dial(&self, dial: HookDial) {
        self.inner.hooks.dial(dial);
    }

    /// Webhooks that were sent, in the order they went.
    pub fn delivered(&self) -> Vec<Delivered> {
        self.inner.hooks.delivered()
    }

    /// Whether every webhook has been sent.
    pub fn has_delivered(&self) -> bool {
        self.inner.hooks.is_idle()
    }

    /// Takes a permission from the App. Tokens that were made before keep it.
    pub fn withhold(&self, permission: &str) {
        let edit = |model: &mut model::Model| model.withheld.insert(permission.to_owned());
        self.inner.shelf.commit(edit);
    }

    /// Gives the App a permission back. Tokens that were made before do not get it.
    pub fn grant(&self, permission: &str) {
        let edit = |model: &mut model::Model| model.withheld.remove(permission);
        self.inner.shelf.commit(edit);
    }

    /// Makes the plain token a classic one with these scopes, separated by commas.
    pub fn scope_token(&self, scopes: &str) {
        let edit = |model: &mut model::Model| model.token_scopes = Some(scopes.to_owned());
        self.inner.shelf.commit(edit);
    }

    /// A token as an installation of the App would get it, for these repositories of one owner.
    pub fn mint_token(&self, owner: &str, repos: &[&str], permissions: &[(&str, &str)]) -> String {
        let permissions = permissions
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let repos = repos.iter().map(|name| format!("{owner}/{name}")).collect();
        let token = self
            .inner
            .app
            .installation_token(owner, Some(repos), permissions.collect());
        let text = auth::opaque_token(self.inner.app.id);
        self.inner
            .shelf
            .commit(|model| model.tokens.insert(text.clone(), token));
        text
    }

    pub(crate) fn keep_in_memory(&self) {
        self.inner.shelf.keep_in_memory();
    }

    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        self.inner.shelf.settle()
    }

    /// Stops looking after runs; they go on.
    pub(crate) fn stop(&self) {
        if let Some(foreman) = &self.foreman {
            foreman.stop();
        }
    }

    pub(crate) fn kill_runs(&self) {
        self.inner.kill_runs();
    }

    pub(crate) fn rest(&self, request: &Request) -> Reply {
        self.inner.rest(request)
    }

    pub(crate) fn graphql(&self, request: &Request) -> Reply {
        self.inner.rest(&Request {
            path: "/graphql".into(),
            ..request.clone()
        })
    }

    /// Everything outside the API: git, log downloads, pages.
    pub(crate) fn site(&self, request: &Request) -> Reply {
        self.inner.site(request)
    }

    pub(crate) fn rate_limited(&self, left: Duration) -> Reply {
        let limit = lock(&self.inner.quota).limit;
        let reset = (clock::now_ms() + i64::try_from(left.as_millis()).unwrap_or(0)) / 1_000;
        let body = json!({
            "message": "API rate limit exceeded for installation ID 5000.",
            "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api",
            "status": "403",
        });
        rest::quota_headers(Reply::json(403, &body), limit, limit, reset)
            .header("retry-after", left.as_secs() + 1)
    }
}

impl Inner {
    pub fn git(&self, owner: &str, name: &str) -> Git {
        let folder = format!("{}.git", name.to_lowercase());
        Git {
            dir: self.dir.join("git").join(owner.to_lowercase()).join(folder),
        }
    }
}

/// Asked of a shell, because the environment of this process is the configuration's to read.
pub(crate) fn search_path() -> anyhow::Result<String> {
    let output = Command::new("sh")
        .args(["-c", "printf %s \"$PATH\""])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Puts the tools that jobs call by name into a folder: this program, and the agent it plays, or
/// real agents in its place.
pub(crate) fn install_tools(
    dir: &Path,
    program: &Path,
    scripts: &Path,
    agents: Option<&Path>,
) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(dir)?;
    let program = &std::path::absolute(program)?;
    link(program, &dir.join("agent-implement"))?;
    if let Some(agents) = agents {
        for agent in std::fs::read_dir(agents)? {
            let agent = agent?;
            link(&agent.path(), &dir.join(agent.file_name()))?;
        }
        return Ok(());
    }
    let quoted = |path: &Path| ci::expr::quoted(&path.to_string_lossy());
    let claude = format!(
        "#!/bin/sh\nexec {} scripted-agent --scripts {} \"$@\"\n",
        quoted(program),
        quoted(scripts)
    );
    // A run at work does not start an agent that was changed meanwhile.
    if std::fs::read(dir.join("claude")).is_ok_and(|there| there == claude.as_bytes()) {
        return Ok(());
    }
    let beside = dir.join("claude.tmp");
    std::fs::write(&beside, claude)?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755))?;
    Ok(std::fs::rename(beside, dir.join("claude"))?)
}

/// Links to a file, instead of to what the link led to before.
fn link(file: &Path, link: &Path) -> anyhow::Result<()> {
    if link.symlink_metadata().is_ok() {
        std::fs::remove_file(link)?;
    }
    Ok(std::os::unix::fs::symlink(file, link)?)
}
