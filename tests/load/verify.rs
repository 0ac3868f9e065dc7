//! Durability check after the load, through the service's own API.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http_client::HttpConnection;
use crate::load_env::LoadEnv;
use crate::measurements::RequestKind;
use crate::operator;
use crate::webhooks::DELIVERY_SAMPLE;

/// Checks that every job has the last acknowledged status of each step and the reported result, and that
/// every webhook was counted once and is recognized as a duplicate.
pub async fn check_durability(env: &LoadEnv) {
    check_counts(env, &operator::scrape_metrics(env).await);
    let runs = std::mem::take(&mut *env.acknowledged_runs());
    let mut connection = HttpConnection::new(env.service);
    for run in &runs {
        let path = format!("/api/jobs/{}/steps", run.job);
        let bearer = format!("Bearer {}", env.token);
        let headers = [("authorization", bearer.as_str())];
        let request = crate::http_client::encode_request("GET", &path, &headers, b"");
        let response = connection.send(&request).await.unwrap();
        assert_eq!(response.status, 200, "{}", response.excerpt());
        let stored: Value = serde_json::from_slice(&response.body).unwrap();
        let steps: BTreeMap<&str, &Value> = stored["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| (step["id"].as_str().unwrap(), step))
            .collect();
        for (id, (status, elapsed)) in &run.steps {
            // The end of a run closes its open steps.
            let is_closed = *status == "running" && run.result.is_some();
            let is_stored = steps.get(id.as_str()).is_some_and(|step| match is_closed {
                true => step["status"] != "running" && step["ended_at"].is_string(),
                false => step["status"] == *status && step["elapsed_ms"] == *elapsed,
            });
            if !is_stored {
                let actual = steps.get(id.as_str());
                env.recorder.record_error(format!(
                    "lost: {id} of {} at {elapsed} ms, found {actual:?}",
                    run.job
                ));
            }
        }
        if let Some(status) = run.result
            && stored["job"]["status"] != status
        {
            let actual = &stored["job"]["status"];
            env.recorder.record_error(format!(
                "lost: the result of {}, {status}; found {actual}",
                run.job
            ));
        }
        env.recorder
            .count("steps found in the store", run.steps.len() as u64);
    }
    redeliver_webhooks(env, &mut connection).await;
    let outbox = env.admin_request("GET", "/api/outbox", None).await;
    let outbox: Value = serde_json::from_slice(&outbox.body).unwrap();
    let dead = outbox["dead"].as_array().unwrap().len();
    if dead > 0 {
        env.recorder
            .record_error(format!("dead outbox entries: {}", outbox["dead"]));
    }
}

/// Checks that the service counted as many responses as the clients received.
fn check_counts(env: &LoadEnv, metrics: &str) {
    let runs = env.acknowledged_runs();
    let reports: u64 = runs.iter().map(|run| run.reports).sum();
    let results = runs.iter().filter(|run| run.result.is_some()).count() as u64;
    drop(runs);
    env.recorder.count("reports acknowledged", reports);
    for (route, sent) in [
        ("/runner/progress", reports),
        ("/runner/result", results),
        (
            "/api/repo-host/webhook",
            env.recorder.counter("host webhooks"),
        ),
        (
            "/api/ticketing-a/webhook",
            env.recorder.counter("ticketing webhooks"),
        ),
    ] {
        let responses = response_counts(metrics, route);
        if responses != BTreeMap::from([("200".to_owned(), sent)]) {
            let message = format!("{route}: {sent} sent, responses {responses:?}");
            env.recorder.record_error(message);
        }
    }
}

/// Number of responses of a route, by status.
fn response_counts(metrics: &str, route: &str) -> BTreeMap<String, u64> {
    let name = format!("agent_implement_http_requests_total{{route=\"{route}\",status=\"");
    let lines = metrics
        .lines()
        .filter_map(|connection| connection.strip_prefix(&name));
    lines
        .filter_map(|connection| {
            let (status, count) = connection.split_once("\"} ")?;
            Some((status.to_owned(), count.parse().ok()?))
        })
        .collect()
}

/// Redelivers a sample of webhooks; no one must cause new work.
async fn redeliver_webhooks(env: &LoadEnv, connection: &mut HttpConnection) {
    let sample = std::mem::take(&mut *DELIVERY_SAMPLE.lock().unwrap());
    for request in &sample {
        let response = connection.send(request).await.unwrap();
        // The end of a check can be of use by now.
        let known = ["\"ignored\":true", "\"acknowledged\":true"];
        let is_known = known.iter().any(|text| response.text().contains(text));
        if response.status != 200 || !is_known {
            let name = RequestKind::RepoHostWebhook.name();
            env.recorder
                .record_error(format!("{name}, repeated: {}", response.excerpt()));
        }
    }
    env.recorder.count(
        "webhooks that had no effect when repeated",
        sample.len() as u64,
    );
}

/// Checks that the service logged no errors and no warnings.
pub fn check_log(env: &LoadEnv) {
    let logs = std::fs::read_dir(env.data_dir().join("logs")).unwrap();
    for log in logs {
        let text = std::fs::read_to_string(log.unwrap().path()).unwrap();
        for connection in text.lines() {
            let Ok(connection) = serde_json::from_str::<Value>(connection) else {
                continue;
            };
            if connection["level"] == "ERROR" || connection["level"] == "WARN" {
                let fields = ["level", "task", "message", "error"]
                    .map(|field| connection[field].to_string());
                env.recorder
                    .record_error(format!("log: {}", fields.join(" ")));
            }
        }
    }
}
