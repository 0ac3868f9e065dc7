//! `GET /api/openapi.json`: OpenAPI 3.1 document of the HTTP API.
//!
//! With the feature `openapi-generator`, [`generator`] builds it from descriptions, routes and types. Releases are built
//! without: they contain `docs/openapi.json`, which a test compares with the generated document, and not the
//! generator with the schemas of all types.
//!
//! The route needs no token: the document contains nothing that is not in the source code, and clients
//! are generated from it before a token exists. The tests check every response against it.

#[cfg(feature = "openapi-generator")]
mod generator;
#[cfg(feature = "openapi-generator")]
mod notation;
#[cfg(feature = "openapi-generator")]
mod schemas;

use std::sync::LazyLock;

use bytes::Bytes;
use warp::http::HeaderMap;

use super::error::ApiError;
use super::routing::{Access, ApiResult, Route};
use super::static_file::StaticFile;

/// Serialized document, built on the first request.
static DOCUMENT: LazyLock<Result<Bytes, String>> = LazyLock::new(build);

#[cfg(feature = "openapi-generator")]
fn build() -> Result<Bytes, String> {
    generator::generate()
}

#[cfg(not(feature = "openapi-generator"))]
fn build() -> Result<Bytes, String> {
    let files = super::embedded::unpack(super::embedded::OPENAPI)?;
    let text = files.get("openapi.json").ok_or("openapi.json is missing")?;
    let document: serde_json::Value =
        serde_json::from_slice(text.as_bytes()).map_err(|error| error.to_string())?;
    let text = serde_json::to_vec_pretty(&document).map_err(|error| error.to_string())?;
    Ok(text.into())
}

/// Returns the OpenAPI document as JSON.
///
/// # Errors
/// When it cannot be built from what is compiled in. A test detects this.
pub fn document() -> Result<Bytes, String> {
    DOCUMENT.clone()
}

/// Routes of `/api/openapi.json`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/openapi.json", "describe", show).access(Access::Public)]
}

/// Served compressed from memory, because anybody may request it any number of times.
static FILE: LazyLock<Option<StaticFile>> =
    LazyLock::new(|| StaticFile::new("application/json", document().ok()?));

async fn show(headers: HeaderMap) -> ApiResult {
    if let Err(error) = &*DOCUMENT {
        tracing::error!(error, "Failed to build the OpenAPI document.");
    }
    let file = FILE.as_ref().ok_or_else(ApiError::internal)?;
    Ok(file.response(&headers))
}
