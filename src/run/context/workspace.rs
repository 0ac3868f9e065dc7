//! Workspace: folders, git repository and processes of a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::child::running::{OutputStream, RunningChild};
use crate::child::{ChildEnv, ChildError, ChildExit, ChildSpec};
use crate::console::Console;
use crate::failure::RunFailure;
use crate::folders::{Folders, HOME};
use crate::git::Git;
use crate::git::staging::StagedTree;
use crate::home_template::HomeCopy;
use crate::orphan_processes::{self, OrphanProcesses};
use crate::programs::system_program;
use domain::sanitize;

/// Folders and git repository of a run, and the processes that work in them.
pub(crate) struct Workspace {
    /// Folders of the run.
    pub folders: Folders,
    /// Git repository of the run.
    pub git: Git,
    /// Mirror of the repository.
    pub mirror: Option<PathBuf>,
    /// Template of the home folder.
    pub home_template: Option<PathBuf>,
    /// Variables passed to every child.
    pub child_env: ChildEnv,
    /// Handling of orphan processes.
    pub orphan_processes: OrphanProcesses,
}

/// Exit code and last output line of a program.
#[derive(Debug)]
pub(crate) struct ProgramResult {
    /// Exit code.
    pub exit: ChildExit,
    /// Last line of the standard output.
    pub last_line: String,
}

impl Workspace {
    /// Begins to copy the template of the home folder.
    pub(crate) fn fill_home(&self) -> HomeCopy {
        HomeCopy::begin(self.home_template.as_deref(), self.folders.make(HOME))
    }

    /// Kills every process that the agent or a script left running, so that nothing changes the
    /// work tree or the run's folders concurrently.
    ///
    /// # Errors
    /// If processes survive.
    pub(crate) async fn kill_orphan_processes(&self) -> Result<(), RunFailure> {
        orphan_processes::kill_all(self.orphan_processes)
            .await
            .map_err(|count| {
                RunFailure::other(format!(
                    "cannot kill {count} process(es) left behind by the agent or a script"
                ))
            })
    }

    /// Kills orphan processes and stages the work tree.
    pub(crate) async fn stage_work_tree(&self) -> Result<StagedTree, RunFailure> {
        self.kill_orphan_processes().await?;
        self.git.stage_work_tree().await.map_err(RunFailure::other)
    }

    /// Runs a program of the repository in the work tree and logs its output. The last lines are
    /// kept in the console's log tail.
    pub(crate) async fn run_program(
        &self,
        console: &Console,
        command: &[String],
        input: Vec<u8>,
        deadline: Instant,
    ) -> Result<ProgramResult, ChildError> {
        let env = self.script_env().map_err(ChildError::Output)?;
        self.run_in(env, console, command, input, deadline).await
    }

    async fn run_in(
        &self,
        env: ChildEnv,
        console: &Console,
        command: &[String],
        input: Vec<u8>,
        deadline: Instant,
    ) -> Result<ProgramResult, ChildError> {
        let (program, args) = command.split_first().ok_or(ChildError::TimedOut)?;
        self.git.expect_changes();
        let spec = ChildSpec {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            dir: self.folders.work_tree(),
            env,
            input,
        };
        console.clear_tail();
        let mut running = RunningChild::start(&spec, sanitize::MAX_LINE_BYTES)?;
        let mut last_line = String::new();
        let read_output = async {
            while let Some(line) = running.next_line().await {
                console.log_child(&line.text);
                if line.stream == OutputStream::Stdout {
                    last_line = line.text;
                }
            }
        };
        let in_time = tokio::time::timeout_at(deadline, read_output).await;
        let exit = running.wait_or_kill(Duration::ZERO).await;
        match (in_time, exit) {
            (Ok(()), Some(exit)) => Ok(ProgramResult { exit, last_line }),
            _ => Err(ChildError::TimedOut),
        }
    }

    /// Runs a script of the repository with `bash -euo pipefail`. The script is read from a file, so
    /// that a command reading standard input does not consume it.
    ///
    /// # Errors
    /// A message with the script's name, its exit code and its last lines.
    pub(crate) async fn run_script(
        &self,
        console: &Console,
        name: &str,
        script: &str,
        deadline: Instant,
    ) -> Result<(), String> {
        self.run_script_with(console, name, script, &[], deadline)
            .await
    }

    /// Like [`Workspace::run_script`], with further variables.
    ///
    /// # Errors
    /// See [`Workspace::run_script`].
    pub(crate) async fn run_script_with(
        &self,
        console: &Console,
        name: &str,
        script: &str,
        variables: &[(&str, &Path)],
        deadline: Instant,
    ) -> Result<(), String> {
        let env = self.script_env().map(|env| {
            let variables = variables.iter();
            variables.fold(env, |env, (name, value)| env.with(name, value))
        });
        let env = env.map_err(|error| format!("{name}: {error}"))?;
        let file = self
            .folders
            .make("scripts")
            .map(|folder| folder.join("script.sh"))
            .and_then(|file| std::fs::write(&file, script).map(|()| file))
            .map_err(|error| format!("{name}: cannot write the script file: {error}"))?;
        let command = [
            system_program("bash").to_string_lossy().into_owned(),
            "-euo".to_owned(),
            "pipefail".to_owned(),
            file.to_string_lossy().into_owned(),
        ];
        let cause = match self
            .run_in(env, console, &command, Vec::new(), deadline)
            .await
        {
            Ok(result) if result.exit.success() => return Ok(()),
            Ok(result) => result.exit.to_string(),
            Err(error) => error.to_string(),
        };
        let message = format!("{name} failed: {cause}\n{}", console.tail());
        Err(message.trim_end().to_owned())
    }

    /// Returns the environment of repository scripts. It holds no credential.
    fn script_env(&self) -> std::io::Result<ChildEnv> {
        Ok(self
            .child_env
            .clone()
            .with("CI", "true")
            .with("HOME", self.folders.make(HOME)?)
            .with("TMPDIR", self.folders.make("tmp")?))
    }
}
