//! Generator of the OpenAPI document.
//!
//! The operations are described by hand in one YAML file per group of routes, under their ids. Merging the
//! files adds what the code declares: the paths with their methods, parameters and credentials, from the
//! [`Route`]s; the schemas of responses, from their types; and the version. It also adds the responses that
//! operations have in common (`shared.yml`), and for each error text under `errors` an example with the error
//! schema. An error text contains `{…}` where it varies.
//!
//! Requests are described by hand, because the code reads them field by field and accepts aliases.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::notation;
use super::schemas::DerivedSchemas;
use crate::all_routes;
use crate::embedded;
use crate::routing::{Access, PathPattern, Route};

/// Names of the files, in the order in which they are merged.
const FILES: [&str; 22] = [
    "info.yml",
    "shared.yml",
    "auth.yml",
    "mappings.yml",
    "choices.yml",
    "tickets.yml",
    "jobs.yml",
    "conversation.yml",
    "take_over.yml",
    "evidence.yml",
    "sessions.yml",
    "secrets.yml",
    "configuration.yml",
    "connections.yml",
    "operation.yml",
    "ticketing_b.yml",
    "runs.yml",
    "hooks.yml",
    "usage.yml",
    "audit.yml",
    "metrics.yml",
    "ticketing_hooks.yml",
];

/// Builds the document.
///
/// # Errors
/// When the files are invalid, define a key twice or do not describe exactly the routes. The files are compiled in, so a test detects this.
pub(super) fn generate() -> Result<Bytes, String> {
    let texts = embedded::unpack(embedded::OPENAPI)?;
    let text_of = |name| {
        let text = texts.get(name).map(String::as_str);
        text.map(|text| (name, text))
            .ok_or_else(|| format!("{name} is missing"))
    };
    let files: Vec<_> = FILES.into_iter().map(text_of).collect::<Result<_, _>>()?;
    let document = build(merge_files(&files)?, &all_routes())?;
    let text = serde_json::to_vec_pretty(&document).map_err(|error| error.to_string())?;
    Ok(text.into())
}

