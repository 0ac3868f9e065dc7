//! Filters, read recursively over the same fields that queries read.
//!
//! Which keys a filter may have is the schema's business and checked before; this file only says
//! what they mean.

use serde_json::{Map, Value};

use super::resolvers::{ModelView, Node};
use crate::clock;
use crate::graphql::Resolved;

type Filter = Map<String, Value>;

impl ModelView<'_> {
    pub fn matches(&self, node: &Node, filter: &Filter) -> bool {
        filter
            .iter()
            .all(|(key, value)| match (key.as_str(), value) {
                (_, Value::Null) => true,
                ("and", Value::Array(all)) => all.iter().all(|each| self.matches_value(node, each)),
                ("or", Value::Array(any)) => any.iter().any(|each| self.matches_value(node, each)),
                ("null", Value::Bool(null)) => !null,
                ("hasBlockedByRelations", Value::Object(exists)) => {
                    self.exists(node, "inverseRelations", exists)
                }
                ("hasBlockingRelations", Value::Object(exists)) => {
                    self.exists(node, "relations", exists)
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
                compare(&value, &self.with_uuids(filter))
            }
            Resolved::Leaf(value) => compare(&value, filter),
            Resolved::Node(inner) => self.matches(&inner, filter),
            Resolved::Null => filter.get("null") == Some(&Value::Bool(true)),
            Resolved::Connection(nodes) | Resolved::Nodes(nodes) => self.collection(&nodes, filter),
        }
    }

    /// `labels: {name: …}` without `some` or `every` means *some*.
    fn collection(&self, nodes: &[Node], filter: &Filter) -> bool {
        let mut any = Filter::new();
        let structural = filter
            .iter()
            .all(|(key, value)| match (key.as_str(), value) {
                (_, Value::Null) => true,
                ("some", some) => nodes.iter().any(|node| self.matches_value(node, some)),
                ("every", every) => nodes.iter().all(|node| self.matches_value(node, every)),
                ("length", Value::Object(length)) => compare(&nodes.len().into(), length),
                ("null", Value::Bool(null)) => nodes.is_empty() == *null,
                ("and", Value::Array(all)) => {
                    all.iter().all(|each| self.collection_value(nodes, each))
                }
                ("or", Value::Array(any)) => {
                    any.iter().any(|each| self.collection_value(nodes, each))
                }
                _ => {
                    any.insert(key.clone(), value.clone());
                    true
                }
            });
        structural && (any.is_empty() || nodes.iter().any(|node| self.matches(node, &any)))
    }

    fn collection_value(&self, nodes: &[Node], filter: &Value) -> bool {
        filter
            .as_object()
            .is_some_and(|filter| self.collection(nodes, filter))
    }

    fn exists(&self, node: &Node, field: &str, wanted: &Filter) -> bool {
        let blocks = |node: &Node| matches!(self.get(node, "type"), Resolved::Leaf(kind) if kind == "blocks");
        let exists = match self.get(node, field) {
            Resolved::Connection(nodes) => nodes.iter().any(blocks),
            _ => false,
        };
        compare(&Value::Bool(exists), wanted)
    }

    /// Issue ids may be given as identifiers.
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

fn compare(value: &Value, filter: &Filter) -> bool {
    filter.iter().all(|(operator, operand)| match operand {
        Value::Null if operator != "eq" && operator != "neq" => true,
        _ => holds(value, operator, operand),
    })
}

fn holds(value: &Value, operator: &str, operand: &Value) -> bool {
    if let Some(rest) = operator.strip_prefix("not") {
        let mut positive = rest.to_owned();
        if let Some(first) = positive.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        return !holds(value, &positive, operand);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (have, want) = (text(value), text(operand));
    let (have_low, want_low) = (have.to_lowercase(), want.to_lowercase());
    match operator {
        "eq" => same(value, operand),
        "neq" => !same(value, operand),
        "in" => operand
            .as_array()
            .is_some_and(|any| any.iter().any(|one| same(value, one))),
        "nin" => operand
            .as_array()
            .is_some_and(|any| !any.iter().any(|one| same(value, one))),
        "null" => value.is_null() == (operand == &Value::Bool(true)),
        "lt" => ordered(value, operand).is_some_and(|order| order.is_lt()),
        "lte" => ordered(value, operand).is_some_and(|order| order.is_le()),
        "gt" => ordered(value, operand).is_some_and(|order| order.is_gt()),
        "gte" => ordered(value, operand).is_some_and(|order| order.is_ge()),
        _ if value.is_null() => false,
        "eqIgnoreCase" => have_low == want_low,
        "neqIgnoreCase" => have_low != want_low,
        "contains" => have.contains(&want),
        "containsIgnoreCase" | "containsIgnoreCaseAndAccent" => have_low.contains(&want_low),
        "startsWith" => have.starts_with(&want),
        "startsWithIgnoreCase" => have_low.starts_with(&want_low),
        "endsWith" => have.ends_with(&want),
        _ => false,
    }
}

fn same(value: &Value, operand: &Value) -> bool {
    match ordered(value, operand) {
        Some(order) => order.is_eq(),
        None => value == operand,
    }
}

/// Numbers by size, moments by time (an operand may be a duration from now), else nothing.
fn ordered(value: &Value, operand: &Value) -> Option<std::cmp::Ordering> {
    match (value, operand) {
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        (Value::String(a), Value::String(b)) => Some(clock::parse(a)?.cmp(&moment(b)?)),
        _ => None,
    }
}

fn moment(text: &str) -> Option<i64> {
    clock::parse(text).or_else(|| {
        let span: jiff::SignedDuration = text.parse().ok()?;
        Some(clock::now_ms() + i64::try_from(span.as_millis()).ok()?)
    })
}
