//! Failing checks of base branches, read once per head commit.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::Repo;
use domain::red_checks::{CheckKey, CheckOutcome, HeadCheck};
use vendors::scm::GitHub;

use crate::app::App;

/// Maximum number of commits whose checks are kept.
const MAX_COMMITS: usize = 64;

/// Failing checks by commit.
type ByCommit = VecDeque<((Repo, String), Arc<BTreeSet<CheckKey>>)>;

/// Failing checks of commits of base branches whose checks have all ended. The last read is at the back.
#[derive(Default)]
pub struct BaseChecks(Mutex<ByCommit>);

impl BaseChecks {
    fn get(&self, repo: &Repo, sha: &str) -> Option<Arc<BTreeSet<CheckKey>>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = known.iter();
        let found = known.find(|((of, commit), _)| of == repo && commit == sha);
        found.map(|(_, checks)| Arc::clone(checks))
    }

    fn put(&self, repo: &Repo, sha: &str, failing: Arc<BTreeSet<CheckKey>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_COMMITS {
            known.pop_front();
        }
        known.push_back(((repo.clone(), sha.to_owned()), failing));
    }
}

/// Returns the checks that fail on a commit of a base branch.
pub(super) async fn failing(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    sha: &str,
) -> Result<Arc<BTreeSet<CheckKey>>, String> {
    if let Some(known) = app.live.base_checks.get(repo, sha) {
        return Ok(known);
    }
    let checks = github.head_checks(repo, sha).await;
    let checks = checks.map_err(|error| error.to_string())?;
    let is_failing = |check: &&HeadCheck| {
        matches!(
            check.outcome,
            CheckOutcome::Failed | CheckOutcome::FailedIfRequired
        )
    };
    let failing = checks.iter().filter(is_failing).map(HeadCheck::key);
    let failing = Arc::new(failing.collect());
    let has_pending = checks
        .iter()
        .any(|check| check.outcome == CheckOutcome::Pending);
    if !has_pending {
        app.live.base_checks.put(repo, sha, Arc::clone(&failing));
    }
    Ok(failing)
}