fn merge_files(files: &[(&str, &str)]) -> Result<Value, String> {
    let mut document = Value::Object(Map::new());
    for (name, text) in files {
        let part: Value =
            serde_saphyr::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        merge(&mut document, part).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(document)
}

/// Adds to the merged files what the code declares.
///
/// # Errors
/// When an operation has no route, or a route or its parameter has no description.
fn build(mut document: Value, routes: &[Route]) -> Result<Value, String> {
    let mut take = |name: &str| document.as_object_mut()?.shift_remove(name);
    let (operations, shared) = (take("operations"), take("shared").unwrap_or_default());
    let mut schemas = DerivedSchemas::new();
    let parameters = &document["components"]["parameters"];
    document["paths"] = paths(routes, operations, &shared, parameters, &mut schemas)?;
    let derived = json!({"components": {"schemas": schemas.into_components()}});
    merge(&mut document, derived)?;
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    if let Some(responses) = document["components"]["responses"].as_object_mut() {
        responses.values_mut().for_each(add_examples);
    }
    Ok(document)
}

/// Builds the path items of the routes from the operations by id.
fn paths(
    routes: &[Route],
    operations: Option<Value>,
    shared: &Value,
    parameters: &Value,
    schemas: &mut DerivedSchemas,
) -> Result<Value, String> {
    let mut operations = operations.unwrap_or_default();
    let operations = operations.as_object_mut().ok_or("no operations")?;
    let mut paths = Map::new();
    for route in routes {
        let Some(id) = route.description.operation else {
            continue;
        };
        let described = operations.shift_remove(id);
        let mut operation = described.ok_or_else(|| format!("operation {id} is not described"))?;
        operation["operationId"] = json!(id);
        // A public route may describe a credential that its handler checks.
        let schemes = notation::security_schemes(route.access);
        if !schemes.is_empty() || operation.get("security").is_none() {
            let schemes = schemes.iter().map(|scheme| json!({ *scheme: [] }));
            operation["security"] = schemes.collect();
        }
        add_derived_schemas(&mut operation, route, schemas)
            .map_err(|error| format!("{id} {error}"))?;
        add_shared_responses(&mut operation, route, shared);
        let item = paths
            .entry(notation::path(route.pattern))
            .or_insert(json!({}));
        let references = references(route.pattern, parameters)?;
        if !references.is_empty() {
            item["parameters"] = Value::Array(references);
        }
        item[route.method.as_str().to_lowercase()] = operation;
    }
    match operations.keys().next() {
        Some(id) => Err(format!("operation {id} has no route")),
        None => Ok(Value::Object(paths)),
    }
}

/// Returns references to the described parameters of a path.
fn references(pattern: PathPattern, parameters: &Value) -> Result<Vec<Value>, String> {
    let described = || parameters.as_object().into_iter().flatten();
    let reference = |name: &str| {
        let found = described().find(|(_, one)| one["in"] == "path" && one["name"] == name);
        found
            .map(|(key, _)| json!({"$ref": format!("#/components/parameters/{key}")}))
            .ok_or_else(|| format!("parameter {name} is not described"))
    };
    notation::param_names(pattern).map(reference).collect()
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

/// Adds the schema of the response type. The description may add keywords to it, such as `maxItems`.
fn add_derived_schemas(
    operation: &mut Value,
    route: &Route,
    schemas: &mut DerivedSchemas,
) -> Result<(), String> {
    for mentioned in &route.description.mentioned {
        schemas.add(*mentioned);
    }
    if let Some(response) = route.description.response {
        let schema = schemas.add(response);
        let derived = json!({"content": {"application/json": {"schema": schema}}});
        merge(&mut operation["responses"]["200"], derived)?;
    }
    Ok(())
}

/// Adds the shared responses to an operation, and examples to all of its error responses.
fn add_shared_responses(operation: &mut Value, route: &Route, shared: &Value) {
    let is_admin = route.access == Access::Admin;
    let kinds = [
        ("admin", is_admin),
        ("session-cookie", is_admin),
        ("body", route.body_limit.is_some()),
        ("every", true),
    ];
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
    fn the_released_document_is_current() {
        let current = generate().unwrap();
        let document: Value = serde_json::from_slice(&current).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert!(document.get("shared").is_none());
        let wrong_token = &document["paths"]["/api/log"]["get"]["responses"]["401"];
        let example = &wrong_token["content"]["application/json"]["examples"]["Unauthorized"];
        assert_eq!(example["value"], json!({"error": "Unauthorized"}));

        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let released = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            released.trim_end().as_bytes() == current,
            "docs/openapi.json is not current. Write it with: cargo run -- openapi >docs/openapi.json"
        );
    }

    #[test]
    fn rejects_a_difference_between_routes_and_descriptions() {
        let described = |operation: &str, parameters: Value| {
            let merged = json!({
                "info": {},
                "components": {"parameters": parameters, "responses": {}},
                "operations": {operation: {"responses": {}}},
            });
            let show = async || Ok(crate::routing::plain_text(String::new()));
            let route = Route::get("/a/:x", "show", show).access(Access::Public);
            build(merged, &[route])
        };
        let parameters = json!({"X": {"in": "path", "name": "x"}});
        let document = described("show", parameters.clone()).unwrap();
        assert_eq!(
            document["paths"]["/a/{x}"],
            json!({
                "parameters": [{"$ref": "#/components/parameters/X"}],
                "get": {"responses": {}, "operationId": "show", "security": []},
            })
        );
        for (operation, parameters, expected) in [
            ("list", parameters, "operation show is not described"),
            ("show", json!({}), "parameter x is not described"),
        ] {
            assert_eq!(described(operation, parameters).unwrap_err(), expected);
        }
        let unused = build(json!({"operations": {"show": {}}}), &[]);
        assert_eq!(unused.unwrap_err(), "operation show has no route");
    }

    #[test]
    fn rejects_a_key_that_is_defined_twice() {
        let files = [
            ("a.yml", "operations: {show: {summary: a}}"),
            ("b.yml", "operations: {show: {summary: b}}"),
        ];
        let error = merge_files(&files).unwrap_err();
        assert_eq!(error, "b.yml: operations show summary is defined twice");
    }
}
