//! Many files in one commit, on a branch that is ours to move.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::{Method, VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// A file of a commit that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    pub path: String,
    pub content: TreeContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeContent {
    Text(String),
    /// What the repository holds already, by git's name of it.
    Blob(String),
}

/// A commit to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit<'a> {
    /// The commit that it stands on.
    pub parent: &'a str,
    pub message: &'a str,
    pub files: &'a [TreeFile],
}

impl GitHub {
    /// The commit at the end of a branch; none when there is no such branch.
    ///
    /// # Errors
    /// What the call failed with.
    pub async fn branch_sha(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Option<String>, VendorError> {
        let url = self.repo_url(repo, &format!("/git/ref/heads/{}", escaped(branch)));
        match self.read::<Reference>(repo, "reading a branch", url).await {
            Ok(page) => Ok(Some(page.value.object.sha)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is said about a commit.
    ///
    /// # Errors
    /// What the call failed with.
    pub async fn commit_message(&self, repo: &Repo, sha: &str) -> Result<String, VendorError> {
        Ok(self.commit(repo, sha).await?.message)
    }

    /// Whether everything up to commit `older` is in what leads to commit `newer`.
    ///
    /// # Errors
    /// What the call failed with.
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
            // They have no commit in common.
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts files on a branch in one commit, and answers the commit. The branch is made, or set to
    /// it whatever stood there, as long as that is `seen`, the commit that the caller knows of;
    /// none is answered when it is another by now.
    ///
    /// # Errors
    /// 403 or 404 when we may not write these files.
    pub async fn commit_files(
        &self,
        repo: &Repo,
        branch: &str,
        seen: Option<&str>,
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
        // The host cannot be asked to move a branch from one commit to another, so somebody may
        // still come between these two calls; nobody can in the longer time before them.
        if self.branch_sha(repo, branch).await?.as_deref() != seen {
            return Ok(None);
        }
        self.set_branch(repo, branch, seen, &commit.sha).await?;
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
        seen: Option<&str>,
        sha: &str,
    ) -> Result<(), VendorError> {
        let (method, path, body) = match seen {
            None => (
                Method::POST,
                "/git/refs".to_owned(),
                json!({"ref": format!("refs/heads/{branch}"), "sha": sha}),
            ),
            Some(_) => (
                Method::PATCH,
                format!("/git/refs/heads/{}", escaped(branch)),
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

fn escaped(branch: &str) -> String {
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
