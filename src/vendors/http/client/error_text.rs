//! Texts of errors, without URLs.

use domain::sanitize::is_visible;

/// Returns the innermost cause of an error. Outer causes contain the URL, which may include a credential.
pub(in crate::http) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Message in place of a page, which a proxy or a load balancer wrote for a browser.
const PAGE: &str = "a web page instead of an error message";

/// Extracts the error message from a response body in the formats that vendors use. Returns nothing of a page.
pub(in crate::http) fn error_message(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || !is_visible(c));
        return xml_error(text).unwrap_or_else(|| match text.starts_with('<') {
            true => PAGE.to_owned(),
            false => text.trim_end().to_owned(),
        });
    };
    let mut messages: Vec<String> = Vec::new();
    let mut push = |text: Option<&str>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            messages.push(text.to_owned());
        }
    };
    push(json["message"].as_str());
    push(json["error"].as_str());
    for text in json["errorMessages"].as_array().into_iter().flatten() {
        push(text.as_str());
    }
    match &json["errors"] {
        serde_json::Value::Array(errors) => {
            for error in errors {
                push(
                    error
                        .as_str()
                        .or_else(|| error["message"].as_str())
                        .or_else(|| error["code"].as_str()),
                );
            }
        }
        serde_json::Value::Object(errors) => {
            for (field, text) in errors {
                push(Some(&format!(
                    "{field}: {}",
                    text.as_str().unwrap_or_default()
                )));
            }
        }
        _ => {}
    }
    messages.join("; ")
}

/// Returns the code and the message of an error of S3.
fn xml_error(text: &str) -> Option<String> {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (content, _) = rest.split_once(&format!("</{name}>"))?;
        Some(content.trim())
    };
    let code = element("Code")?;
    Some(match element("Message") {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_formats_of_vendors() {
        let rows = [
            (r#"{"message": "no", "errors": [{"code": "x"}]}"#, "no; x"),
            (
                "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>It does not exist</Message></Error>",
                "NoSuchBucket: It does not exist",
            ),
            ("<Error><Code>SlowDown</Code></Error>", "SlowDown"),
            ("<html><body>Bad gateway", PAGE),
            ("\u{feff}\u{0}\r\n <!DOCTYPE html>\n<html>", PAGE),
            ("1 < 2", "1 < 2"),
            (" no ", "no"),
        ];
        for (body, message) in rows {
            assert_eq!(error_message(body.as_bytes()), message, "{body}");
        }
    }
}
