//! Files of records: a first line that names the format, tagged records with length-prefixed parts, and a SHA-256
//! digest of everything before it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::de::DeserializeOwned;

use super::backup::BackupError;

/// Size of the chunks in which a file is written, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Content of a file between its first line and its digest.
pub(super) type Input<R = BufReader<File>> = io::Take<R>;

/// Reads a file of the format that `first_line` names from its beginning, and verifies its digest.
pub(super) fn verified(mut file: File, first_line: &[u8]) -> Result<Input, BackupError> {
    file.rewind()?;
    let length = file.metadata()?.len();
    let mut begin = vec![0; first_line.len()];
    match file.read_exact(&mut begin) {
        Ok(()) if begin == first_line => {}
        Ok(()) => return Err(BackupError::UnrecognizedFormat),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(BackupError::UnrecognizedFormat);
        }
        Err(error) => return Err(error.into()),
    }
    let content = length.checked_sub(SHA256_OUTPUT_LEN as u64);
    let content = content.ok_or(BackupError::Damaged)?;
    if !has_valid_digest(&mut file, content)? {
        return Err(BackupError::Damaged);
    }
    file.seek(SeekFrom::Start(first_line.len() as u64))?;
    let body = content.saturating_sub(first_line.len() as u64);
    Ok(BufReader::with_capacity(1 << 20, file).take(body))
}

/// Appends a tag, and parts with their lengths.
pub(super) fn encode_record(to: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) -> io::Result<()> {
    to.push(tag);
    for part in parts {
        let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        to.extend_from_slice(&length.to_le_bytes());
        to.extend_from_slice(part);
    }
    Ok(())
}

/// Buffered writer that computes a digest of everything written.
pub(super) struct DigestWriter<'w> {
    out: &'w mut dyn Write,
    chunk: Vec<u8>,
    digest: Context,
}

impl<'w> DigestWriter<'w> {
    pub(super) fn new(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            chunk: Vec::with_capacity(2 * CHUNK_BYTES),
            digest: Context::new(&SHA256),
        }
    }

    /// Writes a tag, and parts with their lengths.
    pub(super) fn put_record(&mut self, tag: u8, parts: &[&[u8]]) -> io::Result<()> {
        encode_record(&mut self.chunk, tag, parts)?;
        self.write_full_chunk()
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.chunk.extend_from_slice(bytes);
        self.write_full_chunk()
    }

    fn write_full_chunk(&mut self) -> io::Result<()> {
        match self.chunk.len() >= CHUNK_BYTES {
            true => self.write_chunk(),
            false => Ok(()),
        }
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        self.digest.update(&self.chunk);
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    /// Writes the digest.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_chunk()?;
        self.out.write_all(self.digest.finish().as_ref())?;
        self.out.flush()
    }
}

pub(super) fn read_byte(input: &mut Input<impl Read>) -> Result<u8, BackupError> {
    let mut byte = [0];
    read_exact(input, &mut byte)?;
    Ok(byte[0])
}

/// Reads a length-prefixed part of a record.
pub(super) fn read_part(input: &mut Input<impl Read>) -> Result<Vec<u8>, BackupError> {
    let mut length = [0; 4];
    read_exact(input, &mut length)?;
    let length = u32::from_le_bytes(length);
    if u64::from(length) > input.limit() {
        return Err(BackupError::Damaged);
    }
    let mut part = vec![0; length as usize];
    read_exact(input, &mut part)?;
    Ok(part)
}

/// Reads a length-prefixed text.
pub(super) fn read_text(input: &mut Input<impl Read>) -> Result<String, BackupError> {
    String::from_utf8(read_part(input)?).map_err(|_| BackupError::Damaged)
}

/// Reads the record with a header in JSON.
pub(super) fn read_header<T: DeserializeOwned>(
    input: &mut Input,
    tag: u8,
) -> Result<T, BackupError> {
    if read_byte(input)? != tag {
        return Err(BackupError::Damaged);
    }
    serde_json::from_slice(&read_part(input)?).map_err(|_| BackupError::Damaged)
}

pub(super) fn read_exact(
    input: &mut Input<impl Read>,
    bytes: &mut [u8],
) -> Result<(), BackupError> {
    let read = input.read_exact(bytes);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::Damaged,
        _ => error.into(),
    })
}

/// Whether the first `length` bytes have the digest that follows them.
fn has_valid_digest(file: &mut File, length: u64) -> io::Result<bool> {
    file.rewind()?;
    let mut digest = Context::new(&SHA256);
    let mut rest = length;
    let mut chunk = vec![0; 1 << 20];
    while rest > 0 {
        let wanted = usize::try_from(rest).unwrap_or(usize::MAX).min(chunk.len());
        let part = &mut chunk[..wanted];
        file.read_exact(part)?;
        digest.update(part);
        rest -= wanted as u64;
    }
    let mut expected = [0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut expected)?;
    Ok(digest.finish().as_ref() == expected)
}
