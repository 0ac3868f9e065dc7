//! Git over smart HTTP, HTML pages and log downloads: everything that GitHub serves outside its API.

use std::io::Write;

use data_encoding::BASE64;

use super::GitHubInner;
use super::git::{git_command, run_with_input};
use super::model::IssuedToken;
use super::rest::RepoPath;
use crate::html_page::HtmlPage;
use crate::http::{HttpRequest, HttpResponse};

/// Pre-receive hook that rejects changes of workflow files by tokens without the `workflows` permission.
const PRE_RECEIVE_HOOK: &str = r#"#!/bin/sh
[ "$SANDBOX_MAY_PUSH_WORKFLOWS" = no ] || exit 0
while read -r old new ref; do
  case $new in *[!0]*) ;; *) continue ;; esac
  for commit in $(git rev-list "$new" --not --all); do
    path=$(git diff-tree --no-commit-id --name-only -r --root "$commit" -- .github/workflows | head -n 1)
    if [ -n "$path" ]; then
      echo "refusing to allow a GitHub App to create or update workflow \`$path\` without \`workflows\` permission" >&2
      exit 1
    fi
  done
done
"#;

impl GitHubInner {
    pub(crate) fn handle_site(&self, request: &HttpRequest) -> HttpResponse {
        let segments = request.segments();
        let path: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["_downloads", secret]) => self.serve_download(secret),
            ("GET", [owner, repo, "info", "refs"]) => {
                let service = request.query_param("service").unwrap_or_default();
                match service.strip_prefix("git-") {
                    Some(service @ ("upload-pack" | "receive-pack")) => {
                        self.git_service(request, owner, repo, service, true)
                    }
                    _ => HttpResponse::text(403, "dumb HTTP is not served"),
                }
            }
            ("POST", [owner, repo, "git-upload-pack"]) => {
                self.git_service(request, owner, repo, "upload-pack", false)
            }
            ("POST", [owner, repo, "git-receive-pack"]) => {
                self.git_service(request, owner, repo, "receive-pack", false)
            }
            ("GET", [owner, name, "pull", number]) => self
                .pull_page(&RepoPath { owner, name }, number)
                .unwrap_or_else(|| HttpResponse::text(404, "Not Found")),
            ("GET", [owner, name, "issues", number]) => self
                .issue_page(&RepoPath { owner, name }, number)
                .unwrap_or_else(|| HttpResponse::text(404, "Not Found")),
            ("GET", [owner, name, "actions", "runs", id]) => self
                .run_page(&RepoPath { owner, name }, id)
                .unwrap_or_else(|| HttpResponse::text(404, "Not Found")),
            ("GET", [owner, name]) => self
                .repo_page(&RepoPath { owner, name })
                .unwrap_or_else(|| HttpResponse::text(404, "Not Found")),
            _ => HttpResponse::text(404, "Not Found"),
        }
    }

    fn git_service(
        &self,
        request: &HttpRequest,
        owner: &str,
        repo: &str,
        service: &str,
        advertise: bool,
    ) -> HttpResponse {
        let name = repo.strip_suffix(".git").unwrap_or(repo);
        let token = match self.git_caller(request) {
            Ok(token) => token,
            Err(response) => return response,
        };
        let exists = self
            .model
            .read(|model| model.find_repo(owner, name).is_some());
        if !exists
            || !token.can_access_repo(owner, name)
            || !token.has_permission("contents", "read")
        {
            return HttpResponse::text(404, "Repository not found.");
        }
        if service == "receive-pack" && !token.has_permission("contents", "write") {
            let message = format!(
                "Permission to {owner}/{name}.git denied to {}.",
                token.login
            );
            return HttpResponse::text(403, message);
        }
        self.serve_git(request, owner, name, service, advertise, &token)
            .unwrap_or_else(|error| HttpResponse::text(500, format!("{error:#}")))
    }

    fn git_caller(&self, request: &HttpRequest) -> Result<IssuedToken, HttpResponse> {
        let challenge = |text: &str| {
            HttpResponse::text(401, text).header("www-authenticate", "Basic realm=\"GitHub\"")
        };
        let header = request.header("authorization").unwrap_or_default();
        let (scheme, rest) = header.split_once(' ').unwrap_or_default();
        let secret = if scheme.eq_ignore_ascii_case("basic") {
            let pair = BASE64.decode(rest.trim().as_bytes()).unwrap_or_default();
            let pair = String::from_utf8_lossy(&pair).into_owned();
            pair.split_once(':')
                .map(|(_, password)| password.to_owned())
        } else if scheme.eq_ignore_ascii_case("bearer") {
            Some(rest.trim().to_owned())
        } else {
            None
        };
        let secret = secret.ok_or_else(|| challenge("Authentication required"))?;
        self.find_token(&secret)
            .ok_or_else(|| challenge("Invalid username or token."))
    }

    fn serve_git(
        &self,
        request: &HttpRequest,
        owner: &str,
        name: &str,
        service: &str,
        advertise: bool,
        token: &IssuedToken,
    ) -> anyhow::Result<HttpResponse> {
        let git = self.git(owner, name);
        install_pre_receive_hook(&git.dir)?;
        let protocol = request.header("git-protocol").unwrap_or_default();
        let mut git_command = git_command(&git.dir);
        git_command.args([service, "--stateless-rpc"]);
        if advertise {
            git_command.arg("--advertise-refs");
        }
        git_command.arg(".").env("GIT_PROTOCOL", protocol);
        let allowed = if token.has_permission("workflows", "write") {
            "yes"
        } else {
            "no"
        };
        git_command.env("SANDBOX_MAY_PUSH_WORKFLOWS", allowed);
        let body = match request.header("content-encoding") {
            Some("gzip" | "x-gzip") => gunzip(&request.body)?,
            _ => request.body.to_vec(),
        };
        let repo_path = RepoPath { owner, name };
        let before = self.watched_branch_heads(&repo_path);
        let output = run_with_input(git_command, Some(&body))?;
        self.notify_push_watchers(&repo_path, &before);
        let kind = if advertise { "advertisement" } else { "result" };
        let content_type = format!("application/x-git-{service}-{kind}");
        let mut body_bytes = Vec::new();
        if advertise && !protocol.contains("version=2") {
            let line = format!("# service=git-{service}\n");
            write!(body_bytes, "{:04x}{line}0000", line.len() + 4)?;
        }
        body_bytes.extend(output.stdout);
        Ok(HttpResponse::new(200, &content_type, body_bytes).header("cache-control", "no-cache"))
    }

    fn pull_page(&self, repo_path: &RepoPath<'_>, number: &str) -> Option<HttpResponse> {
        self.refresh_pull_heads(repo_path);
        let number: u64 = number.parse().ok()?;
        let (pull, comments) = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            let comments = repo
                .comments
                .iter()
                .filter(|comment| comment.number == number);
            Some((
                repo.pull(number)?.clone(),
                comments.cloned().collect::<Vec<_>>(),
            ))
        })?;
        let diff = self.pull_diff(repo_path, &pull.base, &pull.head_sha)?;
        let mut page = HtmlPage::new(&format!("{} #{number}", pull.title));
        let state = match (&pull.merged, pull.open, pull.draft) {
            (Some(_), _, _) => "merged",
            (None, false, _) => "closed",
            (None, true, true) => "draft",
            (None, true, false) => "open",
        };
        page.paragraph(&format!(
            "{state}: {} → {} by {}",
            pull.head, pull.base, pull.author
        ));
        if pull.open && !pull.draft {
            let url = format!("{}/pull/{number}/merge", self.site_url(repo_path));
            page.button("Merge pull request", &url);
        }
        page.preformatted(&pull.body);
        page.preformatted(&diff);
        for comment in &comments {
            page.section(&comment.author, &comment.body);
        }
        Some(page.into_response())
    }

    /// Changes of a head commit since it left its base branch. `None` if the branch does not exist.
    pub(super) fn pull_diff(
        &self,
        repo_path: &RepoPath<'_>,
        base: &str,
        head_sha: &str,
    ) -> Option<String> {
        let git = self.git(repo_path.owner, repo_path.name);
        let base = git.branch_head(base)?;
        let from = git.merge_base(&base, head_sha).unwrap_or(base);
        let diff = git.output_text(&["diff", &from, head_sha, "--"]);
        Some(diff.unwrap_or_default())
    }

    /// Address of the page of a repository.
    pub(super) fn site_url(&self, repo_path: &RepoPath<'_>) -> String {
        format!("{}/{}/{}", self.server_url, repo_path.owner, repo_path.name)
    }

    fn run_page(&self, repo_path: &RepoPath<'_>, id: &str) -> Option<HttpResponse> {
        let id: u64 = id.parse().ok()?;
        let run = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            repo.runs.iter().find(|run| run.id == id).cloned()
        })?;
        let mut page = HtmlPage::new(&run.title);
        let conclusion = run.conclusion.clone().unwrap_or_default();
        page.paragraph(&format!(
            "{} {conclusion}, attempt {}",
            run.status.as_str(),
            run.attempt
        ));
        for index in 0..100 {
            let Some(log) = self.job_log(&run, index) else {
                break;
            };
            page.preformatted(&log);
        }
        Some(page.into_response())
    }

    fn repo_page(&self, repo_path: &RepoPath<'_>) -> Option<HttpResponse> {
        let (branch, pulls) = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(repo_path.owner, repo_path.name)?];
            Some((repo.default_branch.clone(), repo.pulls.clone()))
        })?;
        let mut page = HtmlPage::new(&format!("{}/{}", repo_path.owner, repo_path.name));
        let git = self.git(repo_path.owner, repo_path.name);
        page.preformatted(
            &git.output_text(&["ls-tree", "-r", "--name-only", &branch])
                .unwrap_or_default(),
        );
        for pull in pulls {
            let url = format!("{}/pull/{}", self.site_url(repo_path), pull.number);
            page.link(&format!("#{} {}", pull.number, pull.title), &url);
        }
        Some(page.into_response())
    }
}

fn install_pre_receive_hook(dir: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let hook = dir.join("hooks").join("pre-receive");
    if hook.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(dir.join("hooks"))?;
    let mut file = tempfile::NamedTempFile::new_in(dir.join("hooks"))?;
    file.write_all(PRE_RECEIVE_HOOK.as_bytes())?;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o755))?;
    file.persist(&hook)?;
    Ok(())
}

fn gunzip(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut gzip = std::process::Command::new("gzip");
    gzip.args(["-dc"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    Ok(run_with_input(gzip, Some(body))?.stdout)
}
