//! Typed tables of JSON rows, and the two kinds of transactions that read them.

use std::borrow::Borrow;
use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref, RangeBounds};

use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::backup::LEFT_OUT;
use super::change_feed::StoreChange;
use super::changed_rows;
use super::open_tables::{OpenTables, TableKey, WritableTable};
use super::{StoreError, StoreResult};

/// Text that sorts after every text in a key.
pub(super) const MAX_KEY_TEXT: &str = "\u{10FFFF}";

/// Table with keys of type `K` and JSON rows of type `V`.
pub(crate) struct Table<K: TableKey, V> {
    name: &'static str,
    row: PhantomData<fn(K) -> V>,
}

/// Read transaction: a consistent snapshot of the store.
pub struct ReadTx(ReadTransaction);

impl ReadTx {
    pub(super) fn new(tx: ReadTransaction) -> Self {
        Self(tx)
    }
}

/// Write transaction, shared by the closures of a group.
pub struct WriteTx<'t> {
    tables: OpenTables<'t>,
    activity: RefCell<TxActivity>,
    /// Whether changed rows are recorded in the activity.
    records_changes: bool,
}

/// Activity of a closure in the write transaction.
#[derive(Default)]
pub(super) struct TxActivity {
    /// Number of rows that were put or removed.
    pub writes: u64,
    /// Whether to notify the outbox worker after the commit.
    pub notifies_outbox: bool,
    /// Whether to write even if the disk is almost full.
    pub bypasses_space_check: bool,
    /// Changes to publish after the commit.
    pub changes: BTreeSet<StoreChange>,
    /// Changed rows, encoded.
    pub changed_rows: Vec<u8>,
}

impl<'t> WriteTx<'t> {
    pub(super) fn new(tx: &'t WriteTransaction) -> Self {
        Self {
            tables: OpenTables::new(tx),
            activity: RefCell::default(),
            records_changes: false,
        }
    }

    /// Records the rows that are put and removed from now on.
    pub(super) fn recording_changes(self) -> Self {
        Self {
            records_changes: true,
            ..self
        }
    }

    /// Takes the activity since the last call.
    pub(super) fn take_activity(&self) -> TxActivity {
        self.activity.take()
    }

    /// Requests a notification of the outbox worker after the commit.
    pub(super) fn notify_outbox(&self) {
        self.activity.borrow_mut().notifies_outbox = true;
    }

    /// Requests that the commit is tried even if the disk is almost full, because it records something that
    /// has already happened outside.
    pub(super) fn bypass_space_check(&self) {
        self.activity.borrow_mut().bypasses_space_check = true;
    }

    /// Requests that a change is published after the commit.
    pub(super) fn publish(&self, change: StoreChange) {
        self.activity.borrow_mut().changes.insert(change);
    }

    /// Counts a row that was put (with its value) or removed.
    fn count_change<K: TableKey>(
        &self,
        table: &'static str,
        key: &K::SelfType<'_>,
        value: Option<&[u8]>,
    ) {
        let mut activity = self.activity.borrow_mut();
        activity.writes += 1;
        if self.records_changes && !LEFT_OUT.contains(&table) {
            let key = K::as_bytes(key);
            changed_rows::encode::<K>(&mut activity.changed_rows, table, key.as_ref(), value);
        }
    }

    fn open_mut<K: TableKey>(
        &self,
        name: &'static str,
    ) -> StoreResult<RefMut<'_, WritableTable<'t, K>>> {
        Ok(self.tables.get_or_open(name)?.borrow_mut())
    }
}

/// Transaction that can be read: a snapshot, or the write transaction including its own writes.
pub trait ReadableTx {
    /// Table that is open for reading.
    type TableRef<'a, K: TableKey>: Deref<
        Target: ReadableTable<K, &'static [u8]> + ReadableTableMetadata,
    >
    where
        Self: 'a;

    /// Opens the table of this name.
    fn open<K: TableKey>(&self, name: &'static str) -> StoreResult<Self::TableRef<'_, K>>;
}

/// Table of a snapshot.
pub struct SnapshotTable<K: TableKey>(ReadOnlyTable<K, &'static [u8]>);

impl<K: TableKey> Deref for SnapshotTable<K> {
    type Target = ReadOnlyTable<K, &'static [u8]>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl ReadableTx for ReadTx {
    type TableRef<'a, K: TableKey> = SnapshotTable<K>;

    fn open<K: TableKey>(&self, name: &'static str) -> StoreResult<SnapshotTable<K>> {
        Ok(SnapshotTable(
            self.0.open_table(TableDefinition::new(name))?,
        ))
    }
}

impl<'t> ReadableTx for WriteTx<'t> {
    type TableRef<'a, K: TableKey>
        = Ref<'a, WritableTable<'t, K>>
    where
        Self: 'a;

    fn open<K: TableKey>(&self, name: &'static str) -> StoreResult<Ref<'_, WritableTable<'t, K>>> {
        Ok(self.tables.get_or_open(name)?.borrow())
    }
}

/// Order of the keys in a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanDirection {
    /// From the first key to the last.
    Ascending,
    /// From the last key to the first.
    Descending,
}

impl<K: TableKey, V> Table<K, V> {
    /// Declares a table with this name in the file.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            row: PhantomData,
        }
    }

    /// Name of the table in the file.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Creates the table, so that snapshots can open it. Once per type of key in the program.
    #[inline(never)]
    pub(crate) fn create(&self, tx: &WriteTransaction) -> StoreResult<()> {
        tx.open_table(TableDefinition::<K, &[u8]>::new(self.name))?;
        Ok(())
    }
}

