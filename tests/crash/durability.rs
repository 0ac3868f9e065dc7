//! Durability of acknowledged reports, webhooks, settings and backups across kills.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use domain::crypto::signature::sign;
use domain::ids::{JobId, TeamKey};
use domain::secret::Secret;
use engine::clock::Clock;
use fake_vendors::DeliveredWebhook;
use serde_json::{Value, json};
use store::{Store, audit, jobs, mappings, steps};

use crate::checks::{VerifiedCounts, ensure, open_store};
use crate::crash_env::{AcknowledgedStep, CrashEnv, IDLE_TEAM, WEBHOOK_SECRET};
use crate::program::command;

/// Redelivers every acknowledged webhook that was of use; each must be recognized as a duplicate. Others are not stored, and
/// may be of use by now.
pub async fn redeliver_events(env: &CrashEnv, counts: &mut VerifiedCounts) -> Result<(), String> {
    let secret = Secret::new(WEBHOOK_SECRET);
    let client = reqwest::Client::new();
    let signed = |payload: &Value| {
        let body = payload.to_string();
        let signature = sign(body.as_bytes(), &secret);
        (body, signature)
    };
    let expect_duplicate = async |request: reqwest::RequestBuilder, first_response: &str| {
        let response = request.send().await.map_err(|error| error.to_string())?;
        let response: Value = response.json().await.map_err(|error| error.to_string())?;
        ensure(response["reason"] == "duplicate", || {
            format!("an acknowledged event was lost: {first_response}, then {response}")
        })
    };
    let deliveries = env.vendors.github().webhooks().deliveries();
    let was_of_use = |event: &&DeliveredWebhook| {
        event.status == Some(200) && !event.response_body.contains("ignored")
    };
    for event in deliveries.iter().filter(was_of_use) {
        let (body, signature) = signed(&event.payload);
        let request = client.post(env.url("/api/repo-host/webhook")).body(body);
        let request = request
            .header("x-github-event", &event.event)
            .header("x-github-delivery", &event.id)
            .header("x-hub-signature-256", format!("sha256={signature}"));
        expect_duplicate(request, &event.response_body).await?;
        counts.host_events += 1;
    }
    let ticket_deliveries = [
        (
            env.vendors.linear().webhooks().deliveries(),
            "/api/ticketing-a/webhook",
        ),
        (
            env.vendors.jira().webhooks().deliveries(),
            "/api/ticketing-b/webhook",
        ),
    ];
    for (events, path) in ticket_deliveries {
        let accepted = events
            .into_iter()
            .filter(|event| event.status == Some(200) && event.response_body.contains("queued"));
        for event in accepted {
            let mut payload = event.payload;
            if path.contains("ticketing-a") {
                payload["webhookTimestamp"] = json!(Clock::System.now().as_millis());
            }
            let (body, signature) = signed(&payload);
            let request = client.post(env.url(path)).body(body);
            let request = request
                .header("linear-delivery", &event.id)
                .header("linear-signature", &signature)
                .header("x-atlassian-webhook-identifier", &event.id)
                .header("x-hub-signature", format!("sha256={signature}"));
            expect_duplicate(request, &event.response_body).await?;
            counts.ticket_events += 1;
        }
    }
    Ok(())
}

/// Checks that the first acknowledged reports are stored, and all accepted results if `first` is
/// unlimited. After a machine was lost, the standby may lack the last steps: [`StepLoss`] measures them.
pub fn check_reports(env: &CrashEnv, store: &Store, first: usize) -> Result<(), String> {
    if env.record().machines_before == 0 {
        let missing = missing_steps(env, store, first);
        ensure(missing.is_empty(), || {
            let AcknowledgedStep { job, step, .. } = &missing[0];
            format!("{step} of {job} was acknowledged but not stored")
        })?;
    }
    let results = env.record().results.clone();
    for id in results.into_iter().filter(|_| first == usize::MAX) {
        let job = store
            .read(|tx| jobs::get(tx, &JobId::from(id.as_str())))
            .unwrap();
        ensure(job.is_some_and(|job| job.result_accepted), || {
            format!("the result of {id} is lost")
        })?;
    }
    Ok(())
}

