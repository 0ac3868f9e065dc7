//! The description of the API says what the service does: the same routes, the same methods, the same
//! authentication. What its answers look like is checked in every story, by [`described`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use store::Store;

use crate::api_server::{ACCESS_CODE, ALL_FEATURES, ApiServer};

pub mod conformance;
mod schema;

use conformance::{DOCUMENT, resolve_ref};

/// Every route that can be switched on is.
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

/// The control socket alone has it.
const NOT_ON_THE_NETWORK: &str = "/api/backup";

async fn server() -> ApiServer {
    ApiServer::start_with(
        &[ALL_FEATURES, &SECRETS].concat(),
        Store::in_memory().unwrap(),
    )
    .await
}

/// The methods of each path, its parameters without their names.
fn described_routes() -> BTreeMap<String, BTreeSet<String>> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            let methods = methods.filter(|name| *name != "parameters");
            (
                nameless(path),
                methods.map(|name| name.to_uppercase()).collect(),
            )
        })
        .collect()
}

fn nameless(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => "{}",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Every path that a file of `src/server` makes with `path!`, and `/`.
fn routes_of_the_source() -> BTreeSet<String> {
    let mut found = BTreeSet::from(["/".to_owned()]);
    for (name, text) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server")) {
        let text = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap()
            .to_owned();
        // Paths made in another way would be missed.
        for (other, places) in [
            ("path::end(", "health.rs"),
            ("path(\"", "panel.rs"),
            ("path::param", ""),
        ] {
            assert!(
                !text.contains(other) || name.ends_with(places),
                "{name} has {other}"
            );
        }
        for made in text.split("path!(").skip(1) {
            let parts = made.split(')').next().unwrap().split('/').map(str::trim);
            let parts = parts.map(|part| match part {
                "Segment" => "{}",
                literal => literal.trim_matches('"'),
            });
            found.insert(format!("/{}", parts.collect::<Vec<_>>().join("/")));
            found.remove(NOT_ON_THE_NETWORK);
        }
    }
    found
}

fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push((
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    found
}

#[test]
fn every_route_is_described_and_every_description_has_its_route() {
    let described: BTreeSet<String> = described_routes().into_keys().collect();
    assert_eq!(routes_of_the_source(), described);
}

#[tokio::test]
async fn every_path_has_the_methods_that_are_described() {
    let server = server().await;
    for (path, methods) in described_routes() {
        let path = path.replace("{}", "x");
        let told = server.send("PURGE", &path, "", None).await;
        assert_eq!(told.status, 405, "{path}");
        let allowed = told.header("allow").split(", ").map(str::to_owned);
        assert_eq!(allowed.collect::<BTreeSet<_>>(), methods, "{path}");
        for method in &methods {
            let told = server.send(method, &path, "", None).await;
            assert!(
                ![404, 405].contains(&told.status),
                "{method} {path} {told:?}"
            );
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn who_must_show_something_is_refused_without_it() {
    let server = server().await;
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            let (method, path) = (method.to_uppercase(), nameless(path).replace("{}", "x"));
            let told = server.send(&method, &path, "", None).await;
            let wanted = match operation["security"].to_string().as_str() {
                r#"[{"admin":[]}]"# => "Unauthorized",
                r#"[{"resultToken":[]}]"# | r#"[{"progressToken":[]}]"# => "missing_bearer",
                r#"[{"triggerSecret":[]}]"# => "unauthorized",
                r#"[{"webhookSignature":[]}]"#
                | r#"[{"linearSignature":[]}]"#
                | r#"[{"jiraSignature":[]}]"# => "Invalid signature",
                r#"[]"# | r#"[{},{"progressToken":[]}]"# | r#"[{},{"metricsToken":[]}]"# => {
                    assert_ne!(told.status, 401, "{method} {path}");
                    continue;
                }
                other => panic!("{method} {path} has {other}"),
            };
            assert_eq!(told.error(), (401, wanted), "{method} {path}");
        }
    }
    server.stop().await.unwrap();
}

#[test]
fn every_example_fits_its_schema() {
    let mut seen = 0;
    let mut look = |place: &str, holder: &Value| {
        let many = holder["examples"].as_object().into_iter().flatten();
        let many = many.map(|(_, example)| &example["value"]);
        for example in many.chain(holder.get("example")) {
            seen += 1;
            let fits = schema::validate(&DOCUMENT, &holder["schema"], example);
            assert_eq!(fits, Ok(()), "{place} {example}");
        }
    };
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            parameters.for_each(|parameter| look(&at, resolve_ref(parameter)));
            let answers = operation["responses"].as_object().into_iter().flatten();
            let bodies = answers.map(|(_, answer)| answer);
            for holder in bodies.chain(operation.get("requestBody")) {
                let kinds = resolve_ref(holder)["content"]
                    .as_object()
                    .into_iter()
                    .flatten();
                kinds.for_each(|(_, content)| look(&at, content));
            }
        }
    }
    assert!(seen > 200, "{seen}");
}

