//! `agent-implement openapi`: OpenAPI description of the HTTP API.

use std::process::ExitCode;

use super::terminal::print_bytes;

/// Prints the OpenAPI document.
pub(super) fn openapi() -> anyhow::Result<ExitCode> {
    let document = server::document().map_err(anyhow::Error::msg)?;
    print_bytes(&document);
    println!();
    Ok(ExitCode::SUCCESS)
}
