//! `agent-implement completions`: what a shell completes of our command line.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use super::{CommandLine, PROGRAM_NAME};

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell that reads it.
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells that we complete for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script of a shell.
pub fn completions(arguments: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut command = shown();
    let mut script = Vec::new();
    match arguments.shell {
        Shell::Bash => generate(Bash, &mut command, PROGRAM_NAME, &mut script),
        Shell::Zsh => generate(Zsh, &mut command, PROGRAM_NAME, &mut script),
        Shell::Fish => generate(Fish, &mut command, PROGRAM_NAME, &mut script),
    }
    let mut script = String::from_utf8(script)?;
    if arguments.shell == Shell::Bash {
        script = mended(&script);
    }
    super::ignore_broken_pipe(io::stdout().lock().write_all(script.as_bytes()))
}

/// clap_complete 4.6 writes the dash of a program's name in two ways in one script for bash, which
/// then completes no command's flags.
fn mended(script: &str) -> String {
    let (here, there) = (
        PROGRAM_NAME.replace('-', "__subcmd__"),
        PROGRAM_NAME.replace('-', "__"),
    );
    script.replace(&here, &there)
}

/// The command line without what is hidden; the generators would offer that, too.
fn shown() -> Command {
    without_hidden(&CommandLine::command()).version(env!("CARGO_PKG_VERSION"))
}

/// A command with the flags and commands that its help shows.
fn without_hidden(whole: &Command) -> Command {
    let flags = whole.get_arguments().filter(|flag| !flag.is_hide_set());
    let own = whole.get_subcommands().filter(|own| !own.is_hide_set());
    let mut shown = Command::new(whole.get_name().to_owned())
        .args(flags.cloned())
        .subcommands(own.map(without_hidden));
    if let Some(about) = whole.get_about() {
        shown = shown.about(about.clone());
    }
    shown
}
