//! Lines of logs.

use std::borrow::Cow;

use super::invisible::{is_visible, strip_invisible, strip_unless};
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

/// Styles and colors of the service's own log on a terminal.
const STYLES: [&str; 10] = [
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[2m",
    "\u{1b}[3m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[34m",
    "\u{1b}[35m",
    "\u{1b}[36m",
];

/// Removes invisible characters from a log event that was formatted for a terminal. Keeps the styles of the
/// formatter. Those in untrusted values cannot be told apart and stay too; they change no more than the color.
pub fn styled_log_event(event: &str) -> Cow<'_, str> {
    let mut kept = String::with_capacity(event.len());
    let mut from = 0;
    for (at, _) in event.match_indices('\u{1b}') {
        let found = STYLES.iter().find(|style| event[at..].starts_with(**style));
        if let Some(style) = found {
            kept.push_str(&strip_invisible(&event[from..at]));
            kept.push_str(style);
            from = at + style.len();
        }
    }
    kept.push_str(&strip_invisible(&event[from..]));
    Cow::Owned(kept)
}
