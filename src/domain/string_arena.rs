//! Strings in one shared block of memory. A poll reads thousands of descriptions and drops nearly
//! all of them. Separate allocations would fragment the heap.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Minimum size of a block, in bytes. The allocator maps blocks of this size separately and returns
/// them to the system.
const MIN_BLOCK_BYTES: usize = 64 << 10;

/// String in a shared block. The block is freed with its last string.
#[derive(Clone, Default)]
pub struct ArenaStr {
    block: Option<Arc<String>>,
    range: Range<usize>,
}

/// Copies strings into one block. Returns them in the same order.
pub fn pack_strings(texts: &[String]) -> impl Iterator<Item = ArenaStr> {
    let length: usize = texts.iter().map(String::len).sum();
    let mut block = String::with_capacity(length.max(MIN_BLOCK_BYTES));
    block.extend(texts.iter().map(String::as_str));
    let block = Arc::new(block);
    let mut start = 0;
    texts.iter().map(move |text| {
        let range = start..start + text.len();
        start = range.end;
        let block = Some(block.clone());
        ArenaStr { block, range }
    })
}

impl From<String> for ArenaStr {
    /// Puts one string into a block of its own, for the few strings that are kept.
    fn from(text: String) -> Self {
        Self {
            range: 0..text.len(),
            block: Some(Arc::new(text)),
        }
    }
}

impl Deref for ArenaStr {
    type Target = str;

    fn deref(&self) -> &str {
        let block = self.block.as_deref();
        block
            .and_then(|block| block.get(self.range.clone()))
            .unwrap_or_default()
    }
}

impl PartialEq for ArenaStr {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ArenaStr {}

impl fmt::Debug for ArenaStr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_strings_into_one_block() {
        let texts = ["one", "", "zwei: ä", "three"].map(String::from);
        let packed: Vec<ArenaStr> = pack_strings(&texts).collect();
        let found: Vec<&str> = packed.iter().map(|text| &**text).collect();
        assert_eq!(found, texts);
        assert_eq!(packed[1], ArenaStr::default());
        assert_ne!(packed[0], packed[3]);
        let block = packed[0].block.clone().unwrap();
        drop(packed);
        assert_eq!(Arc::strong_count(&block), 1);
    }
}
