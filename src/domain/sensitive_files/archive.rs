//! Files within a file: zip, tar and gzip, within bounds that no crafted archive gets past.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder};

use super::matchers::find_last;

/// How deep archives in archives are followed: a zip in a tar in a gzip.
pub(super) const MAX_DEPTH: usize = 3;

/// How many files of an archive are looked at.
const MOST_FILES: usize = 4_096;

/// How many bytes come out of an archive at most, for each that went in, and in all.
const RATIO: usize = 8;
const SPARE: usize = 1 << 20;
const MOST_BYTES: usize = 64 << 20;

/// A file of an archive.
pub(super) struct ArchiveEntry {
    pub name: String,
    pub content: Vec<u8>,
}

/// An archive in a format that is not read: bzip2, xz, Zstandard, 7-Zip, RAR.
pub(super) fn is_unsupported_archive(content: &[u8]) -> bool {
    let marks: [&[u8]; 5] = [
        b"BZh",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"7z\xbc\xaf\x27\x1c",
        b"Rar!\x1a\x07",
    ];
    marks.iter().any(|mark| content.starts_with(mark))
}

/// What may still be unpacked.
pub(super) struct UnpackBudget {
    bytes: usize,
    files: usize,
}

impl UnpackBudget {
    /// The bounds for a file of this size.
    pub fn for_size(size: usize) -> Self {
        Self {
            bytes: size
                .saturating_mul(RATIO)
                .saturating_add(SPARE)
                .min(MOST_BYTES),
            files: MOST_FILES,
        }
    }

    /// Whether something was left out.
    pub fn is_exhausted(&self) -> bool {
        self.bytes == 0 || self.files == 0
    }

    fn take(&mut self, reader: impl Read) -> Vec<u8> {
        let mut content = Vec::new();
        // What cannot be read to its end is judged as far as it can.
        let _ = reader.take(self.bytes as u64).read_to_end(&mut content);
        self.bytes -= content.len().min(self.bytes);
        self.files = self.files.saturating_sub(1);
        content
    }
}

/// The files of an archive; nothing for what is none.
pub(super) fn read_entries(
    name: &str,
    content: &[u8],
    budget: &mut UnpackBudget,
) -> Option<Vec<ArchiveEntry>> {
    match content {
        [b'P', b'K', 3, 4, ..] => Some(zip(content, budget)),
        [0x1f, 0x8b, 8, ..] => {
            let inside = [".gz", ".tgz"]
                .iter()
                .find_map(|ending| name.strip_suffix(ending));
            Some(vec![ArchiveEntry {
                name: inside.unwrap_or(name).to_owned(),
                content: budget.take(MultiGzDecoder::new(content)),
            }])
        }
        _ if content.get(257..262) == Some(b"ustar") => Some(tar(content, budget)),
        _ => None,
    }
}

/// Reads the directory at the end of a zip.
fn zip(content: &[u8], budget: &mut UnpackBudget) -> Vec<ArchiveEntry> {
    const TAIL: usize = 22 + (1 << 16);
    let tail = content.len().saturating_sub(TAIL);
    let mut entries = Vec::new();
    let Some(end) = find_last(&content[tail..], b"PK\x05\x06") else {
        return entries;
    };
    let mut at = number(content, tail + end + 16, 4);
    // Entries may share their bytes, so that what is read is bounded as well as what comes out.
    let mut room = content.len().saturating_mul(2);
    while content.get(at..at + 4) == Some(b"PK\x01\x02") && !budget.is_exhausted() {
        let field = |from: usize, width: usize| number(content, at + from, width);
        let (flags, method, size) = (field(8, 2), field(10, 2), field(20, 4));
        let (name, extra, comment) = (field(28, 2), field(30, 2), field(32, 2));
        let path = content.get(at + 46..at + 46 + name).unwrap_or_default();
        let local = field(42, 4);
        at += 46 + name + extra + comment;
        let start = local + 30 + number(content, local + 26, 2) + number(content, local + 28, 2);
        let packed = content
            .get(start..start.saturating_add(size))
            .unwrap_or_default();
        let is_readable = flags & 1 == 0 && packed.len() <= room && !path.ends_with(b"/");
        room -= packed.len().min(room);
        let read = match method {
            0 if is_readable => budget.take(packed),
            8 if is_readable => budget.take(DeflateDecoder::new(packed)),
            // Of what is encrypted or packed in another way only the name is judged.
            _ => budget.take(std::io::empty()),
        };
        entries.push(ArchiveEntry {
            name: String::from_utf8_lossy(path).into_owned(),
            content: read,
        });
    }
    entries
}

/// A little-endian number; none is zero.
fn number(content: &[u8], at: usize, width: usize) -> usize {
    let bytes = content
        .get(at..at.saturating_add(width))
        .unwrap_or_default();
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Reads the blocks of a tar.
fn tar(content: &[u8], budget: &mut UnpackBudget) -> Vec<ArchiveEntry> {
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
        let size = usize::from_str_radix(text(&header[124..136]).trim(), 8).unwrap_or_default();
        let start = at + BLOCK;
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
