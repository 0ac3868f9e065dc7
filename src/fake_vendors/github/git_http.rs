//! Git over smart HTTP, pages, and log downloads: everything the host serves outside its API.

use std::io::Write;

use data_encoding::BASE64;

use super::Inner;
use super::git::{command, feed};
use super::model::Token;
use super::rest::Place;
use crate::http::{Reply, Request};
use crate::page::Page;

/// Refuses pushes that touch workflow files, as the host does to Apps without that permission.
const GUARD: &str = r#"#!/bin/sh
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

impl Inner {
    pub fn site(&self, request: &Request) -> Reply {
        let segments = request.segments();
        let path: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["_logs", secret]) => self.serve_log(secret),
            ("GET", [owner, repo, "info", "refs"]) => {
                let service = request.param("service").unwrap_or_default();
                match service.strip_prefix("git-") {
                    Some(service @ ("upload-pack" | "receive-pack")) => {
                        self.git_service(request, owner, repo, service, true)
                    }
                    _ => Reply::text(403, "dumb HTTP is not served"),
                }
            }
            ("POST", [owner, repo, "git-upload-pack"]) => {
                self.git_service(request, owner, repo, "upload-pack", false)
            }
            ("POST", [owner, repo, "git-receive-pack"]) => {
                self.git_service(request, owner, repo, "receive-pack", false)
            }
            ("GET", [owner, name, "pull", number]) => self
                .pull_page(&Place { owner, name }, number)
                .unwrap_or_else(|| Reply::text(404, "Not Found")),
            ("GET", [owner, name, "actions", "runs", id]) => self
                .run_page(&Place { owner, name }, id)
                .unwrap_or_else(|| Reply::text(404, "Not Found")),
            ("GET", [owner, name]) => self
                .repo_page(&Place { owner, name })
                .unwrap_or_else(|| Reply::text(404, "Not Found")),
            _ => Reply::text(404, "Not Found"),
        }
    }

    fn git_service(
        &self,
        request: &Request,
        owner: &str,
        repo: &str,
        service: &str,
        advertise: bool,
    ) -> Reply {
        let name = repo.strip_suffix(".git").unwrap_or(repo);
        let token = match self.git_caller(request) {
            Ok(token) => token,
            Err(refusal) => return refusal,
        };
        let known = self.shelf.read(|model| model.find(owner, name).is_some());
        if !known || !token.sees(owner, name) || !token.may("contents", "read") {
            return Reply::text(404, "Repository not found.");
        }
        if service == "receive-pack" && !token.may("contents", "write") {
            let message = format!(
                "Permission to {owner}/{name}.git denied to {}.",
                token.login
            );
            return Reply::text(403, message);
        }
        self.serve_git(request, owner, name, service, advertise, &token)
            .unwrap_or_else(|error| Reply::text(500, format!("{error:#}")))
    }

    fn git_caller(&self, request: &Request) -> Result<Token, Reply> {
        let challenge = |text: &str| {
            Reply::text(401, text).header("www-authenticate", "Basic realm=\"GitHub\"")
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
        self.token(&secret)
            .ok_or_else(|| challenge("Invalid username or token."))
    }

    fn serve_git(
        &self,
        request: &Request,
        owner: &str,
        name: &str,
        service: &str,
        advertise: bool,
        token: &Token,
    ) -> anyhow::Result<Reply> {
        let git = self.git(owner, name);
        install_guard(&git.dir)?;
        let protocol = request.header("git-protocol").unwrap_or_default();
        let mut git_command = command(&git.dir);
        git_command.args([service, "--stateless-rpc"]);
        if advertise {
            git_command.arg("--advertise-refs");
        }
        git_command.arg(".").env("GIT_PROTOCOL", protocol);
        let may = if token.may("workflows", "write") {
            "yes"
        } else {
            "no"
        };
        git_command.env("SANDBOX_MAY_PUSH_WORKFLOWS", may);
        let body = match request.header("content-encoding") {
            Some("gzip" | "x-gzip") => gunzip(&request.body)?,
            _ => request.body.to_vec(),
        };
        let at = Place { owner, name };
        let before = self.watched(&at);
        let output = feed(git_command, Some(&body))?;
        self.tell_watchers(&at, &before);
        let kind = if advertise { "advertisement" } else { "result" };
        let content_type = format!("application/x-git-{service}-{kind}");
        let mut answer = Vec::new();
        if advertise && !protocol.contains("version=2") {
            let line = format!("# service=git-{service}\n");
            write!(answer, "{:04x}{line}0000", line.len() + 4)?;
        }
        answer.extend(output.stdout);
        Ok(Reply::new(200, &content_type, answer).header("cache-control", "no-cache"))
    }

    fn pull_page(&self, at: &Place<'_>, number: &str) -> Option<Reply> {
        self.refresh_pulls(at);
        let number: u64 = number.parse().ok()?;
        let (pull, comments) = self.shelf.read(|model| {
            let repo = &model.repos[model.find(at.owner, at.name)?];
            let comments = repo
                .comments
                .iter()
                .filter(|comment| comment.number == number);
            Some((
                repo.pull(number)?.clone(),
                comments.cloned().collect::<Vec<_>>(),
            ))
        })?;
        let git = self.git(at.owner, at.name);
        let base = git.branch(&pull.base)?;
        let from = git.merge_base(&base, &pull.head_sha).unwrap_or(base);
        let diff = git
            .text(&["diff", &from, &pull.head_sha, "--"])
            .unwrap_or_default();
        let mut page = Page::new(&format!("{} #{number}", pull.title));
        let state = match (&pull.merged, pull.open, pull.draft) {
            (Some(_), _, _) => "merged",
            (None, false, _) => "closed",
            (None, true, true) => "draft",
            (None, true, false) => "open",
        };
        page.line(&format!(
            "{state}: {} → {} by {}",
            pull.head, pull.base, pull.author
        ));
        page.text(&pull.body);
        page.text(&diff);
        for comment in &comments {
            page.boxed(&comment.author, &comment.body);
        }
        Some(page.reply())
    }

    fn run_page(&self, at: &Place<'_>, id: &str) -> Option<Reply> {
        let id: u64 = id.parse().ok()?;
        let run = self.shelf.read(|model| {
            let repo = &model.repos[model.find(at.owner, at.name)?];
            repo.runs.iter().find(|run| run.id == id).cloned()
        })?;
        let mut page = Page::new(&run.title);
        let conclusion = run.conclusion.clone().unwrap_or_default();
        page.line(&format!(
            "{} {conclusion}, attempt {}",
            run.status.word(),
            run.attempt
        ));
        for place in 0..100 {
            let Some(log) = self.job_log(&run, place) else {
                break;
            };
            page.text(&log);
        }
        Some(page.reply())
    }

    fn repo_page(&self, at: &Place<'_>) -> Option<Reply> {
        let (branch, pulls) = self.shelf.read(|model| {
            let repo = &model.repos[model.find(at.owner, at.name)?];
            Some((repo.default_branch.clone(), repo.pulls.clone()))
        })?;
        let mut page = Page::new(&format!("{}/{}", at.owner, at.name));
        let git = self.git(at.owner, at.name);
        page.text(
            &git.text(&["ls-tree", "-r", "--name-only", &branch])
                .unwrap_or_default(),
        );
        for pull in pulls {
            let url = format!(
                "{}/{}/{}/pull/{}",
                self.server, at.owner, at.name, pull.number
            );
            page.link(&format!("#{} {}", pull.number, pull.title), &url);
        }
        Some(page.reply())
    }
}

fn install_guard(dir: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let hook = dir.join("hooks").join("pre-receive");
    if hook.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(dir.join("hooks"))?;
    let mut file = tempfile::NamedTempFile::new_in(dir.join("hooks"))?;
    file.write_all(GUARD.as_bytes())?;
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
    Ok(feed(gzip, Some(body))?.stdout)
}
