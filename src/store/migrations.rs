//! The schema's version and the steps between versions.

use redb::{Database, WriteTransaction};
use serde_json::json;

use super::shelf::WriteTx;
use super::tables::{self, META};
use super::{StoreError, StoreResult};

/// A step from one version to the next.
type Migration = fn(&WriteTransaction) -> StoreResult<()>;

/// Step `n` leads from version `n + 1` to `n + 2`. Additive fields need none.
const STEPS: &[Migration] = &[];

const KEY: &str = "schema";

/// Makes what is missing and migrates what is old, all in one transaction. A store of a newer
/// version is left alone.
pub(super) fn bring_up_to_date(db: &Database) -> StoreResult<()> {
    migrate(db, STEPS)
}

fn migrate(db: &Database, steps: &[Migration]) -> StoreResult<()> {
    let known = steps.len() as u64 + 1;
    let tx = db.begin_write()?;
    let tables_before = tx.list_tables()?.count();
    tables::create_all(&tx)?;
    let has_all = tx.list_tables()?.count() == tables_before;
    let view = WriteTx::new(&tx);
    let found = META.get(&view, KEY)?.and_then(|version| version.as_u64());
    match found {
        Some(found) if found > known => return Err(StoreError::TooNew { found, known }),
        Some(found) if found == known && has_all => return Ok(tx.abort()?),
        _ => {}
    }
    for step in steps
        .iter()
        .skip(found.unwrap_or(known).saturating_sub(1) as usize)
    {
        step(&tx)?;
    }
    META.put(&view, KEY, &json!(known))?;
    Ok(tx.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::shelf::ReadTx;
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
    fn shout(tx: &WriteTransaction) -> StoreResult<()> {
        let view = WriteTx::new(tx);
        let word = META
            .get(&view, "word")?
            .and_then(|word| word.as_str().map(str::to_uppercase));
        META.put(&view, "word", &json!(word))
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
            matches!(refused, StoreError::TooNew { found: 3, known: 2 }),
            "{refused}"
        );
        assert_eq!(schema(&db), 3);
    }

    #[test]
    fn a_failing_step_changes_nothing() {
        let db = database();
        migrate(&db, &[]).unwrap();
        assert!(migrate(&db, &[shout, |_| Err(StoreError::Panicked)]).is_err());
        assert_eq!(schema(&db), 1);
    }
}
