//! What was acknowledged while the service died again and again: reports, events, changes, backups.

use std::collections::{HashMap, HashSet};

use domain::crypto::signature::sign;
use domain::ids::{JobId, TeamKey};
use domain::secret::Secret;
use engine::clock::Clock;
use serde_json::{Value, json};
use store::{Store, audit, jobs, mappings, steps};

use crate::checks::{VerifiedCounts, ensure, open_store};
use crate::crash_env::{CrashEnv, IDLE_TEAM, WEBHOOK_SECRET};
use crate::program::command;

/// Sends every event that was acknowledged once more: each is known, so each had been stored.
pub async fn redeliver_events(
    world: &CrashEnv,
    counted: &mut VerifiedCounts,
) -> Result<(), String> {
    let secret = Secret::new(WEBHOOK_SECRET);
    let client = reqwest::Client::new();
    let signed = |payload: &Value| {
        let body = payload.to_string();
        let signature = sign(body.as_bytes(), &secret);
        (body, signature)
    };
    let known = async |request: reqwest::RequestBuilder| {
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let answer: Value = answer.json().await.map_err(|error| error.to_string())?;
        ensure(answer["reason"] == "duplicate", || {
            format!("an acknowledged event was forgotten: {answer}")
        })
    };
    let told = world.vendors.github().webhook_deliveries();
    for event in told.iter().filter(|event| event.status == Some(200)) {
        let (body, signature) = signed(&event.payload);
        let request = client.post(world.url("/api/repo-host/webhook")).body(body);
        let request = request
            .header("x-github-event", &event.event)
            .header("x-github-delivery", &event.id)
            .header("x-hub-signature-256", format!("sha256={signature}"));
        known(request).await?;
        counted.host_events += 1;
    }
    let hooks = [
        (
            world.vendors.linear().webhook_deliveries(),
            "/api/ticketing-a/webhook",
        ),
        (
            world.vendors.jira().webhook_deliveries(),
            "/api/ticketing-b/webhook",
        ),
    ];
    for (events, path) in hooks {
        let taken = events.into_iter().filter(|event| {
            let answer = event.response.as_ref().filter(|(status, _)| *status == 200);
            answer.is_some_and(|(_, answer)| answer.contains("queued"))
        });
        for event in taken {
            let mut payload = event.payload;
            if path.contains("ticketing-a") {
                payload["webhookTimestamp"] = json!(Clock::System.now().as_millis());
            }
            let (body, signature) = signed(&payload);
            let request = client.post(world.url(path)).body(body);
            let request = request
                .header("linear-delivery", &event.id)
                .header("linear-signature", &signature)
                .header("x-atlassian-webhook-identifier", &event.id)
                .header("x-hub-signature", format!("sha256={signature}"));
            known(request).await?;
            counted.ticket_events += 1;
        }
    }
    Ok(())
}

/// Of the first reports that were acknowledged, each is among the steps of its job.
pub fn check_reports(world: &CrashEnv, store: &Store, first: usize) -> Result<(), String> {
    let reports = world
        .record()
        .reports
        .iter()
        .take(first)
        .cloned()
        .collect::<Vec<_>>();
    let mut kept: HashMap<String, HashSet<String>> = HashMap::new();
    for (job, step) in reports {
        let steps = kept.entry(job.clone()).or_insert_with(|| {
            let id = JobId::from(job.as_str());
            let steps = store.read(|tx| steps::of_job(tx, &id)).unwrap();
            steps.into_iter().map(|step| step.id).collect()
        });
        ensure(steps.contains(&step), || {
            format!("{step} of {job} was acknowledged and is lost")
        })?;
    }
    let results = world.record().results.clone();
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

/// What an operator was told is changed is changed, and each change is on record.
pub fn check_changes(world: &CrashEnv, store: &Store) -> Result<(), String> {
    let asked = world.record().requested_cap;
    let changes = world.record().acknowledged_caps.clone();
    let idle = store
        .read(|tx| mappings::get(tx, &TeamKey::from(IDLE_TEAM)))
        .unwrap();
    let cap = idle.map_or(0, |mapping| mapping.max_in_progress);
    let last = changes.last().copied().unwrap_or_default();
    ensure((last..=asked).contains(&cap), || {
        format!("{last} was acknowledged and {asked} asked for, but it is {cap}")
    })?;
    let entries = store.read(|tx| audit::latest(tx, None, 100_000)).unwrap();
    let noted = entries
        .iter()
        .filter(|entry| entry.target == IDLE_TEAM)
        .count();
    ensure(noted > changes.len(), || {
        format!(
            "{} changes were acknowledged, {noted} are on record",
            changes.len()
        )
    })
}

/// What was answered to its end restores, and holds what had been acknowledged before; what was cut
/// off is refused, unless only the end of the answer is missing and the backup is whole.
pub async fn check_backups(world: &CrashEnv, counted: &mut VerifiedCounts) -> Result<(), String> {
    let backups = std::mem::take(&mut world.record().backups);
    for backup in backups {
        let place = world.dir.join("restored");
        let mut restore = command(&["restore", "--data-dir"]);
        let restored = restore.arg(&place).arg(&backup.file).output().unwrap();
        let told = String::from_utf8_lossy(&restored.stderr).into_owned();
        let shown = backup.file.display();
        if restored.status.success() {
            let store = open_store(&place).await;
            check_reports(world, &store, backup.reports_before)
                .map_err(|fault| format!("{shown}: {fault}"))?;
            drop(store);
            counted.backups += 1;
        } else {
            ensure(!backup.is_complete, || {
                format!("{shown} was answered whole: {told}")
            })?;
            let is_known = told.contains("cut off or damaged") || told.contains("not a backup");
            ensure(is_known, || format!("{shown}: {told}"))?;
            counted.truncated_backups += 1;
        }
        // There is none where nothing was restored.
        let _ = std::fs::remove_dir_all(&place);
    }
    Ok(())
}
