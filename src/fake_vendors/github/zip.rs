//! Writer of zip archives.

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// File of an archive.
pub struct ArchiveEntry<'a> {
    /// Path in the archive.
    pub name: &'a str,
    /// Content.
    pub content: &'a [u8],
    /// Unix mode with the type of the entry.
    pub mode: u32,
}

impl<'a> ArchiveEntry<'a> {
    /// Returns a regular file.
    pub fn file(name: &'a str, content: &'a [u8]) -> Self {
        Self {
            name,
            content,
            mode: 0o100_644,
        }
    }
}

/// Returns a zip archive as the upload action writes it: streamed, with the sizes after each file.
///
/// # Errors
/// If an entry is too large for the format.
pub fn zip_archive(entries: &[ArchiveEntry<'_>]) -> io::Result<Vec<u8>> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = archive.len();
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(entry.content)?;
        let packed = encoder.finish()?;
        let mut crc = Crc::new();
        crc.update(entry.content);
        let sizes = [
            crc.sum().to_le_bytes(),
            le32(packed.len())?,
            le32(entry.content.len())?,
        ]
        .concat();
        let name_length = le16(entry.name.len())?;
        archive.extend(b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0");
        archive.extend([0; 12]);
        archive.extend(name_length);
        archive.extend([0; 2]);
        archive.extend(entry.name.as_bytes());
        archive.extend(packed);
        archive.extend(b"PK\x07\x08");
        archive.extend(&sizes);
        directory.extend(b"PK\x01\x02\x2d\x03\x14\0\x08\0\x08\0\0\0\0\0");
        directory.extend(&sizes);
        directory.extend(name_length);
        directory.extend([0; 8]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(le32(offset)?);
        directory.extend(entry.name.as_bytes());
    }
    let start = archive.len();
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(le16(entries.len())?);
    archive.extend(le16(entries.len())?);
    archive.extend(le32(directory.len())?);
    archive.extend(le32(start)?);
    archive.extend([0; 2]);
    Ok(archive)
}

fn le16(number: usize) -> io::Result<[u8; 2]> {
    let number = u16::try_from(number).map_err(io::Error::other)?;
    Ok(number.to_le_bytes())
}

fn le32(number: usize) -> io::Result<[u8; 4]> {
    let number = u32::try_from(number).map_err(io::Error::other)?;
    Ok(number.to_le_bytes())
}
