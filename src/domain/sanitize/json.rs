//! Strings of a JSON document.

use std::mem;

use serde_json::Value;

/// Replaces every string and every field name of a JSON value. Each is passed separately: a text that spans
/// fields could match a secret by accident. Works without recursion, so that no depth exhausts the stack.
pub fn map_strings(value: &mut Value, map: impl Fn(String) -> String) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => *text = map(mem::take(text)),
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                *fields = mem::take(fields)
                    .into_iter()
                    .map(|(name, field)| (map(name), field))
                    .collect();
                open.extend(fields.values_mut());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
