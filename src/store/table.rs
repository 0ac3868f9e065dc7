//! Typed shelves of JSON rows, and the two kinds of transaction that read them.

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

use super::change_feed::StoreChange;
use super::open_tables::{OpenTables, TableKey, WritableTable};
use super::{StoreError, StoreResult};

/// Above every text that a key ends with.
pub(super) const MAX_KEY_TEXT: &str = "\u{10FFFF}";

/// One table: keys of type `K`, rows of type `V` as JSON.
pub struct Table<K: TableKey, V> {
    name: &'static str,
    row: PhantomData<fn(K) -> V>,
}

/// A consistent view of the store.
pub struct ReadTx(ReadTransaction);

impl ReadTx {
    pub(super) fn new(tx: ReadTransaction) -> Self {
        Self(tx)
    }
}

/// The one write transaction, as the closures that share it see it.
pub struct WriteTx<'t> {
    tables: OpenTables<'t>,
    deeds: RefCell<TxActivity>,
}

/// What a closure did with the write transaction.
#[derive(Default)]
pub(super) struct TxActivity {
    /// How many rows it has put or removed.
    pub writes: u64,
    /// Whether it asked for the outbox bell after the commit.
    pub notifies_outbox: bool,
    /// Whether what it writes must be written as long as the disk takes it.
    pub bypasses_space_check: bool,
    pub changes: BTreeSet<StoreChange>,
}

impl<'t> WriteTx<'t> {
    pub(super) fn new(tx: &'t WriteTransaction) -> Self {
        Self {
            tables: OpenTables::new(tx),
            deeds: RefCell::default(),
        }
    }

    /// What was done since this was asked last.
    pub(super) fn take_activity(&self) -> TxActivity {
        self.deeds.take()
    }

    /// Asks for the outbox bell after the commit.
    pub(super) fn notify_outbox(&self) {
        self.deeds.borrow_mut().notifies_outbox = true;
    }

    /// Has it written as long as the disk takes it: what has happened outside must be known here.
    pub(super) fn bypass_space_check(&self) {
        self.deeds.borrow_mut().bypasses_space_check = true;
    }

    /// Tells those who listen, after the commit.
    pub(super) fn publish(&self, news: StoreChange) {
        self.deeds.borrow_mut().changes.insert(news);
    }

    fn count(&self, written: u64) {
        self.deeds.borrow_mut().writes += written;
    }

    fn change<K: TableKey>(
        &self,
        name: &'static str,
    ) -> StoreResult<RefMut<'_, WritableTable<'t, K>>> {
        Ok(self.tables.get_or_open(name)?.borrow_mut())
    }
}

/// What can be read from: a snapshot, or the write transaction with its own writes.
pub trait ReadableTx {
    /// A table that is open for reading.
    type TableRef<'a, K: TableKey>: Deref<
        Target: ReadableTable<K, &'static [u8]> + ReadableTableMetadata,
    >
    where
        Self: 'a;

    fn open<K: TableKey>(&self, name: &'static str) -> StoreResult<Self::TableRef<'_, K>>;
}

/// A table of a snapshot.
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

/// Which end a scan begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDirection {
    Ascending,
    Descending,
}

impl<K: TableKey, V> Table<K, V> {
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            row: PhantomData,
        }
    }

    /// What the file calls the table.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Makes the table, so that snapshots can open it.
    pub fn create(&self, tx: &WriteTransaction) -> StoreResult<()> {
        tx.open_table(TableDefinition::<K, &[u8]>::new(self.name))?;
        Ok(())
    }
}

impl<K: TableKey, V: Serialize + DeserializeOwned> Table<K, V> {
    pub fn get<'k>(
        &self,
        tx: &impl ReadableTx,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<Option<V>> {
        self.get_partial(tx, key)
    }

    /// Reads of a row only what `T` names, and leaves the rest alone.
    pub(super) fn get_partial<'k, T: DeserializeOwned>(
        &self,
        tx: &impl ReadableTx,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<Option<T>> {
        Ok(self.get_partial_with_size(tx, key)?.map(|(row, _)| row))
    }

    /// Reads of a row only what `T` names, and its size in bytes.
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

    pub fn put<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        row: &V,
    ) -> StoreResult<()> {
        self.put_borrowed(tx, key, row)
    }

    /// Puts a row of which `T` borrows the parts.
    pub(super) fn put_borrowed<'k, T: Serialize>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        row: &T,
    ) -> StoreResult<()> {
        let json = self.encode(key.borrow(), row)?;
        self.put_encoded(tx, key, &json)
    }

    /// Encodes a row of which `T` borrows the parts.
    pub(super) fn encode<T: Serialize>(
        &self,
        key: &K::SelfType<'_>,
        row: &T,
    ) -> StoreResult<Vec<u8>> {
        serde_json::to_vec(row).map_err(|cause| self.corrupt(format!("{key:?}"), cause))
    }

    /// Puts what [`Self::encode`] returned.
    pub(super) fn put_encoded<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        json: &[u8],
    ) -> StoreResult<()> {
        tx.change::<K>(self.name)?.insert(key, json)?;
        tx.count(1);
        Ok(())
    }

    /// Whether there was such a row.
    pub fn remove<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<bool> {
        let removed = tx.change::<K>(self.name)?.remove(key)?.is_some();
        tx.count(u64::from(removed));
        Ok(removed)
    }

    /// How many rows there are, without looking at any.
    pub fn count(&self, tx: &impl ReadableTx) -> StoreResult<u64> {
        Ok(tx.open::<K>(self.name)?.len()?)
    }

    /// Shows the rows of a range, one at a time, until `visit` breaks off.
    pub fn scan<'k>(
        &self,
        tx: &impl ReadableTx,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: ScanDirection,
        mut visit: impl FnMut(K::SelfType<'_>, V) -> ControlFlow<()>,
    ) -> StoreResult<()> {
        self.scan_partial_with_size(tx, range, order, |key, row, _| visit(key, row))
    }

    /// Shows of the rows of a range what `T` names, and their sizes in bytes.
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

    /// All rows of a range, each as `pick` makes it. For ranges that are known to be short.
    pub fn collect<'k, T>(
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

    /// Shows every row as it lies there, key and value, in the order of the keys.
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
