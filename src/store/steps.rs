//! Steps reported by runs. They are never removed. See docs/behaviour.md#steps.
//!
//! Code of the repository may have read the token of a run, so the steps of a job are limited in number and
//! size. The limits apply to every report, during the job and after its end.

use std::ops::{ControlFlow, RangeInclusive};

use serde::{Deserialize, Serialize};

use domain::ids::JobId;
use domain::report::{StepEnd, StepRecord};

use super::StoreResult;
use super::change_feed::StoreChange;
use super::table::{MAX_KEY_TEXT, ReadableTx, ScanDirection, WriteTx};
use super::tables::{STEP_TALLIES, STEPS};

/// Maximum number of steps per job.
pub const MAX_STEPS: u64 = 500;

/// Maximum size of the steps of one job, and of a page of them, in bytes.
pub const MAX_BYTES: u64 = 4 << 20;

/// Stored step with its order number.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepRow {
    /// Order of the first report. Distinguishes steps that start in the same millisecond.
    pub order: u64,
    /// Latest report of the step.
    pub step: StepRecord,
}

/// Number and size of the steps of a job.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepTally {
    /// Number of stored steps.
    pub steps: u64,
    /// Size of the stored steps in bytes.
    pub bytes: u64,
    /// Number of reports that exceeded a limit.
    pub dropped: u64,
}

impl StepTally {
    /// Counts a row of `size` bytes that replaces one of `replaced` bytes, if the limits allow it. Returns
    /// whether they do.
    fn admit(&mut self, size: u64, replaced: Option<u64>) -> bool {
        let steps = self.steps + u64::from(replaced.is_none());
        let bytes = self.bytes.saturating_sub(replaced.unwrap_or(0)) + size;
        // A store of an older version may exceed the limits.
        let is_smaller = replaced.is_some_and(|replaced| size <= replaced);
        let fits = is_smaller || (steps <= MAX_STEPS.max(self.steps) && bytes <= MAX_BYTES);
        if fits {
            (self.steps, self.bytes) = (steps, bytes);
        }
        fits
    }
}

/// [`StepRow`] with a borrowed step.
#[derive(Serialize)]
struct BorrowedStepRow<'s> {
    order: u64,
    step: &'s StepRecord,
}

/// Order number of a stored step.
#[derive(Deserialize)]
struct StoredOrder {
    order: u64,
}

/// Fields of a stored step that it is sorted by.
#[derive(Deserialize)]
struct SortFields {
    order: u64,
    step: StepStart,
}

#[derive(Deserialize)]
struct StepStart {
    started_at: String,
}

/// Fields of a stored step that show whether it is open.
#[derive(Deserialize)]
struct EndFields {
    order: u64,
    step: StepStatus,
}

#[derive(Deserialize)]
struct StepStatus {
    status: String,
    #[serde(default)]
    ended_at: Option<String>,
}

/// Page of step ids of a job, in the order in which the steps started.
#[derive(Debug, PartialEq, Eq)]
pub struct StepPage {
    /// Ids of the steps.
    pub ids: Vec<String>,
    /// Last id of the page, if there are more pages.
    pub next: Option<String>,
    /// Number of reports that exceeded a limit.
    pub dropped: u64,
}

/// Inserts or replaces a step; a replaced step keeps its order. A step above the limits is stored without its
/// outputs if that fits, else dropped; both are counted. `order` comes from [`super::Store::next_order`].
pub fn put(tx: &WriteTx<'_>, job: &JobId, step: &StepRecord, order: u64) -> StoreResult<()> {
    let key = (job.as_str(), step.id.as_str());
    let stored: Option<(StoredOrder, usize)> = STEPS.get_partial_with_size(tx, key)?;
    let replaced = stored.as_ref().map(|(_, size)| *size as u64);
    let order = stored.map_or(order, |(row, _)| row.order);
    let before = tally(tx, job)?;
    let mut tally = before;
    let row = STEPS.encode(&key, &BorrowedStepRow { order, step })?;
    if tally.admit(row.len() as u64, replaced) {
        STEPS.put_encoded(tx, key, &row)?;
    } else {
        tally.dropped += 1;
        let step = &StepRecord {
            outputs: None,
            ..step.clone()
        };
        let row = STEPS.encode(&key, &BorrowedStepRow { order, step })?;
        if tally.admit(row.len() as u64, replaced) {
            STEPS.put_encoded(tx, key, &row)?;
        }
    }
    if tally != before {
        STEP_TALLIES.put(tx, job.as_str(), &tally)?;
    }
    tx.publish(StoreChange::Step(job.clone()));
    Ok(())
}

