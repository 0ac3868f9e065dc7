//! `agent-implement man`: manual pages, one per command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

use super::CommandLine;
use super::terminal::print_bytes;

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write the pages of all commands to this folder instead (agent-implement.1, agent-implement-serve.1,
    /// ...). The folder is created if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints the main page, or writes all pages to a folder.
pub(super) fn man(arguments: &ManArgs) -> anyhow::Result<ExitCode> {
    let command = CommandLine::command().disable_help_subcommand(true);
    let Some(dir) = &arguments.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        print_bytes(&page);
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .with_context(|| format!("writing the manual pages to {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
