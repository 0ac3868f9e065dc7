//! Project mappings by team key, and by the repository that their runs work on.

use std::ops::ControlFlow;

use domain::ids::{Repo, TeamKey};
use domain::mapping::Mapping;

use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, WriteTx};
use super::tables::{MAPPINGS, MAPPINGS_BY_REPO};
use super::{StoreResult, jobs};

pub fn get(tx: &impl ReadableTx, team: &TeamKey) -> StoreResult<Option<Mapping>> {
    MAPPINGS.get(tx, team.as_str())
}

/// All mappings in the order of their keys.
pub fn all(tx: &impl ReadableTx) -> StoreResult<Vec<Mapping>> {
    MAPPINGS.collect(tx, .., |_, mapping| mapping)
}

/// A target repository as the first of its mappings writes it, whatever the case it is told in.
pub fn canonical_target(tx: &impl ReadableTx, told: &Repo) -> StoreResult<Option<Repo>> {
    let name = in_lower_case(told);
    let mut known = None;
    let range = (name.as_str(), "")..=(name.as_str(), MAX_KEY_TEXT);
    MAPPINGS_BY_REPO.scan(tx, range, ScanDirection::Ascending, |_, repo| {
        known = Some(repo);
        ControlFlow::Break(())
    })?;
    Ok(known)
}

/// A repository as it is known already, whatever the case it is told in: by its pull requests, which are
/// found by the very name alone, or by a mapping.
pub fn canonical_repo(tx: &impl ReadableTx, told: &Repo) -> StoreResult<Option<Repo>> {
    match jobs::canonical_pull_repo(tx, told)? {
        Some(known) => Ok(Some(known)),
        None => canonical_target(tx, told),
    }
}

pub fn put(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<()> {
    take_off_index(tx, &mapping.team_key)?;
    put_on_index(tx, mapping)?;
    MAPPINGS.put(tx, mapping.team_key.as_str(), mapping)
}

/// Whether there was such a mapping.
pub fn remove(tx: &WriteTx<'_>, team: &TeamKey) -> StoreResult<bool> {
    take_off_index(tx, team)?;
    MAPPINGS.remove(tx, team.as_str())
}

/// Builds the index of a store that was written before there was one.
pub(super) fn build_index(tx: &WriteTx<'_>) -> StoreResult<()> {
    let all = all(tx)?;
    all.iter().try_for_each(|mapping| put_on_index(tx, mapping))
}

fn put_on_index(tx: &WriteTx<'_>, mapping: &Mapping) -> StoreResult<()> {
    let target = mapping.target_repo();
    let name = in_lower_case(&target);
    let key = (name.as_str(), mapping.team_key.as_str());
    MAPPINGS_BY_REPO.put(tx, key, &target)
}

fn take_off_index(tx: &WriteTx<'_>, team: &TeamKey) -> StoreResult<()> {
    if let Some(before) = get(tx, team)? {
        let name = in_lower_case(&before.target_repo());
        MAPPINGS_BY_REPO.remove(tx, (name.as_str(), team.as_str()))?;
    }
    Ok(())
}

fn in_lower_case(repo: &Repo) -> String {
    repo.to_string().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use serde_json::json;

    #[tokio::test]
    async fn a_target_is_known_in_any_case_as_long_as_a_mapping_leads_to_it() {
        let store = Store::in_memory().unwrap();
        let to = |team: &str, owner: &str, repo: &str| {
            test_support::mapping(&json!({"teamKey": team, "owner": owner, "repo": repo}))
        };
        let put = |mapping: Mapping| store.write(move |tx| put(tx, &mapping));
        let known = |owner: &str, repo: &str| {
            let told = Repo::new(owner, repo);
            store.read(|tx| canonical_target(tx, &told)).unwrap()
        };
        put(to("B", "acme", "shop")).await.unwrap();
        put(to("A", "Acme", "Shop")).await.unwrap();
        put(to("C", "acme", "shopping")).await.unwrap();
        assert_eq!(known("ACME", "shop"), Some(Repo::new("Acme", "Shop")));
        put(to("A", "acme", "docs")).await.unwrap();
        assert_eq!(known("ACME", "shop"), Some(Repo::new("acme", "shop")));
        assert_eq!(known("acme", "DOCS"), Some(Repo::new("acme", "docs")));
        let gone = store.write(|tx| remove(tx, &"B".into())).await.unwrap();
        assert!(gone);
        assert_eq!(known("acme", "shop"), None);
        assert_eq!(known("acme", "shoppin"), None);
    }
}
