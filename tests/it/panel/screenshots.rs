//! Pictures of every panel, for people to look at. `tests/browser/screenshots.sh` asks for them.

use std::path::PathBuf;

use super::PANELS;
use super::browser::Browser;
use super::fixtures::populated_env;
use super::untrusted_text::UntrustedText;

const VIEWS: [(&str, &str); 5] = [
    ("run", "pipelines?job=01M7A"),
    ("issue", "issues?issue=SHOP-102"),
    ("edit", "projects?edit=PAY"),
    ("project-secrets", "projects?secrets=SHOP"),
    ("new-project", "projects/new"),
];

#[tokio::test]
#[ignore = "takes pictures for people"]
async fn screenshots() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
    std::fs::create_dir_all(&root).unwrap();
    let words = UntrustedText::plain();
    let world = populated_env(&words).await;
    let browser = Browser::start("panel::screenshots")
        .await
        .expect("needs chromium and chromedriver");
    browser.resize(1440).await;
    browser.goto(&format!("{}/admin", world.address)).await;
    browser.wait_for_text("Access code").await;
    browser.screenshot(&root.join("sign-in.png")).await;
    browser.open_view(&world.address, "overview").await;
    let panels = PANELS.iter().map(|(panel, _)| (*panel, *panel));
    for (name, view) in panels.chain(VIEWS) {
        browser
            .goto(&format!("{}/admin/{view}", world.address))
            .await;
        browser.wait_for_view().await;
        if view.contains('?') {
            browser.wait_until("document.querySelector('dialog[open]') && !document.querySelector('dialog .loading')").await;
        }
        for (width, scheme) in [
            (1440, "light"),
            (1440, "dark"),
            (768, "light"),
            (360, "dark"),
        ] {
            browser.resize(width).await;
            browser.set_color_scheme(scheme).await;
            // Colours and drawers move for a moment.
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
            let file = format!("{name}-{width}-{scheme}.png");
            browser.screenshot(&root.join(file)).await;
        }
    }
    println!("pictures are in {}", root.display());
    browser.quit().await;
    world.stop().await;
}
