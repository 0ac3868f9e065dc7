//! Check of the permissions and events that the GitHub App requests.

use crate::app::App;
use domain::check_result::CheckResult;
use domain::github_app::{missing_events, missing_permissions};

/// Checks the settings of the App. Returns `None` for a plain token, and if GitHub does not respond, which the
/// connection check reports.
pub(super) async fn examine(app: &App) -> Option<CheckResult> {
    let github = app.vendors.github.as_ref()?;
    let settings = github.app_settings().await.ok()??;
    let check = "github-app";
    let permissions = missing_permissions(&settings.permissions);
    if !permissions.is_empty() {
        let what = format!("the App does not request {}", permissions.join(", "));
        return Some(
            CheckResult::error(check, what)
                .with_impact("Starting runs, pushing, commenting or syncing workflows fails.")
                .with_remedy(
                    "Add it on the App's settings page (Permissions & events) and save. Then accept it for each installation.",
                ),
        );
    }
    // Without a webhook, the App needs no events: they are found by reconciliation.
    let events = missing_events(&settings.events);
    if !events.is_empty() && app.vendors.credentials.scm_webhook_secret.is_some() {
        let what = format!("the App does not receive the events {}", events.join(", "));
        return Some(
            CheckResult::warning(check, what)
                .with_impact("What they report is found only by the next poll or reconciliation.")
                .with_remedy("Select them on the App's settings page (Permissions & events, Subscribe to events)."),
        );
    }
    Some(CheckResult::ok(
        check,
        "the App requests the permissions and events that it needs",
    ))
}
