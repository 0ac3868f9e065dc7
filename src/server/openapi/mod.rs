//! `GET /api/openapi.json`: OpenAPI 3.1 document of the HTTP API.
//!
//! The document is maintained by hand in one YAML file per group of routes. Merging the files adds three
//! things: the version, the responses that operations have in common (`shared.yml`), and for each error
//! text under `errors` an example with the error schema. An error text contains `{…}` where it varies.
//!
//! The route needs no token: the document contains nothing that is not in the source code, and clients
//! are generated from it before a token exists. `tests/it/openapi.rs` compares it with the routes, and
//! the tests check every response against it.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use warp::http::Method;
use warp::{Filter, path};

use super::error::ApiError;
use super::routing::{ApiResult, Routes, json_text, method, one_of, reject_other_methods};

/// Names and contents of the files, in the order in which they are merged.
const FILES: [(&str, &str); 17] = [
    ("info.yml", include_str!("info.yml")),
    ("shared.yml", include_str!("shared.yml")),
    ("auth.yml", include_str!("auth.yml")),
    ("mappings.yml", include_str!("mappings.yml")),
    ("tickets.yml", include_str!("tickets.yml")),
    ("jobs.yml", include_str!("jobs.yml")),
    ("sessions.yml", include_str!("sessions.yml")),
    ("secrets.yml", include_str!("secrets.yml")),
    ("configuration.yml", include_str!("configuration.yml")),
    ("operation.yml", include_str!("operation.yml")),
    ("ticketing_b.yml", include_str!("ticketing_b.yml")),
    ("runs.yml", include_str!("runs.yml")),
    ("hooks.yml", include_str!("hooks.yml")),
    ("usage.yml", include_str!("usage.yml")),
    ("audit.yml", include_str!("audit.yml")),
    ("metrics.yml", include_str!("metrics.yml")),
    ("ticketing_hooks.yml", include_str!("ticketing_hooks.yml")),
];

/// Keys of a path item that are operations.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Serialized document, built on the first request.
static DOCUMENT: LazyLock<Result<Bytes, String>> = LazyLock::new(|| {
    let document = merge_files(&FILES)?;
    let text = serde_json::to_vec_pretty(&document).map_err(|error| error.to_string())?;
    Ok(text.into())
});

/// Returns the OpenAPI document as JSON.
///
/// # Errors
/// When the files are invalid or define a key twice. The files are compiled in, so a test detects this.
pub fn document() -> Result<Bytes, String> {
    DOCUMENT.clone()
}

/// Routes of `/api/openapi.json`.
pub(super) fn routes() -> Routes {
    let document = path!("api" / "openapi.json").boxed();
    one_of([
        document.clone().and(method(Method::GET)).then(show).boxed(),
        reject_other_methods(&document, [Method::GET]),
    ])
}

async fn show() -> ApiResult {
    match document() {
        Ok(text) => Ok(json_text(text)),
        Err(error) => {
            tracing::error!(error, "Failed to build the OpenAPI document.");
            Err(ApiError::internal())
        }
    }
}

fn merge_files(files: &[(&str, &str)]) -> Result<Value, String> {
    let mut document = Value::Object(Map::new());
    for (name, text) in files {
        let part: Value =
            serde_saphyr::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        merge(&mut document, part).map_err(|error| format!("{name}: {error}"))?;
    }
    let shared = document
        .as_object_mut()
        .and_then(|document| document.shift_remove("shared"));
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    if let Some(paths) = document["paths"].as_object_mut() {
        for operation in paths.values_mut().flat_map(operations) {
            add_shared_responses(operation, shared.as_ref().unwrap_or(&Value::Null));
        }
    }
    if let Some(responses) = document["components"]["responses"].as_object_mut() {
        responses.values_mut().for_each(add_examples);
    }
    Ok(document)
}

/// Merges `part` into `target`.
///
/// # Errors
/// When both define the same key.
fn merge(target: &mut Value, part: Value) -> Result<(), String> {
    let (Value::Object(target), Value::Object(part)) = (target, part) else {
        return Err("is defined twice".to_owned());
    };
    for (name, value) in part {
        match target.get_mut(&name) {
            None => {
                target.insert(name, value);
            }
            Some(existing) => merge(existing, value).map_err(|error| format!("{name} {error}"))?,
        }
    }
    Ok(())
}

fn operations(path: &mut Value) -> impl Iterator<Item = &mut Value> {
    let members = path.as_object_mut().into_iter().flatten();
    members
        .filter(|(name, _)| METHODS.contains(&name.as_str()))
        .map(|(_, operation)| operation)
}

/// Adds the shared responses to an operation, and examples to all of its error responses.
fn add_shared_responses(operation: &mut Value, shared: &Value) {
    let is_admin = operation["security"] == json!([{"admin": []}]);
    let has_body = operation.get("requestBody").is_some();
    let kinds = [("admin", is_admin), ("body", has_body), ("every", true)];
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    for (kind, _) in kinds.into_iter().filter(|(_, applies)| *applies) {
        for (status, response) in shared[kind].as_object().into_iter().flatten() {
            if !responses.contains_key(status) {
                responses.insert(status.clone(), response.clone());
            }
        }
    }
    responses.sort_keys();
    responses.values_mut().for_each(add_examples);
}

/// Replaces the list `errors` of a response by examples.
fn add_examples(response: &mut Value) {
    let Some(response) = response.as_object_mut() else {
        return;
    };
    let Some(Value::Array(texts)) = response.shift_remove("errors") else {
        return;
    };
    let examples: Map<String, Value> = texts
        .into_iter()
        .filter_map(|text| Some((text.as_str()?.to_owned(), json!({"value": {"error": text}}))))
        .collect();
    let plain = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}});
    let content = response.entry("content").or_insert(plain);
    content["application/json"]["examples"] = Value::Object(examples);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_the_document() {
        let document: Value = serde_json::from_slice(&document().unwrap()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(document.get("shared").is_none());
        let wrong_token = &document["paths"]["/api/log"]["get"]["responses"]["401"];
        let example = &wrong_token["content"]["application/json"]["examples"]["Unauthorized"];
        assert_eq!(example["value"], json!({"error": "Unauthorized"}));
    }

    #[test]
    fn rejects_a_key_that_is_defined_twice() {
        let files = [
            ("a.yml", "paths: {/: {get: 1}}"),
            ("b.yml", "paths: {/: {get: 2}}"),
        ];
        let error = merge_files(&files).unwrap_err();
        assert_eq!(error, "b.yml: paths / get is defined twice");
    }
}