/// Closes the open steps of a job that ends.
pub fn close_open(tx: &WriteTx<'_>, job: &JobId, end: StepEnd) -> StoreResult<()> {
    let mut open = Vec::new();
    STEPS.scan_partial_with_size(
        tx,
        keys_of_job(job),
        ScanDirection::Ascending,
        |(_, id), row: EndFields, _| {
            // Outputs are read for open steps only.
            if row.step.ended_at.is_none() || row.step.status == "running" {
                open.push((row.order, id.to_owned()));
            }
            ControlFlow::Continue(())
        },
    )?;
    for (order, id) in open {
        if let Some(mut step) = get(tx, job, &id)?.filter(StepRecord::is_open) {
            step.close(end);
            put(tx, job, &step, order)?;
        }
    }
    Ok(())
}

/// Tally of a job. If none is stored, counts the steps: there are none, or an older version stored them.
fn tally(tx: &impl ReadableTx, job: &JobId) -> StoreResult<StepTally> {
    if let Some(tally) = STEP_TALLIES.get(tx, job.as_str())? {
        return Ok(tally);
    }
    let mut tally = StepTally::default();
    STEPS.scan_partial_with_size(
        tx,
        keys_of_job(job),
        ScanDirection::Ascending,
        |_, _: StoredOrder, size| {
            tally.steps += 1;
            tally.bytes += size as u64;
            ControlFlow::Continue(())
        },
    )?;
    Ok(tally)
}

fn keys_of_job(job: &JobId) -> RangeInclusive<(&str, &str)> {
    (job.as_str(), "")..=(job.as_str(), MAX_KEY_TEXT)
}

/// Page of the steps of a job that follow the step `after`: at most `limit` steps, and no further step once
/// [`MAX_BYTES`] is reached. Returns `None` if the step `after` does not exist.
pub fn page(
    tx: &impl ReadableTx,
    job: &JobId,
    after: Option<&str>,
    limit: usize,
) -> StoreResult<Option<StepPage>> {
    let mut steps = Vec::new();
    STEPS.scan_partial_with_size(
        tx,
        keys_of_job(job),
        ScanDirection::Ascending,
        |(_, id), row: SortFields, size| {
            steps.push((row.step.started_at, row.order, id.to_owned(), size as u64));
            ControlFlow::Continue(())
        },
    )?;
    steps.sort_unstable();
    let first = match after {
        None => 0,
        Some(after) => match steps.iter().position(|(_, _, id, _)| id == after) {
            Some(at) => at + 1,
            None => return Ok(None),
        },
    };
    let (mut ids, mut bytes) = (Vec::new(), 0);
    let mut rest = steps.into_iter().skip(first).peekable();
    while let Some((_, _, id, size)) = rest.next_if(|_| ids.len() < limit && bytes < MAX_BYTES) {
        ids.push(id);
        bytes += size;
    }
    let next = ids.last().filter(|_| rest.peek().is_some()).cloned();
    let dropped = STEP_TALLIES
        .get(tx, job.as_str())?
        .map_or(0, |tally| tally.dropped);
    Ok(Some(StepPage { ids, next, dropped }))
}

/// Step of a job.
pub fn get(tx: &impl ReadableTx, job: &JobId, id: &str) -> StoreResult<Option<StepRecord>> {
    Ok(STEPS.get(tx, (job.as_str(), id))?.map(|row| row.step))
}

