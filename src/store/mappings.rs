//! Project mappings by team key, and an index of them by target repository.

use std::ops::ControlFlow;

use domain::ids::{Repo, TeamKey};
use domain::mapping::Mapping;

use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, WriteTx};
use super::tables::{MAPPINGS, MAPPINGS_BY_REPO};
use super::{StoreResult, jobs};

/// Mapping of a team.
pub fn get(tx: &impl ReadableTx, team: &TeamKey) -> StoreResult<Option<Mapping>> {
    MAPPINGS.get(tx, team.as_str())
}

/// All mappings, ordered by team key.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<Mapping>> {
    MAPPINGS.collect(tx, .., |_, mapping| mapping)
}

/// Target repository as its first mapping spells it; `repo` may differ in case.
pub fn canonical_target(tx: &impl ReadableTx, repo: &Repo) -> StoreResult<Option<Repo>> {
    let name = lowercase_name(repo);
    let mut target = None;
    let range = (name.as_str(), "")..=(name.as_str(), MAX_KEY_TEXT);
    MAPPINGS_BY_REPO.scan(tx, range, ScanDirection::Ascending, |_, repo| {
        target = Some(repo);
        ControlFlow::Break(())
    })?;
    Ok(target)
}

/// Repository as its jobs with pull requests spell it, else as its mapping does; `repo` may differ in case.
/// The jobs have priority, because their pull requests can be found only by the stored spelling.
pub fn canonical_repo(tx: &impl ReadableTx, repo: &Repo) -> StoreResult<Option<Repo>> {
    match jobs::canonical_pull_repo(tx, repo)? {
        Some(canonical) => Ok(Some(canonical)),
        None => canonical_target(tx, repo),
    }
}

/// Inserts or replaces a mapping.
pub fn put(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<()> {
    remove_from_index(tx, &mapping.team_key)?;
    add_to_index(tx, mapping)?;
    MAPPINGS.put(tx, mapping.team_key.as_str(), mapping)
}

/// Removes a mapping. Returns whether it existed.
pub fn remove(tx: &WriteTx<'_>, team: &TeamKey) -> StoreResult<bool> {
    remove_from_index(tx, team)?;
    MAPPINGS.remove(tx, team.as_str())
}

/// Builds the index in a store of schema version 2 or older.
pub(super) fn build_index(tx: &WriteTx<'_>) -> StoreResult<()> {
    let all = all(tx)?;
    all.iter().try_for_each(|mapping| add_to_index(tx, mapping))
}

fn add_to_index(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<()> {
    let target = mapping.target_repo();
    let name = lowercase_name(&target);
    let key = (name.as_str(), mapping.team_key.as_str());
    MAPPINGS_BY_REPO.put(tx, key, &target)
}

fn remove_from_index(tx: &WriteTx<'_>, team: &TeamKey) -> StoreResult<()> {
    if let Some(before) = get(tx, team)? {
        let name = lowercase_name(&before.target_repo());
        MAPPINGS_BY_REPO.remove(tx, (name.as_str(), team.as_str()))?;
    }
    Ok(())
}

fn lowercase_name(repo: &Repo) -> String {
    repo.to_string().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use serde_json::json;

    #[tokio::test]
    async fn finds_targets_of_mappings_in_any_case() {
        let store = Store::in_memory().unwrap();
        let to = |team: &str, owner: &str, repo: &str| {
            test_support::mapping(&json!({"teamKey": team, "owner": owner, "repo": repo}))
        };
        let put = |mapping: Mapping| store.write(move |tx| put(tx, &mapping));
        let target = |owner: &str, repo: &str| {
            let repo = Repo::new(owner, repo);
            store.read(|tx| canonical_target(tx, &repo)).unwrap()
        };
        put(to("B", "acme", "shop")).await.unwrap();
        put(to("A", "Acme", "Shop")).await.unwrap();
        put(to("C", "acme", "shopping")).await.unwrap();
        assert_eq!(target("ACME", "shop"), Some(Repo::new("Acme", "Shop")));
        put(to("A", "acme", "docs")).await.unwrap();
        assert_eq!(target("ACME", "shop"), Some(Repo::new("acme", "shop")));
        assert_eq!(target("acme", "DOCS"), Some(Repo::new("acme", "docs")));
        let removed = store.write(|tx| remove(tx, &"B".into())).await.unwrap();
        assert!(removed);
        assert_eq!(target("acme", "shop"), None);
        assert_eq!(target("acme", "shoppin"), None);
    }
}
