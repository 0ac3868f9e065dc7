//! Reader of a zip archive with one file.
//!
//! A report artifact holds one regular file of a known name. Anything else is refused, so this reads one
//! entry of the central directory and one local header, with every offset and size checked. The general
//! reader for the guard ([`sensitive_files`](crate::sensitive_files)) reads as much as it can of any archive
//! instead.

use std::io::Read;

use flate2::read::DeflateDecoder;

/// Signature and length of the record at the end of the archive.
const END_SIGNATURE: &[u8] = b"PK\x05\x06";
const END_LENGTH: usize = 22;
/// Maximum length of the comment after it.
const MAX_COMMENT: usize = u16::MAX as usize;

/// Signature and length of an entry of the central directory, without its variable parts.
const ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const ENTRY_LENGTH: usize = 46;

/// Signature and length of the header before a file, without its variable parts.
const FILE_SIGNATURE: &[u8] = b"PK\x03\x04";
const FILE_LENGTH: usize = 30;

/// Flag of an encrypted entry.
const ENCRYPTED: u16 = 1;

/// System in the upper byte of "version made by" that stores Unix modes.
const UNIX: u16 = 3;
/// Type bits of a Unix mode, and those of a regular file. A mode without type bits is regular, too.
const MODE_TYPE: u32 = 0o170_000;
const MODE_REGULAR: u32 = 0o100_000;

/// Compression methods.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Reason why an archive is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ZipError {
    /// It is not a complete zip archive, or uses a feature that artifacts do not need.
    #[error("it is not a zip archive that can be read")]
    Unreadable,
    /// It holds no file or several.
    #[error("it holds {0} files instead of one")]
    FileCount(u16),
    /// Its file has another name.
    #[error("it holds another file than the report")]
    OtherName,
    /// Its entry is a link, a folder or a device.
    #[error("its entry is not a regular file")]
    NotRegular,
    /// Its file is larger than allowed.
    #[error("its file is larger than allowed when unpacked")]
    TooLarge,
}

/// Returns the content of the only file of an archive.
///
/// # Errors
/// If the archive is damaged, if it holds anything but one regular file of this name, or if the file is
/// larger than `max_bytes`.
pub(super) fn read_only_file(
    archive: &[u8],
    name: &str,
    max_bytes: usize,
) -> Result<Vec<u8>, ZipError> {
    let end = find_end(archive)?;
    match read_u16(end, 10)? {
        1 => {}
        count => return Err(ZipError::FileCount(count)),
    }
    let entry = record(archive, read_u32(end, 16)?, ENTRY_SIGNATURE)?;
    let name_length = usize::from(read_u16(entry, 28)?);
    if slice(entry, ENTRY_LENGTH, name_length)? != name.as_bytes() {
        return Err(ZipError::OtherName);
    }
    let mode = read_u32(entry, 38)? >> 16;
    let is_regular = matches!(mode & MODE_TYPE, 0 | MODE_REGULAR);
    if read_u16(entry, 4)? >> 8 == UNIX && !is_regular {
        return Err(ZipError::NotRegular);
    }
    if read_u16(entry, 8)? & ENCRYPTED != 0 {
        return Err(ZipError::Unreadable);
    }
    let packed_length = to_usize(read_u32(entry, 20)?);
    let file = record(archive, read_u32(entry, 42)?, FILE_SIGNATURE)?;
    let data_start =
        FILE_LENGTH + usize::from(read_u16(file, 26)?) + usize::from(read_u16(file, 28)?);
    let packed = slice(file, data_start, packed_length)?;
    match read_u16(entry, 10)? {
        STORED => unpack(packed, max_bytes),
        DEFLATED => unpack(DeflateDecoder::new(packed), max_bytes),
        _ => Err(ZipError::Unreadable),
    }
}

/// Reads to the end, but not more than `max_bytes`, whatever sizes the archive declares.
fn unpack(reader: impl Read, max_bytes: usize) -> Result<Vec<u8>, ZipError> {
    let mut content = Vec::new();
    let limited = reader.take(max_bytes as u64 + 1).read_to_end(&mut content);
    limited.map_err(|_| ZipError::Unreadable)?;
    match content.len() > max_bytes {
        true => Err(ZipError::TooLarge),
        false => Ok(content),
    }
}

/// Finds the record at the end of the archive.
fn find_end(archive: &[u8]) -> Result<&[u8], ZipError> {
    let last = archive.len().checked_sub(END_LENGTH);
    let last = last.ok_or(ZipError::Unreadable)?;
    let first = last.saturating_sub(MAX_COMMENT);
    let found = (first..=last)
        .rev()
        .find(|at| archive[*at..].starts_with(END_SIGNATURE));
    found.map(|at| &archive[at..]).ok_or(ZipError::Unreadable)
}

/// Returns the archive from a record on.
fn record<'a>(archive: &'a [u8], at: u32, signature: &[u8]) -> Result<&'a [u8], ZipError> {
    let rest = archive.get(to_usize(at)..).ok_or(ZipError::Unreadable)?;
    match rest.starts_with(signature) {
        true => Ok(rest),
        false => Err(ZipError::Unreadable),
    }
}

fn slice(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], ZipError> {
    let end = at.checked_add(length).ok_or(ZipError::Unreadable)?;
    bytes.get(at..end).ok_or(ZipError::Unreadable)
}

fn read_u16(bytes: &[u8], at: usize) -> Result<u16, ZipError> {
    let field = slice(bytes, at, 2)?;
    Ok(u16::from_le_bytes([field[0], field[1]]))
}

fn read_u32(bytes: &[u8], at: usize) -> Result<u32, ZipError> {
    let field = slice(bytes, at, 4)?;
    Ok(u32::from_le_bytes([field[0], field[1], field[2], field[3]]))
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
