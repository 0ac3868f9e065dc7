//! Small HTML pages outside the panel.

use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::Response;

/// Builds a page. `body` is HTML.
pub(crate) fn html_page(body: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta name=color-scheme content=\"light dark\"><title>Agent Implement</title>\
         <h1>Agent Implement</h1>{body}"
    );
    let mut response = Response::new(page.into());
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    response
}

/// Builds a link.
pub(crate) fn link(address: &str, text: &str) -> String {
    format!("<a href=\"{}\">{}</a>", escape(address), escape(text))
}

/// Escapes a text for HTML, also for values of attributes in double quotes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
