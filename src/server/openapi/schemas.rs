//! Component schemas, derived from the response types.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::routing::SchemaOf;

/// Derives the schemas of types, and of all types that they contain.
pub(super) struct DerivedSchemas(SchemaGenerator);

impl DerivedSchemas {
    /// Creates an empty set of components.
    pub(super) fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12().for_serialize();
        "/components/schemas".clone_into(settings.definitions_path.to_mut());
        Self(settings.into_generator())
    }

    /// Returns the schema of a type: a reference to a component, or a list of references.
    pub(super) fn add(&mut self, schema_of: SchemaOf) -> Value {
        let mut schema = schema_of(&mut self.0);
        RecursiveTransform(adapt).transform(&mut schema);
        schema.to_value()
    }

    /// Returns the components by name.
    pub(super) fn into_components(mut self) -> Map<String, Value> {
        let derived = self.0.take_definitions(false).into_iter();
        let components = derived.map(|(name, value)| {
            let mut schema = Schema::try_from(value).unwrap_or_default();
            RecursiveTransform(adapt).transform(&mut schema);
            (name, schema.to_value())
        });
        components.collect()
    }
}

/// Adapts a derived schema to the document.
fn adapt(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    // Responses contain no other fields than those described.
    if schema.contains_key("properties") {
        schema.entry("additionalProperties").or_insert(json!(false));
    }
    // Defaults are for reading stored rows; responses contain every field.
    schema.shift_remove("default");
    // Widths of Rust's numbers are not formats of JSON Schema.
    if schema
        .get("format")
        .is_some_and(|format| format != "date-time")
    {
        schema.shift_remove("format");
    }
    collapse_enum(schema);
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = public_text(text);
    }
}

/// Replaces a choice of constants by an `enum`, whose description lists the meanings.
fn collapse_enum(schema: &mut Map<String, Value>) {
    let choices = schema.get("oneOf").and_then(Value::as_array);
    let constants = choices.and_then(|choices| choices.iter().map(constant).collect());
    let Some(constants): Option<Vec<(Value, String)>> = constants else {
        return;
    };
    let (names, meanings): (Vec<Value>, Vec<String>) = constants.into_iter().unzip();
    let description = schema.get("description").and_then(Value::as_str);
    let description = description.map(public_text).into_iter().chain(meanings);
    let description = description.collect::<Vec<_>>().join(" ");
    schema.shift_remove("oneOf");
    schema.insert("description".to_owned(), Value::from(description));
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::from(names));
}

/// Returns the value of a constant and its meaning as a sentence.
fn constant(schema: &Value) -> Option<(Value, String)> {
    let value = schema.get("const")?;
    let meaning = public_text(schema.get("description")?.as_str()?);
    Some((value.clone(), format!("`{}`: {meaning}", value.as_str()?)))
}

/// Returns what clients of the API need from a doc comment: its first paragraph, without references.
fn public_text(doc: &str) -> String {
    let paragraph = doc.split("\n\n").next().unwrap_or_default();
    let text = paragraph.replace('\n', " ");
    let text = text.split(" See docs/").next().unwrap_or_default();
    text.replace(". `None`", ". Null").replace("`None`", "null")
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;

    use super::*;

    /// State of a light. See docs/lights.md#states.
    ///
    /// Not for clients.
    #[derive(serde::Serialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Light {
        /// It shines.
        On,
        /// It does
        /// not shine.
        SwitchedOff,
    }

    #[derive(serde::Serialize, JsonSchema)]
    struct Lamp {
        #[serde(default)]
        watts: u32,
        /// Color. `None` if it is white.
        color: Option<String>,
        light: Light,
    }

    #[test]
    fn derives_closed_schemas_with_the_public_part_of_doc_comments() {
        let mut schemas = DerivedSchemas::new();
        let list = schemas.add(|generator| generator.subschema_for::<Vec<Lamp>>());
        let reference = json!({"$ref": "#/components/schemas/Lamp"});
        assert_eq!(list, json!({"type": "array", "items": reference}));
        let expected = json!({
            "Lamp": {
                "type": "object",
                "additionalProperties": false,
                "required": ["watts", "color", "light"],
                "properties": {
                    "watts": {"type": "integer", "minimum": 0},
                    "color": {"type": ["string", "null"], "description": "Color. Null if it is white."},
                    "light": {"$ref": "#/components/schemas/Light"},
                },
            },
            "Light": {
                "description": "State of a light. `on`: It shines. `switched-off`: It does not shine.",
                "type": "string",
                "enum": ["on", "switched-off"],
            },
        });
        assert_eq!(Value::from(schemas.into_components()), expected);
    }
}
