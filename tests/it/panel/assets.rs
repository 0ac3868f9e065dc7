//! Panel assets: caching, deep links, and no panel when the admin API is off.

use std::path::Path;

use requires::requires;
use serde_json::json;
use store::Store;

use super::browser::Browser;
use crate::api_server::ApiServer;

/// Maximum size of the whole panel, in bytes.
const BUDGET: usize = 243_500;

fn files(folder: &Path, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, paths);
        } else {
            paths.push(path.to_string_lossy().into_owned());
        }
    }
}

fn assets() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let root = format!("{}/", root.display());
    paths.iter().map(|file| file.replace(&root, "")).collect()
}

#[tokio::test]
async fn serves_small_assets_with_etags_and_compression() {
    let server = ApiServer::start().await;
    let client = reqwest::Client::builder().no_gzip().build().unwrap();
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

        let conditional = server.request("GET", &path).header("if-none-match", &tag);
        let conditional = conditional.send().await.unwrap();
        assert_eq!(conditional.status(), 304, "{path}");
        assert_eq!(conditional.headers()["etag"], tag.as_str());

        let compressed = client.get(format!("http://{}{path}", server.address));
        let compressed = compressed.header("accept-encoding", "gzip").send().await;
        let compressed = compressed.unwrap();
        assert_eq!(compressed.headers()["vary"], "accept-encoding");
        sent += compressed.bytes().await.unwrap().len();
    }
    assert!(plain <= BUDGET, "the panel is {plain} bytes");
    assert!(sent * 2 < plain, "{sent} bytes of {plain} are sent");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn serves_deep_links_and_404_for_missing_files() {
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
async fn serves_no_panel_without_an_access_code() {
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

/// The panel names no other origin and uses no API that parses HTML.
#[test]
fn panel_uses_no_other_origin_and_no_html_injection() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for name in assets() {
        let text = std::fs::read_to_string(root.join(&name)).unwrap();
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !foreign.contains("http://") && !foreign.contains("https://"),
            "{name}"
        );
        for api in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!text.contains(api), "{name} has {api}");
        }
    }
}

/// The service leaves out comments and spaces of scripts, and nothing else.
#[requires("panel-tools")]
#[tokio::test]
async fn served_scripts_have_the_syntax_trees_of_their_sources() {
    let server = ApiServer::start().await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let served = tempfile::tempdir().unwrap();
    let mut compare = std::process::Command::new("node");
    compare.arg(root.join("tests/browser/same_syntax.cjs"));
    compare.arg(super::panel_tool("typescript/lib/typescript.js"));
    for name in assets().into_iter().filter(|name| name.ends_with(".js")) {
        let path = format!("/admin/assets/{name}");
        let script = server.request("GET", &path).send().await.unwrap();
        let file = served.path().join(name.replace('/', "-"));
        std::fs::write(&file, script.bytes().await.unwrap()).unwrap();
        compare.arg(root.join("assets").join(&name)).arg(file);
    }
    let output = compare.output().unwrap();
    let differences = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{differences}");
    server.stop().await.unwrap();
}

/// The service leaves out comments and spaces of style sheets. The browser reads the same rules from both.
#[requires("browser")]
#[tokio::test]
async fn served_style_sheets_have_the_rules_of_their_sources() {
    let server = ApiServer::start().await;
    let browser = Browser::start().await;
    browser.goto("about:blank").await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for name in assets().into_iter().filter(|name| name.ends_with(".css")) {
        let source = std::fs::read_to_string(root.join(&name)).unwrap();
        let path = format!("/admin/assets/{name}");
        let served = server.request("GET", &path).send().await.unwrap();
        let served = served.text().await.unwrap();
        assert!(served.len() < source.len(), "{name}");
        // Custom properties keep their spaces, which mean nothing outside of strings.
        let rules = r#"
            const plain = (text) => text.replace(/"(?:[^"\\]|\\.)*"|, /g, (part) => (part === ", " ? "," : part));
            return [...arguments].map((text) => {
                const sheet = new CSSStyleSheet();
                sheet.replaceSync(text);
                return [...sheet.cssRules].map((rule) => plain(rule.cssText));
            });
        "#;
        let rules = browser.eval_with(rules, json!([source, served])).await;
        let [source, served] = [0, 1].map(|side| rules[side].as_array().unwrap());
        assert!(!source.is_empty(), "{name}");
        assert_eq!(source, served, "{name}");
    }
    browser.quit().await;
    server.stop().await.unwrap();
}

/// Type-checks the panel's modules.
#[requires("panel-tools")]
#[test]
fn panel_modules_type_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new("node")
        .arg(super::panel_tool("typescript/bin/tsc"))
        .arg("-p")
        .arg(root.join("tests/browser/tsconfig.json"))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
}
