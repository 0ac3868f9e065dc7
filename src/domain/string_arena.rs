//! Many texts in one block of memory. A poll reads thousands of descriptions and lets go of nearly all:
//! one by one they would leave as many holes among what stays.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Smaller blocks would be among what stays: larger ones come from the system and go back to it.
const SMALLEST_BLOCK: usize = 64 << 10;

/// One text of a block, which is there as long as any of them.
#[derive(Clone, Default)]
pub struct ArenaStr {
    block: Option<Arc<String>>,
    at: Range<usize>,
}

/// Puts texts into one block, in their order.
pub fn pack_strings(texts: &[String]) -> impl Iterator<Item = ArenaStr> {
    let length: usize = texts.iter().map(String::len).sum();
    let mut block = String::with_capacity(length.max(SMALLEST_BLOCK));
    block.extend(texts.iter().map(String::as_str));
    let block = Arc::new(block);
    let mut begin = 0;
    texts.iter().map(move |text| {
        let at = begin..begin + text.len();
        begin = at.end;
        let block = Some(block.clone());
        ArenaStr { block, at }
    })
}

impl Deref for ArenaStr {
    type Target = str;

    fn deref(&self) -> &str {
        let block = self.block.as_deref();
        block
            .and_then(|block| block.get(self.at.clone()))
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
    fn each_text_is_found_again_in_a_block_they_share() {
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