/// Steps of a job, in the order in which they started.
pub fn of_job(tx: &impl ReadableTx, job: &JobId) -> StoreResult<Vec<StepRecord>> {
    let mut rows = STEPS.collect(tx, keys_of_job(job), |_, row| row)?;
    rows.sort_by(|a, b| (&a.step.started_at, a.order).cmp(&(&b.step.started_at, b.order)));
    Ok(rows.into_iter().map(|row| row.step).collect())
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::Store;

    fn step(id: &str, outputs: &Value) -> StepRecord {
        let body = json!({"id": id, "type": "t", "status": "passed", "started_at": "t", "outputs": outputs});
        StepRecord::parse(Some(body)).unwrap()
    }

    async fn put(store: &Store, step: &StepRecord) {
        let (step, order) = (step.clone(), store.next_order());
        let put = store.write(move |tx| super::put(tx, &"j".into(), &step, order));
        put.await.unwrap();
    }

    fn stored_steps(store: &Store) -> Vec<StepRecord> {
        store.read(|tx| of_job(tx, &"j".into())).unwrap()
    }

    fn tally(store: &Store) -> StepTally {
        let tally = store.read(|tx| super::tally(tx, &"j".into())).unwrap();
        let counted = store
            .read(|tx| STEPS.collect(tx, keys_of_job(&"j".into()), |_, row| row))
            .unwrap();
        let bytes: usize = counted
            .iter()
            .map(|row| serde_json::to_vec(row).unwrap().len())
            .sum();
        assert_eq!(
            (tally.steps, tally.bytes),
            (counted.len() as u64, bytes as u64)
        );
        tally
    }

    #[tokio::test]
    async fn limits_the_number_of_steps_per_job() {
        let store = Store::in_memory().unwrap();
        for number in 0..MAX_STEPS + 10 {
            put(&store, &step(&format!("{number:04}"), &Value::Null)).await;
        }
        assert_eq!(tally(&store).dropped, 10);
        assert_eq!(stored_steps(&store).last().unwrap().id, "0499");
        put(&store, &step("0000", &json!("again"))).await;
        assert_eq!(stored_steps(&store)[0].outputs, Some(json!("again")));
        assert_eq!(
            (tally(&store).steps, tally(&store).dropped),
            (MAX_STEPS, 10)
        );
    }

    #[tokio::test]
    async fn limits_the_size_of_the_steps_of_a_job() {
        let store = Store::in_memory().unwrap();
        let large = json!("x".repeat(50_000));
        for number in 0..100 {
            put(&store, &step(&format!("{number:04}"), &large)).await;
        }
        let full = tally(&store);
        assert!(full.bytes <= MAX_BYTES && full.bytes > MAX_BYTES - 50_000);
        // Steps above the limit are stored without outputs.
        assert_eq!((full.steps, full.dropped), (100, 17));
        assert_eq!(stored_steps(&store)[99].outputs, None);
        // A replaced step may be smaller or of the same size.
        put(&store, &step("0000", &json!("small"))).await;
        assert_eq!(stored_steps(&store)[0].outputs, Some(json!("small")));
        put(&store, &step("0001", &large)).await;
        assert_eq!(tally(&store).dropped, 17);
    }

    #[tokio::test]
    async fn closes_the_open_steps_of_a_job() {
        let store = Store::in_memory().unwrap();
        for (id, status, ended_at) in [
            ("1-running", "running", None),
            ("2-passed", "passed", None),
            ("3-own", "waiting", None),
            ("4-own", "flaky", Some("then")),
        ] {
            let body = json!({
                "id": id, "type": "t", "status": status, "ended_at": ended_at,
                "started_at": "2026-11-21T00:00:00.000Z", "outputs": "kept",
            });
            put(&store, &StepRecord::parse(Some(body)).unwrap()).await;
        }
        let at = Timestamp::parse("2026-11-21T00:00:02.500Z").unwrap();
        let end = StepEnd {
            status: "cancelled",
            at,
        };
        let closed = store.write(move |tx| close_open(tx, &"j".into(), end));
        closed.await.unwrap();
        let shown: Vec<_> = stored_steps(&store)
            .into_iter()
            .map(|step| (step.status, step.ended_at, step.elapsed_ms, step.outputs))
            .collect();
        let kept = Some(json!("kept"));
        let ended = Some(at.to_string());
        assert_eq!(
            shown,
            [
                ("cancelled".into(), ended.clone(), Some(2_500), kept.clone()),
                ("passed".into(), None, None, kept.clone()),
                ("cancelled".into(), ended, Some(2_500), kept.clone()),
                ("flaky".into(), Some("then".into()), None, kept),
            ]
        );
        tally(&store);
    }

    #[tokio::test]
    async fn counts_the_steps_of_an_older_version_once() {
        let store = Store::in_memory().unwrap();
        let before = store.write(|tx| {
            for number in 0..MAX_STEPS + 100 {
                let step = &step(&format!("{number:04}"), &Value::Null);
                let row = BorrowedStepRow {
                    order: number,
                    step,
                };
                STEPS.put_borrowed(tx, ("j", step.id.as_str()), &row)?;
            }
            Ok(())
        });
        before.await.unwrap();
        put(&store, &step("0599", &json!("replaced"))).await;
        put(&store, &step("new", &Value::Null)).await;
        let counted = tally(&store);
        assert_eq!((counted.steps, counted.dropped), (600, 1));
        assert_eq!(stored_steps(&store)[599].outputs, Some(json!("replaced")));

        let page = |after: Option<&str>, limit| {
            let page = store.read(|tx| super::page(tx, &"j".into(), after, limit));
            page.unwrap()
        };
        let first = page(None, 500).unwrap();
        assert_eq!(
            (first.ids.len(), first.next.as_deref()),
            (500, Some("0499"))
        );
        let last = page(Some("0499"), 500).unwrap();
        assert_eq!((last.ids.len(), last.next, last.dropped), (100, None, 1));
        assert_eq!(last.ids[0], "0500");
        assert_eq!(page(Some("none"), 500), None);
        assert_eq!(page(None, 1).unwrap().ids, ["0000"]);
    }
}
