//! The steps of a run, one file each. A step gets the run, changes what was found, and says how it
//! went; what it reports and what comes after a failure is the executor's.

mod clone;
mod feedback_loop;
mod install;
mod post_push_review;
mod preflight;
mod push;
mod setup;
mod verify;

use std::time::Duration;

use tokio::time::Instant;

use super::run::{Failure, Run, StepOutcome};

/// What a step does. (spec: *Admin API*)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    Clone,
    Install,
    Setup,
    FeedbackLoop,
    Preflight,
    Push,
    Verify,
    PostPushReview,
}

/// Every type that a definition may name.
const KINDS: [(&str, StepKind); 8] = [
    ("clone", StepKind::Clone),
    ("install", StepKind::Install),
    ("setup", StepKind::Setup),
    ("feedback-loop", StepKind::FeedbackLoop),
    ("preflight", StepKind::Preflight),
    ("push", StepKind::Push),
    ("verify", StepKind::Verify),
    ("post-push-review", StepKind::PostPushReview),
];

impl StepKind {
    pub fn parse(name: &str) -> Option<Self> {
        KINDS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }

    pub fn as_str(self) -> &'static str {
        KINDS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| name)
    }

    /// The names, for a message.
    pub fn names() -> String {
        KINDS.map(|(name, _)| name).join(", ")
    }

    /// Whether the step has nothing to do once this dispatch's commit is on the branch.
    fn makes_the_change(self) -> bool {
        matches!(
            self,
            StepKind::Install | StepKind::Setup | StepKind::FeedbackLoop | StepKind::Preflight
        )
    }
}

/// Performs a step.
pub async fn perform(run: &mut Run, kind: StepKind) -> Result<StepOutcome, Failure> {
    if run.found.already_pushed && kind.makes_the_change() {
        return Ok(StepOutcome::Skipped(
            "an earlier attempt of this dispatch had pushed the change",
        ));
    }
    match kind {
        StepKind::Clone => clone::perform(run).await,
        StepKind::Install => install::perform(run).await,
        StepKind::Setup => setup::perform(run).await,
        StepKind::FeedbackLoop => feedback_loop::perform(run).await,
        StepKind::Preflight => preflight::perform(run).await,
        StepKind::Push => push::perform(run).await,
        StepKind::Verify => verify::perform(run).await,
        StepKind::PostPushReview => post_push_review::perform(run).await,
    }
}

/// Every word of a command line, for programs that take no shell.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a script of the repository in a shell that stops at the first thing that goes wrong. It
/// stands in a file, so that a command which reads its standard input does not eat the rest of it.
///
/// # Errors
/// What failed, how, and its last lines.
async fn own_script(run: &Run, what: &str, script: &str, timeout: Duration) -> Result<(), String> {
    let file = run
        .folders
        .make("scripts")
        .map(|folder| folder.join("script.sh"))
        .and_then(|file| std::fs::write(&file, script).map(|()| file))
        .map_err(|error| format!("{what}: writing it down: {error}"))?;
    let mut command = words("bash -euo pipefail");
    command.push(file.to_string_lossy().into_owned());
    let deadline = run.deadline.min(Instant::now() + timeout);
    let how = match run.script(&command, deadline).await {
        Ok(exit) if exit.success() => return Ok(()),
        Ok(exit) => exit.to_string(),
        Err(error) => error.to_string(),
    };
    let said = format!("{what} failed: {how}\n{}", run.console.tail());
    Err(said.trim_end().to_owned())
}
