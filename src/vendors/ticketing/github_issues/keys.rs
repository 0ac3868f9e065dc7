//! Keys of issues: `shop#12`, or `acme/shop#12` where the name of the repository is ambiguous.

use std::collections::HashMap;

use domain::ids::{IssueKey, Repo};
use domain::issue::IssueRef;
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

    /// Keys as they are beside an issue: those of its own repository look like its own.
    pub(super) fn beside(issue: &IssueRef) -> Self {
        let own = issue.repo_and_number().map(|(repo, _)| repo);
        let own = own.filter(|_| issue.key.without_owner().is_none());
        let owners = own.map(|repo| (repo.name.to_lowercase(), vec![repo.owner.to_lowercase()]));
        Self {
            owners: owners.into_iter().collect(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_name_the_owner_only_where_the_name_is_ambiguous() {
        let mapping = |team: &str, owner: &str, repo: &str| {
            let fields = json!({
                "teamKey": team, "owner": owner, "repo": repo, "ticketingProvider": "C",
            });
            test_support::mapping(&fields)
        };
        let mappings = [
            mapping("A", "acme", "shop"),
            mapping("B", "Umbrella", "Shop"),
            mapping("C", "acme", "lib"),
            mapping("D", "Acme", "Lib"),
        ];
        let keys = IssueKeys::new(&mappings.iter().collect::<Vec<_>>());
        for (repo, key) in [
            ("acme/shop", "acme/shop#7"),
            ("umbrella/shop", "umbrella/shop#7"),
            ("acme/lib", "lib#7"),
            ("ACME/LIB", "LIB#7"),
            ("other/lib", "other/lib#7"),
            ("acme/unmapped", "acme/unmapped#7"),
        ] {
            assert_eq!(keys.key(repo, 7).as_str(), key);
        }
    }
}
