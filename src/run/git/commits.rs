//! Commits: files, trees, ancestors, and the commit that is pushed.

use std::collections::HashSet;

use super::{Git, GitError, parse_object_id};
use domain::feedback::COMMIT_EMAIL;

/// Maximum number of titles of commits that are read.
const MAX_TITLES: usize = 30;

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
        self.commit_with_parents(tree, &[parent], message).await
    }

    /// Commits a tree with these parents. See [`Git::commit`].
    pub(crate) async fn commit_with_parents(
        &self,
        tree: &str,
        parents: &[&str],
        message: &str,
    ) -> Result<String, GitError> {
        let action = "git commit";
        let mut args = vec!["commit-tree", tree];
        args.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        args.extend(["-F", "-"]);
        let mut spec = self.spec(args);
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

    /// Returns the titles of the latest commits after `from`, up to `to`, that changed one of these files.
    pub(crate) async fn commit_titles(
        &self,
        from: &str,
        to: &str,
        paths: &[&str],
    ) -> Result<Vec<String>, GitError> {
        let (range, count) = (format!("{from}..{to}"), format!("-n{MAX_TITLES}"));
        let mut args = vec!["log", "--no-merges", "--format=%s", &count, &range, "--"];
        args.extend(paths);
        let output = self.run("git log", args, &[]).await?;
        let titles = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(titles.lines().map(str::to_owned).collect())
    }

    /// Returns whether older history exists that was not fetched.
    pub(crate) fn is_shallow(&self) -> bool {
        self.git_dir.join("shallow").exists()
    }

    /// Returns whether all commits between a common ancestor and the tips were fetched with their parents, so
    /// that no later common ancestor exists.
    pub(crate) async fn is_history_complete(
        &self,
        ancestor: &str,
        tips: [&str; 2],
    ) -> Result<bool, GitError> {
        let action = "git rev-list";
        let cut = match std::fs::read_to_string(self.git_dir.join("shallow")) {
            Ok(cut) => cut,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            Err(cause) => return Err(GitError::Io { action, cause }),
        };
        let cut: HashSet<&str> = cut.lines().collect();
        let args = ["rev-list", tips[0], tips[1], "--not", ancestor];
        let output = self.run(action, args, &[]).await?;
        let commits = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(!commits.lines().any(|commit| cut.contains(commit)))
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
