//! `GET /api/openapi.json`: the HTTP surface described, as OpenAPI 3.1.
//!
//! The description is written by hand beside the routes, a file for each group of them. Three things
//! are put in when the files are joined, so that they are said once: the version; the answers that
//! operations have in common (`shared.yml`); and for each error text under `errors` an example,
//! with the schema of errors. A text may hold `{…}` where it varies.
//!
//! Nobody has to sign in for it: it says nothing that the source does not, and a client is generated
//! from it before anybody has a token. `tests/it/openapi.rs` holds it against the routes, and
//! the stories hold every answer they get against it.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use warp::http::Method;
use warp::{Filter, path};

use super::error::ApiError;
use super::routing::{ApiResult, Routes, json_text, method, one_of, reject_other_methods};

/// The parts, in the order in which they are joined.
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

/// What a path may hold beside its operations.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Joined once, when somebody first asks.
static DOCUMENT: LazyLock<Result<Bytes, String>> = LazyLock::new(|| {
    let document = joined(&FILES)?;
    let text = serde_json::to_vec_pretty(&document).map_err(|error| error.to_string())?;
    Ok(text.into())
});

/// The document, as JSON.
///
/// # Errors
/// When its parts do not fit together; they are compiled in, so a test sees that before anybody else.
pub fn document() -> Result<Bytes, String> {
    DOCUMENT.clone()
}

/// Routes of `/api/openapi.json`.
pub(super) fn routes() -> Routes {
    let own = path!("api" / "openapi.json").boxed();
    one_of([
        own.clone().and(method(Method::GET)).then(show).boxed(),
        reject_other_methods(&own, [Method::GET]),
    ])
}

async fn show() -> ApiResult {
    match document() {
        Ok(text) => Ok(json_text(text)),
        Err(error) => {
            tracing::error!(error, "The description of the API does not fit together.");
            Err(ApiError::internal())
        }
    }
}

fn joined(files: &[(&str, &str)]) -> Result<Value, String> {
    let mut whole = Value::Object(Map::new());
    for (name, text) in files {
        let part: Value =
            serde_saphyr::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        join(&mut whole, part).map_err(|error| format!("{name}: {error}"))?;
    }
    let shared = whole
        .as_object_mut()
        .and_then(|whole| whole.shift_remove("shared"));
    whole["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    if let Some(paths) = whole["paths"].as_object_mut() {
        for operation in paths.values_mut().flat_map(operations) {
            complete(operation, shared.as_ref().unwrap_or(&Value::Null));
        }
    }
    if let Some(responses) = whole["components"]["responses"].as_object_mut() {
        responses.values_mut().for_each(exemplify);
    }
    Ok(whole)
}

/// Puts a part into the whole. Nothing may be said twice.
fn join(whole: &mut Value, part: Value) -> Result<(), String> {
    let (Value::Object(whole), Value::Object(part)) = (whole, part) else {
        return Err("is said twice".to_owned());
    };
    for (name, value) in part {
        match whole.get_mut(&name) {
            None => {
                whole.insert(name, value);
            }
            Some(known) => join(known, value).map_err(|error| format!("{name} {error}"))?,
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

/// Adds the answers that all operations of its kind have, and examples of the errors.
fn complete(operation: &mut Value, shared: &Value) {
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
    responses.values_mut().for_each(exemplify);
}

/// Makes examples of the error texts of a response.
fn exemplify(response: &mut Value) {
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
    fn the_parts_fit_together() {
        let document: Value = serde_json::from_slice(&document().unwrap()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(document.get("shared").is_none());
        let wrong_token = &document["paths"]["/api/log"]["get"]["responses"]["401"];
        let example = &wrong_token["content"]["application/json"]["examples"]["Unauthorized"];
        assert_eq!(example["value"], json!({"error": "Unauthorized"}));
    }

    #[test]
    fn nothing_is_said_twice() {
        let twice = [
            ("a.yml", "paths: {/: {get: 1}}"),
            ("b.yml", "paths: {/: {get: 2}}"),
        ];
        let refused = joined(&twice).unwrap_err();
        assert_eq!(refused, "b.yml: paths / get is said twice");
    }
}
