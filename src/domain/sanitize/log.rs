//! Lines of logs.

use std::borrow::Cow;

use super::invisible::{ESCAPE, is_visible, strip_unless};
use super::truncate::{ELLIPSIS, truncate};

/// Maximum length of a line of program output, in bytes.
pub const MAX_LINE_BYTES: usize = 4_096;

/// Maximum number of lines in a log tail.
pub(super) const MAX_TAIL_LINES: usize = 60;

/// Maximum size of a log tail, in bytes.
pub const MAX_TAIL_BYTES: usize = 6_000;

/// Maximum length of a line in a log tail, in bytes.
const MAX_TAIL_LINE_BYTES: usize = 1_000;

/// Returns a line of program output without invisible characters, truncated to 4,096 bytes.
pub fn log_line(line: &str) -> Cow<'_, str> {
    // Text before a carriage return would be overwritten on a terminal (progress bars).
    let line = line.trim_end_matches(['\r', '\n']);
    let line = line.rsplit('\r').next().unwrap_or(line);
    let line = strip_unless(line, |c| is_visible(c) || c == '\t');
    truncate(line, MAX_LINE_BYTES, ELLIPSIS)
}

/// Returns the last lines of a log: at most 60 lines and 6,000 bytes.
pub fn log_tail<'t>(lines: impl DoubleEndedIterator<Item = &'t str>) -> String {
    let mut bytes = 0;
    let mut kept: Vec<Cow<'_, str>> = lines
        .rev()
        .take(MAX_TAIL_LINES)
        .map(|line| truncate(log_line(line.trim_end()), MAX_TAIL_LINE_BYTES, ELLIPSIS))
        .take_while(|line| {
            bytes += line.len() + 1;
            bytes <= MAX_TAIL_BYTES
        })
        .collect();
    kept.reverse();
    kept.join("\n")
}

/// Removes invisible characters from a formatted log event. Keeps the escape character, which colors the
/// service's own log on a terminal: the formatter has escaped those of untrusted values.
pub fn log_event(event: &str) -> Cow<'_, str> {
    strip_unless(event, |c| {
        is_visible(c) || matches!(c, '\n' | '\t' | ESCAPE)
    })
}
