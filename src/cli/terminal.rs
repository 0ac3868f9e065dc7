//! What people read on a terminal.

use std::io::IsTerminal;

use engine::config;

/// Whether to print in colours: on a terminal, unless `NO_COLOR` is set. (no-color.org)
pub(super) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && config::allows_colours()
}

/// A text from elsewhere on one line. It must not steer the terminal that it is shown on.
pub(super) fn sanitize_for_terminal(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\t' => Some(' '),
        hidden if hidden.is_control() => None,
        seen => Some(seen),
    };
    text.trim().chars().filter_map(plain).collect()
}
