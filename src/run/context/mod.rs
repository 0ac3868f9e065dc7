//! Run context: services that steps use, and results that they leave for later steps.
//!
//! A function takes the parts that it uses. A step that uses most of them takes the whole context.

mod connections;
mod dispatch;
mod reporting;
mod results;
mod ticket;
mod time_limits;
mod workspace;

use serde_json::{Map, Value};

use crate::agent::Agent;
use crate::failure::RunFailure;
use crate::repo_config::RepoConfig;
pub(crate) use connections::Connections;
pub(crate) use dispatch::Dispatch;
pub(crate) use reporting::Reporting;
pub(crate) use results::{
    BaseMerge, Change, Checkout, Evidence, PreflightCheck, PreflightOutcome, Publication, Review,
    TreeReview,
};
pub(crate) use ticket::{EarlierWork, SavedAttachment, TicketMaterial};
pub(crate) use time_limits::{PUSH_RESERVE, TimeLimits};
pub(crate) use workspace::Workspace;

use domain::report::RunPhase;

/// Configuration, services and state that steps use.
pub(crate) struct RunContext {
    /// Facts of the dispatch.
    pub dispatch: Dispatch,
    /// Time limits and cancellation.
    pub limits: TimeLimits,
    /// Log, progress and session events.
    pub reporting: Reporting,
    /// Orchestrator and GitHub.
    pub connections: Connections,
    /// Folders, git repository and processes.
    pub workspace: Workspace,
    /// Agent of the run.
    pub agent: Agent,
    /// Configuration of the repository; empty until the clone.
    pub repo_config: RepoConfig,
    /// Outputs by step id.
    pub outputs: Map<String, Value>,
    /// What people wrote on the ticket; empty until the clone.
    pub ticket: TicketMaterial,
    /// Commits; `None` until the clone.
    pub checkout: Option<Checkout>,
    /// Change by the agent.
    pub change: Change,
    /// State of the review.
    pub review: Review,
    /// Output outside the workspace.
    pub publication: Publication,
}

impl RunContext {
    /// Returns the commits of the clone.
    ///
    /// # Errors
    /// If the repository is not cloned, which a custom pipeline can cause.
    pub(crate) fn checkout(&self) -> Result<&Checkout, RunFailure> {
        self.checkout.as_ref().ok_or_else(not_cloned)
    }

    /// Returns the commits of the clone, to be changed.
    ///
    /// # Errors
    /// See [`RunContext::checkout`].
    pub(crate) fn checkout_mut(&mut self) -> Result<&mut Checkout, RunFailure> {
        self.checkout.as_mut().ok_or_else(not_cloned)
    }

    /// Whether the agent may ask people a question: the service permits it, and nothing is pushed yet.
    pub(crate) fn may_ask(&self) -> bool {
        let config = &self.dispatch.config;
        let is_ticket_work = config.phase != RunPhase::GapAnalysis && config.pr_number.is_none();
        !config.options.may_not_ask && is_ticket_work && self.publication.url().is_none()
    }

    /// Whether an earlier attempt pushed this dispatch's commit.
    pub(crate) fn already_pushed(&self) -> bool {
        self.checkout
            .as_ref()
            .is_some_and(|checkout| checkout.already_pushed)
    }
}

fn not_cloned() -> RunFailure {
    RunFailure::other("the repository is not cloned. Add a clone step before this step.")
}

/// Outcome of a step that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepOutcome {
    /// Completed, with its outputs.
    Passed(Value),
    /// Nothing to do, with the reason.
    Skipped(&'static str),
}

impl StepOutcome {
    /// Adds the outputs of another part of the step. Its own outputs take precedence.
    pub(crate) fn with_outputs_of(self, part: StepOutcome) -> Self {
        match (self, part) {
            (
                StepOutcome::Passed(Value::Object(own)),
                StepOutcome::Passed(Value::Object(mut outputs)),
            ) => {
                outputs.extend(own);
                StepOutcome::Passed(Value::Object(outputs))
            }
            (outcome, _) => outcome,
        }
    }
}
