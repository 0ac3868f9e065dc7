//! Whether a value fits a schema, for the part of JSON Schema that the document uses.
//!
//! A keyword that is not known here is a fault, so that nothing is let pass by not being looked at.

use domain::time::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};

/// The first place where a value does not fit, and why. References lead into the document.
pub fn validate(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    Checker { document }.check(schema, value, "")
}

/// Every keyword that is used and means nothing here, at any depth.
pub fn unknown_keywords(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (keyword, given) in schema.as_object().into_iter().flatten() {
        match keyword.as_str() {
            "properties" => {
                let own = given.as_object().into_iter().flatten();
                found.extend(own.flat_map(|(_, schema)| unknown_keywords(schema)));
            }
            "anyOf" | "oneOf" => found.extend(listed(given).iter().flat_map(unknown_keywords)),
            "items" | "additionalProperties" | "propertyNames" => {
                found.extend(unknown_keywords(given));
            }
            known if KNOWN.contains(&known) => {}
            unknown => found.push(unknown.to_owned()),
        }
    }
    found
}

/// The keywords that hold no schemas.
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
            .ok_or_else(|| format!("{at}: {schema} is no schema"))?;
        for (keyword, given) in keywords {
            self.keyword(keyword, given, keywords, value, at)
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
        given: &Value,
        schema: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        match keyword {
            "$ref" => self.check(self.target(given)?, value, at),
            "title" | "description" | "example" | "examples" | "default" | "deprecated" => Ok(()),
            "type" => must(one_or_many(given).any(|kind| is(kind, value)), value, given),
            "enum" => must(listed(given).contains(value), value, given),
            "const" => must(given == value, value, given),
            "anyOf" => self.branches(given, value, at, |fits| fits > 0),
            "oneOf" => self.branches(given, value, at, |fits| fits == 1),
            "properties"
            | "additionalProperties"
            | "required"
            | "propertyNames"
            | "minProperties"
            | "maxProperties" => match value.as_object() {
                Some(fields) => self.object(keyword, given, schema, fields, at),
                None => Ok(()),
            },
            "items" | "minItems" | "maxItems" => match value.as_array() {
                Some(items) => self.array(keyword, given, items, at),
                None => Ok(()),
            },
            "minimum" | "maximum" | "exclusiveMinimum" => match value.as_f64() {
                Some(number) => must(bounded(keyword, number, given), value, given),
                None => Ok(()),
            },
            "minLength" | "maxLength" | "pattern" | "format" => match value.as_str() {
                Some(text) => must(is_text(keyword, text, given)?, value, given),
                None => Ok(()),
            },
            unknown => Err(format!("the check does not know the keyword {unknown}")),
        }
    }

    fn target(&self, reference: &Value) -> Result<&Value, String> {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        pointer
            .and_then(|pointer| self.document.pointer(pointer))
            .ok_or_else(|| format!("{reference} leads nowhere"))
    }

    fn branches(
        &self,
        branches: &Value,
        value: &Value,
        at: &str,
        enough: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        let (fits, misfits): (Vec<_>, Vec<_>) = listed(branches)
            .iter()
            .map(|branch| self.check(branch, value, at))
            .partition(Result::is_ok);
        match enough(fits.len()) {
            true => Ok(()),
            false => Err(format!("{} alternatives fit; {misfits:?}", fits.len())),
        }
    }

    fn object(
        &self,
        keyword: &str,
        given: &Value,
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
                { others }.try_for_each(|(name, value)| match given {
                    Value::Bool(true) => Ok(()),
                    Value::Bool(false) => Err(format!("{name} is not described")),
                    own => self.check(own, value, &format!("{at}/{name}")),
                })
            }
            "required" => listed(given).iter().try_for_each(|name| {
                let is_there = name.as_str().is_some_and(|name| fields.contains_key(name));
                is_there.then_some(()).ok_or(format!("{name} is missing"))
            }),
            "propertyNames" => fields
                .keys()
                .try_for_each(|name| self.check(given, &Value::from(name.as_str()), at)),
            "minProperties" => count(fields.len() as u64 >= size(given)),
            _ => count(fields.len() as u64 <= size(given)),
        }
    }

    fn array(&self, keyword: &str, given: &Value, items: &[Value], at: &str) -> Result<(), String> {
        match keyword {
            "items" => items
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| self.check(given, item, &format!("{at}/{index}"))),
            "minItems" => count(items.len() as u64 >= size(given)),
            _ => count(items.len() as u64 <= size(given)),
        }
    }
}

fn must(holds: bool, value: &Value, given: &Value) -> Result<(), String> {
    holds.then_some(()).ok_or(format!("{value} is not {given}"))
}

fn count(holds: bool) -> Result<(), String> {
    holds.then_some(()).ok_or("too many or too few".to_owned())
}

fn listed(given: &Value) -> &[Value] {
    given.as_array().map_or(&[], Vec::as_slice)
}

fn one_or_many(given: &Value) -> impl Iterator<Item = &str> {
    given
        .as_str()
        .into_iter()
        .chain(listed(given).iter().filter_map(Value::as_str))
}

fn size(given: &Value) -> u64 {
    given.as_u64().unwrap_or(u64::MAX)
}

fn is(kind: &str, value: &Value) -> bool {
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

fn bounded(keyword: &str, number: f64, given: &Value) -> bool {
    let bound = given.as_f64().unwrap_or(f64::NAN);
    match keyword {
        "minimum" => number >= bound,
        "exclusiveMinimum" => number > bound,
        _ => number <= bound,
    }
}

fn is_text(keyword: &str, text: &str, given: &Value) -> Result<bool, String> {
    let length = text.chars().count() as u64;
    match (keyword, given.as_str()) {
        ("minLength", _) => Ok(length >= size(given)),
        ("maxLength", _) => Ok(length <= size(given)),
        ("pattern", Some(pattern)) => {
            let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
            Ok(pattern.is_match(text))
        }
        ("format", Some("date-time")) => {
            Ok(Timestamp::parse(text).is_some_and(|read| read.to_string() == text))
        }
        _ => Err(format!("the check does not know {keyword} {given}")),
    }
}

#[test]
fn a_misfit_is_found_and_named() {
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
    let good =
        json!({"name": "x", "at": "2026-01-31T09:30:00.000Z", "sizes": [0, 2], "kind": null});
    assert_eq!(validate(&document, &thing, &good), Ok(()));
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
    for (place, bad, told) in rows {
        let mut value = good.clone();
        *value.pointer_mut(place).unwrap() = bad;
        let why = validate(&document, &thing, &value).unwrap_err();
        assert!(why.starts_with(told), "{why}");
    }
    let unknown = validate(&document, &json!({"not": {}}), &good).unwrap_err();
    assert_eq!(unknown, "/: the check does not know the keyword not");
}
