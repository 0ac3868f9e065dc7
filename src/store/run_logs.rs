//! Logs of runs, compressed. See docs/behaviour.md#log-of-a-run.
//!
//! The text of a log is kept in chunks of about 32 KiB, so that an append writes one chunk and not the whole log. If
//! the text exceeds [`MAX_BYTES`], the oldest chunks are removed. Offsets count from the first byte ever stored, so
//! that they do not change when the log is cut.
//!
//! An append compresses outside of the write transaction: [`prepare`] reads a snapshot, and [`append`] writes what it
//! returned, unless the log has changed meanwhile.

use std::io::{Read, Write};
use std::ops::{ControlFlow, Range, RangeInclusive};

use data_encoding::BASE64;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};

use domain::ids::JobId;
use domain::run_log::MAX_BYTES;
use domain::sensitive_files::PrivateKeyTracker;
use domain::time::Timestamp;

use super::table::{ReadableTx, ScanDirection, WriteTx};
use super::tables::{RUN_LOG_CHUNKS, RUN_LOGS};
use super::{StoreError, StoreResult, retention};

/// Size from which a chunk gets no further lines, in bytes of text.
const CHUNK_BYTES: u64 = 32 << 10;

/// State of the log of a run.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunLog {
    /// Number of bytes that the run has sent, from its first byte on. Not all are kept.
    pub received: u64,
    /// Offset of the first kept byte of the text.
    pub start: u64,
    /// Offset of the end of the text.
    pub end: u64,
    /// Sequence numbers of the kept chunks.
    chunks: Range<u64>,
    /// Size of the kept chunks as stored, in bytes.
    pub stored_bytes: u64,
    /// Time of the last append.
    pub updated_at: Timestamp,
    /// Time of the last line.
    pub last_line_at: Timestamp,
    /// Private key that the next line may continue.
    pub private_key: PrivateKeyTracker,
    /// Number of marks of steps in the text, with those that were cut.
    pub step_marks: u64,
}

/// Chunk of whole lines.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogChunk {
    /// Offset of the first byte.
    start: u64,
    /// Size of the text in bytes.
    bytes: u64,
    /// Text, compressed with DEFLATE, in base64.
    deflated: String,
}

impl LogChunk {
    fn compress(start: u64, text: &str) -> std::io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes())?;
        Ok(Self {
            start,
            bytes: text.len() as u64,
            deflated: BASE64.encode(&encoder.finish()?),
        })
    }

    fn text(&self) -> Option<String> {
        let deflated = BASE64.decode(self.deflated.as_bytes()).ok()?;
        let mut text = String::new();
        let decoder = DeflateDecoder::new(deflated.as_slice());
        decoder.take(2 * MAX_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// Lines to append.
#[derive(Debug, Clone, Copy)]
pub struct NewLines<'t> {
    /// Whole lines. Secrets must already be redacted.
    pub text: &'t str,
    /// Number of bytes that the run has sent, with these lines.
    pub received: u64,
    /// State of the redaction after these lines.
    pub private_key: PrivateKeyTracker,
    /// Number of marks of steps, with these lines.
    pub step_marks: u64,
    /// Time of the last of these lines.
    pub last_line_at: Timestamp,
    /// Current time.
    pub now: Timestamp,
}

/// Append that is ready to be written.
#[derive(Debug, Clone)]
pub struct PreparedAppend {
    before: Option<RunLog>,
    after: RunLog,
    written: Vec<(u64, LogChunk)>,
    removed: Range<u64>,
}

/// Part of the text of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogText {
    /// State of the log.
    pub log: RunLog,
    /// Text from the requested offset, or from the first kept byte if that is later.
    pub text: String,
}

/// State of the log of a job; `None` if none is stored.
pub fn get(tx: &impl ReadableTx, job: &JobId) -> StoreResult<Option<RunLog>> {
    RUN_LOGS.get(tx, job.as_str())
}

