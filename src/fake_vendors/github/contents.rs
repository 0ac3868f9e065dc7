//! Files and branches over REST, straight from git.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::git::TreeEntry;
use super::rest::{
    ApiCall, RepoPath, RestResult, not_found, ok_json, rest_error, validation_error,
};
use crate::http::{HttpResponse, percent_encode};

impl ApiCall<'_> {
    pub fn repository(&self, at: &RepoPath<'_>) -> RestResult {
        self.require_permission(at, "metadata", "read")?;
        ok_json(self.read_repo(at, |repo| self.host.repo_json(repo))?)
    }

    /// The commit that `ref` (or the default branch) stands for.
    fn revision(&self, at: &RepoPath<'_>, name: Option<String>) -> Option<String> {
        let default = || self.read_repo(at, |repo| repo.default_branch.clone()).ok();
        let name = name.or_else(default)?;
        let name = name.strip_prefix("refs/heads/").unwrap_or(&name);
        self.host.git(at.owner, at.name).resolve_commit(name)
    }

    pub fn contents(&self, at: &RepoPath<'_>, path: &str) -> RestResult {
        self.require_permission(at, "contents", "read")?;
        let asked = self.query_param("ref");
        let Some(commit) = self.revision(at, asked.clone()) else {
            return Err(match asked {
                Some(name) => rest_error(404, format!("No commit found for the ref {name}")),
                None => rest_error(404, "This repository is empty."),
            });
        };
        let git = self.host.git(at.owner, at.name);
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
                let mut shape = self.entry_shape(at, &commit, path, &entry);
                shape["encoding"] = json!("base64");
                shape["content"] = json!(wrapped(&bytes));
                ok_json(shape)
            }
            _ => {
                let entries = git.list_tree(&commit, path)?;
                let full = |name: &str| {
                    if path.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{path}/{name}")
                    }
                };
                let shapes = entries
                    .iter()
                    .map(|entry| self.entry_shape(at, &commit, &full(&entry.path), entry));
                ok_json(shapes.collect())
            }
        }
    }

    fn entry_shape(&self, at: &RepoPath<'_>, commit: &str, path: &str, entry: &TreeEntry) -> Value {
        let repo = format!("{}/repos/{}/{}", self.host.api_url, at.owner, at.name);
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
            self.host.server_url, at.owner, at.name
        );
        json!({
            "type": kind, "size": entry.size, "name": path.rsplit('/').next(), "path": path,
            "sha": entry.sha, "url": url, "git_url": git_url, "html_url": html,
            "download_url": if kind == "file" { json!(html) } else { Value::Null },
            "_links": {"self": url, "git": git_url, "html": html},
        })
    }

    pub fn put_contents(&self, at: &RepoPath<'_>, path: &str) -> RestResult {
        self.require_permission(at, "contents", "write")?;
        if path.starts_with(".github/workflows/") {
            self.require_permission(at, "workflows", "write")?;
        }
        let git = self.host.git(at.owner, at.name);
        let default = self.read_repo(at, |repo| repo.default_branch.clone())?;
        let branch = self.body_str("branch").unwrap_or(&default).to_owned();
        let content = self
            .body_str("content")
            .unwrap_or_default()
            .replace(['\n', '\r'], "");
        let content = BASE64
            .decode(content.as_bytes())
            .map_err(|_| rest_error(422, "content is not valid Base64"))?;
        let tip = git.branch_head(&branch);
        let present = tip.as_ref().and_then(|tip| git.tree_entry(tip, path));
        let given = self.body_str("sha");
        match &present {
            Some(entry) if given.is_none() => {
                let _ = entry;
                return Err(validation_error(
                    "Content",
                    "sha",
                    "\"sha\" wasn't supplied.",
                ));
            }
            Some(entry) if given != Some(entry.sha.as_str()) => {
                return Err(rest_error(
                    409,
                    format!("{path} does not match {}", given.unwrap_or_default()),
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
        let body = json!({"content": self.entry_shape(at, &sha, path, &entry), "commit": {"sha": sha, "message": message}});
        Ok(HttpResponse::json(
            if present.is_some() { 200 } else { 201 },
            &body,
        ))
    }

    pub fn branch(&self, at: &RepoPath<'_>, branch: &str) -> RestResult {
        self.require_permission(at, "contents", "read")?;
        let sha = self.host.git(at.owner, at.name).branch_head(branch);
        let sha = sha.ok_or_else(|| rest_error(404, "Branch not found"))?;
        ok_json(json!({"name": branch, "commit": {"sha": sha}, "protected": false}))
    }
}

/// Base64 in lines of sixty, as the host sends it.
fn wrapped(bytes: &[u8]) -> String {
    let text = BASE64.encode(bytes);
    let lines = text.as_bytes().chunks(60);
    lines
        .map(|line| String::from_utf8_lossy(line).into_owned() + "\n")
        .collect()
}
