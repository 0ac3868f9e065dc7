//! What stands in a repository: files, and what a folder holds.

use serde::{Deserialize, Serialize};

use crate::http::{VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// A text file as it stands on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    pub path: String,
    pub text: String,
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// From the repository's root.
    pub path: String,
    /// Git's name of its content.
    pub sha: String,
    /// Neither a folder nor a link.
    pub is_file: bool,
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
        const ACTION: &str = "reading a folder";
        let read = if path.is_empty() {
            let url = self.repo_url(repo, &format!("/git/trees/{}", percent_encode(git_ref)));
            let page = self.read::<Tree>(repo, ACTION, url).await;
            page.map(|page| Some(page.value.tree))
        } else {
            let url = self.contents_url(repo, path, git_ref);
            let page = self.read::<Listing>(repo, ACTION, url).await;
            page.map(|page| page.value.entries())
        };
        match read {
            Ok(entries) => Ok(entries.map(|all| all.into_iter().map(Entry::translate).collect())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn contents_url(&self, repo: &Repo, path: &str, git_ref: &str) -> String {
        let escaped: Vec<String> = path.split('/').map(percent_encode).collect();
        let (path, git_ref) = (escaped.join("/"), percent_encode(git_ref));
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
    Folder(Vec<Entry>),
    /// A file stands where a folder was expected.
    Other {},
}

impl Listing {
    fn entries(self) -> Option<Vec<Entry>> {
        match self {
            Listing::Folder(entries) => Some(entries),
            Listing::Other {} => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Tree {
    tree: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    path: String,
    sha: String,
    #[serde(rename = "type")]
    kind: String,
    /// Told in trees only, where a link is a blob of its own mode.
    #[serde(default)]
    mode: Option<String>,
}

impl Entry {
    fn translate(self) -> FolderEntry {
        const LINK: &str = "120000";
        let is_file = matches!(self.kind.as_str(), "file" | "blob");
        FolderEntry {
            is_file: is_file && self.mode.as_deref() != Some(LINK),
            path: self.path,
            sha: self.sha,
        }
    }
}
