//! The OpenAPI document matches the service: the same routes, methods and authentication. Every response
//! in the test suite is checked by [`conformance`].

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use store::Store;

use crate::api_server::{ACCESS_CODE, ALL_FEATURES, ApiServer};

pub mod conformance;
mod schema;

use conformance::{DOCUMENT, resolve_ref};

/// Secrets that enable every optional route.
const SECRETS: [&str; 8] = [
    "--linear-webhook-secret",
    "linear secret",
    "--jira-webhook-secret",
    "jira secret",
    "--scm-webhook-secret",
    "webhook secret",
    "--gap-fill-trigger-secret",
    "trigger secret",
];

async fn server() -> ApiServer {
    ApiServer::start_with(
        &[ALL_FEATURES, &SECRETS].concat(),
        Store::in_memory().unwrap(),
    )
    .await
}

/// Documented methods of each path, with parameters without names.
fn described_routes() -> BTreeMap<String, BTreeSet<String>> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            let methods = methods.filter(|name| *name != "parameters");
            (
                without_parameter_names(path),
                methods.map(|name| name.to_uppercase()).collect(),
            )
        })
        .collect()
}

fn without_parameter_names(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => "{}",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_path_accepts_exactly_its_documented_methods() {
    let server = server().await;
    let described = described_routes();
    for (path, mut methods) in described.clone() {
        // A literal segment is also a value of a parameter.
        let general = described.iter().filter(|(other, _)| {
            let (mut segments, mut others) = (path.split('/'), other.split('/'));
            path.split('/').count() == other.split('/').count()
                && segments.all(|one| {
                    others
                        .next()
                        .is_some_and(|other| one == other || other == "{}")
                })
        });
        methods.extend(general.flat_map(|(_, methods)| methods.clone()));
        let path = path.replace("{}", "x");
        let response = server.send("PURGE", &path, "", None).await;
        assert_eq!(response.status, 405, "{path}");
        let allowed = response.header("allow").split(", ").map(str::to_owned);
        assert_eq!(allowed.collect::<BTreeSet<_>>(), methods, "{path}");
        for method in &methods {
            let response = server.send(method, &path, "", None).await;
            assert!(
                ![404, 405].contains(&response.status),
                "{method} {path} {response:?}"
            );
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn rejects_requests_without_the_documented_credential() {
    let server = server().await;
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            let (method, path) = (
                method.to_uppercase(),
                without_parameter_names(path).replace("{}", "x"),
            );
            let response = server.send(&method, &path, "", None).await;
            let expected_error = match operation["security"].to_string().as_str() {
                r#"[{"admin":[]},{"adminSession":[]}]"# => "Unauthorized",
                r#"[{"resultToken":[]}]"# | r#"[{"progressToken":[]}]"# => "missing_bearer",
                r#"[{"triggerSecret":[]}]"# => "unauthorized",
                r#"[{"webhookSignature":[]}]"#
                | r#"[{"linearSignature":[]}]"#
                | r#"[{"jiraSignature":[]}]"# => "Invalid signature",
                r#"[]"# | r#"[{},{"progressToken":[]}]"# | r#"[{},{"metricsToken":[]}]"# => {
                    assert_ne!(response.status, 401, "{method} {path}");
                    continue;
                }
                other => panic!("{method} {path} has {other}"),
            };
            assert_eq!(response.error(), (401, expected_error), "{method} {path}");
        }
    }
    server.stop().await.unwrap();
}

#[test]
fn every_example_matches_its_schema() {
    let mut seen = 0;
    let mut check_examples = |location: &str, holder: &Value| {
        let examples = holder["examples"].as_object().into_iter().flatten();
        let examples = examples.map(|(_, example)| &example["value"]);
        for example in examples.chain(holder.get("example")) {
            seen += 1;
            let result = schema::validate(&DOCUMENT, &holder["schema"], example);
            assert_eq!(result, Ok(()), "{location} {example}");
        }
    };
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            parameters.for_each(|parameter| check_examples(&at, resolve_ref(parameter)));
            let answers = operation["responses"].as_object().into_iter().flatten();
            let bodies = answers.map(|(_, answer)| answer);
            for holder in bodies.chain(operation.get("requestBody")) {
                let kinds = resolve_ref(holder)["content"]
                    .as_object()
                    .into_iter()
                    .flatten();
                kinds.for_each(|(_, content)| check_examples(&at, content));
            }
        }
    }
    assert!(seen > 200, "{seen}");
}

