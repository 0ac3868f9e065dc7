//! Every answer that a story gets is held against the description of the API.

use std::sync::LazyLock;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};
use serde_json::Value;

use super::schema;

/// The document.
pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_slice(&server::document().unwrap()).unwrap());

/// What somebody asked, to be held against the answer.
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

    /// Reads the answer to its end and holds it against the document.
    pub async fn check_response(self, answer: Response) -> (u16, HeaderMap, String) {
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.unwrap();
        if let Err(why) = self.check(status, &headers, &text) {
            let Self { method, path } = self;
            panic!("{method} {path} answered {status} otherwise than described: {why}\n{text}");
        }
        (status, headers, text)
    }

    fn check(&self, status: u16, headers: &HeaderMap, text: &str) -> Result<(), String> {
        if self.path == "/admin" || self.path.starts_with("/admin/") {
            return Ok(());
        }
        let Some(known) = path_item(&self.path) else {
            return must(
                status == 404 && says(text, "Not found"),
                "the path is not described",
            );
        };
        let method = if self.method == "head" {
            "get"
        } else {
            &self.method
        };
        let Some(operation) = known.get(method) else {
            // Without an admin API, its paths are none.
            let is_refused = (status == 405 && says(text, "Method not allowed"))
                || (status == 404 && says(text, "Not found"));
            return must(is_refused, "the method is not described");
        };
        let response = resolve_ref(&operation["responses"][status.to_string().as_str()]);
        must(response.is_object(), "the status is not described")?;
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let is_there = headers.contains_key(name.as_str());
            must(
                is_there || resolve_ref(header)["required"] != true,
                &format!("no header {name}"),
            )?;
        }
        if self.method == "head" {
            return Ok(());
        }
        let given = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = given
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
            Some(error) => must(is_told(content, error), "the error text has no example"),
            None => Ok(()),
        }
    }
}

fn must(holds: bool, why: &str) -> Result<(), String> {
    holds.then_some(()).ok_or(why.to_owned())
}

fn says(text: &str, error: &str) -> bool {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    body == serde_json::json!({ "error": error })
}

/// What a reference leads to.
pub fn resolve_ref(given: &Value) -> &Value {
    let pointer = given["$ref"]
        .as_str()
        .and_then(|text| text.strip_prefix('#'));
    pointer
        .and_then(|pointer| DOCUMENT.pointer(pointer))
        .unwrap_or(given)
}

/// What is known of a path; one that is named in full comes before one with parameters.
fn path_item(path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let fitting = paths.iter().filter(|(template, _)| fits(template, path));
    let fewest = fitting.min_by_key(|(template, _)| template.matches('{').count());
    fewest.map(|(_, item)| item)
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template
            .iter()
            .zip(&path)
            .all(|(own, given)| own == given || (own.starts_with('{') && !given.is_empty()))
}

/// Whether an error's text is one of the examples; `{…}` in one stands for any text.
fn is_told(content: &Value, error: &str) -> bool {
    let many = content["examples"].as_object().into_iter().flatten();
    let values = many.map(|(_, example)| &example["value"]);
    { values }
        .chain(content.get("example"))
        .filter_map(|value| value["error"].as_str())
        .any(|text| is_like(text, error))
}

fn is_like(text: &str, error: &str) -> bool {
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
fn an_answer_that_is_not_described_is_noticed() {
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
        let told = check(method, path, status, text).unwrap_err();
        assert!(told.starts_with(why), "{told}");
    }
}
