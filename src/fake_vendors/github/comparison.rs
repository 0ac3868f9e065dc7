//! Comparisons of the head of a pull request with its base.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::GitHubInner;
use super::git::BareRepository;
use super::rest::RepoPath;
use crate::persistence::lock;

/// Maximum number of comparisons that are kept.
const MAX_KEPT: usize = 10_000;

/// Comparison of a head with its base.
pub(crate) struct Comparison {
    /// Paths that the head changes since it left the base.
    pub paths: Vec<String>,
    pub additions: u64,
    pub deletions: u64,
    /// Number of commits that the base does not contain.
    pub commits: usize,
    /// Whether both merge without conflicts.
    pub is_mergeable: bool,
}

impl Comparison {
    /// Returns the comparison of commits that git cannot compare.
    fn unknown() -> Self {
        Self {
            paths: Vec::new(),
            additions: 0,
            deletions: 0,
            commits: 0,
            is_mergeable: true,
        }
    }
}

/// Comparisons by the SHAs of base and head. They are kept, because starting git takes milliseconds and each listing
/// asks for all open pull requests.
#[derive(Default)]
pub(crate) struct Comparisons(Mutex<HashMap<(String, String), Arc<Comparison>>>);

impl GitHubInner {
    /// Returns the comparison of a head with the present head of a base branch. Starts git: the model must not be
    /// locked.
    pub(crate) fn compare(
        &self,
        repo_path: &RepoPath<'_>,
        base_branch: &str,
        head: &str,
    ) -> Arc<Comparison> {
        let git = self.git(repo_path.owner, repo_path.name);
        let base = git.branch_head(base_branch).unwrap_or_default();
        let ends = (base, head.to_owned());
        if let Some(kept) = lock(&self.comparisons.0).get(&ends) {
            return kept.clone();
        }
        let Ok(compared) = git.compare(&ends.0, head) else {
            return Arc::new(Comparison::unknown());
        };
        let compared = Arc::new(compared);
        let mut kept = lock(&self.comparisons.0);
        if kept.len() == MAX_KEPT {
            kept.clear();
        }
        kept.insert(ends, compared.clone());
        compared
    }
}

impl BareRepository {
    /// Fails if the head has no commit in common with the base, or if one of them does not exist.
    fn compare(&self, base: &str, head: &str) -> anyhow::Result<Comparison> {
        if base.is_empty() || head.is_empty() {
            anyhow::bail!("No such commit");
        }
        let files = self.diff_since_base(base, head)?;
        Ok(Comparison {
            additions: files.iter().map(|file| file.additions).sum(),
            deletions: files.iter().map(|file| file.deletions).sum(),
            paths: files.into_iter().map(|file| file.path).collect(),
            commits: self.log(&format!("{base}..{head}")).len(),
            is_mergeable: self.is_mergeable(base, head),
        })
    }
}