/// Prepares an append to the state `before`, which was read in the same transaction.
///
/// # Errors
/// If the last chunk cannot be read.
pub fn prepare(
    tx: &impl ReadableTx,
    job: &JobId,
    before: Option<RunLog>,
    new: NewLines<'_>,
) -> StoreResult<PreparedAppend> {
    let mut after = RunLog {
        received: new.received,
        private_key: new.private_key,
        step_marks: new.step_marks,
        last_line_at: new.last_line_at,
        updated_at: new.now,
        ..before.clone().unwrap_or_default()
    };
    let (first, mut written) = (after.chunks.start, Vec::new());
    let (mut start, mut pending) = (after.end, new.text.to_owned());
    if let Some(open) = open_chunk(tx, job, &after)? {
        after.chunks.end -= 1;
        after.stored_bytes = after
            .stored_bytes
            .saturating_sub(open.deflated.len() as u64);
        start = open.start;
        pending.insert_str(0, &text_of(job, &open)?);
    }
    let mut rest = latest_lines(&pending);
    if rest.len() < pending.len() {
        // Nothing older is kept either, so that it is not worth compressing.
        start += (pending.len() - rest.len()) as u64;
        after.chunks.start = after.chunks.end;
        (after.start, after.stored_bytes) = (start, 0);
    }
    while !rest.is_empty() {
        let (text, next) = rest.split_at(chunk_len(rest));
        let chunk = LogChunk::compress(start, text).map_err(|error| corrupt(job, error))?;
        start = chunk.end();
        after.stored_bytes += chunk.deflated.len() as u64;
        written.push((after.chunks.end, chunk));
        after.chunks.end += 1;
        rest = next;
    }
    after.end = start;
    cut(tx, job, &mut after, &mut written)?;
    Ok(PreparedAppend {
        removed: first..after.chunks.start,
        before,
        after,
        written,
    })
}

/// Last chunk of a log, if it takes further lines.
fn open_chunk(tx: &impl ReadableTx, job: &JobId, log: &RunLog) -> StoreResult<Option<LogChunk>> {
    let Some(last) = log.chunks.end.checked_sub(1) else {
        return Ok(None);
    };
    let chunk = RUN_LOG_CHUNKS.get(tx, (job.as_str(), last))?;
    Ok(chunk.filter(|chunk| chunk.bytes < CHUNK_BYTES))
}

