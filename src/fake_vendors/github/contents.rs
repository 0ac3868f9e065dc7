//! Endpoints of files and branches, read from git.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::git::TreeEntry;
use super::rest::{
    ApiCall, RepoPath, RestResult, not_found, ok_json, rest_error, validation_error,
};
use crate::http::{HttpResponse, percent_encode};

impl ApiCall<'_> {
    pub(super) fn repository(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "metadata", "read")?;
        let login = &self.require_token()?.login;
        ok_json(self.read_repo(repo_path, |repo| {
            let mut value = self.host.repo_json(repo);
            let role = repo.collaborators.get(login).map(String::as_str);
            if let Some("read" | "triage" | "none") = role {
                value["permissions"]["push"] = json!(false);
            }
            value
        })?)
    }

    /// Returns the commit of `ref`, or of the default branch.
    fn revision(&self, repo_path: &RepoPath<'_>, name: Option<String>) -> Option<String> {
        let default = || {
            self.read_repo(repo_path, |repo| repo.default_branch.clone())
                .ok()
        };
        let name = name.or_else(default)?;
        let name = name.strip_prefix("refs/heads/").unwrap_or(&name);
        self.host
            .git(repo_path.owner, repo_path.name)
            .resolve_commit(name)
    }

    pub(super) fn contents(&self, repo_path: &RepoPath<'_>, path: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        let requested_ref = self.query_param("ref");
        let Some(commit) = self.revision(repo_path, requested_ref.clone()) else {
            return Err(match requested_ref {
                Some(name) => rest_error(404, format!("No commit found for the ref {name}")),
                None => rest_error(404, "This repository is empty."),
            });
        };
        let git = self.host.git(repo_path.owner, repo_path.name);
        let path = path.trim_matches('/');
        let entry = if path.is_empty() {
            None
        } else {
            git.tree_entry(&commit, path)
        };
        match entry {
            None if !path.is_empty() => Err(not_found()),
            Some(entry) if entry.kind == "blob" => {
                let bytes = git.read_file(&commit, path).unwrap_or_default();
                let raw = self
                    .request
                    .header("accept")
                    .is_some_and(|accept| accept.contains("raw"));
                if raw {
                    return Ok(HttpResponse::new(
                        200,
                        "application/vnd.github.raw+json; charset=utf-8",
                        bytes,
                    ));
                }
                let mut value = self.entry_json(repo_path, &commit, path, &entry);
                value["encoding"] = json!("base64");
                value["content"] = json!(base64_lines(&bytes));
                ok_json(value)
            }
            _ => {
                let entries = git.list_tree(&commit, path)?;
                let full_path = |name: &str| {
                    if path.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{path}/{name}")
                    }
                };
                let entries_json = entries.iter().map(|entry| {
                    self.entry_json(repo_path, &commit, &full_path(&entry.path), entry)
                });
                ok_json(entries_json.collect())
            }
        }
    }

    /// Returns the file of an expression such as `main:README.md`.
    pub(super) fn file_text(&self, repo_path: &RepoPath<'_>, expression: &str) -> Option<String> {
        self.require_permission(repo_path, "contents", "read")
            .ok()?;
        let (git_ref, path) = expression.split_once(':')?;
        let commit = self.revision(repo_path, Some(git_ref.to_owned()))?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        String::from_utf8(git.read_file(&commit, path)?).ok()
    }

    fn entry_json(
        &self,
        repo_path: &RepoPath<'_>,
        commit: &str,
        path: &str,
        entry: &TreeEntry,
    ) -> Value {
        let repo = format!(
            "{}/repos/{}/{}",
            self.host.api_url, repo_path.owner, repo_path.name
        );
        let shown = percent_encode(path);
        let kind = match (entry.kind.as_str(), entry.mode.as_str()) {
            ("tree", _) => "dir",
            ("commit", _) => "submodule",
            (_, "120000") => "symlink",
            _ => "file",
        };
        let url = format!("{repo}/contents/{shown}?ref={commit}");
        let git_url = format!("{repo}/git/{}s/{}", entry.kind, entry.sha);
        let html = format!(
            "{}/{}/{}/blob/{commit}/{shown}",
            self.host.server_url, repo_path.owner, repo_path.name
        );
        json!({
            "type": kind, "size": entry.size, "name": path.rsplit('/').next(), "path": path,
            "sha": entry.sha, "url": url, "git_url": git_url, "html_url": html,
            "download_url": if kind == "file" { json!(html) } else { Value::Null },
            "_links": {"self": url, "git": git_url, "html": html},
        })
    }

    pub(super) fn put_contents(&self, repo_path: &RepoPath<'_>, path: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        if path.starts_with(".github/workflows/") {
            self.require_permission(repo_path, "workflows", "write")?;
        }
        let git = self.host.git(repo_path.owner, repo_path.name);
        let default = self.read_repo(repo_path, |repo| repo.default_branch.clone())?;
        let branch = self.body_str("branch").unwrap_or(&default).to_owned();
        let content = self
            .body_str("content")
            .unwrap_or_default()
            .replace(['\n', '\r'], "");
        let content = BASE64
            .decode(content.as_bytes())
            .map_err(|_| rest_error(422, "content is not valid Base64"))?;
        let tip = git.branch_head(&branch);
        let existing = tip.as_ref().and_then(|tip| git.tree_entry(tip, path));
        let sent_sha = self.body_str("sha");
        match &existing {
            Some(entry) if sent_sha.is_none() => {
                let _ = entry;
                return Err(validation_error(
                    "Content",
                    "sha",
                    "\"sha\" wasn't supplied.",
                ));
            }
            Some(entry) if sent_sha != Some(entry.sha.as_str()) => {
                return Err(rest_error(
                    409,
                    format!("{path} does not match {}", sent_sha.unwrap_or_default()),
                ));
            }
            _ => {}
        }
        let message = self.body_str("message").unwrap_or("Update");
        let login = self.require_token()?.login.clone();
        let email = format!("{login}@users.noreply.github.com");
        let sha = git.commit(
            &branch,
            &[(path, Some(&content))],
            message,
            (&login, &email),
        )?;
        let entry = git.tree_entry(&sha, path).ok_or_else(not_found)?;
        let body = json!({"content": self.entry_json(repo_path, &sha, path, &entry), "commit": {"sha": sha, "message": message}});
        Ok(HttpResponse::json(
            if existing.is_some() { 200 } else { 201 },
            &body,
        ))
    }

    pub(super) fn list_branches(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        let heads = self
            .host
            .git(repo_path.owner, repo_path.name)
            .branch_heads();
        let branches = heads
            .iter()
            .map(|(name, sha)| json!({"name": name, "commit": {"sha": sha}, "protected": false}));
        self.paginate(branches.collect(), |_, items| items.into())
    }

    pub(super) fn branch(&self, repo_path: &RepoPath<'_>, branch: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        let sha = self
            .host
            .git(repo_path.owner, repo_path.name)
            .branch_head(branch);
        let sha = sha.ok_or_else(|| rest_error(404, "Branch not found"))?;
        let protection = self.read_repo(repo_path, |repo| repo.protection_of(branch).cloned())?;
        ok_json(json!({
            "name": branch, "commit": {"sha": sha}, "protected": protection.is_some(),
            "protection": protection.unwrap_or_default().json(),
        }))
    }
}

/// Encodes as Base64 in lines of 60 characters, as GitHub does.
fn base64_lines(bytes: &[u8]) -> String {
    let text = BASE64.encode(bytes);
    let lines = text.as_bytes().chunks(60);
    lines
        .map(|line| String::from_utf8_lossy(line).into_owned() + "\n")
        .collect()
}
