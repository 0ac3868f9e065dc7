//! Validates values against the subset of JSON Schema that the document uses.
//!
//! An unsupported keyword is an error, so that no constraint is skipped silently.

use domain::time::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};

/// Returns the first location where a value does not match, and the cause. References resolve in the
/// document.
pub fn validate(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    Checker { document }.check(schema, value, "")
}

/// Unsupported keywords of a schema, at any depth.
pub fn unknown_keywords(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (keyword, constraint) in schema.as_object().into_iter().flatten() {
        match keyword.as_str() {
            "properties" => {
                let own = constraint.as_object().into_iter().flatten();
                found.extend(own.flat_map(|(_, schema)| unknown_keywords(schema)));
            }
            "anyOf" | "oneOf" => {
                found.extend(as_list(constraint).iter().flat_map(unknown_keywords))
            }
            "items" | "additionalProperties" | "propertyNames" => {
                found.extend(unknown_keywords(constraint));
            }
            known if KNOWN.contains(&known) => {}
            unknown => found.push(unknown.to_owned()),
        }
    }
    found
}

/// Supported keywords that contain no schemas.
const KNOWN: [&str; 23] = [
    "$ref",
    "title",
    "description",
    "example",
    "examples",
    "default",
    "deprecated",
    "contentMediaType",
    "type",
    "enum",
    "const",
    "required",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
];

struct Checker<'d> {
    document: &'d Value,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let keywords = schema
            .as_object()
            .ok_or_else(|| format!("{at}: {schema} is not a schema"))?;
        for (keyword, constraint) in keywords {
            self.keyword(keyword, constraint, keywords, value, at)
                .map_err(|why| match why.starts_with('/') {
                    true => why,
                    false => format!("{}: {why}", if at.is_empty() { "/" } else { at }),
                })?;
        }
        Ok(())
    }

    fn keyword(
        &self,
        keyword: &str,
        constraint: &Value,
        schema: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        match keyword {
            "$ref" => self.check(self.resolve(constraint)?, value, at),
            "title" | "description" | "example" | "examples" | "default" | "deprecated" => Ok(()),
            "type" => ensure(
                strings(constraint).any(|kind| has_type(kind, value)),
                value,
                constraint,
            ),
            "enum" => ensure(as_list(constraint).contains(value), value, constraint),
            "const" => ensure(constraint == value, value, constraint),
            "anyOf" => self.branches(constraint, value, at, |matched| matched > 0),
            "oneOf" => self.branches(constraint, value, at, |matched| matched == 1),
            "properties"
            | "additionalProperties"
            | "required"
            | "propertyNames"
            | "minProperties"
            | "maxProperties" => match value.as_object() {
                Some(fields) => self.object(keyword, constraint, schema, fields, at),
                None => Ok(()),
            },
            "items" | "minItems" | "maxItems" => match value.as_array() {
                Some(items) => self.array(keyword, constraint, items, at),
                None => Ok(()),
            },
            "minimum" | "maximum" | "exclusiveMinimum" => match value.as_f64() {
                Some(number) => ensure(
                    number_satisfies(keyword, number, constraint),
                    value,
                    constraint,
                ),
                None => Ok(()),
            },
            "minLength" | "maxLength" | "pattern" | "format" => match value.as_str() {
                Some(text) => ensure(
                    text_satisfies(keyword, text, constraint)?,
                    value,
                    constraint,
                ),
                None => Ok(()),
            },
            unknown => Err(format!("unsupported keyword {unknown}")),
        }
    }

    fn resolve(&self, reference: &Value) -> Result<&Value, String> {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        pointer
            .and_then(|pointer| self.document.pointer(pointer))
            .ok_or_else(|| format!("{reference} cannot be resolved"))
    }

    fn branches(
        &self,
        branches: &Value,
        value: &Value,
        at: &str,
        accept: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        let (matched, errors): (Vec<_>, Vec<_>) = as_list(branches)
            .iter()
            .map(|branch| self.check(branch, value, at))
            .partition(Result::is_ok);
        match accept(matched.len()) {
            true => Ok(()),
            false => Err(format!("{} alternatives fit; {errors:?}", matched.len())),
        }
    }

    fn object(
        &self,
        keyword: &str,
        constraint: &Value,
        schema: &Map<String, Value>,
        fields: &Map<String, Value>,
        at: &str,
    ) -> Result<(), String> {
        let known = |name: &str| schema.get("properties").and_then(|own| own.get(name));
        match keyword {
            "properties" => fields
                .iter()
                .try_for_each(|(name, value)| match known(name) {
                    Some(own) => self.check(own, value, &format!("{at}/{name}")),
                    None => Ok(()),
                }),
            "additionalProperties" => {
                let others = fields.iter().filter(|(name, _)| known(name).is_none());
                { others }.try_for_each(|(name, value)| match constraint {
                    Value::Bool(true) => Ok(()),
                    Value::Bool(false) => Err(format!("{name} is not described")),
                    own => self.check(own, value, &format!("{at}/{name}")),
                })
            }
            "required" => as_list(constraint).iter().try_for_each(|name| {
                let is_present = name.as_str().is_some_and(|name| fields.contains_key(name));
                is_present.then_some(()).ok_or(format!("{name} is missing"))
            }),
            "propertyNames" => fields
                .keys()
                .try_for_each(|name| self.check(constraint, &Value::from(name.as_str()), at)),
            "minProperties" => ensure_count(fields.len() as u64 >= limit(constraint)),
            _ => ensure_count(fields.len() as u64 <= limit(constraint)),
        }
    }

    fn array(
        &self,
        keyword: &str,
        constraint: &Value,
        items: &[Value],
        at: &str,
    ) -> Result<(), String> {
        match keyword {
            "items" => items.iter().enumerate().try_for_each(|(index, item)| {
                self.check(constraint, item, &format!("{at}/{index}"))
            }),
            "minItems" => ensure_count(items.len() as u64 >= limit(constraint)),
            _ => ensure_count(items.len() as u64 <= limit(constraint)),
        }
    }
}

