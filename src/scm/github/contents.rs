//! What stands in a repository: files, and what a folder holds.

use serde::{Deserialize, Serialize};

use crate::domain::ids::Repo;
use crate::wire::{VendorError, url_encoded};

use super::GitHub;

/// A text file as it stands on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    pub path: String,
    pub text: String,
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderEntry {
    /// From the repository's root.
    pub path: String,
    /// Git's name of its content.
    pub sha: String,
    /// `file`, `dir`, `symlink`, …
    #[serde(rename = "type")]
    pub kind: String,
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
        let url = self.contents_url(repo, path, git_ref);
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

    /// What a folder holds, at most the thousand entries that the host tells; the root is the empty
    /// path. None when there is no such folder, branch or commit.
    ///
    /// # Errors
    /// What the call failed with.
    pub async fn folder(
        &self,
        repo: &Repo,
        path: &str,
        git_ref: &str,
    ) -> Result<Option<Vec<FolderEntry>>, VendorError> {
        let url = self.contents_url(repo, path, git_ref);
        match self.read::<Listing>(repo, "reading a folder", url).await {
            Ok(page) => Ok(page.value.entries()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn contents_url(&self, repo: &Repo, path: &str, git_ref: &str) -> String {
        let escaped: Vec<String> = path.split('/').map(url_encoded).collect();
        let (path, git_ref) = (escaped.join("/"), url_encoded(git_ref));
        self.repo_url(repo, &format!("/contents/{path}?ref={git_ref}"))
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
#[serde(untagged)]
enum Listing {
    Folder(Vec<FolderEntry>),
    /// A file stands where a folder was expected.
    Other {},
}

impl Listing {
    fn entries(self) -> Option<Vec<FolderEntry>> {
        match self {
            Listing::Folder(entries) => Some(entries),
            Listing::Other {} => None,
        }
    }
}
