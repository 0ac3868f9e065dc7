//! Screenshots of every panel for review. `tests/browser/screenshots.sh` runs this test.

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
    let texts = UntrustedText::plain();
    let env = populated_env(&texts).await;
    let browser = Browser::start().await;
    browser.resize(1440).await;
    browser.goto(&format!("{}/admin", env.address)).await;
    browser.wait_for_text("Access code").await;
    browser.screenshot(&root.join("sign-in.png")).await;
    browser.open_view(&env.address, "overview").await;
    let panels = PANELS.iter().map(|(panel, _)| (*panel, *panel));
    for (name, view) in panels.chain(VIEWS) {
        browser.goto(&format!("{}/admin/{view}", env.address)).await;
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
            // Colors and drawers change in transitions.
            browser
                .wait_until(
                    "document.getAnimations().every((one) => !(one instanceof CSSTransition))",
                )
                .await;
            let file = format!("{name}-{width}-{scheme}.png");
            browser.screenshot(&root.join(file)).await;
        }
    }
    println!("pictures are in {}", root.display());
    browser.quit().await;
    env.stop().await;
}
