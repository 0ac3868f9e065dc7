//! Files of a repository, read one by one and written many at a time in one commit.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::ids::Repo;
use crate::wire::{Method, Request, VendorError, url_encoded};

use super::GitHub;

/// A text file as it stands on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    pub path: String,
    pub text: String,
}

impl GitHub {
    /// A file of at most a megabyte; none when there is no such file or it is no file.
    ///
    /// # Errors
    /// What the call failed with.
    pub async fn file(
        &self,
        repo: &Repo,
        path: &str,
        git_ref: &str,
    ) -> Result<Option<RepoFile>, VendorError> {
        let escaped: Vec<String> = path.split('/').map(url_encoded).collect();
        let url = self.repo_url(
            repo,
            &format!(
                "/contents/{}?ref={}",
                escaped.join("/"),
                url_encoded(git_ref)
            ),
        );
        let content = match self.read::<Content>(repo, "reading a file", url).await {
            Ok(page) => page.value,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(content.text().map(|text| RepoFile {
            path: path.to_owned(),
            text,
        }))
    }

    /// The commit at the end of a branch; none when there is no such branch.
    ///
    /// # Errors
    /// What the call failed with.
    pub async fn branch_sha(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Option<String>, VendorError> {
        let escaped: Vec<String> = branch.split('/').map(url_encoded).collect();
        let url = self.repo_url(repo, &format!("/git/ref/heads/{}", escaped.join("/")));
        match self.read::<Reference>(repo, "reading a branch", url).await {
            Ok(page) => Ok(Some(page.value.object.sha)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts files on a branch in one commit on top of `base_sha`, and answers the new commit. The
    /// branch is made, or set to it whatever stood there before.
    ///
    /// # Errors
    /// 403 or 404 when we may not write these files.
    pub async fn commit_files(
        &self,
        repo: &Repo,
        branch: &str,
        base_sha: &str,
        message: &str,
        files: &[RepoFile],
    ) -> Result<String, VendorError> {
        let base: Commit = self
            .send(
                repo,
                Request::get(
                    "reading the base commit",
                    self.repo_url(repo, &format!("/git/commits/{}", url_encoded(base_sha))),
                ),
            )
            .await?
            .json()?;
        let tree: Vec<_> = files
            .iter()
            .map(|file| {
                json!({"path": file.path, "mode": "100644", "type": "blob", "content": file.text})
            })
            .collect();
        let tree: Object = self
            .change(
                repo,
                "writing the files",
                Method::POST,
                self.repo_url(repo, "/git/trees"),
                &json!({"base_tree": base.tree.sha, "tree": tree}),
            )
            .await?
            .json()?;
        let commit: Object = self
            .change(
                repo,
                "writing the commit",
                Method::POST,
                self.repo_url(repo, "/git/commits"),
                &json!({"message": message, "tree": tree.sha, "parents": [base_sha]}),
            )
            .await?
            .json()?;
        self.set_branch(repo, branch, &commit.sha).await?;
        Ok(commit.sha)
    }

    async fn set_branch(&self, repo: &Repo, branch: &str, sha: &str) -> Result<(), VendorError> {
        const ACTION: &str = "setting the branch";
        if self.branch_sha(repo, branch).await?.is_none() {
            let body = json!({"ref": format!("refs/heads/{branch}"), "sha": sha});
            let url = self.repo_url(repo, "/git/refs");
            return self
                .change(repo, ACTION, Method::POST, url, &body)
                .await
                .map(drop);
        }
        let escaped: Vec<String> = branch.split('/').map(url_encoded).collect();
        let url = self.repo_url(repo, &format!("/git/refs/heads/{}", escaped.join("/")));
        let body = json!({"sha": sha, "force": true});
        self.change(repo, ACTION, Method::PATCH, url, &body)
            .await
            .map(drop)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Content {
    File { encoding: String, content: String },
    Other(serde_json::Value),
}

impl Content {
    fn text(&self) -> Option<String> {
        let Content::File { encoding, content } = self else {
            return None;
        };
        if encoding != "base64" {
            return None;
        }
        let packed: String = content.split_whitespace().collect();
        let bytes = data_encoding::BASE64.decode(packed.as_bytes()).ok()?;
        String::from_utf8(bytes).ok()
    }
}

#[derive(Serialize, Deserialize)]
struct Reference {
    object: Object,
}

#[derive(Serialize, Deserialize)]
struct Object {
    sha: String,
}

#[derive(Deserialize)]
struct Commit {
    tree: Object,
}
