//! Open tables of the write transaction.
//!
//! Opening a table costs more than reading a row, so each table stays open until all closures of the
//! transaction have run.

use std::cell::{OnceCell, RefCell};

use redb::{Key, Table, TableDefinition, WriteTransaction};

use super::StoreResult;

/// Table of encoded rows, open for writing.
pub(crate) type WritableTable<'t, K> = Table<'t, K, &'static [u8]>;

/// Open tables, grouped by key type.
pub(crate) struct OpenTables<'t> {
    tx: &'t WriteTransaction,
    lists: TableLists<'t>,
}

impl<'t> OpenTables<'t> {
    /// Starts with no open table.
    pub(crate) fn new(tx: &'t WriteTransaction) -> Self {
        Self {
            tx,
            lists: TableLists::default(),
        }
    }

    /// Returns the table of this name; opens it on first use.
    pub(crate) fn get_or_open<K: TableKey>(
        &self,
        name: &'static str,
    ) -> StoreResult<&RefCell<WritableTable<'t, K>>> {
        let mut link = K::first(&self.lists);
        while let Some(node) = link.0.get() {
            if node.name == name {
                return Ok(&node.table);
            }
            link = &node.next;
        }
        let table = self.tx.open_table(TableDefinition::new(name))?;
        let node = link.0.get_or_init(|| {
            Box::new(Node {
                name,
                table: RefCell::new(table),
                next: Link::default(),
            })
        });
        Ok(&node.table)
    }
}

/// Linked list that can grow while its elements are borrowed.
pub struct Link<'t, K: Key + 'static>(OnceCell<Box<Node<'t, K>>>);

struct Node<'t, K: Key + 'static> {
    name: &'static str,
    table: RefCell<WritableTable<'t, K>>,
    next: Link<'t, K>,
}

impl<K: Key + 'static> Default for Link<'_, K> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

/// Key type of tables.
pub trait TableKey: Key + Sized + 'static {
    /// Head of the list of open tables with this key type.
    fn first<'a, 't>(lists: &'a TableLists<'t>) -> &'a Link<'t, Self>;
}

macro_rules! table_keys {
    ($($name:ident: $key:ty),* $(,)?) => {
        /// Lists of open tables, one per key type.
        #[derive(Default)]
        pub struct TableLists<'t> {
            $($name: Link<'t, $key>,)*
        }

        $(impl TableKey for $key {
            fn first<'a, 't>(lists: &'a TableLists<'t>) -> &'a Link<'t, Self> {
                &lists.$name
            }
        })*
    };
}

table_keys! {
    text: &'static str,
    number: u64,
    text_text: (&'static str, &'static str),
    text_text_text: (&'static str, &'static str, &'static str),
    text_number: (&'static str, u64),
    text_number_text: (&'static str, u64, &'static str),
    number_text: (u64, &'static str),
}
