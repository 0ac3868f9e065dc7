//! Whether what was acknowledged is kept: asked of the service itself, after the load.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http_client::HttpConnection;
use crate::load_env::LoadEnv;
use crate::measurements::RequestKind;
use crate::operator;
use crate::webhooks::DELIVERY_SAMPLE;

/// Every job has every step as it was last told, and the end that its run reported; every webhook
/// was counted as one, and is known when it comes again.
pub async fn check_durability(scene: &LoadEnv) {
    counts(scene, &operator::scrape_metrics(scene).await);
    let told = std::mem::take(&mut *scene.acknowledged_runs());
    let mut line = HttpConnection::new(scene.service);
    for run in &told {
        let path = format!("/api/jobs/{}/steps", run.job);
        let bearer = format!("Bearer {}", scene.token);
        let headers = [("authorization", bearer.as_str())];
        let asked = crate::http_client::encode_request("GET", &path, &headers, b"");
        let answer = line.send(&asked).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.excerpt());
        let kept: Value = serde_json::from_slice(&answer.body).unwrap();
        let steps: BTreeMap<&str, &Value> = kept["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| (step["id"].as_str().unwrap(), step))
            .collect();
        for (id, (status, elapsed)) in &run.steps {
            let is_kept = steps
                .get(id.as_str())
                .is_some_and(|step| step["status"] == *status && step["elapsed_ms"] == *elapsed);
            if !is_kept {
                let found = steps.get(id.as_str());
                scene.recorder.record_error(format!(
                    "lost: {id} of {} at {elapsed} ms, found {found:?}",
                    run.job
                ));
            }
        }
        if let Some(status) = run.result
            && kept["job"]["status"] != status
        {
            let found = &kept["job"]["status"];
            scene.recorder.record_error(format!(
                "lost: the result of {}, {status}; found {found}",
                run.job
            ));
        }
        scene
            .recorder
            .count("steps found in the store", run.steps.len() as u64);
    }
    deliver_again(scene, &mut line).await;
    let outbox = scene.admin_request("GET", "/api/outbox", None).await;
    let outbox: Value = serde_json::from_slice(&outbox.body).unwrap();
    let dead = outbox["dead"].as_array().unwrap().len();
    if dead > 0 {
        scene
            .recorder
            .record_error(format!("given up: {}", outbox["dead"]));
    }
}

/// The service has counted as many answers as the clients have.
fn counts(scene: &LoadEnv, metrics: &str) {
    let told = scene.acknowledged_runs();
    let reports: u64 = told.iter().map(|run| run.reports).sum();
    let results = told.iter().filter(|run| run.result.is_some()).count() as u64;
    drop(told);
    scene.recorder.count("reports acknowledged", reports);
    for (route, sent) in [
        ("/runner/progress", reports),
        ("/runner/result", results),
        (
            "/api/repo-host/webhook",
            scene.recorder.counter("host webhooks"),
        ),
        (
            "/api/ticketing-a/webhook",
            scene.recorder.counter("ticketing webhooks"),
        ),
    ] {
        let answered = answers(metrics, route);
        if answered != BTreeMap::from([("200".to_owned(), sent)]) {
            let what = format!("{route}: {sent} sent, answered {answered:?}");
            scene.recorder.record_error(what);
        }
    }
}

/// How many requests of a route the service has answered, by status.
fn answers(metrics: &str, route: &str) -> BTreeMap<String, u64> {
    let name = format!("agent_implement_http_requests_total{{route=\"{route}\",status=\"");
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(&name));
    lines
        .filter_map(|line| {
            let (status, count) = line.split_once("\"} ")?;
            Some((status.to_owned(), count.parse().ok()?))
        })
        .collect()
}

/// What was taken once is known.
async fn deliver_again(scene: &LoadEnv, line: &mut HttpConnection) {
    let sample = std::mem::take(&mut *DELIVERY_SAMPLE.lock().unwrap());
    for request in &sample {
        let answer = line.send(request).await.unwrap();
        if answer.status != 200 || !answer.text().contains("duplicate") {
            let name = RequestKind::RepoHostWebhook.name();
            scene
                .recorder
                .record_error(format!("{name}, again: {}", answer.excerpt()));
        }
    }
    scene
        .recorder
        .count("webhooks known when sent again", sample.len() as u64);
}

/// Nothing that the service itself calls wrong, or worth a look.
pub fn check_log(scene: &LoadEnv) {
    let logs = std::fs::read_dir(scene.data_dir().join("logs")).unwrap();
    for log in logs {
        let text = std::fs::read_to_string(log.unwrap().path()).unwrap();
        for line in text.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            if line["level"] == "ERROR" || line["level"] == "WARN" {
                let told =
                    ["level", "task", "message", "error"].map(|field| line[field].to_string());
                scene
                    .recorder
                    .record_error(format!("log: {}", told.join(" ")));
            }
        }
    }
}
