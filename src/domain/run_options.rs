//! Options of a run that have no workflow input of their own.
//!
//! They travel as one JSON object in the input `options`, because GitHub accepts 25 inputs at most.
//! Unknown fields are ignored, so that an older program accepts the dispatch of a newer service.

use serde::{Deserialize, Serialize};

use super::job::JobKind;
use super::ticket_context::TicketContext;

/// Task of an automatic run on an open pull request, other than feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullRequestTask {
    /// Repairs what makes checks fail.
    CiFix,
    /// Merges the base branch into the branch and resolves the conflicts.
    Conflict,
}

impl PullRequestTask {
    /// Returns the task of a kind of run.
    pub fn of(kind: JobKind) -> Option<Self> {
        match kind {
            JobKind::CiFix => Some(PullRequestTask::CiFix),
            JobKind::Conflict => Some(PullRequestTask::Conflict),
            JobKind::Planning | JobKind::Implementation | JobKind::GapFill | JobKind::FollowUp => {
                None
            }
        }
    }
}

/// Options of a run. An absent field keeps the default of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunOptions {
    /// Agent program, in place of the one that the workflow names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Task on the open pull request. `None` for feedback and instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<PullRequestTask>,
    /// Model of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Plan posted on the ticket, for a run that cannot fetch it from the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Whether the agent may not ask people questions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_not_ask: bool,
    /// What people wrote on the ticket, for a run that cannot fetch it from the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Box<TicketContext>>,
    /// SHA-256 of the program, in lower-case hexadecimal. A run without the program in its image fetches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_sha256: Option<String>,
    /// Address of the program, in place of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_url: Option<String>,
}

impl RunOptions {
    /// Returns whether a run whose image contains the program can do without these options.
    pub fn only_name_the_program(&self) -> bool {
        let Self {
            agent,
            task,
            model,
            plan,
            may_not_ask: _,
            context,
            program_sha256: _,
            program_url: _,
        } = self;
        agent.is_none() && task.is_none() && model.is_none() && plan.is_none() && context.is_none()
    }

    /// Returns the value of the input; `None` if no option is set.
    pub(crate) fn to_input(&self) -> Option<String> {
        (*self != Self::default()).then(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Parses the value of the input; `None` if it is not valid.
    pub(crate) fn from_input(text: &str) -> Option<Self> {
        serde_json::from_slice(text.as_bytes()).ok()
    }
}
