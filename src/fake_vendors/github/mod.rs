//! Fake GitHub: REST, a little GraphQL, git over HTTP, and workflow runs that really run.
//!
//! The model stores only what git does not: pull requests, comments, runs, tokens. Branches, commits
//! and files are always read from real bare repositories, so model and git cannot disagree.

mod actions;
mod api_json;
mod app_pages;
mod apps;
mod artifacts;
mod auth;
mod check_rollup;
mod checks;
mod ci;
mod comments;
mod comparison;
mod contents;
mod diff;
mod fake_repo;
mod fake_runs;
mod git;
mod git_data;
mod git_http;
mod graphql;
mod graphql_fields;
mod issue_comments;
mod issue_labels;
mod issues;
mod issues_graphql;
mod jobs;
mod merge_mutations;
mod mergeability;
mod merging;
mod model;
mod pull_graphql;
mod pulls;
mod rest;
mod reviews_and_checks;
mod user_uploads;
mod webhooks;
mod zip;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

pub(crate) use self::ci::detached_process;
pub use self::fake_repo::{FakeRepo, PullCommentSnapshot, PullSnapshot, RunSnapshot};
pub use self::git::CommitSnapshot;
pub use self::issues::{FakeIssue, IssueSnapshot};
pub use self::model::{BranchProtection, CheckKind, IssueLabelChange};
pub use self::reviews_and_checks::CheckReport;
pub use self::zip::{ArchiveEntry, zip_archive};

use self::ci::RunController;
use self::git::BareRepository;
use self::model::Model;
use crate::clock;
use crate::html_page::receive_comment;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{PersistedModel, lock};
use crate::uploads::Uploads;
use crate::webhook_sender::WebhookSender;

/// Fake GitHub. Clones share their state.
#[derive(Clone)]
pub struct FakeGitHub {
    inner: Arc<GitHubInner>,
    /// `None` if runs are fake.
    controller: Option<Arc<RunController>>,
}

/// Options of the fake GitHub.
pub(crate) struct GitHubOptions {
    pub dir: PathBuf,
    /// Base URL of the REST API.
    pub api_url: String,
    /// Base URL of pages and git.
    pub server_url: String,
    pub personal_token: String,
    pub app_id: u64,
    pub app_slug: String,
    pub app_key_pem: Option<String>,
    /// Whether runs are fake: none is started, and a test changes their state.
    pub fake_runs: bool,
}

pub(crate) struct GitHubInner {
    pub dir: PathBuf,
    pub api_url: String,
    pub server_url: String,
    pub model: PersistedModel<Model>,
    pub app: auth::GitHubApp,
    /// `PATH` of this process. Jobs get it after the folder of their tools.
    pub search_path: String,
    timing: Mutex<Timing>,
    quota: Mutex<Quota>,
    /// Temporary log downloads: by the secret in their URL, the log and the expiry time (milliseconds
    /// since the epoch).
    downloads: Mutex<HashMap<String, (jobs::Download, i64)>>,
    created_apps: Mutex<app_pages::CreatedApps>,
    pub uploads: Uploads,
    /// Push watchers, by full repository name.
    push_watchers: Mutex<Vec<(String, reviews_and_checks::PushWatcher)>>,
    /// Held during a merge, so that each begins from the base branch that the one before has left.
    merging: Mutex<()>,
    comparisons: comparison::Comparisons,
    pub webhooks: webhooks::RepoWebhooks,
    fake_runs: bool,
}

/// Delays of new runs.
#[derive(Clone, Copy)]
struct Timing {
    start_delay: Duration,
    listing_delay: Duration,
}

/// Hourly request quota. Requests are counted per credential.
struct Quota {
    limit: u64,
    used: HashMap<String, u64>,
    reset: i64,
}

