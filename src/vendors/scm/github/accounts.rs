//! Rate limit accounts: each installation of the App has one for the REST API and one for the GraphQL API.

use super::GitHub;
use crate::http::now_millis;

const INSTALLATION: &str = "installation ";
const GRAPHQL: &str = "graphql";

/// Requests that rate limits reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitScope {
    /// Requests about all repositories.
    AllRepositories,
    /// Requests about the repositories of some installations.
    SomeRepositories,
    /// Requests to the GraphQL API, which reads reviews and sets the draft flag.
    GraphQl,
}

/// Returns the name of the account of REST requests. Empty for a plain token.
pub(super) fn rest(installation: Option<u64>) -> String {
    installation.map_or_else(String::new, |id| format!("{INSTALLATION}{id}"))
}

/// Returns the name of the account of GraphQL requests.
pub(super) fn graphql(installation: Option<u64>) -> String {
    let rest = rest(installation);
    format!("{rest} {GRAPHQL}").trim_start().to_owned()
}

impl GitHub {
    /// Returns what the current rate limits reject. `None` if there are none.
    pub fn rate_limit_scope(&self) -> Option<RateLimitScope> {
        let quotas = self.quotas();
        let now = now_millis();
        let accounts = quotas
            .iter()
            .map(|quota| (quota.account.as_str(), quota.is_limited(now)));
        scope(accounts)
    }
}

/// Returns what the limits of accounts reject. `accounts`: names, and whether they are limited.
fn scope<'n>(accounts: impl Iterator<Item = (&'n str, bool)> + Clone) -> Option<RateLimitScope> {
    let is_any_limited = accounts.clone().any(|(_, is_limited)| is_limited);
    let is_app = accounts
        .clone()
        .any(|(name, _)| name.starts_with(INSTALLATION));
    // Requests of an App about itself count against an account without a name.
    let is_rest = |name: &str| !(name.ends_with(GRAPHQL) || is_app && name.is_empty());
    let rest = accounts.filter(|(name, _)| is_rest(name));
    let (limited, free): (Vec<_>, Vec<_>) = rest.partition(|(_, is_limited)| *is_limited);
    is_any_limited.then_some(match (limited.is_empty(), free.is_empty()) {
        (true, _) => RateLimitScope::GraphQl,
        (false, true) => RateLimitScope::AllRepositories,
        (false, false) => RateLimitScope::SomeRepositories,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_rejects_the_requests_of_its_account() {
        let (all, some) = (
            Some(RateLimitScope::AllRepositories),
            Some(RateLimitScope::SomeRepositories),
        );
        let queries = Some(RateLimitScope::GraphQl);
        let rows: [(&[(&str, bool)], _); 9] = [
            (&[], None),
            (&[("", false), ("graphql", false)], None),
            (&[("", true)], all),
            (&[("", true), ("graphql", false)], all),
            (&[("", false), ("graphql", true)], queries),
            (&[("", false), ("installation 1", true)], all),
            (
                &[("installation 1", true), ("installation 1 graphql", true)],
                all,
            ),
            (&[("installation 1", true), ("installation 2", false)], some),
            (
                &[("installation 1", false), ("installation 1 graphql", true)],
                queries,
            ),
        ];
        for (accounts, expected) in rows {
            assert_eq!(scope(accounts.iter().copied()), expected, "{accounts:?}");
        }
        assert_eq!(rest(Some(1)), "installation 1");
        assert_eq!(graphql(Some(1)), "installation 1 graphql");
        assert_eq!(
            (rest(None).as_str(), graphql(None).as_str()),
            ("", "graphql")
        );
    }
}
