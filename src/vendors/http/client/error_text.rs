//! Texts of errors, without URLs.

/// Returns the innermost cause of an error. Outer causes contain the URL, which may include a credential.
pub(in crate::http) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Extracts the error message from a response body in the formats that vendors use.
pub(super) fn error_message(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else {
        return String::from_utf8_lossy(body).trim().to_owned();
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
