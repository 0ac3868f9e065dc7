//! Typed shelves of JSON rows, and the two kinds of transaction that read them.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ops::{ControlFlow, RangeBounds};

use redb::{
    Key, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::news::News;
use super::{StoreError, StoreResult};

type Definition<K> = TableDefinition<'static, K, &'static [u8]>;

/// One table: keys of type `K`, rows of type `V` as JSON.
pub struct Shelf<K: Key + 'static, V> {
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

/// The one write transaction, as a single closure sees it.
pub struct WriteTx<'t> {
    tx: &'t WriteTransaction,
    writes: Cell<u64>,
    owes: Cell<bool>,
    insists: Cell<bool>,
    news: RefCell<BTreeSet<News>>,
}

impl<'t> WriteTx<'t> {
    pub(super) fn new(tx: &'t WriteTransaction) -> Self {
        Self {
            tx,
            writes: Cell::new(0),
            owes: Cell::new(false),
            insists: Cell::new(false),
            news: RefCell::default(),
        }
    }

    /// How many rows this closure has put or removed.
    pub(super) fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// Asks for the outbox bell after the commit.
    pub(super) fn owe(&self) {
        self.owes.set(true);
    }

    pub(super) fn owes(&self) -> bool {
        self.owes.get()
    }

    /// Has it written as long as the disk takes it: what has happened outside must be known here.
    pub(super) fn insist(&self) {
        self.insists.set(true);
    }

    pub(super) fn insists(&self) -> bool {
        self.insists.get()
    }

    /// Tells those who listen, after the commit.
    pub(super) fn tell(&self, news: News) {
        self.news.borrow_mut().insert(news);
    }

    pub(super) fn into_news(self) -> BTreeSet<News> {
        self.news.into_inner()
    }
}

/// A table opened by either kind of transaction.
pub enum Opened<'t, K: Key + 'static> {
    Read(ReadOnlyTable<K, &'static [u8]>),
    Write(Table<'t, K, &'static [u8]>),
}

/// What can be read from: a snapshot, or the write transaction with its own writes.
pub trait Rows {
    fn open<K: Key + 'static>(&self, definition: Definition<K>) -> StoreResult<Opened<'_, K>>;
}

impl Rows for ReadTx {
    fn open<K: Key + 'static>(&self, definition: Definition<K>) -> StoreResult<Opened<'_, K>> {
        Ok(Opened::Read(self.0.open_table(definition)?))
    }
}

impl Rows for WriteTx<'_> {
    fn open<K: Key + 'static>(&self, definition: Definition<K>) -> StoreResult<Opened<'_, K>> {
        Ok(Opened::Write(self.tx.open_table(definition)?))
    }
}

/// Which end a scan begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

impl<K: Key + 'static, V> Shelf<K, V> {
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

    const fn definition(&self) -> Definition<K> {
        TableDefinition::new(self.name)
    }

    /// Makes the table, so that snapshots can open it.
    pub fn create(&self, tx: &WriteTransaction) -> StoreResult<()> {
        tx.open_table(self.definition())?;
        Ok(())
    }
}

impl<K: Key + 'static, V: Serialize + DeserializeOwned> Shelf<K, V> {
    pub fn get<'k>(
        &self,
        tx: &impl Rows,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<Option<V>> {
        let shown = || format!("{:?}", key.borrow());
        let found = match tx.open(self.definition())? {
            Opened::Read(table) => table
                .get(key.borrow())?
                .map(|row| self.decode(row.value(), shown)),
            Opened::Write(table) => table
                .get(key.borrow())?
                .map(|row| self.decode(row.value(), shown)),
        };
        found.transpose()
    }

    pub fn put<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
        row: &V,
    ) -> StoreResult<()> {
        let json = serde_json::to_vec(row)
            .map_err(|source| self.corrupt(format!("{:?}", key.borrow()), source))?;
        tx.tx
            .open_table(self.definition())?
            .insert(key, json.as_slice())?;
        tx.writes.set(tx.writes.get() + 1);
        Ok(())
    }

    /// Whether there was such a row.
    pub fn remove<'k>(
        &self,
        tx: &WriteTx<'_>,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> StoreResult<bool> {
        let removed = tx.tx.open_table(self.definition())?.remove(key)?.is_some();
        tx.writes.set(tx.writes.get() + u64::from(removed));
        Ok(removed)
    }

    /// How many rows there are, without looking at any.
    pub fn count(&self, tx: &impl Rows) -> StoreResult<u64> {
        Ok(match tx.open(self.definition())? {
            Opened::Read(table) => table.len()?,
            Opened::Write(table) => table.len()?,
        })
    }

    /// Shows the rows of a range, one at a time, until `visit` breaks off.
    pub fn scan<'k>(
        &self,
        tx: &impl Rows,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        order: Order,
        mut visit: impl FnMut(K::SelfType<'_>, V) -> ControlFlow<()>,
    ) -> StoreResult<()> {
        let opened = tx.open(self.definition())?;
        let mut rows = match &opened {
            Opened::Read(table) => ReadableTable::range(table, range)?,
            Opened::Write(table) => ReadableTable::range(table, range)?,
        };
        let mut next = || match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        while let Some(row) = next() {
            let (key, row) = row?;
            let value = self.decode(row.value(), || format!("{:?}", key.value()))?;
            if visit(key.value(), value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// All rows of a range, each as `pick` makes it. For ranges that are known to be short.
    pub fn collect<'k, T>(
        &self,
        tx: &impl Rows,
        range: impl RangeBounds<K::SelfType<'k>> + 'k,
        mut pick: impl FnMut(K::SelfType<'_>, V) -> T,
    ) -> StoreResult<Vec<T>> {
        let mut picked = Vec::new();
        self.scan(tx, range, Order::Ascending, |key, row| {
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
        let table = tx.0.open_table(self.definition())?;
        for row in ReadableTable::iter(&table)? {
            let (key, row) = row?;
            visit(K::as_bytes(&key.value()).as_ref(), row.value())?;
        }
        Ok(())
    }

    fn decode(&self, json: &[u8], key: impl FnOnce() -> String) -> StoreResult<V> {
        serde_json::from_slice(json).map_err(|source| self.corrupt(key(), source))
    }

    fn corrupt(&self, key: String, source: serde_json::Error) -> StoreError {
        StoreError::Corrupt {
            table: self.name,
            key,
            source,
        }
    }
}
