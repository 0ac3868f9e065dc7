//! What people read on a terminal.

use std::io::IsTerminal;

use crate::config;

/// Whether to print in colours: on a terminal, unless `NO_COLOR` is set. (no-color.org)
pub(super) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && config::allows_colours()
}

/// A text from elsewhere on one line. It must not steer the terminal that it is shown on.
pub(super) fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().map(plain).collect()
}