/// Those of the first acknowledged steps that are not stored.
fn missing_steps(env: &CrashEnv, store: &Store, first: usize) -> Vec<AcknowledgedStep> {
    let mut reports = env.record().reports.clone();
    reports.truncate(first);
    let mut stored: HashMap<String, HashSet<String>> = HashMap::new();
    reports.retain(|report| {
        let steps = stored.entry(report.job.clone()).or_insert_with(|| {
            let id = JobId::from(report.job.as_str());
            let steps = store.read(|tx| steps::of_job(tx, &id)).unwrap();
            steps.into_iter().map(|step| step.id).collect()
        });
        !steps.contains(&report.step)
    });
    reports
}

/// Acknowledged steps that were lost with a machine.
#[derive(Clone, Copy, Default)]
pub struct StepLoss {
    pub steps: usize,
    /// Longest time from an acknowledgement to the loss of the machine.
    pub window: Duration,
}

impl StepLoss {
    pub fn measure(env: &CrashEnv, store: &Store) -> Self {
        let missing = missing_steps(env, store, usize::MAX);
        let lost = env.record().machines_lost.clone();
        let windows = missing.iter().filter_map(|step| {
            let lost = lost.iter().find(|lost| **lost >= step.at)?;
            Some(lost.duration_since(step.at))
        });
        Self {
            steps: missing.len(),
            window: windows.max().unwrap_or_default(),
        }
    }

    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.window = self.window.max(other.window);
    }
}

/// Checks that the acknowledged caps of the idle team are stored and audited.
pub fn check_changes(env: &CrashEnv, store: &Store) -> Result<(), String> {
    let requested = env.record().requested_cap;
    let acknowledged = env.record().acknowledged_caps.clone();
    let idle = store
        .read(|tx| mappings::get(tx, &TeamKey::from(IDLE_TEAM)))
        .unwrap();
    let cap = idle.map_or(0, |mapping| mapping.max_in_progress);
    let last = acknowledged.last().copied().unwrap_or_default();
    ensure((last..=requested).contains(&cap), || {
        format!("{last} was acknowledged and {requested} requested, but the cap is {cap}")
    })?;
    let entries = store.read(|tx| audit::latest(tx, None, 100_000)).unwrap();
    let audit_entries = entries
        .iter()
        .filter(|entry| entry.target == IDLE_TEAM)
        .count();
    ensure(audit_entries >= acknowledged.len(), || {
        format!(
            "{} caps were acknowledged, {audit_entries} changes are in the audit log",
            acknowledged.len()
        )
    })
}

/// A completely received backup restores and contains everything acknowledged before it. A truncated one
/// is rejected, unless only the end of the response is missing and the backup itself is complete.
pub async fn check_backups(env: &CrashEnv, counts: &mut VerifiedCounts) -> Result<(), String> {
    let backups = std::mem::take(&mut env.record().backups);
    for backup in backups {
        let restore_dir = env.dir.join("restored");
        let mut restore = command(&["restore", "--data-dir"]);
        let restored = restore
            .arg(&restore_dir)
            .arg(&backup.file)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&restored.stderr).into_owned();
        let file = backup.file.display();
        if restored.status.success() {
            let store = open_store(&restore_dir).await;
            check_reports(env, &store, backup.reports_before)
                .map_err(|fault| format!("{file}: {fault}"))?;
            drop(store);
            counts.backups += 1;
        } else {
            ensure(!backup.is_complete, || {
                format!("{file} was complete but not restored: {stderr}")
            })?;
            let is_expected_error =
                stderr.contains("cut off or damaged") || stderr.contains("not a backup");
            ensure(is_expected_error, || format!("{file}: {stderr}"))?;
            counts.truncated_backups += 1;
        }
        // The folder does not exist if nothing was restored.
        let _ = std::fs::remove_dir_all(&restore_dir);
    }
    Ok(())
}
