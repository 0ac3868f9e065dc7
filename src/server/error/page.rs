//! Error page for a person whose browser came by a link.

use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::Response;

use super::ApiError;

/// Builds a page with the sentence of an error and a link to continue.
pub(crate) fn error_page(error: &ApiError, next: &str) -> Response {
    let sentence = error.0.body.get("error").and_then(|text| text.as_str());
    let sentence = escape(sentence.unwrap_or("Internal server error"));
    let page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta name=color-scheme content=\"light dark\"><title>Agent Implement</title>\
         <h1>Agent Implement</h1><p>{sentence}</p><p><a href=\"{}\">Continue in the panel</a></p>",
        escape(next)
    );
    let mut response = Response::new(page.into());
    *response.status_mut() = error.0.status;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    response
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
