//! Rules of GraphQL requests: the schema, page sizes, and the cost of a query.

use serde_json::{Map, Value};

use crate::graphql::{Operation, QueryPlan, Schema, SelectedField};
use crate::request_log::LoggedRequest;

use super::rule::{Kind, OPTIONAL, REQUIRED, UNLIMITED};

/// Body of a GraphQL request.
pub(super) const BODY: Kind = Kind::Record(&[
    ("query", REQUIRED, Kind::Text(UNLIMITED)),
    ("variables", OPTIONAL, Kind::Map(UNLIMITED, &Kind::Any)),
    (
        "operationName",
        OPTIONAL,
        Kind::OrNull(&Kind::Text(UNLIMITED)),
    ),
]);

/// Parses and validates the query of a request.
pub(super) fn plan(schema: &Schema, request: &LoggedRequest) -> Result<QueryPlan, String> {
    let none = Map::new();
    let query = request.body["query"].as_str().unwrap_or_default();
    let variables = request.body["variables"].as_object().unwrap_or(&none);
    let name = request.body["operationName"].as_str();
    let undeclared = variables
        .keys()
        .find(|name| !query.contains(&format!("${name}")));
    if let Some(name) = undeclared {
        return Err(format!("variable {name} is not declared"));
    }
    QueryPlan::parse(schema, query, variables, name)
}

/// Returns the names of the operation's root fields, such as `github query node`.
pub(super) fn root_fields(schema: &Schema, request: &LoggedRequest) -> Vec<String> {
    let Ok(plan) = plan(schema, request) else {
        return Vec::new();
    };
    let kind = match plan.operation {
        Operation::Query => "query",
        Operation::Mutation => "mutation",
    };
    let fields = plan.fields.iter();
    fields
        .map(|field| format!("{} {kind} {}", request.vendor, field.name))
        .collect()
}

/// Checks that each connection states a page size of at most `most`.
pub(super) fn check_page_sizes(fields: &[SelectedField], most: i64, violations: &mut Vec<String>) {
    for field in fields {
        let size = page_size(field);
        if field.return_type.ends_with("Connection")
            && !size.is_some_and(|size| (1..=most).contains(&size))
        {
            let size = size.map_or("no page size".to_owned(), |size| {
                format!("a page size of {size}")
            });
            violations.push(format!(
                "{}: {size}; `first` or `last` must be 1 to {most}",
                field.name
            ));
        }
        check_page_sizes(&field.fields, most, violations);
    }
}

/// Returns the largest number of nodes that the fields can return.
pub(super) fn node_count(fields: &[SelectedField]) -> i64 {
    let of_field = |field: &SelectedField| match page_size(field) {
        Some(size) => size.saturating_mul(1 + node_count(&field.fields)),
        None => node_count(&field.fields),
    };
    fields.iter().map(of_field).fold(0, i64::saturating_add)
}

/// Returns the number of lists that GitHub may have to read for the fields: one for each connection, and for
/// a connection inside another one as many as that can have nodes. A hundred of them cost a point.
pub(super) fn request_count(fields: &[SelectedField]) -> i64 {
    let of_field = |field: &SelectedField| {
        let inside = request_count(&field.fields);
        match page_size(field) {
            Some(size) => size.saturating_mul(inside).saturating_add(1),
            None => inside,
        }
    };
    fields.iter().map(of_field).fold(0, i64::saturating_add)
}

fn page_size(field: &SelectedField) -> Option<i64> {
    let sizes = ["first", "last"].into_iter();
    sizes
        .filter_map(|name| field.args.get(name).and_then(Value::as_i64))
        .next()
}
