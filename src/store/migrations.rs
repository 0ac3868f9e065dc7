//! The schema's version and the steps between versions.

use redb::Database;
use serde_json::json;

use super::table::WriteTx;
use super::tables::{self, META};
use super::{StoreError, StoreResult, mappings, usage};

/// A step from one version to the next.
type Migration = fn(&WriteTx<'_>) -> StoreResult<()>;

/// Step `n` leads from version `n + 1` to `n + 2`. Additive fields need none.
///
/// Sums of what runs used are kept from version 2 on, the index of mappings by repository from 3 on.
const STEPS: &[Migration] = &[usage::build_sums, mappings::build_index];

const KEY: &str = "schema";

/// Makes what is missing and migrates what is old, all in one transaction. A store of a newer
/// version is left alone.
pub(super) fn migrate_to_latest(db: &Database) -> StoreResult<()> {
    migrate(db, STEPS)
}

fn migrate(db: &Database, steps: &[Migration]) -> StoreResult<()> {
    let known = steps.len() as u64 + 1;
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(true);
    let tables_before = tx.list_tables()?.count();
    tables::create_all(&tx)?;
    let has_all = tx.list_tables()?.count() == tables_before;
    let found = version(&WriteTx::new(&tx))?;
    match found {
        Some(found) if found > known => {
            return Err(StoreError::UnsupportedSchema {
                found,
                supported: known,
            });
        }
        Some(found) if found == known && has_all => return Ok(tx.abort()?),
        _ => {}
    }
    take(&WriteTx::new(&tx), steps, found.unwrap_or(known))?;
    Ok(tx.commit()?)
}

/// The version of what the store holds; none when it is new.
fn version(tx: &WriteTx<'_>) -> StoreResult<Option<u64>> {
    Ok(META.get(tx, KEY)?.and_then(|version| version.as_u64()))
}

/// Takes the steps that lead on from `version`.
fn take(tx: &WriteTx<'_>, steps: &[Migration], version: u64) -> StoreResult<()> {
    for step in steps.iter().skip(version.saturating_sub(1) as usize) {
        step(tx)?;
    }
    META.put(tx, KEY, &json!(steps.len() as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ReadTx;
    use redb::ReadableDatabase;

    fn database() -> Database {
        Database::builder()
            .create_with_backend(redb::backends::InMemoryBackend::new())
            .unwrap()
    }

    fn schema(db: &Database) -> u64 {
        META.get(&ReadTx::new(db.begin_read().unwrap()), KEY)
            .unwrap()
            .unwrap()
            .as_u64()
            .unwrap()
    }

    /// Stands for any step: it rewrites a row of a store that is not empty.
    fn shout(tx: &WriteTx<'_>) -> StoreResult<()> {
        let word = META
            .get(tx, "word")?
            .and_then(|word| word.as_str().map(str::to_uppercase));
        META.put(tx, "word", &json!(word))
    }

    #[test]
    fn an_old_store_is_migrated_once_and_keeps_its_rows() {
        let db = database();
        migrate(&db, &[]).unwrap();
        let tx = db.begin_write().unwrap();
        META.put(&WriteTx::new(&tx), "word", &json!("hello"))
            .unwrap();
        tx.commit().unwrap();
        migrate(&db, &[shout]).unwrap();
        migrate(&db, &[shout]).unwrap();
        assert_eq!(schema(&db), 2);
        let word = META
            .get(&ReadTx::new(db.begin_read().unwrap()), "word")
            .unwrap();
        assert_eq!(word, Some(json!("HELLO")));
    }

    #[test]
    fn a_table_that_is_new_in_this_version_is_made_in_an_old_store() {
        let db = database();
        migrate(&db, &[]).unwrap();
        let tx = db.begin_write().unwrap();
        let audit: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("audit-1");
        assert!(tx.delete_table(audit).unwrap());
        tx.commit().unwrap();
        migrate(&db, &[]).unwrap();
        let entries = tables::AUDIT.get(&ReadTx::new(db.begin_read().unwrap()), 1);
        assert_eq!(entries.unwrap(), None);
        assert_eq!(schema(&db), 1);
    }

    #[test]
    fn a_new_store_is_not_migrated() {
        let db = database();
        migrate(&db, &[|_| panic!("there is nothing to migrate")]).unwrap();
        assert_eq!(schema(&db), 2);
    }

    #[test]
    fn a_store_of_a_newer_version_is_refused_untouched() {
        let db = database();
        migrate(&db, &[shout, shout]).unwrap();
        let refused = migrate(&db, &[shout]).unwrap_err();
        assert!(
            matches!(
                refused,
                StoreError::UnsupportedSchema {
                    found: 3,
                    supported: 2
                }
            ),
            "{refused}"
        );
        assert_eq!(schema(&db), 3);
    }

    /// A job of a store of version 1, as it lies there.
    fn old_job(id: &str, state: &serde_json::Value, finished_at: &str) -> domain::job::Job {
        let mut row = json!({
            "id": id, "group": id, "kind": "implementation", "team": "ENG", "runner": "ci",
            "issue": {"system": "A", "id": "i", "key": "ENG-1", "title": "t", "url": "u"},
            "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b",
            "callbacks": true, "minutes": 90, "state": state,
            "reservedAt": "2026-10-31T22:00:00Z", "dispatchedAt": "2026-10-31T22:00:00Z",
            "usage": {"turns": 2, "inputTokens": 10, "outputTokens": 5, "costUsd": 0.5},
        });
        if !finished_at.is_empty() {
            row["finishedAt"] = json!(finished_at);
        }
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn an_old_store_knows_what_its_runs_used() {
        use domain::usage::{MicroUsd, Month, UsageTotals};
        let db = database();
        migrate(&db, &[]).unwrap();
        let tx = db.begin_write().unwrap();
        let view = WriteTx::new(&tx);
        let failed = json!({"status": "failed", "code": null, "reason": "r"});
        let rows = [
            (
                "01A",
                json!({"status": "completed"}),
                "2026-10-31T23:59:59Z",
            ),
            ("01B", failed, "2026-11-01T00:00:00Z"),
            (
                "01C",
                json!({"status": "completed"}),
                "2026-11-30T10:00:00Z",
            ),
            ("01D", json!({"status": "running"}), ""),
        ];
        for (id, state, finished_at) in &rows {
            tables::JOBS
                .put(&view, *id, &old_job(id, state, finished_at))
                .unwrap();
        }
        drop(view);
        tx.commit().unwrap();
        migrate_to_latest(&db).unwrap();
        migrate_to_latest(&db).unwrap();
        let read = ReadTx::new(db.begin_read().unwrap());
        for (month, runs) in [("2026-10", 1), ("2026-11", 2), ("2026-12", 0)] {
            let month = Month::parse(month).unwrap();
            let sum = UsageTotals {
                runs,
                turns: 2 * runs,
                input_tokens: 10 * runs,
                output_tokens: 5 * runs,
                cost: MicroUsd::from_micros(500_000 * runs),
                unpriced: (runs > 0).then_some(0),
            };
            let kept = usage::of_mapping(&read, month, &"ENG".into()).unwrap();
            assert_eq!(kept.sum, sum, "{month}");
            let issues = usage::issues(&read, month).unwrap();
            assert_eq!(issues.iter().map(|row| row.sum.runs).sum::<u64>(), runs);
        }
    }

    #[test]
    fn an_old_store_knows_its_mappings_by_their_repositories() {
        use domain::ids::Repo;
        let db = database();
        migrate(&db, &STEPS[..1]).unwrap();
        let mapping = test_support::mapping(&json!({"owner": "Acme"}));
        let tx = db.begin_write().unwrap();
        tables::MAPPINGS
            .put(&WriteTx::new(&tx), "ENG", &mapping)
            .unwrap();
        tx.commit().unwrap();
        migrate_to_latest(&db).unwrap();
        let read = ReadTx::new(db.begin_read().unwrap());
        let known = mappings::canonical_target(&read, &Repo::new("acme", "Shop")).unwrap();
        assert_eq!(known, Some(Repo::new("Acme", "shop")));
    }

    #[test]
    fn a_failing_step_changes_nothing() {
        let db = database();
        migrate(&db, &[]).unwrap();
        assert!(migrate(&db, &[shout, |_| Err(StoreError::Panicked)]).is_err());
        assert_eq!(schema(&db), 1);
    }
}