/// Latest whole lines of a text within [`MAX_BYTES`].
fn latest_lines(text: &str) -> &str {
    let surplus = text.len().saturating_sub(MAX_BYTES as usize);
    let from = match surplus.checked_sub(1) {
        // From the first line that begins at or after the surplus.
        Some(last) => text.as_bytes()[last..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(0, |at| last + at + 1),
        None => 0,
    };
    &text[from..]
}

/// Length of the next chunk of a text: up to the first line that reaches [`CHUNK_BYTES`].
fn chunk_len(text: &str) -> usize {
    let from = text.floor_char_boundary(CHUNK_BYTES as usize);
    text[from..]
        .find('\n')
        .map_or(text.len(), |at| from + at + 1)
}

/// Removes the oldest chunks until the text is within its limit. The last chunk is kept.
fn cut(
    tx: &impl ReadableTx,
    job: &JobId,
    log: &mut RunLog,
    written: &mut Vec<(u64, LogChunk)>,
) -> StoreResult<()> {
    while log.end - log.start > MAX_BYTES && log.chunks.end - log.chunks.start > 1 {
        let oldest = log.chunks.start;
        let new = written.iter().position(|(number, _)| *number == oldest);
        let chunk = match new {
            Some(at) => Some(written.remove(at).1),
            None => RUN_LOG_CHUNKS.get(tx, (job.as_str(), oldest))?,
        };
        if let Some(chunk) = chunk {
            log.start = chunk.end();
            log.stored_bytes = log.stored_bytes.saturating_sub(chunk.deflated.len() as u64);
        }
        log.chunks.start += 1;
    }
    Ok(())
}

/// Writes an append. Returns false if the log has changed since it was prepared; nothing is written then.
///
/// # Errors
/// If the store cannot be read or written.
pub fn append(tx: &WriteTx<'_>, job: &JobId, prepared: &PreparedAppend) -> StoreResult<bool> {
    if get(tx, job)? != prepared.before {
        return Ok(false);
    }
    for number in prepared.removed.clone() {
        RUN_LOG_CHUNKS.remove(tx, (job.as_str(), number))?;
    }
    for (number, chunk) in &prepared.written {
        RUN_LOG_CHUNKS.put(tx, (job.as_str(), *number), chunk)?;
    }
    RUN_LOGS.put(tx, job.as_str(), &prepared.after)?;
    Ok(true)
}

/// Text of a log from an offset on; `None` if no log is stored.
///
/// # Errors
/// If a chunk cannot be read.
pub fn read(tx: &impl ReadableTx, job: &JobId, offset: u64) -> StoreResult<Option<LogText>> {
    let Some(log) = get(tx, job)? else {
        return Ok(None);
    };
    // From the last chunk backwards, because clients follow the end.
    let mut chunks = Vec::new();
    let order = ScanDirection::Descending;
    RUN_LOG_CHUNKS.scan(tx, keys_of_job(job), order, |_, chunk| {
        if chunk.end() <= offset {
            return ControlFlow::Break(());
        }
        chunks.push(chunk);
        ControlFlow::Continue(())
    })?;
    let mut text = String::new();
    for chunk in chunks.into_iter().rev() {
        let part = text_of(job, &chunk)?;
        let skipped = usize::try_from(offset.saturating_sub(chunk.start));
        let from = part.floor_char_boundary(skipped.unwrap_or(usize::MAX));
        text.push_str(&part[from..]);
    }
    Ok(Some(LogText { log, text }))
}

/// Removes the log of a job.
///
/// # Errors
/// If the store cannot be written.
pub fn remove(tx: &WriteTx<'_>, job: &JobId) -> StoreResult<()> {
    let numbers = RUN_LOG_CHUNKS.collect(tx, keys_of_job(job), |(_, number), _| number)?;
    for number in numbers {
        RUN_LOG_CHUNKS.remove(tx, (job.as_str(), number))?;
    }
    RUN_LOGS.remove(tx, job.as_str())?;
    Ok(())
}

/// Jobs whose log is to be removed, oldest first: those with no output since `keep_since`, and the oldest of the others
/// until the rest takes at most `max_bytes` as stored.
///
/// # Errors
/// If the store cannot be read.
pub fn removable(
    tx: &impl ReadableTx,
    keep_since: Timestamp,
    max_bytes: u64,
) -> StoreResult<Vec<JobId>> {
    let logs = RUN_LOGS.collect(tx, .., |job, log| {
        (log.updated_at, JobId::from(job), log.stored_bytes)
    })?;
    Ok(retention::removable(logs, keep_since, max_bytes))
}

fn keys_of_job(job: &JobId) -> RangeInclusive<(&str, u64)> {
    (job.as_str(), 0)..=(job.as_str(), u64::MAX)
}

fn text_of(job: &JobId, chunk: &LogChunk) -> StoreResult<String> {
    chunk
        .text()
        .ok_or_else(|| corrupt(job, "the chunk cannot be decompressed"))
}

fn corrupt(job: &JobId, cause: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        table: RUN_LOG_CHUNKS.name(),
        key: job.to_string(),
        cause: serde::de::Error::custom(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn job() -> JobId {
        "j".into()
    }

    async fn append_to(store: &Store, job: &JobId, text: &str, now: Timestamp) {
        let prepared = store.read(|tx| {
            let before = get(tx, job)?;
            let received = before.as_ref().map_or(0, |log| log.received) + text.len() as u64;
            let new = NewLines {
                text,
                received,
                private_key: PrivateKeyTracker::default(),
                step_marks: 0,
                last_line_at: now,
                now,
            };
            prepare(tx, job, before, new)
        });
        let (job, prepared) = (job.clone(), prepared.unwrap());
        let written = store.write(move |tx| append(tx, &job, &prepared));
        assert!(written.await.unwrap());
    }

    fn read_from(store: &Store, offset: u64) -> LogText {
        let read = store.read(|tx| read(tx, &job(), offset));
        read.unwrap().unwrap()
    }

    /// Number and stored size of the chunks.
    fn chunks(store: &Store) -> (usize, u64) {
        let chunks = store.read(|tx| RUN_LOG_CHUNKS.collect(tx, .., |_, chunk| chunk.deflated));
        let chunks = chunks.unwrap();
        (
            chunks.len(),
            chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        )
    }

    #[tokio::test]
    async fn returns_what_was_appended_from_any_offset() {
        let store = Store::in_memory().unwrap();
        assert_eq!(store.read(|tx| read(tx, &job(), 0)).unwrap(), None);
        let mut whole = String::new();
        for n in 0..3_000 {
            let line = format!("{n} ä {}\n", "x".repeat(n % 50));
            append_to(&store, &job(), &line, NOW).await;
            whole.push_str(&line);
        }
        let log = read_from(&store, 0);
        assert_eq!(log.text, whole);
        assert_eq!((log.log.start, log.log.end), (0, whole.len() as u64));
        assert_eq!(log.log.received, whole.len() as u64);
        for (offset, _) in whole.char_indices().step_by(7_919) {
            assert_eq!(read_from(&store, offset as u64).text, whole[offset..]);
        }
        assert_eq!(read_from(&store, whole.len() as u64).text, "");
        assert_eq!(read_from(&store, u64::MAX).text, "");
        let (count, stored) = chunks(&store);
        assert!(count <= whole.len() / CHUNK_BYTES as usize + 1, "{count}");
        assert_eq!(stored, log.log.stored_bytes);
        assert!(stored < whole.len() as u64 / 2, "compressed: {stored}");
    }

    #[tokio::test]
    async fn cuts_the_oldest_lines_and_keeps_offsets() {
        let store = Store::in_memory().unwrap();
        let block = |n: usize| format!("{n} {}\n", "x".repeat(9_999)).repeat(10);
        let mut whole = String::new();
        for n in 0..30 {
            append_to(&store, &job(), &block(n), NOW).await;
            whole.push_str(&block(n));
        }
        let log = read_from(&store, 0);
        assert!(log.log.start > 0 && log.log.end == whole.len() as u64);
        let kept = log.log.end - log.log.start;
        assert!(
            kept <= MAX_BYTES && kept > MAX_BYTES - 2 * CHUNK_BYTES,
            "{kept}"
        );
        assert_eq!(log.text, whole[log.log.start as usize..]);
        assert!(
            whole[..log.log.start as usize].ends_with('\n'),
            "whole lines"
        );
        let last = whole.len() - block(29).len();
        assert_eq!(read_from(&store, last as u64).text, block(29));
        let (_, stored) = chunks(&store);
        assert_eq!(stored, log.log.stored_bytes);

        // One append can be larger than what is kept.
        let large: String = (30..60).map(block).collect();
        append_to(&store, &job(), &large, NOW).await;
        whole.push_str(&large);
        let log = read_from(&store, 0);
        let kept = log.log.end - log.log.start;
        assert!(
            kept <= MAX_BYTES && kept > MAX_BYTES - 2 * CHUNK_BYTES,
            "{kept}"
        );
        assert_eq!(log.text, whole[log.log.start as usize..]);
        assert!(whole[..log.log.start as usize].ends_with('\n'));
        let (count, stored) = chunks(&store);
        assert_eq!(stored, log.log.stored_bytes);
        assert_eq!(count as u64, log.log.chunks.end - log.log.chunks.start);
        append_to(&store, &job(), "end\n", NOW).await;
        assert!(read_from(&store, 0).text.ends_with("x\nend\n"));
    }

    #[tokio::test]
    async fn writes_nothing_if_the_log_has_changed() {
        let store = Store::in_memory().unwrap();
        let new = NewLines {
            text: "twice\n",
            received: 6,
            private_key: PrivateKeyTracker::default(),
            step_marks: 0,
            last_line_at: NOW,
            now: NOW,
        };
        let prepared = store.read(|tx| prepare(tx, &job(), None, new)).unwrap();
        for expected in [true, false] {
            let prepared = prepared.clone();
            let written = store.write(move |tx| append(tx, &job(), &prepared));
            assert_eq!(written.await.unwrap(), expected);
        }
        assert_eq!(read_from(&store, 0).text, "twice\n");
    }

    #[tokio::test]
    async fn removes_old_logs_and_the_oldest_above_a_limit() {
        let store = Store::in_memory().unwrap();
        let day = std::time::Duration::from_secs(86_400);
        for (n, name) in ["c", "a", "j", "b"].into_iter().enumerate() {
            append_to(&store, &name.into(), "line\n", NOW + day * n as u32).await;
        }
        let names = |keep_since, max| -> Vec<String> {
            let jobs = store.read(|tx| removable(tx, keep_since, max)).unwrap();
            jobs.iter().map(ToString::to_string).collect()
        };
        assert!(names(NOW, u64::MAX).is_empty());
        assert_eq!(names(NOW + day * 2, u64::MAX), ["c", "a"]);
        let one = read_from(&store, 0).log.stored_bytes;
        assert_eq!(names(NOW, one * 3), ["c"]);
        assert_eq!(names(NOW + day, one * 2), ["c", "a"]);
        assert_eq!(names(NOW, 0), ["c", "a", "j", "b"]);

        store.write(|tx| remove(tx, &job())).await.unwrap();
        assert_eq!(store.read(|tx| read(tx, &job(), 0)).unwrap(), None);
        assert_eq!(chunks(&store).0, 3);
    }
}