fn ensure(holds: bool, value: &Value, constraint: &Value) -> Result<(), String> {
    holds
        .then_some(())
        .ok_or(format!("{value} is not {constraint}"))
}

fn ensure_count(holds: bool) -> Result<(), String> {
    holds.then_some(()).ok_or("too many or too few".to_owned())
}

fn as_list(constraint: &Value) -> &[Value] {
    constraint.as_array().map_or(&[], Vec::as_slice)
}

fn strings(constraint: &Value) -> impl Iterator<Item = &str> {
    constraint
        .as_str()
        .into_iter()
        .chain(as_list(constraint).iter().filter_map(Value::as_str))
}

fn limit(constraint: &Value) -> u64 {
    constraint.as_u64().unwrap_or(u64::MAX)
}

fn has_type(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

fn number_satisfies(keyword: &str, number: f64, constraint: &Value) -> bool {
    let bound = constraint.as_f64().unwrap_or(f64::NAN);
    match keyword {
        "minimum" => number >= bound,
        "exclusiveMinimum" => number > bound,
        _ => number <= bound,
    }
}

fn text_satisfies(keyword: &str, text: &str, constraint: &Value) -> Result<bool, String> {
    let length = text.chars().count() as u64;
    match (keyword, constraint.as_str()) {
        ("minLength", _) => Ok(length >= limit(constraint)),
        ("maxLength", _) => Ok(length <= limit(constraint)),
        ("pattern", Some(pattern)) => {
            let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
            Ok(pattern.is_match(text))
        }
        ("format", Some("date-time")) => {
            Ok(Timestamp::parse(text).is_some_and(|read| read.to_string() == text))
        }
        _ => Err(format!("unsupported {keyword} {constraint}")),
    }
}

#[test]
fn names_each_mismatch() {
    use serde_json::json;
    let document = json!({"components": {"schemas": {
        "Name": {"type": "string", "pattern": "^[a-z]+$"},
        "Thing": {
            "type": "object", "additionalProperties": false, "required": ["name"],
            "properties": {
                "name": {"$ref": "#/components/schemas/Name"},
                "at": {"type": ["string", "null"], "format": "date-time"},
                "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "kind": {"anyOf": [{"const": "a"}, {"type": "null"}]},
            },
        },
    }}});
    let thing = json!({"$ref": "#/components/schemas/Thing"});
    let valid =
        json!({"name": "x", "at": "2026-01-31T09:30:00.000Z", "sizes": [0, 2], "kind": null});
    assert_eq!(validate(&document, &thing, &valid), Ok(()));
    let rows = [
        ("", json!([]), "/: [] is not \"object\""),
        ("/name", json!("X"), "/name: \"X\" is not \"^[a-z]+$\""),
        (
            "/at",
            json!("2026-01-31"),
            "/at: \"2026-01-31\" is not \"date-time\"",
        ),
        ("/sizes/1", json!(-1), "/sizes/1: -1 is not 0"),
        ("/sizes/1", json!(1.5), "/sizes/1: 1.5 is not \"integer\""),
        ("/kind", json!("b"), "/kind: 0 alternatives fit"),
        (
            "",
            json!({"name": "x", "more": 1}),
            "/: more is not described",
        ),
        ("", json!({}), "/: \"name\" is missing"),
    ];
    for (pointer, invalid, expected) in rows {
        let mut value = valid.clone();
        *value.pointer_mut(pointer).unwrap() = invalid;
        let why = validate(&document, &thing, &value).unwrap_err();
        assert!(why.starts_with(expected), "{why}");
    }
    let unknown = validate(&document, &json!({"not": {}}), &valid).unwrap_err();
    assert_eq!(unknown, "/: unsupported keyword not");
}