#[test]
fn schemas_use_only_supported_keywords() {
    fn count_schemas(location: &str, value: &Value) -> usize {
        let own = match value.get("schema").filter(|schema| schema.is_object()) {
            Some(schema) => {
                assert_eq!(
                    schema::unknown_keywords(schema),
                    [""; 0],
                    "{location} {schema}"
                );
                1
            }
            None => 0,
        };
        let fields = value.as_object().into_iter().flatten();
        let items = value.as_array().into_iter().flatten();
        let child = fields.map(|(name, child)| count_schemas(&format!("{location} {name}"), child));
        own + child.sum::<usize>()
            + items
                .map(|child| count_schemas(location, child))
                .sum::<usize>()
    }
    let shared = DOCUMENT["components"]["schemas"].as_object().unwrap();
    for (name, schema) in shared {
        assert_eq!(schema::unknown_keywords(schema), [""; 0], "{name}");
    }
    let seen = count_schemas("", &DOCUMENT);
    assert!(seen > 200, "{seen}");
}

#[tokio::test]
async fn serves_the_document_without_sign_in_if_the_admin_api_is_on() {
    let server = server().await;
    let response = server.send("GET", "/api/openapi.json", "", None).await;
    assert_eq!((response.status, &response.body), (200, &*DOCUMENT));
    assert_eq!(response.header("content-type"), "application/json");
    server.stop().await.unwrap();
    let disabled = ApiServer::start_with(&[], Store::in_memory().unwrap()).await;
    let response = disabled.send("GET", "/api/openapi.json", "", None).await;
    assert_eq!(response.error(), (404, "Not found"));
    disabled.stop().await.unwrap();
}

#[test]
fn openapi_command_prints_the_document() {
    let output = Command::new(env!("CARGO_BIN_EXE_agent-implement"))
        .arg("openapi")
        .env("ADMIN_ACCESS_CODE", ACCESS_CODE)
        .output()
        .unwrap();
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document, *DOCUMENT);
    assert!(!String::from_utf8_lossy(&output.stdout).contains(ACCESS_CODE));
}

/// Collects the names of properties with a default, in a schema and everything it refers to.
fn collect_defaults(schema: &Value, visited: &mut BTreeSet<String>, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str()
        && !visited.insert(name.to_owned())
    {
        return;
    }
    let resolved = resolve_ref(schema);
    for (name, property) in resolved["properties"].as_object().into_iter().flatten() {
        if property.get("default").is_some() || resolve_ref(property).get("default").is_some() {
            found.insert(name.clone());
        }
        collect_defaults(property, visited, found);
    }
    for part in ["anyOf", "oneOf"] {
        for schema in resolved[part].as_array().into_iter().flatten() {
            collect_defaults(schema, visited, found);
        }
    }
    if let Some(items) = resolved.get("items") {
        collect_defaults(items, visited, found);
    }
}

/// Client generators treat a field with a default as always present, so that clients would have to send
/// it.
#[test]
fn no_request_field_has_a_default() {
    let (mut visited, mut found) = (BTreeSet::new(), BTreeSet::new());
    for item in DOCUMENT["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let content = operation["requestBody"]["content"].as_object();
            for kind in content.into_iter().flatten() {
                collect_defaults(&kind.1["schema"], &mut visited, &mut found);
            }
        }
    }
    assert!(visited.contains("#/components/schemas/MappingInput"));
    assert_eq!(found, BTreeSet::new());
    let mapping_schema = &DOCUMENT["components"]["schemas"]["Mapping"];
    let required = mapping_schema["required"].as_array().unwrap();
    let mapping_schema = mapping_schema["properties"].as_object().unwrap();
    // Warnings in the response to a write are not a field of the mapping.
    let mut fields = mapping_schema.keys().filter(|name| *name != "warnings");
    assert!(fields.all(|name| required.contains(&Value::from(name.as_str()))));
}
