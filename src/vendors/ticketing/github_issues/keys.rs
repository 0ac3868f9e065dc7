//! Keys of issues: `shop#12`, or `acme/shop#12` where the name of the repository is ambiguous.

use std::collections::HashMap;

use domain::ids::{IssueKey, Repo};
use domain::mapping::Mapping;

/// Names of the mapped repositories, which decide whether a key names the owner.
pub(super) struct IssueKeys {
    /// Owners of the mapped repositories with a name, in lower case.
    owners: HashMap<String, Vec<String>>,
}

impl IssueKeys {
    pub(super) fn new(mappings: &[&Mapping]) -> Self {
        let mut owners: HashMap<String, Vec<String>> = HashMap::new();
        for mapping in mappings {
            let of_name = owners.entry(mapping.repo.to_lowercase()).or_default();
            let owner = mapping.owner.to_lowercase();
            if !of_name.contains(&owner) {
                of_name.push(owner);
            }
        }
        Self { owners }
    }

    /// Returns the key of an issue. It names the owner unless exactly one repository of this name is
    /// mapped, and the issue is in that one.
    pub(super) fn key(&self, full_name: &str, number: u64) -> IssueKey {
        let repo = Repo::parse(full_name).unwrap_or_else(|| Repo::new("", full_name));
        let owners = self.owners.get(&repo.name.to_lowercase());
        let is_unique = owners.is_some_and(|owners| *owners == [repo.owner.to_lowercase()]);
        match is_unique {
            true => IssueKey::new(format!("{}#{number}", repo.name)),
            false => IssueKey::of_repo_issue(&repo, number),
        }
    }
}
