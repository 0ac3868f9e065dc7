//! Whether the address that runs are given leads to the service that runs here, and not to another one.

use serde_json::Value;

use crate::cli::local_service::ControlClient;
use domain::check_result::CheckResult;
use engine::config::Config;
use vendors::http::{Client, Redactor, Request, Timeouts};

/// How many polls may there be between two looks at one service?
const POLLS_BETWEEN: u64 = 5;

/// Compares what the service here says of itself with what its address says. Whether anybody answers
/// there at all is another check's matter.
pub(super) async fn check(config: &Config, service: &ControlClient) -> Option<CheckResult> {
    let base = config.callback_base_url.as_deref()?;
    let ours = service.get("/").await.ok()??;
    let redactor = Redactor::new(config.secrets());
    let timeouts = Timeouts {
        total: std::time::Duration::from_secs(5),
        ..Timeouts::default()
    };
    let client = Client::with_timeouts("the callback address", redactor, timeouts).ok()?;
    let request = Request::get("asking for ourselves", format!("{base}/")).accept_status(503);
    let theirs: Value = client.send(&request).await.ok()?.json().ok()?;
    let differs = theirs["version"] != ours["version"] || !is_near(&ours, &theirs);
    differs.then(|| {
        let said = |of: &Value| format!("version {}, {} polls", of["version"], of["polls"]);
        let what = format!(
            "{base} leads to another service ({}) than the one here ({})",
            said(&theirs),
            said(&ours)
        );
        CheckResult::error("callback-identity", what)
            .with_impact("Runs report to a service that knows nothing of them, and end by their deadline here.")
            .with_remedy("Point the proxy or DNS at this machine, or correct RUNNER_CALLBACK_BASE_URL.")
    })
}

fn is_near(ours: &Value, theirs: &Value) -> bool {
    match (ours["polls"].as_u64(), theirs["polls"].as_u64()) {
        (Some(ours), Some(theirs)) => ours.abs_diff(theirs) <= POLLS_BETWEEN,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_service_polls_on_between_two_looks_and_another_has_a_count_of_its_own() {
        let ours = json!({"polls": 7});
        assert!(is_near(&ours, &json!({"polls": 8})));
        assert!(!is_near(&ours, &json!({"polls": 70})));
        assert!(!is_near(&ours, &json!({"status": "a web page"})));
    }
}
