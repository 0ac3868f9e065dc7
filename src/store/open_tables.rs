//! The tables that the write transaction has opened.
//!
//! To open a table costs more than to read a row of it, so each stays open until all closures that
//! share the transaction have run.

use std::cell::{OnceCell, RefCell};

use redb::{Key, Table, TableDefinition, WriteTransaction};

use super::StoreResult;

/// A table of rows in bytes, open for writing.
pub type WritableTable<'t, K> = Table<'t, K, &'static [u8]>;

/// What is open, by kind of key.
pub struct OpenTables<'t> {
    tx: &'t WriteTransaction,
    kinds: Kinds<'t>,
}

impl<'t> OpenTables<'t> {
    pub fn new(tx: &'t WriteTransaction) -> Self {
        Self {
            tx,
            kinds: Kinds::default(),
        }
    }

    /// The table of this name, which is opened now if it is not yet.
    pub fn get_or_open<K: TableKey>(
        &self,
        name: &'static str,
    ) -> StoreResult<&RefCell<WritableTable<'t, K>>> {
        let mut link = K::first(&self.kinds);
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

/// A list that grows while its elements are borrowed.
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

/// A kind of key that tables have.
pub trait TableKey: Key + Sized + 'static {
    fn first<'a, 't>(kinds: &'a Kinds<'t>) -> &'a Link<'t, Self>;
}

macro_rules! kinds {
    ($($name:ident: $key:ty),* $(,)?) => {
        /// The first table of each kind of key.
        #[derive(Default)]
        pub struct Kinds<'t> {
            $($name: Link<'t, $key>,)*
        }

        $(impl TableKey for $key {
            fn first<'a, 't>(kinds: &'a Kinds<'t>) -> &'a Link<'t, Self> {
                &kinds.$name
            }
        })*
    };
}

kinds! {
    word: &'static str,
    number: u64,
    words: (&'static str, &'static str),
    three_words: (&'static str, &'static str, &'static str),
    word_number: (&'static str, u64),
    word_number_word: (&'static str, u64, &'static str),
    number_word: (u64, &'static str),
}
