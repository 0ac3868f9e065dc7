//! Check that the callback address leads to the service on this machine, not to another one.

use serde_json::Value;

use crate::cli::local_service::ControlClient;
use domain::check_result::CheckResult;
use engine::config::Config;
use vendors::http::{Client, Redactor, Request, Timeouts};

/// Maximum difference of poll counts between two requests to the same service.
const MAX_POLL_DIFFERENCE: u64 = 5;

/// Compares the status of the local service with the status at the callback address. Returns `None` if they
/// match or if either is unavailable; another check tests whether the address responds.
pub(super) async fn check(config: &Config, service: &ControlClient) -> Option<CheckResult> {
    let base = config.callback_base_url.as_deref()?;
    let local = service.get("/").await.ok()??;
    let redactor = Redactor::new(config.secrets());
    let timeouts = Timeouts {
        total: std::time::Duration::from_secs(5),
        ..Timeouts::default()
    };
    let client = Client::with_timeouts("the callback address", redactor, timeouts).ok()?;
    let request =
        Request::get("checking the callback address", format!("{base}/")).accept_status(503);
    let remote: Value = client.send(&request).await.ok()?.json().ok()?;
    let differs = remote["version"] != local["version"] || !has_similar_poll_count(&local, &remote);
    differs.then(|| {
        let summary = |status: &Value| {
            let (version, polls) = (&status["version"], &status["polls"]);
            format!("version {version}, {polls} polls")
        };
        let message = format!(
            "{base} leads to another service ({}), not to the one on this machine ({})",
            summary(&remote),
            summary(&local)
        );
        CheckResult::error("callback-identity", message)
            .with_impact("Runs report to a service that does not know them, and time out here.")
            .with_remedy(
                "Point the proxy or DNS at this machine, or correct RUNNER_CALLBACK_BASE_URL.",
            )
    })
}

fn has_similar_poll_count(local: &Value, remote: &Value) -> bool {
    match (local["polls"].as_u64(), remote["polls"].as_u64()) {
        (Some(local), Some(remote)) => local.abs_diff(remote) <= MAX_POLL_DIFFERENCE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn recognizes_another_service_by_its_poll_count() {
        let local = json!({"polls": 7});
        assert!(has_similar_poll_count(&local, &json!({"polls": 8})));
        assert!(!has_similar_poll_count(&local, &json!({"polls": 70})));
        let page = json!({"status": "a web page"});
        assert!(!has_similar_poll_count(&local, &page));
    }
}
