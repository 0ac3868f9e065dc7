//! JSON reader that keeps only selected fields.
//!
//! Webhook payloads have hundreds of fields, of which about twenty are used. The other fields are validated
//! as JSON but not stored.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses a document and keeps only fields with these names, at any depth. Returns `None` if the document is
/// not valid JSON or is nested deeper than 128 levels.
pub(crate) fn read_json_fields(document: &[u8], names: &'static [&'static str]) -> Option<Value> {
    let mut document = serde_json::Deserializer::from_slice(document);
    let read = Part::Kept(names).deserialize(&mut document).ok()?;
    document.end().ok()?;
    Some(read)
}

/// Part of a document that is being parsed.
#[derive(Clone, Copy)]
enum Part {
    /// Keeps the fields with these names.
    Kept(&'static [&'static str]),
    /// Validates the part and returns null.
    Skipped,
}

impl Part {
    /// Returns the value of a kept part, or null of a skipped one.
    fn keep(self, value: impl Into<Value>) -> Value {
        match self {
            Self::Kept(_) => value.into(),
            Self::Skipped => Value::Null,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, part: D) -> Result<Value, D::Error> {
        part.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.keep(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.keep(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.keep(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.keep(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.keep(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            if let Self::Kept(_) = self {
                kept.push(item);
            }
        }
        Ok(self.keep(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = fields.next_key_seed(FieldName(self))? {
            match name {
                Some(name) => kept.insert(name.to_owned(), fields.next_value_seed(self)?),
                None => Some(fields.next_value_seed(Self::Skipped)?),
            };
        }
        Ok(self.keep(kept))
    }
}

/// Name of a field in a part. Parses to `None` if the field is not kept.
struct FieldName(Part);

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match self.0 {
            Part::Kept(names) => names.iter().find(|kept| **kept == name).copied(),
            Part::Skipped => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMES: &[&str] = &["a", "list", "quote\"d"];

    #[test]
    fn keeps_only_selected_fields() {
        let document = json!({
            "a": {"a": 1, "b": "x", "list": [true, {"a": "ä\n", "b": []}, null, -2, 0.5]},
            "b": {"a": 1},
            "quote\"d": null,
        });
        let kept = json!({
            "a": {"a": 1, "list": [true, {"a": "ä\n"}, null, -2, 0.5]},
            "quote\"d": null,
        });
        let text = serde_json::to_vec_pretty(&document).unwrap();
        assert_eq!(read_json_fields(&text, NAMES), Some(kept));
        assert_eq!(read_json_fields(&text, &[]), Some(json!({})));
        assert_eq!(read_json_fields(b" [1, 2] ", &[]), Some(json!([1, 2])));
    }

    #[test]
    fn keeps_the_last_of_duplicate_fields() {
        let twice = br#"{"a": 1, "a": {"list": []}}"#;
        let whole: Value = serde_json::from_slice(twice).unwrap();
        assert_eq!(read_json_fields(twice, NAMES), Some(whole));
    }

    #[test]
    fn rejects_invalid_json_in_skipped_fields() {
        let deep = |open: &str, close: &str| {
            let (open, close) = (open.repeat(200), close.repeat(200));
            format!(r#"{{"b": {open}1{close}}}"#).into_bytes()
        };
        let invalid: [&[u8]; 10] = [
            b"",
            b"{",
            b"{} {}",
            br#"{"b": }"#,
            br#"{"b": 1e999}"#,
            br#"{"b": "\ud800"}"#,
            b"{\"b\": \"\xff\"}",
            br#"{b: 1}"#,
            &deep("[", "]"),
            &deep(r#"{"b":"#, "}"),
        ];
        for document in invalid {
            let shown = String::from_utf8_lossy(document);
            assert!(
                serde_json::from_slice::<Value>(document).is_err(),
                "{shown}"
            );
            assert_eq!(read_json_fields(document, NAMES), None, "{shown}");
        }
    }
}