impl FakeGitHub {
    pub(crate) fn open(options: GitHubOptions) -> anyhow::Result<Self> {
        let GitHubOptions {
            dir,
            api_url: api,
            server_url: server,
            personal_token: static_token,
            app_id,
            app_slug,
            app_key_pem,
            fake_runs,
        } = options;
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
            downloads: Mutex::default(),
            created_apps: Mutex::default(),
            uploads: Uploads::default(),
            push_watchers: Mutex::default(),
            merging: Mutex::default(),
            comparisons: comparison::Comparisons::default(),
            webhooks: webhooks::RepoWebhooks::start(),
            fake_runs,
            dir,
            api_url: api,
            server_url: server,
        });
        let controller = match fake_runs {
            true => None,
            false => Some(Arc::new(RunController::start(inner.clone())?)),
        };
        Ok(Self { inner, controller })
    }

    /// Returns the handle of a repository, which need not exist. `seed` or any setting creates it.
    pub fn repo(&self, owner: &str, name: &str) -> FakeRepo {
        FakeRepo::new(self.inner.clone(), owner, name)
    }

    /// Returns the personal token, which has every permission that was not denied.
    pub fn personal_token(&self) -> &str {
        &self.inner.app.personal_token
    }

    /// Returns the login of the personal token.
    pub fn personal_login(&self) -> &'static str {
        auth::PERSONAL_LOGIN
    }

    /// Returns the App's ID, which its JWTs must contain as issuer.
    pub fn app_id(&self) -> u64 {
        self.inner.app.id
    }

    /// Sets how long new runs stay queued. Applies to runs dispatched from now on.
    pub fn set_start_delay(&self, delay: Duration) {
        lock(&self.inner.timing).start_delay = delay;
    }

    /// Sets how long new runs are missing from listings.
    pub fn set_listing_delay(&self, delay: Duration) {
        lock(&self.inner.timing).listing_delay = delay;
    }

    /// Returns the runs of all repositories with an ID greater than this one.
    pub fn runs_after(&self, id: u64) -> Vec<(FakeRepo, RunSnapshot)> {
        let new = self.inner.model.read(|model| {
            let of = |repo: &model::RepoRecord| {
                let newest_first = repo.runs.iter().rev();
                let new = newest_first
                    .take_while(|run| run.id > id)
                    .map(fake_repo::run_snapshot);
                let repo_key = (repo.owner.clone(), repo.name.clone());
                new.map(|run| (repo_key.clone(), run)).collect::<Vec<_>>()
            };
            model.repos.iter().flat_map(of).collect::<Vec<_>>()
        });
        let runs = new.into_iter();
        runs.map(|((owner, name), run)| (self.repo(&owner, &name), run))
            .collect()
    }

    /// Sets the number of requests each credential may make per hour, and restarts the hour.
    pub fn set_quota(&self, requests_per_hour: u64) {
        *lock(&self.inner.quota) = Quota {
            limit: requests_per_hour,
            used: HashMap::new(),
            reset: 0,
        };
    }

    /// Returns the sender of webhooks.
    pub fn webhooks(&self) -> &WebhookSender {
        &self.inner.webhooks.sender
    }

    /// Removes a permission from the App. Existing tokens keep it.
    pub fn deny_permission(&self, permission: &str) {
        let edit =
            |model: &mut model::Model| model.denied_permissions.insert(permission.to_owned());
        self.inner.model.update_and_flush(edit);
    }

    /// Gives the App a permission back. Existing tokens do not get it.
    pub fn grant_permission(&self, permission: &str) {
        let edit = |model: &mut model::Model| model.denied_permissions.remove(permission);
        self.inner.model.update_and_flush(edit);
    }

    /// Removes a permission from the personal token.
    pub fn deny_token_permission(&self, permission: &str) {
        let edit =
            |model: &mut model::Model| model.denied_token_permissions.insert(permission.to_owned());
        self.inner.model.update_and_flush(edit);
    }

    /// Gives the personal token a permission back.
    pub fn grant_token_permission(&self, permission: &str) {
        let edit = |model: &mut model::Model| model.denied_token_permissions.remove(permission);
        self.inner.model.update_and_flush(edit);
    }

    /// Makes the personal token a classic one with these scopes, separated by commas.
    pub fn set_token_scopes(&self, scopes: &str) {
        let edit = |model: &mut model::Model| model.token_scopes = Some(scopes.to_owned());
        self.inner.model.update_and_flush(edit);
    }

    /// Creates an installation token for these repositories of one owner.
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

    /// Stops monitoring runs. The runs continue.
    pub(crate) fn stop(&self) {
        if let Some(controller) = &self.controller {
            controller.stop();
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

    /// Handles everything outside the API: git, log downloads, pages.
    pub(crate) fn handle_site(&self, request: &HttpRequest) -> HttpResponse {
        let segments = request.segments();
        let path: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), path.as_slice()) {
            ("POST", [owner, name, "pull", number, "merge"]) => {
                self.merge_from_page(owner, name, number)
            }
            ("POST", [owner, name, "issues", number]) => {
                let repo = self.repo(owner, name);
                let mut issues = repo.issues().into_iter();
                let found = issues.find(|issue| issue.number.to_string() == *number);
                let issue = found.map(|found| repo.issue(found.number));
                receive_comment(
                    request,
                    issue.map(|issue| move |text: &str| drop(issue.comment(text))),
                )
            }
            _ => {
                let upload = self.inner.serve_upload(request, &path);
                let page = upload.or_else(|| self.inner.app_page(request, &path));
                page.unwrap_or_else(|| self.inner.handle_site(request))
            }
        }
    }

    /// Merges a pull request for the person who looks at its page, and shows the page again.
    fn merge_from_page(&self, owner: &str, name: &str, number: &str) -> HttpResponse {
        let repo = self.repo(owner, name);
        let merged = number.parse().map(|number| repo.merge_pull(number));
        match merged {
            Ok(Ok(_)) => {
                let page = self.inner.site_url(&repo.path());
                HttpResponse::empty(303).header("location", format!("{page}/pull/{number}"))
            }
            Ok(Err(error)) => HttpResponse::text(409, error.to_string()),
            Err(_) => HttpResponse::text(404, "Not Found"),
        }
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
    pub(crate) fn git(&self, owner: &str, name: &str) -> BareRepository {
        let folder = format!("{}.git", name.to_lowercase());
        BareRepository {
            dir: self.dir.join("git").join(owner.to_lowercase()).join(folder),
        }
    }
}

