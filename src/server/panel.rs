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
use super::routing::{Access, ApiResult, PathSegment, Route};
use super::static_file::StaticFile;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../assets");

/// All assets by path, compressed once on the first request.
static ASSETS: LazyLock<BTreeMap<String, StaticFile>> = LazyLock::new(|| {
    let mut assets = BTreeMap::new();
    collect(&FILES, &mut assets);
    assets
});

const PAGE: &str = "index.html";

/// Routes of `/admin`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/admin/*", "panel", show)
            .access(Access::Public)
            .undescribed(),
    ]
}

async fn show(PathSegment(below): PathSegment, headers: HeaderMap) -> ApiResult {
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
    let contents = match std::str::from_utf8(contents) {
        Ok(text) if name.ends_with(".js") => compact(text).replace(" => ", "=>").into(),
        Ok(text) if name.ends_with(".css") => compact_css(&compact(text)).into(),
        _ => Bytes::from_static(contents),
    };
    StaticFile::new(content_type, contents)
}

/// Removes comments and indentation, which a browser does not need. Lines keep their numbers, so that errors in
/// a browser name the line of the source.
///
/// Only comments that fill whole lines are removed. No string of the panel continues on a further line.
fn compact(text: &str) -> String {
    let mut compacted = String::with_capacity(text.len());
    let mut in_comment = false;
    for line in text.lines().map(str::trim) {
        let begins = line.starts_with("/*");
        let is_comment = in_comment || line.starts_with("//") || (begins && ends_comment(line));
        if in_comment || begins {
            in_comment = !line.contains("*/");
        }
        if !is_comment && !in_comment {
            compacted.push_str(line);
        }
        compacted.push('\n');
    }
    compacted
}

/// Removes spaces that mean nothing between the parts of a rule.
fn compact_css(text: &str) -> String {
    let parts = [
        (" { ", "{"),
        (": ", ":"),
        ("; ", ";"),
        (", ", ","),
        (" }", "}"),
    ];
    parts.iter().fold(text.to_owned(), |text, (part, shorter)| {
        text.replace(part, shorter)
    })
}

/// Whether a line that begins a comment has nothing behind the comment.
fn ends_comment(line: &str) -> bool {
    line.find("*/").is_none_or(|at| at + 2 == line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacts_code_without_moving_its_lines() {
        let source = "// Head.\n/**\n * Doc.\n */\nexport function f() {\n\t/** @type {any} */ (x).y = \"// no\";\n\treturn 1; // kept\n}\n/* One. */\na { b: c }\n";
        let expected = "\n\n\n\nexport function f() {\n/** @type {any} */ (x).y = \"// no\";\nreturn 1; // kept\n}\n\na { b: c }\n";
        assert_eq!(compact(source), expected);
    }

    #[test]
    fn compacts_rules_without_changing_their_meaning() {
        let source = ".a, .b :is(c) { top: calc(1px + 2px); content: \" x\" }\n";
        let expected = ".a,.b :is(c){top:calc(1px + 2px);content:\" x\"}\n";
        assert_eq!(compact_css(source), expected);
    }
}
