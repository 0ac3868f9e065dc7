//! Schema version of the store, and migrations between versions.

use redb::Database;
use serde_json::json;

use super::table::WriteTx;
use super::tables::{self, META};
use super::{
    StoreError, StoreResult, failed_runs, job_index, mappings, pull_feedback, scoreboard, usage,
};

/// Migration from one schema version to the next.
type Migration = fn(&WriteTx<'_>) -> StoreResult<()>;

/// Migrations in order: index `n` migrates from version `n + 1` to `n + 2`. New fields with defaults need
/// none.
///
/// Version 2 adds usage sums; version 3 adds the index of mappings by repository; version 4 adds the indexes of
/// the dispatch log; version 5 adds the index of failed runs; version 6 adds the counters of runs and of the
/// scoreboard; version 7 adds the index of open pull requests; version 8 adds their heads to it.
const MIGRATIONS: &[Migration] = &[
    usage::build_sums,
    mappings::build_index,
    job_index::build,
    failed_runs::build_index,
    scoreboard::build,
    pull_feedback::build_index,
    pull_feedback::build_index,
];

/// Key of the schema version in the meta table.
const KEY: &str = "schema";

/// Whether this version can read a store with this schema version.
pub fn supports_schema(schema: u64) -> bool {
    schema <= latest_schema(MIGRATIONS)
}

fn latest_schema(migrations: &[Migration]) -> u64 {
    migrations.len() as u64 + 1
}

/// Creates missing tables and runs all outstanding migrations in one transaction. A store of a newer version
/// is not changed.
///
/// # Errors
/// [`StoreError::UnsupportedSchema`] for a newer version.
pub(super) fn migrate_to_latest(db: &Database) -> StoreResult<()> {
    migrate(db, MIGRATIONS)
}

fn migrate(db: &Database, migrations: &[Migration]) -> StoreResult<()> {
    let latest = latest_schema(migrations);
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(true);
    let tables_before = tx.list_tables()?.count();
    tables::create_all(&tx)?;
    let has_all = tx.list_tables()?.count() == tables_before;
    let found = version(&WriteTx::new(&tx))?;
    match found {
        Some(found) if found > latest => {
            return Err(StoreError::UnsupportedSchema {
                found,
                supported: latest,
            });
        }
        Some(found) if found == latest && has_all => return Ok(tx.abort()?),
        _ => {}
    }
    run_migrations(&WriteTx::new(&tx), migrations, found.unwrap_or(latest))?;
    Ok(tx.commit()?)
}

/// Schema version of the store. `None` for a new store.
fn version(tx: &WriteTx<'_>) -> StoreResult<Option<u64>> {
    Ok(META.get(tx, KEY)?.and_then(|version| version.as_u64()))
}

/// Runs the migrations after `version` and stores the new version.
fn run_migrations(tx: &WriteTx<'_>, migrations: &[Migration], version: u64) -> StoreResult<()> {
    for migration in migrations.iter().skip(version.saturating_sub(1) as usize) {
        migration(tx)?;
    }
    META.put(tx, KEY, &json!(migrations.len() as u64 + 1))
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

    /// Example migration: rewrites a row in upper case.
    fn uppercase_word(tx: &WriteTx<'_>) -> StoreResult<()> {
        let word = META
            .get(tx, "word")?
            .and_then(|word| word.as_str().map(str::to_uppercase));
        META.put(tx, "word", &json!(word))
    }

    #[test]
    fn migrates_an_old_store_once() {
        let db = database();
        migrate(&db, &[]).unwrap();
        let tx = db.begin_write().unwrap();
        META.put(&WriteTx::new(&tx), "word", &json!("hello"))
            .unwrap();
        tx.commit().unwrap();
        migrate(&db, &[uppercase_word]).unwrap();
        migrate(&db, &[uppercase_word]).unwrap();
        assert_eq!(schema(&db), 2);
        let word = META
            .get(&ReadTx::new(db.begin_read().unwrap()), "word")
            .unwrap();
        assert_eq!(word, Some(json!("HELLO")));
    }

    #[test]
    fn creates_new_tables_in_an_old_store() {
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
    fn does_not_migrate_a_new_store() {
        let db = database();
        migrate(&db, &[|_| panic!("there is nothing to migrate")]).unwrap();
        assert_eq!(schema(&db), 2);
    }

    #[test]
    fn rejects_a_newer_schema_without_changes() {
        let db = database();
        migrate(&db, &[uppercase_word, uppercase_word]).unwrap();
        let error = migrate(&db, &[uppercase_word]).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::UnsupportedSchema {
                    found: 3,
                    supported: 2
                }
            ),
            "{error}"
        );
        assert_eq!(schema(&db), 3);
    }

    /// Job as stored in schema version 1.
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
    fn builds_usage_sums_of_an_old_store() {
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
            let stored = usage::of_mapping(&read, month, &"ENG".into()).unwrap();
            assert_eq!(stored.sum, sum, "{month}");
            let issues = usage::issues(&read, month).unwrap();
            assert_eq!(issues.iter().map(|row| row.sum.runs).sum::<u64>(), runs);
        }
    }

    #[test]
    fn builds_the_mapping_index_of_an_old_store() {
        use domain::ids::Repo;
        let db = database();
        migrate(&db, &MIGRATIONS[..1]).unwrap();
        let mapping = test_support::mapping(&json!({"owner": "Acme"}));
        let tx = db.begin_write().unwrap();
        tables::MAPPINGS
            .put(&WriteTx::new(&tx), "ENG", &mapping)
            .unwrap();
        tx.commit().unwrap();
        migrate_to_latest(&db).unwrap();
        let read = ReadTx::new(db.begin_read().unwrap());
        let target = mappings::canonical_target(&read, &Repo::new("acme", "Shop")).unwrap();
        assert_eq!(target, Some(Repo::new("Acme", "shop")));
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let db = database();
        migrate(&db, &[]).unwrap();
        assert!(migrate(&db, &[uppercase_word, |_| Err(StoreError::Panicked)]).is_err());
        assert_eq!(schema(&db), 1);
    }
}
