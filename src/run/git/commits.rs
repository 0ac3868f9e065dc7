//! Commits: files, trees, ancestors, and the commit that is pushed.

use super::{Git, GitError, parse_object_id};
use domain::feedback::COMMIT_EMAIL;

impl Git {
    /// Reads a file of a commit; `None` if it does not exist or is not a regular file.
    pub(crate) async fn read_file(
        &self,
        commit: &str,
        path: &str,
    ) -> Result<Option<String>, GitError> {
        let listed = self
            .run("git ls-tree", ["ls-tree", "-z", commit, "--", path], &[])
            .await?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        // Symbolic links are not followed; they may point anywhere.
        let Some(blob) = listed
            .strip_prefix("100")
            .and_then(|entry| entry.split(['\t', ' ']).nth(2))
        else {
            return Ok(None);
        };
        let content = self
            .run("git cat-file", ["cat-file", "blob", blob], &[])
            .await?;
        Ok(Some(String::from_utf8_lossy(&content.stdout).into_owned()))
    }

    /// Commits a tree and moves the branch to the commit, without hooks and signature.
    pub(crate) async fn commit(
        &self,
        tree: &str,
        parent: &str,
        message: &str,
    ) -> Result<String, GitError> {
        let action = "git commit";
        let mut spec = self.spec(["commit-tree", tree, "-p", parent, "-F", "-"]);
        spec.input = message.as_bytes().to_vec();
        let (name, email) = ("Agent Implement", COMMIT_EMAIL);
        spec.env = spec
            .env
            .with("GIT_AUTHOR_NAME", name)
            .with("GIT_AUTHOR_EMAIL", email)
            .with("GIT_COMMITTER_NAME", name)
            .with("GIT_COMMITTER_EMAIL", email);
        let commit = parse_object_id(action, &self.run_spec(action, &spec).await?)?;
        self.run(
            action,
            ["update-ref", "--no-deref", "HEAD", commit.as_str()],
            &[],
        )
        .await?;
        Ok(commit)
    }

    /// Resolves a name to a commit.
    pub(crate) async fn resolve(&self, name: &str) -> Result<String, GitError> {
        let action = "git rev-parse";
        let name = format!("{name}^{{commit}}");
        let output = self
            .run(action, ["rev-parse", "--verify", "--quiet", &name], &[])
            .await?;
        parse_object_id(action, &output)
    }

    /// Returns the tree of a commit.
    pub(crate) async fn resolve_tree(&self, commit: &str) -> Result<String, GitError> {
        let action = "git rev-parse";
        let name = format!("{commit}^{{tree}}");
        let output = self
            .run(action, ["rev-parse", "--verify", "--quiet", &name], &[])
            .await?;
        parse_object_id(action, &output)
    }

    /// Returns the merge base of two commits; `None` if it is not in the fetched history.
    pub(crate) async fn merge_base(
        &self,
        one: &str,
        other: &str,
    ) -> Result<Option<String>, GitError> {
        let action = "git merge-base";
        match self.run(action, ["merge-base", one, other], &[]).await {
            Ok(output) => parse_object_id(action, &output).map(Some),
            Err(GitError::Failed { code: 1, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
