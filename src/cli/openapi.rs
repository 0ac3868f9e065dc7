//! `agent-implement openapi`: the description of the API, for people and generators of clients.

use std::io::Write;
use std::process::ExitCode;

/// Prints the document.
pub fn openapi() -> anyhow::Result<ExitCode> {
    let document = server::document().map_err(anyhow::Error::msg)?;
    let mut out = std::io::stdout().lock();
    super::ignore_broken_pipe(out.write_all(&document).and_then(|()| writeln!(out)))
}
