//! Logs of runs: receives, keeps and removes them. See docs/behaviour.md#log-of-a-run.
//!
//! A run sends its log in parts, with the offset of each. A part that arrives twice is stored once, and a gap is marked.
//! Everything is redacted and sanitized again here: code of the repository may have read the token of the run.

use std::time::Duration;

use crate::app::App;
use crate::run_reports::ReportError;
use domain::ids::JobId;
use domain::job::Job;
use domain::run_log::{self, LogReceipt, LogReport, MAX_GAP, MAX_STEP_MARKS};
use domain::sensitive_files::PrivateKeyTracker;
use domain::time::Timestamp;
use store::run_logs::{self, LogText, NewLines, PreparedAppend, RunLog};
use store::{ReadableTx, StoreChange, StoreResult, jobs};
use vendors::http::{LineRedactor, Redactor, run_blocking_if_large};

/// Maximum size of all logs as stored, in bytes. Above it, the oldest are removed.
const MAX_ALL_BYTES: u64 = 128 << 20;

/// Maximum size of all logs while the disk has no room for more. The space of removed logs is used for other data.
const MAX_ALL_BYTES_IF_SHORT: u64 = 16 << 20;

/// Number of attempts if a concurrent part of the same run was faster.
const MAX_ATTEMPTS: usize = 3;

/// Time after the end of a run for which the rest of its log is accepted. A later part comes from somebody who kept its
/// token.
const GRACE_AFTER_END: Duration = Duration::from_secs(5 * 60);

/// Duration of a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Appends a part to the log of a run.
///
/// # Errors
/// Fails if the job does not exist, or if the store cannot be written.
pub async fn append(app: &App, job: &JobId, report: LogReport) -> Result<LogReceipt, ReportError> {
    let found = app.core.store.read(|tx| {
        let Some(found) = jobs::get(tx, job)? else {
            return Ok(None);
        };
        let log = state_of(tx, &found)?;
        Ok(Some((found, log)))
    })?;
    let (found, mut log) = found.ok_or(ReportError::UnknownJob)?;
    let now = app.core.now();
    if found
        .finished_at
        .is_some_and(|at| now.since(at) > GRACE_AFTER_END)
    {
        return Ok(receipt(report.end(), false, 0));
    }
    let bytes = report.stored_size();
    if let Err(wait) = app.live.run_log_limiter.admit(job, bytes, now) {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        return Ok(receipt(log.received(), false, wait));
    }
    let is_kept = app.core.config.log_keep_days > 0 && app.core.store.has_room_for_logs();
    for _ in 0..MAX_ATTEMPTS {
        if report.end() <= log.received() {
            return Ok(receipt(log.received(), true, 0));
        }
        let lines = sanitize(app, &log, &report).await;
        let (end, tail) = (report.end(), lines.tail.clone());
        // A run that sends an offset far ahead keeps no later part from being stored.
        let received = end.min(
            log.received()
                .saturating_add(MAX_GAP + report.text.len() as u64),
        );
        if !is_kept || store_lines(app, job, log.stored, lines, received).await? {
            app.live.log_tails.append(job, &tail);
            app.core.store.publish(StoreChange::Step(job.clone()));
            return Ok(receipt(end, is_kept, 0));
        }
        log = app.core.store.read(|tx| state_of(tx, &found))?;
    }
    Ok(receipt(log.received(), true, 0))
}

fn receipt(offset: u64, stored: bool, retry_after_ms: u64) -> LogReceipt {
    LogReceipt {
        acknowledged: true,
        offset,
        stored,
        retry_after_ms,
    }
}

/// State of a log that an append continues.
struct LogState {
    stored: Option<RunLog>,
    continues: LineState,
}

impl LogState {
    /// Offset up to which the log was received.
    fn received(&self) -> u64 {
        self.stored.as_ref().map_or(0, |log| log.received)
    }
}

/// What a line depends on besides its text.
#[derive(Debug, Clone, Copy, Default)]
struct LineState {
    private_key: PrivateKeyTracker,
    /// Time of the line before.
    last_line_at: Timestamp,
    /// Number of marks of steps before the line.
    step_marks: u64,
}

/// State of the log of a job. A log begins when its run was reserved.
fn state_of(tx: &impl ReadableTx, job: &Job) -> StoreResult<LogState> {
    let stored = run_logs::get(tx, &job.id)?;
    let continues = match &stored {
        Some(log) => LineState {
            private_key: log.private_key,
            last_line_at: log.last_line_at,
            step_marks: log.step_marks,
        },
        None => LineState {
            last_line_at: job.reserved_at,
            ..LineState::default()
        },
    };
    Ok(LogState { stored, continues })
}

/// Lines that are ready to be stored and shown.
#[derive(Debug, Default)]
struct SanitizedLines {
    /// Lines with their times.
    text: String,
    /// Lines without times, colors and marks.
    tail: String,
    /// State after these lines.
    state: LineState,
}

