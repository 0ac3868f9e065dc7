//! Plain lines on standard output. Text that may contain a secret is printed by [`crate::console`].

use std::io::Write;

/// Prints a line. A closed standard output is ignored.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
