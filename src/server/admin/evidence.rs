//! `/api/jobs/:id/evidence`: files that the `verify` script of a repository left. See
//! docs/repository-settings.md#evidence.
//!
//! The files were written by code of the repository. A browser shows them as an image or as plain text, in a sandbox.

use schemars::JsonSchema;
use serde::Serialize;
use warp::http::header::{
    CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
};
use warp::reply::Response;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, QueryParams, Route, binary, ok};
use domain::evidence::{EvidenceEntry, EvidenceFile, MAX_FILES};
use domain::ids::JobId;
use engine::app::App;
use store::{evidence, jobs};

/// Policy of a file that a browser shows on a page of its own.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// Name of the header that keeps pages of other origins from showing the file.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Routes of `/api/jobs/:id/evidence`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/jobs/:jobId/evidence", "listEvidence", list).returns::<EvidenceView>(),
        Route::get("/api/jobs/:jobId/evidence/:file", "readEvidence", read),
    ]
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Evidence")]
struct EvidenceView {
    /// Files that the last run of the `verify` script left.
    #[schemars(length(max = MAX_FILES))]
    files: Vec<EvidenceEntry>,
}

async fn list(PathSegment(id): PathSegment, app: App) -> ApiResult {
    let id = JobId::new(id);
    let found = app.core.store().read(|tx| {
        let is_known = jobs::get(tx, &id)?.is_some();
        Ok((is_known, evidence::get(tx, &id)?))
    });
    let (is_known, set) = found?;
    if !is_known {
        return Err(AdminApiError::JobNotFound.into());
    }
    let files = set.map_or_else(Vec::new, |set| set.files);
    Ok(ok(&EvidenceView { files }))
}

async fn read(
    PathSegment(id): PathSegment,
    PathSegment(name): PathSegment,
    query: QueryParams,
    app: App,
) -> ApiResult {
    let id = JobId::new(id);
    let found = app
        .core
        .store()
        .read_long(move |tx| evidence::file(tx, &id, &name));
    let file = found.await?.ok_or(AdminApiError::NoEvidence)?;
    let is_download = query.get("download").is_some_and(|value| value == "1");
    Ok(response(file, is_download))
}

fn response(file: EvidenceFile, is_download: bool) -> Response {
    let placement = if is_download { "attachment" } else { "inline" };
    let disposition = format!("{placement}; filename=\"{}\"", file.name);
    let mut response = binary(file.content);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static(file.kind.media_type());
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    // The name has letters, digits, dots, dashes and underscores only.
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    response
}
