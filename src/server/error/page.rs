//! Error page for a person whose browser came by a link.

use warp::reply::Response;

use super::ApiError;
use crate::html_page::{escape, html_page};

/// Builds a page with the sentence of an error, and what is next as HTML.
pub(crate) fn error_page(error: &ApiError, next: &str) -> Response {
    let sentence = error.0.body.get("error").and_then(|text| text.as_str());
    let sentence = escape(sentence.unwrap_or("Internal server error"));
    let mut response = html_page(&format!("<p>{sentence}</p><p>{next}</p>"));
    *response.status_mut() = error.0.status;
    response
}
