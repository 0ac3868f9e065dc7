//! Commits of several files, written through the Git Data API to a branch of the service.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// File of a new commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Content of the file.
    pub content: TreeContent,
}

/// Content of a file of a new commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeContent {
    /// Text to write.
    Text(String),
    /// Id of a blob that exists in the repository.
    Blob(String),
}

/// Commit to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit<'a> {
    /// Id of the parent commit.
    pub parent: &'a str,
    /// Commit message.
    pub message: &'a str,
    /// Files to add or replace.
    pub files: &'a [TreeFile],
}

impl GitHub {
    /// Returns the id of a branch's head commit. `None` if the branch does not exist.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn branch_sha(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Option<String>, VendorError> {
        let url = self.repo_url(repo, &format!("/git/ref/heads/{}", encode_branch(branch)));
        match self.read::<Reference>(repo, "reading a branch", url).await {
            Ok(page) => Ok(Some(page.value.object.sha)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the message of a commit.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn commit_message(&self, repo: &Repo, sha: &str) -> Result<String, VendorError> {
        Ok(self.commit(repo, sha).await?.message)
    }

    /// Returns whether commit `older` is `newer` or an ancestor of it.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
    pub async fn contains_commit(
        &self,
        repo: &Repo,
        newer: &str,
        older: &str,
    ) -> Result<bool, VendorError> {
        let range = format!("{}...{}", percent_encode(older), percent_encode(newer));
        let url = self.repo_url(repo, &format!("/compare/{range}?per_page=1"));
        match self
            .read::<Comparison>(repo, "comparing commits", url)
            .await
        {
            Ok(page) => Ok(page.value.behind_by == 0),
            // The commits have no common ancestor.
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Commits files to a branch and returns the id of the commit. `expected_head` is the head commit that
    /// the caller knows; `None` if the branch should not exist yet. Creates the branch, or force-updates it.
    /// Returns `None` without a change if the branch has another head by now.
    ///
    /// # Errors
    /// 403 or 404 if the credentials do not permit writing these files.
    pub async fn commit_files(
        &self,
        repo: &Repo,
        branch: &str,
        expected_head: Option<&str>,
        new: &NewCommit<'_>,
    ) -> Result<Option<String>, VendorError> {
        let base = self.commit(repo, new.parent).await?;
        let tree: Vec<_> = new.files.iter().map(tree_entry).collect();
        let tree: Object = self
            .send_json(
                repo,
                "writing the files",
                Method::POST,
                self.repo_url(repo, "/git/trees"),
                &json!({"base_tree": base.tree.sha, "tree": tree}),
            )
            .await?
            .json()?;
        let commit: Object = self
            .send_json(
                repo,
                "writing the commit",
                Method::POST,
                self.repo_url(repo, "/git/commits"),
                &json!({"message": new.message, "tree": tree.sha, "parents": [new.parent]}),
            )
            .await?
            .json()?;
        // The API has no compare-and-swap for branches. A push between these two calls is overwritten;
        // this check covers the longer time before them.
        if self.branch_sha(repo, branch).await?.as_deref() != expected_head {
            return Ok(None);
        }
        self.set_branch(repo, branch, expected_head, &commit.sha)
            .await?;
        Ok(Some(commit.sha))
    }

    async fn commit(&self, repo: &Repo, sha: &str) -> Result<Commit, VendorError> {
        let url = self.repo_url(repo, &format!("/git/commits/{}", percent_encode(sha)));
        let page = self.read::<Commit>(repo, "reading a commit", url).await?;
        Ok(page.value)
    }

    async fn set_branch(
        &self,
        repo: &Repo,
        branch: &str,
        expected_head: Option<&str>,
        sha: &str,
    ) -> Result<(), VendorError> {
        let (method, path, body) = match expected_head {
            None => (
                Method::POST,
                "/git/refs".to_owned(),
                json!({"ref": format!("refs/heads/{branch}"), "sha": sha}),
            ),
            Some(_) => (
                Method::PATCH,
                format!("/git/refs/heads/{}", encode_branch(branch)),
                json!({"sha": sha, "force": true}),
            ),
        };
        let url = self.repo_url(repo, &path);
        self.send_json(repo, "setting the branch", method, url, &body)
            .await
            .map(drop)
    }
}

fn tree_entry(file: &TreeFile) -> serde_json::Value {
    let mut entry = json!({"path": file.path, "mode": "100644", "type": "blob"});
    match &file.content {
        TreeContent::Text(text) => entry["content"] = json!(text),
        TreeContent::Blob(sha) => entry["sha"] = json!(sha),
    }
    entry
}

pub(super) fn encode_branch(branch: &str) -> String {
    let parts: Vec<String> = branch.split('/').map(percent_encode).collect();
    parts.join("/")
}

#[derive(Serialize, Deserialize)]
struct Reference {
    object: Object,
}

#[derive(Serialize, Deserialize)]
struct Object {
    sha: String,
}

#[derive(Serialize, Deserialize)]
struct Commit {
    tree: Object,
    message: String,
}

#[derive(Serialize, Deserialize)]
struct Comparison {
    behind_by: u64,
}
