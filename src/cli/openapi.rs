//! `agent-implement openapi`: OpenAPI description of the HTTP API.

use std::io::Write;
use std::process::ExitCode;

/// Prints the OpenAPI document.
pub(super) fn openapi() -> anyhow::Result<ExitCode> {
    let document = server::document().map_err(anyhow::Error::msg)?;
    let mut out = std::io::stdout().lock();
    super::ignore_broken_pipe(out.write_all(&document).and_then(|()| writeln!(out)))
}
