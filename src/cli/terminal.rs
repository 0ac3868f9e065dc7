//! Output on terminals.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use engine::config;

/// Whether to print colors: only on a terminal, and not if `NO_COLOR` is set (no-color.org).
pub(super) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && config::allows_colours()
}

/// Prints a text. A closed pipe is ignored; any other failure ends the process.
pub(super) fn print(text: fmt::Arguments<'_>) {
    print_bytes(text.to_string().as_bytes());
}

/// Prints bytes like [`print()`].
pub(super) fn print_bytes(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("agent-implement: cannot write to the standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}
