//! Reads of a foreign JSON document only the fields that somebody asks for.
//!
//! What vendors send by webhook says everything about everything that has to do with an event; of a
//! payload's hundreds of fields we look at twenty. The others are checked as any JSON is, and leave
//! nothing in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A document with only the fields of these names, at any depth; None when it is no JSON, or deeper
/// than 128 levels.
pub fn read_json_fields(document: &[u8], names: &'static [&'static str]) -> Option<Value> {
    let mut document = serde_json::Deserializer::from_slice(document);
    let read = Part::Kept(names).deserialize(&mut document).ok()?;
    document.end().ok()?;
    Some(read)
}

/// A part of a document that is being read.
#[derive(Clone, Copy)]
enum Part {
    /// With the fields of these names.
    Kept(&'static [&'static str]),
    /// Not at all: it reads as null.
    Skipped,
}

impl Part {
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
        while let Some(name) = fields.next_key_seed(Name(self))? {
            match name {
                Some(name) => kept.insert(name.to_owned(), fields.next_value_seed(self)?),
                None => Some(fields.next_value_seed(Self::Skipped)?),
            };
        }
        Ok(self.keep(kept))
    }
}

/// The name of a field of such a part; None when nobody asks for it.
struct Name(Part);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
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
    fn only_what_is_asked_for_is_kept() {
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
    fn of_two_fields_of_one_name_the_last_counts_as_everywhere() {
        let twice = br#"{"a": 1, "a": {"list": []}}"#;
        let whole: Value = serde_json::from_slice(twice).unwrap();
        assert_eq!(read_json_fields(twice, NAMES), Some(whole));
    }

    #[test]
    fn what_is_skipped_must_be_json_all_the_same() {
        let deep = |open: &str, close: &str| {
            let (open, close) = (open.repeat(200), close.repeat(200));
            format!(r#"{{"b": {open}1{close}}}"#).into_bytes()
        };
        let refused: [&[u8]; 10] = [
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
        for document in refused {
            let shown = String::from_utf8_lossy(document);
            assert!(
                serde_json::from_slice::<Value>(document).is_err(),
                "{shown}"
            );
            assert_eq!(read_json_fields(document, NAMES), None, "{shown}");
        }
    }
}