impl<K: TableKey, V: Serialize + DeserializeOwned> Table<K, V> {
    /// Reads a row.
    pub(crate) fn get<'k>(
        &self,
        tx: &impl ReadableTx,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<Option<V>> {
        self.get_partial(tx, key)
    }

    /// Reads only the fields of a row that `T` declares.
    pub(super) fn get_partial<'k, T: DeserializeOwned>(
        &self,
        tx: &impl ReadableTx,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<Option<T>> {
        Ok(self.get_partial_with_size(tx, key)?.map(|(row, _)| row))
    }

    /// Reads only the fields of a row that `T` declares, and the size of the row in bytes.
    pub(super) fn get_partial_with_size<'k, T: DeserializeOwned>(
        &self,
        tx: &impl ReadableTx,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<Option<(T, usize)>> {
        let table = tx.open::<K>(self.name)?;
        let found = table.get(key.borrow())?;
        let row = found.map(|row| {
            let json = row.value();
            let decoded = self.decode(json, || format!("{:?}", key.borrow()))?;
            Ok((decoded, json.len()))
        });
        row.transpose()
    }

    /// Inserts or replaces a row.
    pub(crate) fn put<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        row: &V,
    ) -> StoreResult<()> {
        self.put_borrowed(tx, key, row)
    }

    /// Inserts or replaces a row given as a borrowing type with the same JSON.
    pub(super) fn put_borrowed<'k, T: Serialize>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        row: &T,
    ) -> StoreResult<()> {
        let json = self.encode(key.borrow(), row)?;
        self.put_encoded(tx, key, &json)
    }

    /// Encodes a row given as a borrowing type with the same JSON.
    pub(super) fn encode<T: Serialize>(
        &self,
        key: &K::SelfType<'_>,
        row: &T,
    ) -> StoreResult<Vec<u8>> {
        serde_json::to_vec(row).map_err(|cause| self.corrupt(format!("{key:?}"), cause))
    }

    /// Inserts or replaces a row that [`Self::encode`] returned.
    pub(super) fn put_encoded<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        json: &[u8],
    ) -> StoreResult<()> {
        tx.open_mut::<K>(self.name)?.insert(key.borrow(), json)?;
        tx.count_change::<K>(self.name, key.borrow(), Some(json));
        Ok(())
    }

    /// Removes a row. Returns whether it existed.
    pub(crate) fn remove<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<bool> {
        let removed = tx.open_mut::<K>(self.name)?.remove(key.borrow())?.is_some();
        if removed {
            tx.count_change::<K>(self.name, key.borrow(), None);
        }
        Ok(removed)
    }

    /// Number of rows, without reading them.
    pub(crate) fn count(&self, tx: &impl ReadableTx) -> StoreResult<u64> {
        Ok(tx.open::<K>(self.name)?.len()?)
    }

    /// Passes the rows of a range to `visit`, one at a time, until it returns `Break`.
    pub(crate) fn scan<'k>(
        &self,
        tx: &impl ReadableTx,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: ScanDirection,
        mut visit: impl FnMut(K::SelfType<'_>, V) -> ControlFlow<()>,
    ) -> StoreResult<()> {
        self.scan_partial_with_size(tx, range, order, |key, row, _| visit(key, row))
    }

    /// Like [`Self::scan`], with only the fields that `T` declares, and the row sizes in bytes.
    pub(super) fn scan_partial_with_size<'k, T: DeserializeOwned>(
        &self,
        tx: &impl ReadableTx,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: ScanDirection,
        mut visit: impl FnMut(K::SelfType<'_>, T, usize) -> ControlFlow<()>,
    ) -> StoreResult<()> {
        let table = tx.open::<K>(self.name)?;
        let mut rows = table.range(range)?;
        let mut next = || match order {
            ScanDirection::Ascending => rows.next(),
            ScanDirection::Descending => rows.next_back(),
        };
        while let Some(row) = next() {
            let (key, row) = row?;
            let json = row.value();
            let value: T = self.decode(json, || format!("{:?}", key.value()))?;
            if visit(key.value(), value, json.len()).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Collects what `pick` returns for each row of a range. Only for short ranges.
    pub(crate) fn collect<'k, T>(
        &self,
        tx: &impl ReadableTx,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        mut pick: impl FnMut(K::SelfType<'_>, V) -> T,
    ) -> StoreResult<Vec<T>> {
        let mut picked = Vec::new();
        self.scan(tx, range, ScanDirection::Ascending, |key, row| {
            picked.push(pick(key, row));
            ControlFlow::Continue(())
        })?;
        Ok(picked)
    }

    /// Passes the encoded key and value of every row to `visit`, in key order.
    pub(super) fn scan_raw(
        &self,
        tx: &ReadTx,
        mut visit: impl FnMut(&[u8], &[u8]) -> StoreResult<()>,
    ) -> StoreResult<()> {
        for row in tx.open::<K>(self.name)?.iter()? {
            let (key, row) = row?;
            visit(K::as_bytes(&key.value()).as_ref(), row.value())?;
        }
        Ok(())
    }

    fn decode<T: DeserializeOwned>(
        &self,
        json: &[u8],
        key: impl FnOnce() -> String,
    ) -> StoreResult<T> {
        serde_json::from_slice(json).map_err(|cause| self.corrupt(key(), cause))
    }

    fn corrupt(&self, key: String, cause: serde_json::Error) -> StoreError {
        StoreError::Corrupt {
            table: self.name,
            key,
            cause,
        }
    }
}
