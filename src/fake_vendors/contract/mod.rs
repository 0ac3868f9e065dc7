//! Contracts of the vendors: rules that every request of this program must meet.
//!
//! The rules are written in our own words, from what the vendors publish about the calls that we make: path,
//! parameters, fields and their types, headers, limits of length and of page size. GraphQL operations are
//! validated against the schemas of the fake vendors. A request that no rule covers is a violation. So a new
//! call needs a rule, and a misspelt field fails even where the vendor would ignore it.

mod chat;
mod github;
mod graphql;
mod jira;
pub(crate) mod kubernetes;
mod linear;
mod machines;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use rule::{CallRule, matching_rule};
use serde_json::Value;

use crate::http::percent_decode;
use crate::request_log::{LoggedRequest, RequestLog};

/// Rules of a vendor.
struct Contract {
    calls: &'static [CallRule],
    /// Checks headers and what a table cannot express.
    check: fn(&LoggedRequest) -> Vec<String>,
}

fn contract_of(vendor: &str) -> Option<Contract> {
    let (calls, check): (_, fn(&LoggedRequest) -> Vec<String>) = match vendor {
        "linear" => (linear::CALLS, linear::check),
        "github" => (github::CALLS, github::check),
        "jira" => (jira::CALLS, jira::check),
        "fly" => (machines::FLY_CALLS, machines::check_fly),
        "docker" => (machines::DOCKER_CALLS, machines::check_docker),
        "kubernetes" => (kubernetes::CALLS, kubernetes::check),
        "chat" => (chat::CALLS, chat::check),
        _ => return None,
    };
    Some(Contract { calls, check })
}

impl LoggedRequest {
    /// Returns how the request violates the vendor's contract. Empty if it conforms.
    pub fn contract_violations(&self) -> Vec<String> {
        let Some(contract) = contract_of(self.vendor) else {
            return vec![format!("no contract of {}", self.vendor)];
        };
        let Some(rule) = self.rule(contract.calls) else {
            return vec!["no rule covers this call".to_owned()];
        };
        let mut violations = rule.check(&self.query_pairs(), &self.body);
        violations.extend((contract.check)(self));
        violations
    }

    /// Returns the names of the calls: the rule of a REST call, or each root field of a GraphQL operation.
    /// Empty if no rule covers the request.
    fn call_names(&self) -> Vec<String> {
        let fields = match self.vendor {
            "linear" => linear::root_fields(self),
            "github" => github::root_fields(self),
            _ => Vec::new(),
        };
        if !fields.is_empty() {
            return fields;
        }
        let calls = contract_of(self.vendor).map_or(&[][..], |contract| contract.calls);
        let rule = self.rule(calls);
        rule.map(|rule| rule.name(self.vendor))
            .into_iter()
            .collect()
    }

    fn rule(&self, calls: &'static [CallRule]) -> Option<&'static CallRule> {
        let path = match self.vendor {
            "jira" => jira::api_path(self.path())?,
            _ => self.path(),
        };
        matching_rule(calls, &self.method, path)
    }

    fn path(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap_or_default();
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        path.split('?').next().unwrap_or_default()
    }

    fn host(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap_or_default();
        rest.split(['/', '?']).next().unwrap_or_default()
    }

    fn query_pairs(&self) -> Vec<(String, String)> {
        let query = self.url.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| {
                (
                    percent_decode(name),
                    percent_decode(&value.replace('+', " ")),
                )
            })
            .collect()
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    /// Checks the type of a body.
    fn content_type_violations(&self) -> Vec<String> {
        let is_json = self.header("content-type").starts_with("application/json");
        if self.body.is_null() || is_json {
            return Vec::new();
        }
        vec!["headers: Content-Type of a body must be application/json".to_owned()]
    }
}

impl RequestLog {
    /// Returns every violation of a vendor's contract, with its request.
    pub fn contract_violations(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        for request in self.all() {
            for violation in request.contract_violations() {
                found.insert(format!(
                    "{} {} {}: {violation}",
                    request.vendor, request.method, request.url
                ));
            }
        }
        found.into_iter().collect()
    }

    /// Returns the calls that the rules know and that were not made.
    pub fn missing_calls(&self) -> BTreeSet<String> {
        let made: BTreeSet<String> = self
            .all()
            .iter()
            .flat_map(LoggedRequest::call_names)
            .collect();
        let known = [
            "linear",
            "github",
            "jira",
            "fly",
            "docker",
            "kubernetes",
            "chat",
        ];
        let rules = known.into_iter().flat_map(|vendor| {
            let calls = contract_of(vendor).map_or(&[][..], |contract| contract.calls);
            calls.iter().map(move |rule| rule.name(vendor))
        });
        let operations = [linear::OPERATIONS, github::OPERATIONS].concat();
        rules
            .filter(|name| !name.ends_with(" /graphql"))
            .chain(operations.into_iter().map(str::to_owned))
            .filter(|name| !made.contains(name))
            .collect()
    }
}
