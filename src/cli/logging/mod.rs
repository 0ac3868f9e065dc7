//! Logging to standard error and to daily files, without secrets and invisible characters.

use std::io::{self, Write};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::fmt::{self, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal::has_colours;
use domain::sanitize;
use engine::clock::Clock;
use engine::config::{Config, LogFormat};
use vendors::http::Redactor;

mod daily_files;

use daily_files::{DailyLogFiles, MAX_FILE_BYTES};

/// Maximum number of lines queued for the log files. Further lines are dropped from the files. The queue is
/// allocated at startup.
const MAX_QUEUED_LINES: usize = 8_192;

/// Wrapper that sanitizes events before it passes them on.
#[derive(Clone)]
struct Sanitized<W> {
    to: W,
    redactor: Redactor,
    /// Whether events are formatted for a terminal with colors.
    is_styled: bool,
}

impl<'a, W> MakeWriter<'a> for Sanitized<W>
where
    W: MakeWriter<'a>,
{
    type Writer = SanitizingWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        SanitizingWriter {
            to: self.to.make_writer(),
            redactor: self.redactor.clone(),
            is_styled: self.is_styled,
        }
    }
}

/// Sanitizing writer. A subscriber writes each event whole, so no secret is split between two writes.
struct SanitizingWriter<W> {
    to: W,
    redactor: Redactor,
    is_styled: bool,
}

impl<W: Write> Write for SanitizingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        let line = match self.is_styled {
            true => self
                .redactor
                .sanitize_with(&line, sanitize::styled_log_event),
            false => self.redactor.sanitize(&line),
        };
        self.to.write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Starts logging at this level, to standard error and to the configured files. Lines are written to files
/// only while the returned guard exists.
///
/// # Errors
/// If the level is invalid or the log folder cannot be written.
pub(super) fn start(
    config: &Config,
    level: &str,
    redactor: &Redactor,
) -> anyhow::Result<Option<WorkerGuard>> {
    let is_styled = has_colours(&io::stderr());
    let sanitized_stderr = Sanitized {
        to: io::stderr,
        redactor: redactor.clone(),
        is_styled,
    };
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_ansi(is_styled)
        .with_writer(sanitized_stderr);
    let to_stderr = match config.log_format {
        LogFormat::Json => as_json(to_stderr).boxed(),
        LogFormat::Text => to_stderr.with_target(false).boxed(),
    };
    let (files, guard) = files(config)?.unzip();
    let to_files = files.map(|to| {
        as_json(tracing_subscriber::fmt::layer()).with_writer(Sanitized {
            to,
            redactor: redactor.clone(),
            is_styled: false,
        })
    });
    tracing_subscriber::registry()
        .with(level.parse::<Targets>()?)
        .with(to_stderr)
        .with(to_files)
        .init();
    Ok(guard)
}

/// Configures JSON lines: one flat object per event, with its spans as a list, outermost first.
fn as_json<S, N, W>(layer: fmt::Layer<S, N, fmt::format::Format, W>) -> JsonLayer<S, W>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    layer.json().flatten_event(true).with_current_span(false)
}

type JsonLayer<S, W> = fmt::Layer<S, JsonFields, fmt::format::Format<fmt::format::Json>, W>;

/// Opens the log files. Returns `None` if they are switched off.
fn files(config: &Config) -> anyhow::Result<Option<(NonBlocking, WorkerGuard)>> {
    if config.log_keep_days == 0 {
        return Ok(None);
    }
    let dir = config.data_dir.join("logs");
    let now = || Clock::System.now();
    let files = DailyLogFiles::start(&dir, config.log_keep_days, MAX_FILE_BYTES, now)?;
    let lines = NonBlockingBuilder::default().buffered_lines_limit(MAX_QUEUED_LINES);
    Ok(Some(lines.finish(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_secrets() {
        let mut buffer = Vec::new();
        let redactor = Redactor::new(["topsecret-value"]);
        let mut writer = SanitizingWriter {
            to: &mut buffer,
            redactor,
            is_styled: false,
        };
        writer.write_all(b"calling with topsecret-value\n").unwrap();
        let line = String::from_utf8(buffer).unwrap();
        assert!(
            line.starts_with("calling with ") && !line.contains("topsecret"),
            "{line}"
        );
    }

    /// JSON escapes quotes and line breaks; nested JSON escapes them repeatedly.
    #[test]
    fn redacts_escaped_secrets() {
        let pem = format!(
            "-----BEGIN {0} KEY-----\nMIIEsecretsecret\nbodybodybody\n-----END {0} KEY-----\n",
            "PRIVATE"
        );
        let quoted = "pass\"word\nof two\tlines\\here";
        let redactor = Redactor::new([pem.as_str(), quoted]);
        let buffer = Buffer::default();
        let to = Sanitized {
            to: buffer.clone(),
            redactor,
            is_styled: false,
        };
        let layer = as_json(tracing_subscriber::fmt::layer()).with_writer(to);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for secret in [pem.as_str(), quoted] {
                let span = tracing::info_span!("request", secret);
                let nested = serde_json::json!({ "value": secret }).to_string();
                span.in_scope(|| {
                    tracing::info!(error = %secret, "displayed: {secret}");
                    tracing::info!(error = ?secret, "debugged: {secret:?}");
                    tracing::info!(body = %nested, "nested");
                    tracing::info!(body = ?nested, "nested twice");
                });
            }
        });
        let lines = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert_eq!(lines.lines().count(), 8);
        for part in ["secretsecret", "bodybody", "pass", "word", "of two", "here"] {
            assert!(!lines.contains(part), "{part} in {lines}");
        }
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["spans"][0]["name"], "request", "{line}");
            assert!(line["message"].is_string(), "{line}");
        }
    }

    #[test]
    fn removes_invisible_characters_but_keeps_own_colors() {
        let buffer = Buffer::default();
        let to = Sanitized {
            to: buffer.clone(),
            redactor: Redactor::new(["topsecret-value"]),
            is_styled: true,
        };
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(true)
            .with_writer(to);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let hostile = "a\u{202e}b\u{1b}[8mc\u{9b}31m tops\u{200b}ecret-value";
            tracing::info!(value = %hostile, "{hostile}");
        });
        let line = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert!(line.contains("\u{1b}[32m INFO\u{1b}[0m"), "{line:?}");
        for gone in ["\u{202e}", "\u{200b}", "\u{9b}", "\u{1b}[8m", "topsecret"] {
            assert!(!line.contains(gone), "{gone:?} in {line:?}");
        }
    }

    /// Shared buffer that collects what is written to it.
    #[derive(Clone, Default)]
    struct Buffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Buffer {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }
}
