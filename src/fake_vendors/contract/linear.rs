//! Linear: one GraphQL endpoint, and the token endpoint of OAuth applications.

use std::sync::LazyLock;

use super::graphql::{self, check_page_sizes};
use super::rule::{CallRule, Kind};
use crate::graphql::Schema;
use crate::request_log::LoggedRequest;

pub(super) const CALLS: &[CallRule] = &[
    CallRule::send("POST", "/graphql", graphql::BODY),
    // A form, whose secret is not logged.
    CallRule::send(
        "POST",
        "/oauth/token",
        Kind::StartsWith("grant_type=client_credentials&"),
    ),
];

/// Operations that we use.
pub(super) const OPERATIONS: &[&str] = &[
    "linear query issues",
    "linear query issue",
    "linear query issueLabels",
    "linear query viewer",
    "linear query organization",
    "linear query teams",
    "linear query comment",
    "linear query comments",
    "linear mutation issueLabelCreate",
    "linear mutation issueAddLabel",
    "linear mutation issueRemoveLabel",
    "linear mutation issueUpdate",
    "linear mutation commentCreate",
    "linear mutation commentUpdate",
    "linear mutation commentDelete",
    "linear mutation attachmentCreate",
];

/// Largest page of a connection.
const MAX_PAGE: i64 = 250;
/// Highest cost of one query, in points.
const MAX_POINTS: u64 = 10_000;

static SCHEMA: LazyLock<Option<Schema>> =
    LazyLock::new(|| Schema::parse(include_str!("../linear/schema.graphql")).ok());

pub(super) fn root_fields(request: &LoggedRequest) -> Vec<String> {
    let schema = SCHEMA.as_ref();
    schema.map_or_else(Vec::new, |schema| graphql::root_fields(schema, request))
}

pub(super) fn check(request: &LoggedRequest) -> Vec<String> {
    let mut violations = Vec::new();
    if request.host() != "api.linear.app" {
        violations.push("url: the host must be api.linear.app".to_owned());
    }
    if request.path() != "/graphql" {
        return violations;
    }
    violations.extend(request.content_type_violations());
    // A personal key has no scheme, the token of an OAuth application has.
    if !matches!(
        request.header("authorization"),
        "[redacted]" | "Bearer [redacted]"
    ) {
        violations
            .push("headers: Authorization must be a personal key or a bearer token".to_owned());
    }
    let Some(schema) = SCHEMA.as_ref() else {
        return vec!["the schema of Linear is not valid".to_owned()];
    };
    match graphql::plan(schema, request) {
        Err(error) => violations.push(format!("body.query: {error}")),
        Ok(plan) => {
            check_page_sizes(&plan.fields, MAX_PAGE, &mut violations);
            let points = plan.complexity(schema);
            if points > MAX_POINTS {
                violations.push(format!(
                    "body.query: costs {points} points; the limit is {MAX_POINTS}"
                ));
            }
        }
    }
    violations
}
