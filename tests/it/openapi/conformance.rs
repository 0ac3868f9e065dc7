//! Checks every response of the test suite against the OpenAPI document.

use std::sync::LazyLock;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};
use serde_json::Value;

use super::schema;

/// Parsed OpenAPI document of the service.
pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_slice(&server::document().unwrap()).unwrap());

/// Request whose response is to be checked.
pub struct CheckedRequest {
    method: String,
    path: String,
}

impl CheckedRequest {
    pub fn new(method: &str, url: &Url) -> Self {
        Self {
            method: method.to_lowercase(),
            path: url.path().to_owned(),
        }
    }

    /// Reads the whole response and checks it against the document.
    pub async fn check_response(self, response: Response) -> (u16, HeaderMap, String) {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        if let Err(why) = self.check(status, &headers, &text) {
            let Self { method, path } = self;
            panic!(
                "{method} {path} responded {status} against the OpenAPI document: {why}\n{text}"
            );
        }
        (status, headers, text)
    }

    fn check(&self, status: u16, headers: &HeaderMap, text: &str) -> Result<(), String> {
        if self.path == "/admin" || self.path.starts_with("/admin/") {
            return Ok(());
        }
        let method = if self.method == "head" {
            "get"
        } else {
            &self.method
        };
        let Some(item) = path_item(method, &self.path) else {
            return ensure(
                status == 404 && is_error(text, "Not found"),
                "the path is not described",
            );
        };
        let Some(operation) = item.get(method) else {
            // Without an admin API, its paths respond 404.
            let is_rejected = (status == 405 && is_error(text, "Method not allowed"))
                || (status == 404 && is_error(text, "Not found"));
            return ensure(is_rejected, "the method is not described");
        };
        let response = resolve_ref(&operation["responses"][status.to_string().as_str()]);
        ensure(response.is_object(), "the status is not described")?;
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let is_present = headers.contains_key(name.as_str());
            ensure(
                is_present || resolve_ref(header)["required"] != true,
                &format!("no header {name}"),
            )?;
        }
        if self.method == "head" {
            return Ok(());
        }
        let content_type = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = content_type
            .and_then(|kind| kind.split(';').next())
            .unwrap_or_default();
        let content = response["content"].get(kind);
        let content = content.ok_or_else(|| format!("the type '{kind}' is not described"))?;
        if kind != "application/json" {
            return Ok(());
        }
        let body: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        schema::validate(&DOCUMENT, &content["schema"], &body)?;
        match body["error"].as_str() {
            Some(error) => ensure(
                has_error_example(content, error),
                "the error text has no example",
            ),
            None => Ok(()),
        }
    }
}

fn ensure(holds: bool, why: &str) -> Result<(), String> {
    holds.then_some(()).ok_or(why.to_owned())
}

fn is_error(text: &str, error: &str) -> bool {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    body == serde_json::json!({ "error": error })
}

/// Target of a `$ref`, or the value itself.
pub fn resolve_ref(node: &Value) -> &Value {
    let pointer = node["$ref"]
        .as_str()
        .and_then(|text| text.strip_prefix('#'));
    pointer
        .and_then(|pointer| DOCUMENT.pointer(pointer))
        .unwrap_or(node)
}

/// Documented operations of a path that has the method, if one does. A literal path takes precedence over one with
/// parameters.
fn path_item(method: &str, path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let matching = paths
        .iter()
        .filter(|(template, _)| path_matches(template, path));
    let most_specific = matching
        .min_by_key(|(template, item)| (item.get(method).is_none(), template.matches('{').count()));
    most_specific.map(|(_, item)| item)
}

fn path_matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template
            .iter()
            .zip(&path)
            .all(|(part, actual)| part == actual || (part.starts_with('{') && !actual.is_empty()))
}

/// Whether an error text matches one of the examples. `{…}` in an example stands for any text.
fn has_error_example(content: &Value, error: &str) -> bool {
    let examples = content["examples"].as_object().into_iter().flatten();
    let values = examples.map(|(_, example)| &example["value"]);
    { values }
        .chain(content.get("example"))
        .filter_map(|value| value["error"].as_str())
        .any(|text| matches_template(text, error))
}

fn matches_template(text: &str, error: &str) -> bool {
    let mut pattern = String::from("(?s)^");
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (_, after) = after.split_once('}').unwrap();
        pattern.push_str(&regex::escape(before));
        pattern.push_str(".+");
        rest = after;
    }
    pattern.push_str(&regex::escape(rest));
    pattern.push('$');
    regex::Regex::new(&pattern).unwrap().is_match(error)
}

#[test]
fn reports_undocumented_responses() {
    let json = HeaderMap::from_iter([(CONTENT_TYPE, "application/json".parse().unwrap())]);
    let check = |method: &str, path: &str, status, text: &str| {
        let url = Url::parse(&format!("http://x{path}")).unwrap();
        CheckedRequest::new(method, &url).check(status, &json, text)
    };
    assert_eq!(check("GET", "/api/dedup?x=1", 200, "[]"), Ok(()));
    assert_eq!(
        check("DELETE", "/api/dedup/a%2Fb", 404, r#"{"deleted":false}"#),
        Ok(())
    );
    assert_eq!(
        check("GET", "/api/none", 404, r#"{"error":"Not found"}"#),
        Ok(())
    );
    let rows = [
        ("GET", "/api/dedup", 200, "[1]", "/0: 1 is not"),
        ("GET", "/api/dedup", 200, "[", "EOF"),
        (
            "GET",
            "/api/dedup",
            418,
            "[]",
            "the status is not described",
        ),
        (
            "GET",
            "/api/dedup",
            401,
            r#"{"error":"Unauthorized"}"#,
            "no header",
        ),
        (
            "GET",
            "/api/dedup",
            503,
            r#"{"error":"No idea"}"#,
            "the error text has no example",
        ),
        (
            "PUT",
            "/api/dedup",
            200,
            "[]",
            "the method is not described",
        ),
        ("GET", "/api/none", 200, "[]", "the path is not described"),
    ];
    for (method, path, status, text, why) in rows {
        let error = check(method, path, status, text).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }
}
