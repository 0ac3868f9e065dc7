//! `agent-implement completions`: shell completion scripts.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};

use super::{CommandLine, PROGRAM_NAME};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// Shell to print the script for.
    #[arg(value_enum)]
    shell: Shell,
}

/// Supported shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completion script of a shell.
pub(super) fn completions(arguments: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut command = visible_command();
    let mut script = Vec::new();
    match arguments.shell {
        Shell::Bash => generate(Bash, &mut command, PROGRAM_NAME, &mut script),
        Shell::Zsh => generate(Zsh, &mut command, PROGRAM_NAME, &mut script),
        Shell::Fish => generate(Fish, &mut command, PROGRAM_NAME, &mut script),
    }
    let mut script = String::from_utf8(script)?;
    if arguments.shell == Shell::Bash {
        script = fix_bash_function_names(&script);
    }
    print!("{script}");
    Ok(ExitCode::SUCCESS)
}

/// Works around a bug of clap_complete 4.6: its bash script escapes the dash of the program's name in two
/// ways, so that the flags of subcommands are not completed.
fn fix_bash_function_names(script: &str) -> String {
    let (wrong, right) = (
        PROGRAM_NAME.replace('-', "__subcmd__"),
        PROGRAM_NAME.replace('-', "__"),
    );
    script.replace(&wrong, &right)
}

/// Command line without hidden commands and flags. The generators would offer them, too.
fn visible_command() -> Command {
    without_hidden(&CommandLine::command()).version(env!("CARGO_PKG_VERSION"))
}

/// Copy of a command with the flags and subcommands that its help shows.
fn without_hidden(command: &Command) -> Command {
    let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let subcommands = command.get_subcommands();
    let subcommands = subcommands.filter(|subcommand| !subcommand.is_hide_set());
    let mut visible = Command::new(command.get_name().to_owned())
        .args(flags.cloned())
        .subcommands(subcommands.map(without_hidden));
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    visible
}
