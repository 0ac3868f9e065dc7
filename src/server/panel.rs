//! `/admin`: the admin panel, embedded in the executable.
//!
//! Paths below `/admin/assets/` are files. All other paths return the page, which routes them itself.
//! File names do not change between versions, so browsers revalidate them with every request.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use include_dir::{Dir, include_dir};
use warp::http::header::HeaderMap;

use super::error::ApiError;
use super::github_app;
use super::panel_compaction::{compact_script, compact_styles};
use super::routing::{Access, ApiResult, PathSegment, QueryParams, Route, allow_forms_to};
use super::static_file::StaticFile;
use engine::app::App;
use engine::github_app::{RETURN_PATH, web_origin};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../assets");

/// All assets by path, compressed once on the first request.
static ASSETS: LazyLock<BTreeMap<String, StaticFile>> = LazyLock::new(|| {
    let mut assets = BTreeMap::new();
    collect(&FILES, &mut assets);
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

fn collect(dir: &'static Dir<'_>, assets: &mut BTreeMap<String, StaticFile>) {
    for file in dir.files() {
        let name = file.path().to_string_lossy().into_owned();
        if let Some(asset) = asset(&name, file.contents()) {
            assets.insert(name, asset);
        }
    }
    for dir in dir.dirs() {
        collect(dir, assets);
    }
}

/// Returns an asset; `None` for a file type that the panel does not use.
fn asset(name: &str, contents: &'static [u8]) -> Option<StaticFile> {
    let content_type = match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    };
    let text = std::str::from_utf8(contents).ok();
    let compact = text.and_then(|text| compacted(name, text)).map(Bytes::from);
    let contents = compact.unwrap_or(Bytes::from_static(contents));
    StaticFile::new(content_type, contents)
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

    fn assert_compacted(dir: &Dir<'_>) {
        for file in dir.files() {
            let name = file.path().to_string_lossy();
            if name.ends_with(".js") || name.ends_with(".css") {
                let text = file.contents_utf8().expect("text");
                assert!(compacted(&name, text).is_some(), "{name}");
            }
        }
        dir.dirs().for_each(assert_compacted);
    }

    /// No script has a token that the compaction does not know.
    #[test]
    fn every_script_and_style_sheet_is_compacted() {
        assert_compacted(&FILES);
    }
}
