//! Paths of the files that a pull request changes.

use serde::Deserialize;

use crate::http::VendorError;
use domain::feedback::PullRequestId;

use super::GitHub;

/// Head commit of a pull request with its first 100 changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPaths {
    /// Id of the head commit.
    pub head: String,
    /// Paths.
    pub paths: Vec<String>,
}

/// Fields of a pull request.
pub(super) const FIELDS: &str = "headRefOid files(first: 100) { nodes { path } }";

impl GitHub {
    /// Returns the paths of the files that a pull request changes. Takes one request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn changed_paths(&self, pull: &PullRequestId) -> Result<ChangedPaths, VendorError> {
        let action = "reading the changed files of a pull request";
        let node: FilesNode = self
            .pull_by_number(&pull.repo, action, pull.number, FIELDS)
            .await?;
        Ok(node.translate())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FilesNode {
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

impl FilesNode {
    pub(super) fn translate(self) -> ChangedPaths {
        let nodes = self.files.and_then(|files| files.nodes).unwrap_or_default();
        ChangedPaths {
            head: self.head_ref_oid,
            paths: nodes.into_iter().flatten().map(|file| file.path).collect(),
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
            let pull = json!({"headRefOid": "c0ffee", "files": files});
            let pull: FilesNode = serde_json::from_value(pull).unwrap();
            let found = pull.translate();
            assert_eq!(
                (found.head.as_str(), &found.paths[..]),
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
