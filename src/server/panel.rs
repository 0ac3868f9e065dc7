//! `/admin`: the admin panel, embedded in the executable.
//!
//! Paths below `/admin/assets/` are files. All other paths return the page, which routes them itself.
//! File names do not change between versions, so browsers revalidate them with every request.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use warp::http::header::HeaderMap;

use super::embedded;
use super::error::ApiError;
use super::github_app;
use super::panel_compaction::{compact_script, compact_styles};
use super::routing::{Access, ApiResult, PathSegment, QueryParams, Route, allow_forms_to};
use super::static_file::StaticFile;
use engine::app::App;
use engine::github_app::{RETURN_PATH, web_origin};

/// All assets by path, compressed once on the first request.
static ASSETS: LazyLock<BTreeMap<String, StaticFile>> = LazyLock::new(|| {
    let files = embedded::unpack(embedded::PANEL).unwrap_or_else(|error| {
        tracing::error!(error, "Failed to read the files of the panel.");
        BTreeMap::new()
    });
    let mut assets = BTreeMap::new();
    for (name, text) in files {
        if let Some(asset) = asset(&name, text) {
            assets.insert(name, asset);
        }
    }
    assets
});

const PAGE: &str = "index.html";

/// Page that sends a form to GitHub.
const FORM_PAGE: &str = "connections";

/// Routes of `/admin`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/admin/*", "panel", show)
            .access(Access::Public)
            .undescribed(),
    ]
}

async fn show(
    PathSegment(below): PathSegment,
    headers: HeaderMap,
    params: QueryParams,
    app: App,
) -> ApiResult {
    if format!("/admin/{below}") == RETURN_PATH {
        return Ok(github_app::finish(&app, &headers, &params).await);
    }
    if below == FORM_PAGE {
        let page = ASSETS.get(PAGE).ok_or_else(ApiError::not_found)?;
        return Ok(allow_forms_to(page.response(&headers), &web_origin(&app)));
    }
    let name = below.strip_prefix("assets/").unwrap_or(PAGE);
    let asset = ASSETS.get(name).ok_or_else(ApiError::not_found)?;
    Ok(asset.response(&headers))
}

/// Returns an asset; `None` for a file type that the panel does not use.
fn asset(name: &str, text: String) -> Option<StaticFile> {
    let content_type = match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    };
    let contents = compacted(name, &text).unwrap_or(text);
    StaticFile::new(content_type, contents.into())
}

/// Returns the contents of a script or a style sheet in short; `None` if they are served as they are.
fn compacted(name: &str, contents: &str) -> Option<String> {
    match name.rsplit_once('.')?.1 {
        "css" => compact_styles(contents),
        "js" => compact_script(contents),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No script has a token that the compaction does not know.
    #[test]
    fn every_script_and_style_sheet_is_compacted() {
        let files = embedded::unpack(embedded::PANEL).expect("the archive is complete");
        assert!(files.contains_key(PAGE));
        for (name, text) in &files {
            if name.ends_with(".js") || name.ends_with(".css") {
                assert!(compacted(name, text).is_some(), "{name}");
            }
        }
    }
}
