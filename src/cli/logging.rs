//! Logs: to standard error and to daily files, never with a secret in them.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::LogFormat;
use crate::wire::Redactor;

/// How many daily log files are kept?
const KEPT_FILES: usize = 14;

/// What a log line is passed through before anybody can read it.
#[derive(Clone)]
struct Redacted<W> {
    to: W,
    redactor: Redactor,
}

impl<'a, W> MakeWriter<'a> for Redacted<W>
where
    W: MakeWriter<'a>,
{
    type Writer = RedactedWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactedWriter {
            to: self.to.make_writer(),
            redactor: self.redactor.clone(),
        }
    }
}

/// A subscriber writes each event whole, so no secret is split between two writes.
struct RedactedWriter<W> {
    to: W,
    redactor: Redactor,
}

impl<W: Write> Write for RedactedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        self.to.write_all(self.redactor.redact(&line).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Starts logging; the guard must live as long as the process logs to its files.
///
/// # Errors
/// When the log folder cannot be written.
pub fn start(
    level: &str,
    format: LogFormat,
    dir: &Path,
    redactor: &Redactor,
) -> anyhow::Result<WorkerGuard> {
    std::fs::create_dir_all(dir)?;
    let files = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("agent-implement")
        .filename_suffix("log")
        .max_log_files(KEPT_FILES)
        .build(dir)?;
    let (files, guard) = tracing_appender::non_blocking(files);
    let redacted_files = Redacted {
        to: files,
        redactor: redactor.clone(),
    };
    let redacted_stderr = Redacted {
        to: io::stderr,
        redactor: redactor.clone(),
    };
    let to_file = tracing_subscriber::fmt::layer()
        .json()
        .with_writer(redacted_files);
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(redacted_stderr);
    let to_stderr = match format {
        LogFormat::Json => to_stderr.json().boxed(),
        LogFormat::Text => to_stderr.with_target(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(EnvFilter::try_new(level)?)
        .with(to_stderr)
        .with(to_file)
        .init();
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_passes_into_a_line() {
        let mut kept = Vec::new();
        let redactor = Redactor::new(["topsecret-value"]);
        let mut writer = RedactedWriter {
            to: &mut kept,
            redactor,
        };
        writer.write_all(b"calling with topsecret-value\n").unwrap();
        let line = String::from_utf8(kept).unwrap();
        assert!(
            line.starts_with("calling with ") && !line.contains("topsecret"),
            "{line}"
        );
    }
}
