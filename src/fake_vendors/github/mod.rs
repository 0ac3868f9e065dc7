//! The repository host: REST, a little GraphQL, git over HTTP, and workflow runs that really run.
//!
//! The model holds what git does not: pull requests, comments, runs, tokens. Branches, commits and
//! files live in real bare repositories and are asked of git each time, so the two cannot disagree.

mod actions;
mod api_json;
mod apps;
mod auth;
mod checks;
mod ci;
mod comments;
mod contents;
mod fake_repo;
mod fake_runs;
mod git;
mod git_data;
mod git_http;
mod graphql;
mod jobs;
mod model;
mod pulls;
mod rest;
mod reviews_and_checks;
mod webhooks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

pub(crate) use self::ci::detached_process;
pub use self::fake_repo::{FakeRepo, PullCommentSnapshot, PullSnapshot, RunSnapshot};
pub use self::git::CommitSnapshot;
pub use self::model::CheckKind;
pub use self::reviews_and_checks::CheckReport;
pub use self::webhooks::DeliveredWebhook;

use self::ci::RunController;
use self::git::BareRepository;
use self::model::Model;
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{PersistedModel, lock};
use crate::webhook_sender::WebhookFaults;

/// The stand-in repository host. Clones are the same host.
#[derive(Clone)]
pub struct FakeGitHub {
    inner: Arc<GitHubInner>,
    /// None where runs are only records.
    foreman: Option<Arc<RunController>>,
}

/// How a host is set up.
pub(crate) struct GitHubOptions {
    pub dir: PathBuf,
    /// Base of the REST API.
    pub api_url: String,
    /// Base of pages and git.
    pub server_url: String,
    pub personal_token: String,
    pub app_id: u64,
    pub app_slug: String,
    pub app_key_pem: Option<String>,
    /// Runs are only records: none is started, and a test tells what becomes of each.
    pub fake_runs: bool,
}

pub(crate) struct GitHubInner {
    pub dir: PathBuf,
    pub api_url: String,
    pub server_url: String,
    pub model: PersistedModel<Model>,
    pub app: auth::GitHubApp,
    /// The machine's own search path, which jobs get behind their tools.
    pub search_path: String,
    timing: Mutex<Timing>,
    quota: Mutex<Quota>,
    /// Short-lived addresses of logs: secret, then where it leads and until when.
    log_downloads: Mutex<HashMap<String, (jobs::LogDownload, i64)>>,
    /// Whom to tell of pushes, by repository.
    push_watchers: Mutex<Vec<(String, reviews_and_checks::PushWatcher)>>,
    pub webhooks: webhooks::Webhooks,
    fake_runs: bool,
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

impl FakeGitHub {
    pub(crate) fn open(setup: GitHubOptions) -> anyhow::Result<Self> {
        let GitHubOptions {
            dir,
            api_url: api,
            server_url: server,
            personal_token: static_token,
            app_id,
            app_slug,
            app_key_pem,
            fake_runs: runs_by_hand,
        } = setup;
        std::fs::create_dir_all(dir.join("git"))?;
        git::remove_stale_locks(&dir.join("git"))?;
        std::fs::create_dir_all(dir.join("runs"))?;
        let inner = Arc::new(GitHubInner {
            model: PersistedModel::open(dir.join("github.json"))?,
            app: auth::GitHubApp::new(app_id, app_slug, static_token, app_key_pem.as_deref())?,
            search_path: search_path()?,
            timing: Mutex::new(Timing {
                start_delay: Duration::from_millis(200),
                listing_delay: Duration::ZERO,
            }),
            quota: Mutex::new(Quota {
                limit: 15_000,
                used: HashMap::new(),
                reset: 0,
            }),
            log_downloads: Mutex::default(),
            push_watchers: Mutex::default(),
            webhooks: webhooks::Webhooks::start(),
            fake_runs: runs_by_hand,
            dir,
            api_url: api,
            server_url: server,
        });
        let foreman = match runs_by_hand {
            true => None,
            false => Some(Arc::new(RunController::start(inner.clone())?)),
        };
        Ok(Self { inner, foreman })
    }

