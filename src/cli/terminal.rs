//! Output on terminals.

use std::io::IsTerminal;

use engine::config;

/// Whether to print colors: only on a terminal, and not if `NO_COLOR` is set (no-color.org).
pub(super) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && config::allows_colours()
}
