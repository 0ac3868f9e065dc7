//! Standard output. [`crate::console`] prints text that may contain secrets.

use std::io::Write;

/// Prints a line. A closed standard output is ignored.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