/// Sanitizes what a report adds to a log.
async fn sanitize(app: &App, log: &LogState, report: &LogReport) -> SanitizedLines {
    let (received, now, before) = (log.received(), app.core.now(), log.continues);
    let known = usize::try_from(received.saturating_sub(report.offset)).unwrap_or(usize::MAX);
    let known = report.text.ceil_char_boundary(known);
    let missing = report.offset.saturating_sub(received);
    let redactor = app.secrets.redactor.clone();
    let new = report.text[known..].to_owned();
    run_blocking_if_large(new.len(), move || {
        let mut lines = sanitize_lines(&redactor, before, &new, now);
        if missing > 0 {
            let mark = run_log::format_line(before.last_line_at, &run_log::cut_mark(missing));
            lines.text.insert_str(0, &format!("{mark}\n"));
        }
        lines
    })
    .await
}

/// Redacts and sanitizes lines of a run. No line can forge a mark. A line gets the current time if it has none, or one
/// that cannot be true: before the line before, or in the future.
fn sanitize_lines(
    redactor: &Redactor,
    before: LineState,
    text: &str,
    now: Timestamp,
) -> SanitizedLines {
    let mut lines = LineRedactor::resume(redactor, before.private_key);
    let mut sanitized = SanitizedLines {
        state: before,
        ..SanitizedLines::default()
    };
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let (at, text) = run_log::parse_line(line);
        let line = lines.redact_output(text);
        let is_step =
            sanitized.state.step_marks < MAX_STEP_MARKS && run_log::is_step_mark(&line.plain);
        sanitized.state.step_marks += u64::from(is_step);
        let escaped = run_log::escape_marks(&line.plain);
        let shown = match (is_step, escaped == line.plain) {
            (true, _) => &line.plain,
            (false, true) => &line.styled,
            (false, false) => &escaped,
        };
        let last_line_at = sanitized.state.last_line_at;
        let at = at.filter(|at| (last_line_at..=now).contains(at));
        let at = at.unwrap_or(now.max(last_line_at));
        sanitized.state.last_line_at = at;
        sanitized.text.push_str(&run_log::format_line(at, shown));
        sanitized.text.push('\n');
        if !is_step {
            sanitized.tail.push_str(&escaped);
            sanitized.tail.push('\n');
        }
    }
    sanitized.state.private_key = lines.private_key();
    sanitized
}

/// Stores lines. Returns false if another part was stored meanwhile.
async fn store_lines(
    app: &App,
    job: &JobId,
    before: Option<RunLog>,
    lines: SanitizedLines,
    received: u64,
) -> StoreResult<bool> {
    let now = app.core.now();
    let (store, id) = (app.core.store.clone(), job.clone());
    let prepared: StoreResult<PreparedAppend> =
        run_blocking_if_large(2 * lines.text.len(), move || {
            let new = NewLines {
                text: &lines.text,
                received,
                private_key: lines.state.private_key,
                last_line_at: lines.state.last_line_at,
                step_marks: lines.state.step_marks,
                now,
            };
            store.read(|tx| run_logs::prepare(tx, &id, before, new))
        })
        .await;
    let (prepared, id) = (prepared?, job.clone());
    let append = move |tx: &store::WriteTx<'_>| run_logs::append(tx, &id, &prepared);
    app.core.store.write(append).await
}

/// Text of the log of a job from an offset on; `None` if none is kept. If older text than requested was cut, a mark
/// comes first, which no offset counts.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn read(tx: &impl ReadableTx, job: &JobId, offset: u64) -> StoreResult<Option<LogText>> {
    let Some(mut log) = run_logs::read(tx, job, offset)? else {
        return Ok(None);
    };
    let missing = log.log.start.saturating_sub(offset);
    if missing > 0 {
        let first = log.text.lines().next().unwrap_or_default();
        let at = run_log::parse_line(first).0.unwrap_or(log.log.updated_at);
        let mark = run_log::format_line(at, &run_log::cut_mark(log.log.start));
        log.text.insert_str(0, &format!("{mark}\n"));
    }
    Ok(Some(log))
}

