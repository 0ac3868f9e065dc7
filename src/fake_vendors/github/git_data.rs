//! Endpoints of git references, blobs, trees and commits.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json, rest_error};
use crate::http::HttpResponse;

impl ApiCall<'_> {
    pub(super) fn git_ref(&self, repo_path: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        let branch = name.strip_prefix("heads/").ok_or_else(not_found)?;
        let sha = self
            .host
            .git(repo_path.owner, repo_path.name)
            .branch_head(branch)
            .ok_or_else(not_found)?;
        ok_json(self.ref_json(repo_path, branch, &sha))
    }

    fn ref_json(&self, repo_path: &RepoPath<'_>, branch: &str, sha: &str) -> Value {
        let repo = format!(
            "{}/repos/{}/{}",
            self.host.api_url, repo_path.owner, repo_path.name
        );
        json!({
            "ref": format!("refs/heads/{branch}"), "node_id": format!("REF_{branch}"),
            "url": format!("{repo}/git/refs/heads/{branch}"),
            "object": {"type": "commit", "sha": sha, "url": format!("{repo}/git/commits/{sha}")},
        })
    }

    pub(super) fn create_ref(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let name = self.body_str("ref").unwrap_or_default();
        let sha = self.body_str("sha").unwrap_or_default();
        let branch = name.strip_prefix("refs/heads/").ok_or_else(|| {
            rest_error(
                422,
                "Reference name must start with 'refs/' and have at least two slashes.",
            )
        })?;
        if git.branch_head(branch).is_some() {
            return Err(rest_error(422, "Reference already exists"));
        }
        if git.resolve_commit(sha).is_none() {
            return Err(rest_error(422, "Object does not exist"));
        }
        self.check_workflow_permission(repo_path, None, sha)?;
        git.update_ref(name, sha)?;
        Ok(HttpResponse::json(
            201,
            &self.ref_json(repo_path, branch, sha),
        ))
    }

    pub(super) fn update_ref(&self, repo_path: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let branch = name.strip_prefix("heads/").ok_or_else(not_found)?;
        let sha = self.body_str("sha").unwrap_or_default();
        let old = git
            .branch_head(branch)
            .ok_or_else(|| rest_error(422, "Reference does not exist"))?;
        if git.resolve_commit(sha).is_none() {
            return Err(rest_error(422, "Object does not exist"));
        }
        let is_forced = self.body["force"] == Value::Bool(true);
        if !is_forced && git.merge_base(&old, sha).as_deref() != Some(old.as_str()) {
            return Err(rest_error(422, "Update is not a fast forward"));
        }
        self.check_workflow_permission(repo_path, Some(&old), sha)?;
        git.update_ref(&format!("refs/heads/{branch}"), sha)?;
        ok_json(self.ref_json(repo_path, branch, sha))
    }

    pub(super) fn delete_ref(&self, repo_path: &RepoPath<'_>, name: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let branch = name.strip_prefix("heads/").ok_or_else(not_found)?;
        git.branch_head(branch)
            .ok_or_else(|| rest_error(422, "Reference does not exist"))?;
        git.output_text(&["update-ref", "-d", &format!("refs/heads/{branch}")])?;
        Ok(HttpResponse::empty(204))
    }

    /// Checks that the token may change workflow files, if the move changes any.
    fn check_workflow_permission(
        &self,
        repo_path: &RepoPath<'_>,
        old: Option<&str>,
        new: &str,
    ) -> Result<(), RestError> {
        if self.require_token()?.has_permission("workflows", "write") {
            return Ok(());
        }
        let git = self.host.git(repo_path.owner, repo_path.name);
        let default = self.read_repo(repo_path, |repo| repo.default_branch.clone())?;
        let from = old.map(str::to_owned).or_else(|| git.branch_head(&default));
        let Some(from) = from else { return Ok(()) };
        let touched =
            git.output_text(&["diff", "--name-only", &from, new, "--", ".github/workflows"])?;
        match touched.lines().next() {
            Some(path) => Err(rest_error(
                403,
                format!(
                    "refusing to allow a GitHub App to create or update workflow `{path}` without `workflows` permission"
                ),
            )),
            None => Ok(()),
        }
    }

    pub(super) fn create_blob(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let content = self.body_str("content").unwrap_or_default();
        let bytes = match self.body_str("encoding") {
            Some("base64") => BASE64
                .decode(content.replace('\n', "").as_bytes())
                .map_err(|_| rest_error(422, "content is not valid Base64"))?,
            _ => content.as_bytes().to_vec(),
        };
        let sha = self
            .host
            .git(repo_path.owner, repo_path.name)
            .write_blob(&bytes)?;
        Ok(HttpResponse::json(
            201,
            &json!({"sha": sha, "url": format!("{}/repos/{}/{}/git/blobs/{sha}", self.host.api_url, repo_path.owner, repo_path.name)}),
        ))
    }

    pub(super) fn create_tree(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let mut entries = Vec::new();
        for entry in self.body["tree"].as_array().into_iter().flatten() {
            let field = |name: &str| entry[name].as_str().map(str::to_owned);
            let path = field("path").ok_or_else(|| rest_error(422, "tree.path is missing"))?;
            let mode = field("mode").unwrap_or_else(|| "100644".into());
            let sha = match field("content") {
                Some(content) => Some(git.write_blob(content.as_bytes())?),
                None => field("sha"),
            };
            entries.push((path, mode, sha));
        }
        let sha = git.write_tree(self.body_str("base_tree"), &entries)?;
        Ok(HttpResponse::json(201, &self.tree_json(repo_path, &sha)?))
    }

    pub(super) fn read_tree(&self, repo_path: &RepoPath<'_>, sha: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        ok_json(self.tree_json(repo_path, sha).map_err(|_| not_found())?)
    }

    fn tree_json(&self, repo_path: &RepoPath<'_>, sha: &str) -> Result<Value, RestError> {
        let git = self.host.git(repo_path.owner, repo_path.name);
        let sha = git.output_text(&[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{sha}^{{tree}}"),
        ])?;
        let mut args = vec!["ls-tree", "-l"];
        if self.query_param("recursive").is_some() {
            args.push("-r");
        }
        args.push(&sha);
        let listing = git.output_text(&args)?;
        let entries: Vec<Value> = listing
            .lines()
            .filter_map(super::git::parse_tree_entry)
            .map(|entry| json!({"path": entry.path, "mode": entry.mode, "type": entry.kind, "sha": entry.sha, "size": entry.size}))
            .collect();
        Ok(json!({"sha": sha, "tree": entries, "truncated": false}))
    }

    pub(super) fn create_commit(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "contents", "write")?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let parents = self.body["parents"].as_array().cloned().unwrap_or_default();
        let parents: Vec<String> = parents
            .iter()
            .filter_map(|p| p.as_str().map(str::to_owned))
            .collect();
        let login = self.require_token()?.login.clone();
        let email = format!("{login}@users.noreply.github.com");
        let author = (
            self.body["author"]["name"].as_str().unwrap_or(&login),
            self.body["author"]["email"].as_str().unwrap_or(&email),
        );
        let message = self.body_str("message").unwrap_or_default();
        let sha = git.commit_tree(
            self.body_str("tree").unwrap_or_default(),
            &parents,
            message,
            author,
        )?;
        Ok(HttpResponse::json(201, &self.commit_json(repo_path, &sha)?))
    }

    pub(super) fn read_commit(&self, repo_path: &RepoPath<'_>, sha: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        ok_json(self.commit_json(repo_path, sha).map_err(|_| not_found())?)
    }

    fn commit_json(&self, repo_path: &RepoPath<'_>, sha: &str) -> Result<Value, RestError> {
        let git = self.host.git(repo_path.owner, repo_path.name);
        let tree = git.output_text(&[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{sha}^{{tree}}"),
        ])?;
        let parents = git.output_text(&["rev-list", "--parents", "-n", "1", sha])?;
        let parents: Vec<Value> = parents
            .split_whitespace()
            .skip(1)
            .map(|sha| json!({"sha": sha}))
            .collect();
        let commit = git
            .log(&format!("{sha}^!"))
            .into_iter()
            .next()
            .ok_or_else(not_found)?;
        Ok(json!({
            "sha": commit.sha, "message": commit.message, "tree": {"sha": tree}, "parents": parents,
            "author": {"name": commit.author, "email": commit.email},
            "html_url": format!("{}/{}/{}/commit/{sha}", self.host.server_url, repo_path.owner, repo_path.name),
        }))
    }

    pub(super) fn compare(&self, repo_path: &RepoPath<'_>, range: &str) -> RestResult {
        self.require_permission(repo_path, "contents", "read")?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let (base, head) = range.split_once("...").ok_or_else(not_found)?;
        let (base, head) = (
            git.resolve_commit(base).ok_or_else(not_found)?,
            git.resolve_commit(head).ok_or_else(not_found)?,
        );
        let from = git.merge_base(&base, &head).ok_or_else(not_found)?;
        let ahead = git.log(&format!("{base}..{head}"));
        let behind = git.log(&format!("{head}..{base}")).len();
        let files: Vec<Value> = git
            .diff(&from, &head)?
            .iter()
            .map(super::pulls::file_json)
            .collect();
        let commits: Vec<Value> = ahead
            .iter()
            .rev()
            .map(|c| json!({"sha": c.sha, "commit": {"message": c.message}}))
            .collect();
        let status = match (ahead.len(), behind) {
            (0, 0) => "identical",
            (_, 0) => "ahead",
            (0, _) => "behind",
            _ => "diverged",
        };
        ok_json(
            json!({"status": status, "ahead_by": ahead.len(), "behind_by": behind, "total_commits": ahead.len(), "merge_base_commit": {"sha": from}, "commits": commits, "files": files}),
        )
    }
}
