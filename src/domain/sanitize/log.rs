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
    let line = strip_unless(last_overwrite(line), is_kept);
    truncate(line, MAX_LINE_BYTES, ELLIPSIS)
}

/// Returns the text after the last carriage return. A terminal overwrites what is before it (progress bars).
fn last_overwrite(line: &str) -> &str {
    let line = line.trim_end_matches(['\r', '\n']);
    line.rsplit('\r').next().unwrap_or(line)
}

/// Whether a character stays in a line.
fn is_kept(c: char) -> bool {
    is_visible(c) || c == '\t'
}

/// Maximum length of a color sequence, in bytes.
const MAX_COLOR_BYTES: usize = 32;

/// Like [`log_line`], and keeps colors and other text attributes (SGR sequences), unless the line is too long with
/// them.
pub fn styled_log_line(line: &str) -> Cow<'_, str> {
    let plain = log_line(line);
    if !line.contains("\u{1b}[") {
        return plain;
    }
    let line = last_overwrite(line);
    let mut styled = String::with_capacity(line.len());
    let mut from = 0;
    for (at, _) in line.match_indices('\u{1b}') {
        if let Some(length) = color_sequence_len(&line.as_bytes()[at..]) {
            styled.push_str(&strip_unless(&line[from..at], is_kept));
            styled.push_str(&line[at..at + length]);
            from = at + length;
        }
    }
    styled.push_str(&strip_unless(&line[from..], is_kept));
    match styled.len() <= MAX_LINE_BYTES {
        true => Cow::Owned(styled),
        false => plain,
    }
}

/// Returns the length of the SGR sequence at the start of the text.
fn color_sequence_len(text: &[u8]) -> Option<usize> {
    let parameters = text.strip_prefix(b"\x1b[")?;
    let is_parameter = |byte: &u8| matches!(byte, b'0'..=b'9' | b';' | b':');
    let count = parameters
        .iter()
        .take_while(|byte| is_parameter(byte))
        .count();
    let length = count + "\u{1b}[m".len();
    (parameters.get(count) == Some(&b'm') && length <= MAX_COLOR_BYTES).then_some(length)
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