/// Removes logs that are older than `LOG_KEEP_DAYS`, and the oldest logs if all together are too large.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub(crate) async fn remove_old(app: &App) -> StoreResult<()> {
    let kept = DAY * app.core.config.log_keep_days;
    let now = app.core.now().as_millis();
    let keep_since = now.saturating_sub(u64::try_from(kept.as_millis()).unwrap_or(u64::MAX));
    let keep_since = Timestamp::from_millis(keep_since);
    let max_bytes = match app.core.store.has_room_for_logs() {
        true => MAX_ALL_BYTES,
        false => MAX_ALL_BYTES_IF_SHORT,
    };
    let find = move |tx: &store::ReadTx| run_logs::removable(tx, keep_since, max_bytes);
    let removable = app.core.store.read_long(find).await?;
    let count = removable.len();
    for job in removable {
        // One commit each, so that no other write waits for long.
        let remove = app.core.store.write(move |tx| run_logs::remove(tx, &job));
        remove.await?;
    }
    if count > 0 {
        tracing::info!(count, "Removed old logs of runs.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn sanitized(text: &str) -> String {
        let redactor = Redactor::new(["the-secret-value"]);
        sanitize_lines(&redactor, LineState::default(), text, NOW).text
    }

    #[test]
    fn a_time_that_cannot_be_true_is_replaced_by_that_of_arrival() {
        let text = "1970-01-01T00:00:00.000Z a\n2027-01-15T07:59:00.000Z b\n2027-01-15T07:58:59.999Z c\n\
            2027-01-15T08:00:00.001Z d\n9999-12-30T00:00:00.000Z e\n2027-01-15T07:59:30.000Z f\n";
        let before = LineState {
            last_line_at: Timestamp::from_millis(NOW.as_millis() - 120_000),
            ..LineState::default()
        };
        let lines = sanitize_lines(&Redactor::default(), before, text, NOW);
        let expected = "2027-01-15T08:00:00.000Z a\n2027-01-15T08:00:00.000Z b\n2027-01-15T08:00:00.000Z c\n\
            2027-01-15T08:00:00.000Z d\n2027-01-15T08:00:00.000Z e\n2027-01-15T08:00:00.000Z f\n";
        assert_eq!(lines.text, expected);
        // Neither does the clock of the service go back in a log.
        let earlier = Timestamp::from_millis(NOW.as_millis() - 60_000);
        let next = sanitize_lines(&Redactor::default(), lines.state, "g\n", earlier);
        assert_eq!(next.text, "2027-01-15T08:00:00.000Z g\n");
        let plausible =
            "2027-01-15T07:58:30.000Z a\n2027-01-15T07:58:30.000Z b\n2027-01-15T08:00:00.000Z c\n";
        let lines = sanitize_lines(&Redactor::default(), before, plausible, NOW);
        assert_eq!(lines.text, plausible);
    }

    #[test]
    fn every_line_has_a_time_and_no_forged_mark() {
        for (line, expected) in [
            ("Cloning", "2027-01-15T08:00:00.000Z Cloning\n"),
            (
                "2027-01-15T07:59:59.123Z Cloning\n",
                "2027-01-15T07:59:59.123Z Cloning\n",
            ),
            (
                "2027-01-15T07:59:59.123Z ##[step] clone\n",
                "2027-01-15T07:59:59.123Z ##[step] clone\n",
            ),
            (
                "##[cut] 7 bytes",
                "2027-01-15T08:00:00.000Z ## [cut] 7 bytes\n",
            ),
            (
                "#\u{1b}[1m#[error] x",
                "2027-01-15T08:00:00.000Z ## [error] x\n",
            ),
            (
                "\u{1b}[31mred\u{1b}[0m \u{1b}[2J\u{7}\u{1b}]0;title\u{7}end\0",
                "2027-01-15T08:00:00.000Z \u{1b}[31mred\u{1b}[0m end\n",
            ),
        ] {
            assert_eq!(sanitized(line), expected, "{line:?}");
        }
    }

    #[test]
    fn redacts_secrets_also_behind_colors() {
        for line in [
            "a the-secret-value b",
            "a \u{1b}[31mthe-secret-value\u{1b}[0m b",
            "a the-\u{1b}[31msecret-value b",
            "a the-\u{200b}secret-value b",
        ] {
            let text = sanitized(line);
            assert!(text.contains("[redacted]"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn redacts_a_private_key_that_spans_parts() {
        let redactor = Redactor::default();
        // Too short to be redacted as a token.
        let body = "MIIEpAIBAA==";
        let first = sanitize_lines(
            &redactor,
            LineState::default(),
            &format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n"),
            NOW,
        );
        let second = sanitize_lines(&redactor, first.state, &format!("{body}\nend"), NOW);
        for text in [first.text, second.text] {
            assert!(!text.contains("MIIE"), "{text}");
        }
        let fresh = sanitize_lines(&redactor, LineState::default(), body, NOW);
        assert!(
            fresh.text.contains("MIIE"),
            "the state of the key is what redacts"
        );
    }

    #[test]
    fn bounds_marks_of_steps() {
        let forged = "##[step] x\n".repeat(MAX_STEP_MARKS as usize + 10);
        let text = sanitized(&forged);
        assert_eq!(
            text.matches("##[step] x\n").count(),
            MAX_STEP_MARKS as usize
        );
        assert_eq!(text.matches("## [step] x\n").count(), 10);
    }

    #[test]
    fn bounds_lines() {
        let text = sanitized(&"\u{1b}[1mx".repeat(100_000));
        assert!(text.len() < 5_000, "{}", text.len());
        assert!(!text.contains('\u{1b}'));
    }
}
