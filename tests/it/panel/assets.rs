//! What the binary serves: files that browsers keep, deep links, and nothing when admin is off.

use std::path::Path;

use store::Store;

use crate::api_server::ApiServer;

/// Most bytes of the whole panel.
const BUDGET: usize = 160_000;

fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

fn assets() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let mut found = Vec::new();
    files(&root, &mut found);
    let root = format!("{}/", root.display());
    found.iter().map(|file| file.replace(&root, "")).collect()
}

#[tokio::test]
async fn the_whole_panel_is_small_tagged_and_compressed() {
    let server = ApiServer::start().await;
    let raw = reqwest::Client::builder().no_gzip().build().unwrap();
    let (mut plain, mut sent) = (0, 0);
    for name in assets() {
        let path = format!("/admin/assets/{name}");
        let whole = server.request("GET", &path).send().await.unwrap();
        assert_eq!(whole.status(), 200, "{path}");
        let header = |name: &str| whole.headers()[name].to_str().unwrap().to_owned();
        let (tag, policy) = (header("etag"), header("content-security-policy"));
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert_eq!(header("cache-control"), "no-cache");
        assert_eq!(header("x-content-type-options"), "nosniff");
        plain += whole.bytes().await.unwrap().len();

        let known = server.request("GET", &path).header("if-none-match", &tag);
        let known = known.send().await.unwrap();
        assert_eq!(known.status(), 304, "{path}");
        assert_eq!(known.headers()["etag"], tag.as_str());

        let packed = raw.get(format!("http://{}{path}", server.address));
        let packed = packed.header("accept-encoding", "gzip").send().await;
        let packed = packed.unwrap();
        assert_eq!(packed.headers()["vary"], "accept-encoding");
        sent += packed.bytes().await.unwrap().len();
    }
    assert!(plain <= BUDGET, "the panel is {plain} bytes");
    assert!(sent * 2 < plain, "{sent} bytes of {plain} are sent");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn every_view_can_be_linked_to_and_a_missing_file_is_none() {
    let server = ApiServer::start().await;
    for path in [
        "/admin",
        "/admin/",
        "/admin/pipelines?job=01",
        "/admin/a/b/c",
    ] {
        let page = server.request("GET", path).send().await.unwrap();
        assert_eq!(page.status(), 200, "{path}");
        let kind = page.headers()["content-type"].to_str().unwrap().to_owned();
        assert_eq!(kind, "text/html; charset=utf-8");
        assert!(page.text().await.unwrap().contains("js/main.js"));
    }
    for path in [
        "/admin/assets/js/none.js",
        "/admin/assets/",
        "/admin/assets/../Cargo.toml",
    ] {
        let missing = server.send("GET", path, "", None).await;
        assert_ne!(missing.header("content-type"), "text/javascript", "{path}");
    }
    let missing = server
        .send("GET", "/admin/assets/js/none.js", "", None)
        .await;
    assert_eq!(missing.error(), (404, "Not found"));
    let refused = server.send("POST", "/admin/pipelines", "", None).await;
    assert_eq!((refused.status, refused.header("allow")), (405, "GET"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn without_an_access_code_there_is_no_panel() {
    let server = ApiServer::start_with(&[], Store::in_memory().unwrap()).await;
    for path in [
        "/admin",
        "/admin/pipelines",
        "/admin/assets/js/main.js",
        "/api/events",
    ] {
        let missing = server.send("GET", path, "", None).await;
        assert_eq!(missing.error(), (404, "Not found"), "{path}");
    }
    server.stop().await.unwrap();
}

/// Only what the page is made of may come from anywhere: no other origin is named in it.
#[test]
fn the_panel_needs_no_other_origin_and_reads_no_html() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for name in assets() {
        let text = std::fs::read_to_string(root.join(&name)).unwrap();
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !foreign.contains("http://") && !foreign.contains("https://"),
            "{name}"
        );
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!text.contains(way), "{name} has {way}");
        }
    }
}

/// The types that the panel's modules promise each other.
#[test]
fn the_modules_keep_their_types() {
    let Some(tools) = super::panel_tool("typescript/bin/tsc", "panel::assets::types") else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checked = std::process::Command::new("node")
        .arg(tools)
        .arg("-p")
        .arg(root.join("tests/browser/tsconfig.json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
}