    /// A repository, there or not; `seed` or any setting makes it.
    pub fn repo(&self, owner: &str, name: &str) -> FakeRepo {
        FakeRepo::new(self.inner.clone(), owner, name)
    }

    /// The personal token that may do everything.
    pub fn personal_token(&self) -> &str {
        &self.inner.app.personal_token
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
    pub fn runs_after(&self, id: u64) -> Vec<(FakeRepo, RunSnapshot)> {
        let new = self.inner.model.read(|model| {
            let of = |repo: &model::RepoRecord| {
                let newest_first = repo.runs.iter().rev();
                let new = newest_first
                    .take_while(|run| run.id > id)
                    .map(fake_repo::run_snapshot);
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
    pub fn set_webhook_faults(&self, dial: WebhookFaults) {
        self.inner.webhooks.set_faults(dial);
    }

    /// Webhooks that were sent, in the order they went.
    pub fn webhook_deliveries(&self) -> Vec<DeliveredWebhook> {
        self.inner.webhooks.deliveries()
    }

    /// Whether every webhook has been sent.
    pub fn is_webhook_queue_empty(&self) -> bool {
        self.inner.webhooks.is_idle()
    }

    /// Takes a permission from the App. Tokens that were made before keep it.
    pub fn deny_permission(&self, permission: &str) {
        let edit =
            |model: &mut model::Model| model.denied_permissions.insert(permission.to_owned());
        self.inner.model.update_and_flush(edit);
    }

    /// Gives the App a permission back. Tokens that were made before do not get it.
    pub fn grant_permission(&self, permission: &str) {
        let edit = |model: &mut model::Model| model.denied_permissions.remove(permission);
        self.inner.model.update_and_flush(edit);
    }

    /// Makes the plain token a classic one with these scopes, separated by commas.
    pub fn set_token_scopes(&self, scopes: &str) {
        let edit = |model: &mut model::Model| model.token_scopes = Some(scopes.to_owned());
        self.inner.model.update_and_flush(edit);
    }

    /// A token as an installation of the App would get it, for these repositories of one owner.
    pub fn create_installation_token(
        &self,
        owner: &str,
        repos: &[&str],
        permissions: &[(&str, &str)],
    ) -> String {
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
            .model
            .update_and_flush(|model| model.tokens.insert(text.clone(), token));
        text
    }

    pub(crate) fn keep_in_memory(&self) {
        self.inner.model.keep_in_memory();
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.inner.model.flush()
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

    pub(crate) fn handle_rest(&self, request: &HttpRequest) -> HttpResponse {
        self.inner.handle_rest(request)
    }

    pub(crate) fn handle_graphql(&self, request: &HttpRequest) -> HttpResponse {
        self.inner.handle_rest(&HttpRequest {
            path: "/graphql".into(),
            ..request.clone()
        })
    }

    /// Everything outside the API: git, log downloads, pages.
    pub(crate) fn handle_site(&self, request: &HttpRequest) -> HttpResponse {
        self.inner.handle_site(request)
    }

    pub(crate) fn rate_limited_response(&self, left: Duration) -> HttpResponse {
        let limit = lock(&self.inner.quota).limit;
        let reset = (clock::now_ms() + i64::try_from(left.as_millis()).unwrap_or(0)) / 1_000;
        let body = json!({
            "message": "API rate limit exceeded for installation ID 5000.",
            "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api",
            "status": "403",
        });
        rest::quota_headers(HttpResponse::json(403, &body), limit, limit, reset)
            .header("retry-after", left.as_secs() + 1)
    }
}

impl GitHubInner {
    pub fn git(&self, owner: &str, name: &str) -> BareRepository {
        let folder = format!("{}.git", name.to_lowercase());
        BareRepository {
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
    let quoted = |path: &Path| ci::expression::shell_quote(&path.to_string_lossy());
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
