//! Changed files of several pull requests, read in one request.

use std::collections::HashMap;

use serde::Deserialize;

use crate::http::VendorError;
use domain::ids::Repo;

use super::GitHub;

/// Maximum number of pull requests per request.
pub const MAX_PULLS_OF_FILES: usize = 25;

/// Head commit of a pull request with its first 100 changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFiles {
    /// Id of the head commit.
    pub head: String,
    /// Paths.
    pub files: Vec<String>,
}

/// Fields of one pull request.
const FIELDS: &str = "number headRefOid files(first: 100) { nodes { path } }";

impl GitHub {
    /// Returns the changed files of the first [`MAX_PULLS_OF_FILES`] of these pull requests by number. Takes one request.
    ///
    /// # Errors
    /// `is_not_found()` if one of the pull requests does not exist.
    pub async fn files_of_pulls(
        &self,
        repo: &Repo,
        numbers: &[u64],
    ) -> Result<HashMap<u64, ChangedFiles>, VendorError> {
        let numbers = &numbers[..numbers.len().min(MAX_PULLS_OF_FILES)];
        let action = "reading the changed files of pull requests";
        let pulls: Vec<PullNode> = self.pulls_by_number(repo, action, numbers, FIELDS).await?;
        let pulls = pulls.into_iter();
        Ok(pulls.map(|pull| (pull.number, pull.translate())).collect())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullNode {
    number: u64,
    head_ref_oid: String,
    /// Null while the host computes them.
    files: Option<Files>,
}

#[derive(Deserialize)]
struct Files {
    nodes: Option<Vec<Option<File>>>,
}

#[derive(Deserialize)]
struct File {
    path: String,
}

impl PullNode {
    fn translate(self) -> ChangedFiles {
        let nodes = self.files.and_then(|files| files.nodes).unwrap_or_default();
        ChangedFiles {
            head: self.head_ref_oid,
            files: nodes.into_iter().flatten().map(|file| file.path).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_paths_and_tolerates_missing_ones() {
        for (files, expected) in [
            (
                json!({"nodes": [{"path": "a.rs"}, null, {"path": "b.rs"}]}),
                &["a.rs", "b.rs"][..],
            ),
            (json!({"nodes": null}), &[]),
            (json!(null), &[]),
        ] {
            let pull = json!({"number": 7, "headRefOid": "c0ffee", "files": files});
            let pull: PullNode = serde_json::from_value(pull).unwrap();
            let found = pull.translate();
            assert_eq!(
                (found.head.as_str(), &found.files[..]),
                (
                    "c0ffee",
                    &expected
                        .iter()
                        .map(|path| (*path).to_owned())
                        .collect::<Vec<_>>()[..]
                )
            );
        }
    }
}
