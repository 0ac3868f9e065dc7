//! Index of the runs that failed lately, by their end.

use std::ops::ControlFlow;
use std::time::Duration;

use domain::decision::FAILURE_VALIDITY;
use domain::ids::JobId;
use domain::job::{Job, JobState};
use domain::time::Timestamp;

use super::StoreResult;
use super::change_feed::StoreChange;
use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, WriteTx};
use super::tables::{FAILED_RUNS, JOBS};

/// Time after its end for which a failed run is kept in the index.
const RETENTION: Duration = FAILURE_VALIDITY;

/// Adds a run of an issue that ended with a failure, and removes those that are too old.
pub(super) fn record_end(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let Some(ended_at) = failed_at(job) else {
        return Ok(());
    };
    let oldest = ended_at - RETENTION;
    let expired = ..=(oldest.as_millis(), MAX_KEY_TEXT);
    let expired = FAILED_RUNS.collect(tx, expired, |(at, id), ()| (at, id.to_owned()))?;
    for (at, id) in expired {
        FAILED_RUNS.remove(tx, (at, id.as_str()))?;
    }
    FAILED_RUNS.put(tx, (ended_at.as_millis(), job.id.as_str()), &())?;
    // The failure is now the decision about the issue.
    tx.publish(StoreChange::Decision(job.issue.key.clone()));
    Ok(())
}

/// Runs that failed after `since`, latest first, at most `limit`.
pub fn since(tx: &impl ReadableTx, since: Timestamp, limit: usize) -> StoreResult<Vec<JobId>> {
    let mut ids = Vec::new();
    FAILED_RUNS.scan(
        tx,
        (since.as_millis(), "")..,
        ScanDirection::Descending,
        |(_, id), ()| {
            if ids.len() == limit {
                return ControlFlow::Break(());
            }
            ids.push(JobId::from(id));
            ControlFlow::Continue(())
        },
    )?;
    Ok(ids)
}

/// Builds the index from the stored jobs. Failures that are too old by the latest end of a job are left out.
pub(super) fn build_index(tx: &WriteTx<'_>) -> StoreResult<()> {
    let failed = JOBS.collect(tx, .., |id, job: Job| {
        let ended_at = job.finished_at.unwrap_or(job.reserved_at);
        (ended_at, failed_at(&job).map(|_| id.to_owned()))
    })?;
    let newest = failed.iter().map(|(at, _)| *at).max().unwrap_or_default();
    for (at, id) in failed {
        if let Some(id) = id.filter(|_| newest.since(at) < RETENTION) {
            FAILED_RUNS.put(tx, (at.as_millis(), id.as_str()), &())?;
        }
    }
    Ok(())
}

/// End of a run of an issue that failed. `None` for all others.
fn failed_at(job: &Job) -> Option<Timestamp> {
    let is_failed = matches!(
        job.state,
        JobState::Failed { .. } | JobState::TimedOut { .. }
    );
    let counts = is_failed && !job.shadow && job.kind.phase().is_some();
    counts.then(|| job.finished_at.unwrap_or(job.reserved_at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Store, jobs};

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn job(id: &str, kind: &str, state: &serde_json::Value, ended_at: Timestamp) -> Job {
        let row = json!({
            "id": id, "group": id, "kind": kind, "team": "ENG", "runner": "ci",
            "issue": {"system": "A", "id": "i", "key": "ENG-1", "title": "t", "url": "u"},
            "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b",
            "callbacks": true, "minutes": 90, "state": state,
            "reservedAt": ended_at, "finishedAt": ended_at,
        });
        serde_json::from_value(row).unwrap()
    }

    #[tokio::test]
    async fn keeps_failed_runs_of_issues_for_a_week() {
        let start = Timestamp::parse("2026-11-01T00:00:00Z").unwrap();
        let failed = json!({"status": "failed", "code": null, "reason": "no"});
        let timed_out = json!({"status": "timed_out", "reason": "timed_out"});
        let rows = [
            job("01", "implementation", &failed, start),
            job("02", "planning", &timed_out, start + 24 * HOUR),
            job(
                "03",
                "implementation",
                &json!({"status": "completed"}),
                start + 25 * HOUR,
            ),
            job("04", "gap-fill", &failed, start + 26 * HOUR),
            job("05", "implementation", &failed, start + 7 * 24 * HOUR),
        ];
        let store = Store::in_memory().unwrap();
        for row in rows {
            let put = store.write(move |tx| jobs::put(tx, &row));
            put.await.unwrap();
        }
        let found = |from, limit| {
            let found = store.read(|tx| since(tx, from, limit)).unwrap();
            found
                .iter()
                .map(|id| id.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found(Timestamp::EPOCH, 9),
            ["05", "02"],
            "the first is a week old"
        );
        assert_eq!(found(Timestamp::EPOCH, 1), ["05"]);
        assert_eq!(found(start + 25 * HOUR, 9), ["05"]);

        let rebuilt = store.write(|tx| {
            for (at, id) in FAILED_RUNS.collect(tx, .., |(at, id), ()| (at, id.to_owned()))? {
                FAILED_RUNS.remove(tx, (at, id.as_str()))?;
            }
            build_index(tx)
        });
        rebuilt.await.unwrap();
        assert_eq!(found(Timestamp::EPOCH, 9), ["05", "02"]);
    }
}