#[test]
fn no_schema_says_what_means_nothing() {
    fn look(place: &str, value: &Value) -> usize {
        let own = match value.get("schema").filter(|schema| schema.is_object()) {
            Some(schema) => {
                assert_eq!(
                    schema::unknown_keywords(schema),
                    [""; 0],
                    "{place} {schema}"
                );
                1
            }
            None => 0,
        };
        let fields = value.as_object().into_iter().flatten();
        let items = value.as_array().into_iter().flatten();
        let below = fields.map(|(name, below)| look(&format!("{place} {name}"), below));
        own + below.sum::<usize>() + items.map(|below| look(place, below)).sum::<usize>()
    }
    let shared = DOCUMENT["components"]["schemas"].as_object().unwrap();
    for (name, schema) in shared {
        assert_eq!(schema::unknown_keywords(schema), [""; 0], "{name}");
    }
    let seen = look("", &DOCUMENT);
    assert!(seen > 200, "{seen}");
}

#[tokio::test]
async fn the_document_is_open_to_all_where_there_is_an_admin_api() {
    let server = server().await;
    let told = server.send("GET", "/api/openapi.json", "", None).await;
    assert_eq!((told.status, &told.body), (200, &*DOCUMENT));
    assert_eq!(told.header("content-type"), "application/json");
    server.stop().await.unwrap();
    let without = ApiServer::start_with(&[], Store::in_memory().unwrap()).await;
    let told = without.send("GET", "/api/openapi.json", "", None).await;
    assert_eq!(told.error(), (404, "Not found"));
    without.stop().await.unwrap();
}

#[test]
fn the_command_prints_the_document() {
    let program = Command::new(env!("CARGO_BIN_EXE_agent-implement"))
        .arg("openapi")
        .env("ADMIN_ACCESS_CODE", ACCESS_CODE)
        .output()
        .unwrap();
    assert!(program.status.success());
    let printed: Value = serde_json::from_slice(&program.stdout).unwrap();
    assert_eq!(printed, *DOCUMENT);
    assert!(!String::from_utf8_lossy(&program.stdout).contains(ACCESS_CODE));
}

/// The names of properties with a default, in a schema and all that it leads to.
fn with_defaults(schema: &Value, known: &mut BTreeSet<String>, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str()
        && !known.insert(name.to_owned())
    {
        return;
    }
    let whole = resolve_ref(schema);
    for (name, property) in whole["properties"].as_object().into_iter().flatten() {
        if property.get("default").is_some() || resolve_ref(property).get("default").is_some() {
            found.insert(name.clone());
        }
        with_defaults(property, known, found);
    }
    for part in ["anyOf", "oneOf"] {
        for schema in whole[part].as_array().into_iter().flatten() {
            with_defaults(schema, known, found);
        }
    }
    if let Some(items) = whole.get("items") {
        with_defaults(items, known, found);
    }
}

/// Generators of clients take a field with a default for one that is always there, so that it would have
/// to be sent.
#[test]
fn no_field_of_a_request_has_to_be_sent_for_its_default() {
    let (mut known, mut found) = (BTreeSet::new(), BTreeSet::new());
    for item in DOCUMENT["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let content = operation["requestBody"]["content"].as_object();
            for kind in content.into_iter().flatten() {
                with_defaults(&kind.1["schema"], &mut known, &mut found);
            }
        }
    }
    assert!(known.contains("#/components/schemas/MappingInput"));
    assert_eq!(found, BTreeSet::new());
    let shown = &DOCUMENT["components"]["schemas"]["Mapping"];
    let required = shown["required"].as_array().unwrap();
    let shown = shown["properties"].as_object().unwrap();
    // What the answer to a write warns of is no field of the mapping.
    let mut fields = shown.keys().filter(|name| *name != "warnings");
    assert!(fields.all(|name| required.contains(&Value::from(name.as_str()))));
}
