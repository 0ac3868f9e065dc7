//! Reader of zip, tar and gzip archives with limits against decompression bombs.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder};

use super::matchers::find_last;

/// Maximum nesting of archives, such as a zip in a tar in a gzip.
pub(super) const MAX_DEPTH: usize = 3;

/// Maximum number of entries read from an archive.
const MAX_FILES: usize = 4_096;

/// Maximum unpacked bytes per packed byte.
const MAX_RATIO: usize = 8;
/// Unpacked bytes allowed in addition to the ratio.
const BASE_BYTES: usize = 1 << 20;
/// Maximum unpacked bytes of one archive.
const MAX_BYTES: usize = 64 << 20;

/// File in an archive.
pub(super) struct ArchiveEntry {
    /// Path in the archive.
    pub name: String,
    /// Unpacked content, cut at the budget.
    pub content: Vec<u8>,
}

/// Returns whether the content is an archive in an unsupported format: bzip2, xz, Zstandard, 7-Zip, RAR.
pub(super) fn is_unsupported_archive(content: &[u8]) -> bool {
    let signatures: [&[u8]; 5] = [
        b"BZh",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"7z\xbc\xaf\x27\x1c",
        b"Rar!\x1a\x07",
    ];
    signatures
        .iter()
        .any(|signature| content.starts_with(signature))
}

/// Remaining bytes and entries that may be unpacked.
pub(super) struct UnpackBudget {
    bytes: usize,
    files: usize,
    /// Whether something could not be read, for another reason than the budget.
    has_unread: bool,
}

impl UnpackBudget {
    /// Returns the budget for an archive of this size in bytes.
    pub(super) fn for_size(size: usize) -> Self {
        Self {
            bytes: size
                .saturating_mul(MAX_RATIO)
                .saturating_add(BASE_BYTES)
                .min(MAX_BYTES),
            files: MAX_FILES,
            has_unread: false,
        }
    }

    /// Returns the budget for a part of an archive, of this size in bytes.
    pub(super) fn for_part(size: usize) -> Self {
        Self {
            has_unread: true,
            ..Self::for_size(size)
        }
    }

    fn is_exhausted(&self) -> bool {
        self.bytes == 0 || self.files == 0
    }

    /// Returns whether content may have been skipped.
    pub(super) fn may_have_skipped(&self) -> bool {
        self.has_unread || self.is_exhausted()
    }

    fn take(&mut self, reader: impl Read) -> Vec<u8> {
        let mut content = Vec::new();
        // A damaged entry is checked up to the damage.
        let read = reader.take(self.bytes as u64).read_to_end(&mut content);
        self.has_unread |= read.is_err();
        self.bytes -= content.len().min(self.bytes);
        self.files = self.files.saturating_sub(1);
        content
    }
}

/// Reads the entries of an archive. Returns `None` if the content is not a supported archive.
pub(super) fn read_entries(
    name: &str,
    content: &[u8],
    budget: &mut UnpackBudget,
) -> Option<Vec<ArchiveEntry>> {
    match content {
        [b'P', b'K', 3, 4, ..] => Some(read_zip(content, budget)),
        [0x1f, 0x8b, 8, ..] => {
            let inner_name = [".gz", ".tgz"]
                .iter()
                .find_map(|ending| name.strip_suffix(ending));
            Some(vec![ArchiveEntry {
                name: inner_name.unwrap_or(name).to_owned(),
                content: budget.take(MultiGzDecoder::new(content)),
            }])
        }
        _ if content.get(257..262) == Some(b"ustar") => Some(read_tar(content, budget)),
        _ => None,
    }
}

/// Reads the entries that the central directory of a zip lists.
fn read_zip(content: &[u8], budget: &mut UnpackBudget) -> Vec<ArchiveEntry> {
    const TAIL: usize = 22 + (1 << 16);
    let tail = content.len().saturating_sub(TAIL);
    let mut entries = Vec::new();
    let Some(end) = find_last(&content[tail..], b"PK\x05\x06") else {
        budget.has_unread = true;
        return entries;
    };
    let end = tail + end;
    let mut at = read_number(content, end + 16, 4);
    // Entries may share the same packed bytes, so the input is limited as well as the output.
    let mut input_left = content.len().saturating_mul(2);
    while content.get(at..at + 4) == Some(b"PK\x01\x02") && !budget.is_exhausted() {
        let field = |from: usize, width: usize| read_number(content, at + from, width);
        let (flags, method) = (field(8, 2), field(10, 2));
        let (size, unpacked_size) = (field(20, 4), field(24, 4));
        let (name, extra, comment) = (field(28, 2), field(30, 2), field(32, 2));
        let path = content.get(at + 46..at + 46 + name).unwrap_or_default();
        let local = field(42, 4);
        at += 46 + name + extra + comment;
        let start =
            local + 30 + read_number(content, local + 26, 2) + read_number(content, local + 28, 2);
        let packed = content
            .get(start..start.saturating_add(size))
            .unwrap_or_default();
        let is_encrypted = flags & 1 != 0;
        let is_readable = !is_encrypted && packed.len() <= input_left && !path.ends_with(b"/");
        input_left -= packed.len().min(input_left);
        let read = match method {
            0 if is_readable => budget.take(packed),
            8 if is_readable => budget.take(DeflateDecoder::new(packed)),
            // Only the name is checked if the entry is encrypted or uses another compression method.
            _ => budget.take(std::io::empty()),
        };
        budget.has_unread |= !is_encrypted && read.len() != unpacked_size;
        entries.push(ArchiveEntry {
            name: String::from_utf8_lossy(path).into_owned(),
            content: read,
        });
    }
    // In the format ZIP64, offset and number stand elsewhere. The content begins with an entry.
    budget.has_unread |= entries.len() < read_number(content, end + 10, 2).max(1);
    entries
}

/// Reads a little-endian number of `width` bytes. Returns 0 beyond the end of the content.
fn read_number(content: &[u8], at: usize, width: usize) -> usize {
    let bytes = content
        .get(at..at.saturating_add(width))
        .unwrap_or_default();
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Reads the entries of a tar.
fn read_tar(content: &[u8], budget: &mut UnpackBudget) -> Vec<ArchiveEntry> {
    const BLOCK: usize = 512;
    let mut entries = Vec::new();
    let (mut at, mut long_name) = (0, None);
    while let Some(header) = content.get(at..at + BLOCK) {
        if header[0] == 0 || budget.is_exhausted() {
            break;
        }
        let text = |field: &[u8]| {
            let end = field
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).into_owned()
        };
        let start = at + BLOCK;
        let size = usize::from_str_radix(text(&header[124..136]).trim(), 8).ok();
        budget.has_unread |= size.is_none_or(|size| size > content.len() - start);
        let size = size.unwrap_or_default();
        let data = &content[start..start.saturating_add(size).min(content.len())];
        let (prefix, name) = (text(&header[345..500]), text(&header[..100]));
        match header[156] {
            b'L' => long_name = Some(text(data)),
            b'0' | 0 => entries.push(ArchiveEntry {
                name: long_name.take().unwrap_or(if prefix.is_empty() {
                    name
                } else {
                    format!("{prefix}/{name}")
                }),
                content: budget.take(data),
            }),
            _ => {}
        }
        at = start.saturating_add(size.div_ceil(BLOCK).saturating_mul(BLOCK));
    }
    entries
}
