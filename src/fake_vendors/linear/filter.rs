//! Evaluation of filters, recursively over the same fields that queries read.
//!
//! The schema has already validated which keys a filter may have.

use serde_json::{Map, Value};

use super::resolvers::{ModelView, Node};
use crate::clock;
use crate::graphql::Resolved;

type Filter = Map<String, Value>;

impl ModelView<'_> {
    pub(super) fn matches(&self, node: &Node, filter: &Filter) -> bool {
        filter
            .iter()
            .all(|(key, value)| match (key.as_str(), value) {
                (_, Value::Null) => true,
                ("and", Value::Array(all)) => all.iter().all(|each| self.matches_value(node, each)),
                ("or", Value::Array(any)) => any.iter().any(|each| self.matches_value(node, each)),
                ("null", Value::Bool(null)) => !null,
                ("hasBlockedByRelations", Value::Object(exists)) => {
                    self.relation_exists(node, "inverseRelations", exists)
                }
                ("hasBlockingRelations", Value::Object(exists)) => {
                    self.relation_exists(node, "relations", exists)
                }
                (field, Value::Object(inner)) => self.field_matches(node, field, inner),
                _ => false,
            })
    }

    fn matches_value(&self, node: &Node, filter: &Value) -> bool {
        filter
            .as_object()
            .is_some_and(|filter| self.matches(node, filter))
    }

    fn field_matches(&self, node: &Node, field: &str, filter: &Filter) -> bool {
        match self.get(node, field) {
            Resolved::Leaf(value) if field == "id" && matches!(node, Node::Issue(_)) => {
                satisfies_all(&value, &self.with_uuids(filter))
            }
            Resolved::Leaf(value) => satisfies_all(&value, filter),
            Resolved::Node(inner) => self.matches(&inner, filter),
            Resolved::Null => filter.get("null") == Some(&Value::Bool(true)),
            Resolved::Connection(nodes) | Resolved::Nodes(nodes) => {
                self.collection_matches(&nodes, filter)
            }
        }
    }

    /// Matches a collection filter. `labels: {name: ...}` without `some` or `every` means `some`.
    fn collection_matches(&self, nodes: &[Node], filter: &Filter) -> bool {
        let mut any = Filter::new();
        let structural = filter
            .iter()
            .all(|(key, value)| match (key.as_str(), value) {
                (_, Value::Null) => true,
                ("some", some) => nodes.iter().any(|node| self.matches_value(node, some)),
                ("every", every) => nodes.iter().all(|node| self.matches_value(node, every)),
                ("length", Value::Object(length)) => satisfies_all(&nodes.len().into(), length),
                ("null", Value::Bool(null)) => nodes.is_empty() == *null,
                ("and", Value::Array(all)) => all
                    .iter()
                    .all(|each| self.collection_matches_value(nodes, each)),
                ("or", Value::Array(any)) => any
                    .iter()
                    .any(|each| self.collection_matches_value(nodes, each)),
                _ => {
                    any.insert(key.clone(), value.clone());
                    true
                }
            });
        structural && (any.is_empty() || nodes.iter().any(|node| self.matches(node, &any)))
    }

    fn collection_matches_value(&self, nodes: &[Node], filter: &Value) -> bool {
        filter
            .as_object()
            .is_some_and(|filter| self.collection_matches(nodes, filter))
    }

    fn relation_exists(&self, node: &Node, field: &str, wanted: &Filter) -> bool {
        let blocks = |node: &Node| matches!(self.get(node, "type"), Resolved::Leaf(kind) if kind == "blocks");
        let exists = match self.get(node, field) {
            Resolved::Connection(nodes) => nodes.iter().any(blocks),
            _ => false,
        };
        satisfies_all(&Value::Bool(exists), wanted)
    }

    /// Replaces identifiers by UUIDs: Linear accepts both as issue IDs.
    fn with_uuids(&self, filter: &Filter) -> Filter {
        let uuid = |value: &Value| match value.as_str().and_then(|id| self.model.find_issue(id)) {
            Some(at) => Value::String(self.model.issues[at].id.clone()),
            None => value.clone(),
        };
        filter
            .iter()
            .map(|(key, value)| {
                let value = match value {
                    Value::Array(ids) => Value::Array(ids.iter().map(uuid).collect()),
                    single => uuid(single),
                };
                (key.clone(), value)
            })
            .collect()
    }
}

fn satisfies_all(value: &Value, filter: &Filter) -> bool {
    filter.iter().all(|(operator, operand)| match operand {
        Value::Null if operator != "eq" && operator != "neq" => true,
        _ => satisfies(value, operator, operand),
    })
}

fn satisfies(value: &Value, operator: &str, operand: &Value) -> bool {
    if let Some(rest) = operator.strip_prefix("not") {
        let mut positive = rest.to_owned();
        if let Some(first) = positive.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        return !satisfies(value, &positive, operand);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (value_text, operand_text) = (text(value), text(operand));
    let (value_lower, operand_lower) = (value_text.to_lowercase(), operand_text.to_lowercase());
    match operator {
        "eq" => is_equal(value, operand),
        "neq" => !is_equal(value, operand),
        "in" => operand
            .as_array()
            .is_some_and(|any| any.iter().any(|one| is_equal(value, one))),
        "nin" => operand
            .as_array()
            .is_some_and(|any| !any.iter().any(|one| is_equal(value, one))),
        "null" => value.is_null() == (operand == &Value::Bool(true)),
        "lt" => compare_order(value, operand).is_some_and(|order| order.is_lt()),
        "lte" => compare_order(value, operand).is_some_and(|order| order.is_le()),
        "gt" => compare_order(value, operand).is_some_and(|order| order.is_gt()),
        "gte" => compare_order(value, operand).is_some_and(|order| order.is_ge()),
        _ if value.is_null() => false,
        "eqIgnoreCase" => value_lower == operand_lower,
        "neqIgnoreCase" => value_lower != operand_lower,
        "contains" => value_text.contains(&operand_text),
        "containsIgnoreCase" | "containsIgnoreCaseAndAccent" => {
            value_lower.contains(&operand_lower)
        }
        "startsWith" => value_text.starts_with(&operand_text),
        "startsWithIgnoreCase" => value_lower.starts_with(&operand_lower),
        "endsWith" => value_text.ends_with(&operand_text),
        _ => false,
    }
}

fn is_equal(value: &Value, operand: &Value) -> bool {
    match compare_order(value, operand) {
        Some(order) => order.is_eq(),
        None => value == operand,
    }
}

/// Compares numbers by value and timestamps by time (an operand may be a duration from now). Other
/// values are not ordered.
fn compare_order(value: &Value, operand: &Value) -> Option<std::cmp::Ordering> {
    match (value, operand) {
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        (Value::String(a), Value::String(b)) => Some(clock::parse(a)?.cmp(&parse_time(b)?)),
        _ => None,
    }
}

fn parse_time(text: &str) -> Option<i64> {
    clock::parse(text).or_else(|| {
        let span: jiff::SignedDuration = text.parse().ok()?;
        Some(clock::now_ms() + i64::try_from(span.as_millis()).ok()?)
    })
}
