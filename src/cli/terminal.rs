//! Output on terminals.

use std::io::IsTerminal;

use engine::config;

/// Whether to print colors: only on a terminal, and not if `NO_COLOR` is set (no-color.org).
pub(super) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && config::allows_colours()
}

/// Puts untrusted text on one line and removes control characters, so that it cannot control the terminal.
pub(super) fn sanitize_for_terminal(text: &str) -> String {
    let printable = |c: char| match c {
        '\n' | '\t' => Some(' '),
        control if control.is_control() => None,
        other => Some(other),
    };
    text.trim().chars().filter_map(printable).collect()
}
