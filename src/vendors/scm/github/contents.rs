//! Content of a repository: files and folder listings.

use serde::{Deserialize, Serialize};

use crate::http::{VendorError, percent_encode};
use domain::ids::Repo;

use super::GitHub;

/// Text file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// Entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Path from the root of the repository.
    pub path: String,
    /// Id of the git object.
    pub sha: String,
    /// Whether the entry is a file: neither a folder nor a link.
    pub is_file: bool,
}

impl GitHub {
    /// Returns a text file of at most 1 MB. `None` if the path does not exist or is no text file.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
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

    /// Lists a folder, at most 1,000 entries (the host's limit). The empty path is the root. `None` if the
    /// folder, branch or commit does not exist.
    ///
    /// # Errors
    /// Fails if the host rejects the request or does not respond.
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
        let base64: String = content.split_whitespace().collect();
        let bytes = data_encoding::BASE64.decode(base64.as_bytes()).ok()?;
        String::from_utf8(bytes).ok()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Listing {
    Folder(Vec<Entry>),
    /// The path is a file.
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
    /// File mode. Present in trees only, where a link is a blob with its own mode.
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