/// Returns `PATH`. Reads it through a shell, because only the configuration may read the environment of
/// this process.
pub(crate) fn search_path() -> anyhow::Result<String> {
    let output = Command::new("sh")
        .args(["-c", "printf %s \"$PATH\""])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Installs the tools that jobs call by name: this program as `agent-implement`, and the scripted agent
/// as `claude`, or real agent programs instead.
pub(crate) fn install_tools(
    dir: &Path,
    program: &Path,
    scripts: &Path,
    agents: Option<&Path>,
) -> anyhow::Result<()> {
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
    write_program(dir, "claude", &scripted_agent(program, scripts))
}

/// Installs what a public image has instead: npm, whose registry has the scripted agent, and Node.js.
pub(crate) fn install_package_manager(
    dir: &Path,
    program: &Path,
    scripts: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let agent = scripted_agent(&std::path::absolute(program)?, scripts);
    for (name, text) in [
        ("npm", include_str!("npm.sh")),
        ("node", include_str!("node.sh")),
        ("scripted-agent", &agent),
    ] {
        write_program(dir, name, text)?;
    }
    Ok(())
}

/// Returns the script that starts the scripted agent.
fn scripted_agent(program: &Path, scripts: &Path) -> String {
    let quoted = |path: &Path| ci::expression::shell_quote(&path.to_string_lossy());
    format!(
        "#!/bin/sh\nexec {} scripted-agent --scripts {} \"$@\"\n",
        quoted(program),
        quoted(scripts)
    )
}

/// Writes an executable file. Replaces it only if it differs, so that a running job keeps its program.
fn write_program(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::read(dir.join(name)).is_ok_and(|existing| existing == text.as_bytes()) {
        return Ok(());
    }
    let temporary = dir.join(format!("{name}.tmp"));
    std::fs::write(&temporary, text)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))?;
    Ok(std::fs::rename(temporary, dir.join(name))?)
}

/// Creates a symbolic link, or replaces an existing one. It is never missing, because a job of an earlier start may be
/// about to execute it.
fn link(file: &Path, link: &Path) -> anyhow::Result<()> {
    let temporary = link.with_extension("tmp");
    if temporary.symlink_metadata().is_ok() {
        std::fs::remove_file(&temporary)?;
    }
    std::os::unix::fs::symlink(file, &temporary)?;
    Ok(std::fs::rename(temporary, link)?)
}
