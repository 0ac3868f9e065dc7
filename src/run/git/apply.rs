//! Application of an untrusted patch to a tree, without the index and the work tree.

use super::{Git, GitError, parse_object_id};
use crate::child::ChildOutput;

impl Git {
    /// Applies a patch to the tree of a commit and returns the resulting tree. Git rejects paths outside the
    /// repository and below `.git`.
    ///
    /// # Errors
    /// If the patch does not apply.
    pub(crate) async fn apply_to_tree(
        &self,
        commit: &str,
        patch: &str,
    ) -> Result<String, GitError> {
        let action = "git apply";
        let folder = tempfile::tempdir_in(&self.git_dir);
        let folder = folder.map_err(|cause| GitError::Io { action, cause })?;
        let index = folder.path().join("index");
        let run = async |args: &[&str], input: &str| -> Result<ChildOutput, GitError> {
            let mut spec = self.spec(args.iter().copied());
            spec.env = spec.env.with("GIT_INDEX_FILE", &index);
            spec.input = input.as_bytes().to_vec();
            self.run_spec(action, &spec).await
        };
        run(&["read-tree", commit], "").await?;
        run(&["apply", "--cached", "--whitespace=nowarn", "-"], patch).await?;
        parse_object_id(action, &run(&["write-tree"], "").await?)
    }
}
