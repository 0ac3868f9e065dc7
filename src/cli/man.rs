//! `agent-implement man`: the manual, a page for each command.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;

use super::CommandLine;

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write the page of every command into this folder instead: agent-implement.1, agent-implement-serve.1
    /// and so on. The folder is made where it is missing.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints the first page, or writes all of them.
pub fn man(arguments: &ManArgs) -> anyhow::Result<ExitCode> {
    let command = CommandLine::command().disable_help_subcommand(true);
    let Some(dir) = &arguments.dir else {
        return super::ignore_broken_pipe(Man::new(command).render(&mut io::stdout().lock()));
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .with_context(|| format!("writing the manual into {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
