//! Effects: changes of the outside world, as data.
//!
//! Effects are stored in the same commit as the state that caused them. The outbox worker performs
//! them at least once, so each effect must be idempotent:
//!
//! - *start run*: The dispatch id is part of the run's name, or is the machine's name. An existing
//!   run with this id is adopted. A second run is started only when the host is known not to have
//!   the first.
//! - *end run*: Ending an ended run succeeds.
//! - *destroy machine*: A machine that no longer exists counts as destroyed.
//! - *move marker*: The marker is set, not toggled. Removing an absent label succeeds.
//! - *ticket comment*: In Linear, the comment id is derived from the effect id, and an existing
//!   comment counts as posted. In Jira, the comment carries the effect id. It is looked up before a
//!   retry, when an earlier attempt can no longer arrive.
//! - *pull request comment*: It carries a hidden marker with the effect id, which is looked up
//!   before a retry in the same way.
//! - *comment about waiting*: As a ticket comment, with an id derived from its name. Removing a
//!   missing comment succeeds.
//! - *draft flag*: The flag is set, not toggled.
//! - *update branch*: It names the expected head, which the update moves.
//! - *merge*: The pull request is read first. A merge, arming or queueing names the head commit, so
//!   that a repeat finds what the first attempt did.
//! - *stop merge*: Stopping what does not merge succeeds.
//! - *delete branch*: Only a branch whose head is the merged head is deleted. Deleting a missing
//!   branch succeeds.
//! - *log excerpt*: The comment that it is added to is replaced as a whole.
//! - *rerun of failed jobs*: The attempt of the workflow run is read first. A later one counts as the rerun.
//! - *sync workflows*: The repository and the sync branch are read first, and only missing changes
//!   are written.
//! - *chat*: A message whose response was lost may be posted twice. Nothing depends on it.

mod description;

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, JobId, Repo, TeamKey};
use super::issue::{IssueRef, RelatedIssues};
use super::job::{Job, RunHandle};
use super::machine::{HostKind, MachineRef, SessionSpec};
use super::mapping::ModelProvider;
use super::merge_policy::MergeGrant;
use super::plan::PostedComment;
use super::run_options::RunOptions;
use super::stage::Stage;

/// Change of the outside world, performed by the outbox worker.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum Effect {
    /// Starts the run of a job.
    StartRun {
        /// Job whose run starts.
        job: JobId,
        /// Issue that the run is for.
        issue: IssueRef,
        /// Inputs of the run that the job does not hold.
        #[serde(rename = "brief")]
        spec: Box<RunSpec>,
    },
    /// Cancels a run.
    #[serde(rename = "end-run")]
    StopRun {
        /// Job whose run ends.
        job: JobId,
        /// Repository that the run belongs to.
        repo: Repo,
        /// Run to cancel. `None` if the run was dispatched but not found yet; it is then looked up
        /// by its name.
        #[serde(default)]
        run: Option<RunHandle>,
    },
    /// Destroys the machine of a session.
    DestroyMachine {
        /// Machine to destroy.
        machine: MachineRef,
        /// Job that the machine was created for, if any.
        job: Option<JobId>,
        /// Ticket whose earlier effects are performed first. Among them is the log excerpt, which
        /// is read while the machine still exists.
        issue: Option<IssueRef>,
    },
    /// Sets the marker of an issue: labels in Linear, the status field in Jira.
    #[serde(rename = "move-marker")]
    SetMarker {
        /// Issue to change.
        issue: IssueRef,
        /// Stage that the marker shows.
        stage: Stage,
    },
    /// Posts a comment on a ticket.
    TicketComment {
        /// Issue to comment on.
        issue: IssueRef,
        /// Markdown text of the comment.
        body: String,
    },
    /// Posts, updates or removes the comment that states why a ticket waits.
    WaitingComment {
        /// Issue to comment on.
        issue: IssueRef,
        /// Name of the comment, unique per wait of the issue.
        name: String,
        /// Markdown text of the comment. `None` removes the comment.
        body: Option<String>,
    },
    /// Adds the end of a run's log to the comment about its failure, after the run has ended.
    LogExcerpt {
        /// Issue with the failure comment.
        issue: IssueRef,
        /// Repository that the run belongs to.
        repo: Repo,
        /// Run whose log is read.
        run: RunHandle,
        /// Label above the excerpt.
        label: LogLabel,
        /// Failure comment that the excerpt is added to. Set by the commit that stores both
        /// effects. Without it, the excerpt is posted as a separate comment.
        #[serde(default)]
        comment: Option<PostedComment>,
    },
    /// Posts a comment on a pull request.
    PullComment {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
        /// Relation to earlier comments.
        style: PullCommentStyle,
        /// Markdown text of the comment.
        body: String,
    },
    /// Sets the draft flag of a pull request.
    SetDraft {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
        /// State to set.
        draft: DraftState,
    },
    /// Makes the host merge the base branch into the branch of a pull request.
    UpdateBranch {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
        /// Head of the branch. One that has moved is not updated.
        expected_head: String,
    },
    /// Merges a pull request by policy, or looks up who has merged it.
    MergePull {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
        /// Head that is merged, and how.
        grant: Box<MergeGrant>,
    },
    /// Stops what merges a pull request at its host: auto-merge or the merge queue.
    DisarmMerge {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
    },
    /// Deletes the branch of a merged pull request.
    DeleteBranch {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
    },
    /// Runs the failed jobs of a workflow run on a pull request's head commit again.
    RerunFailedJobs {
        /// Repository of the pull request.
        repo: Repo,
        /// Number of the pull request.
        number: u64,
        /// SHA of the head commit.
        head: String,
        /// Id of the workflow run.
        run: u64,
    },
    /// Posts a chat notification.
    Chat {
        /// Message to post.
        message: ChatMessage,
    },
    /// Opens or updates the pull request that brings the workflow files of a repository up to date.
    SyncWorkflows {
        /// Mapping that the sync was requested for.
        team: TeamKey,
        /// Repository to sync.
        repo: Repo,
    },
}

/// Inputs of a run that its job does not hold. Stored only as long as the effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    /// File name of the workflow to dispatch.
    pub workflow_file: String,
    /// Branch whose copy of the workflow runs: the repository's default branch.
    pub git_ref: String,
    /// Description of the issue.
    pub description: String,
    /// Issues related to the issue.
    pub related: RelatedIssues,
    /// Model provider of the run.
    pub provider: ModelProvider,
    /// Number of the open pull request that a gap-fill or follow-up run works on.
    pub pr_number: Option<u64>,
    /// Instruction of an operator.
    pub instruction: Option<String>,
    /// Review findings to resolve, as text.
    pub findings: Option<String>,
    /// Container image that the run is to use.
    pub runner_image: Option<String>,
    /// Whether the image that the repository requests could not be read from the host.
    #[serde(rename = "imageUnread", default)]
    pub image_lookup_failed: bool,
    /// Maximum number of model turns per implement pass.
    pub max_turns: Option<u32>,
    /// Maximum number of implement and review cycles.
    pub max_iterations: Option<u32>,
    /// Time budget of the CI job, in minutes.
    pub job_timeout_minutes: Option<u32>,
    /// Settings of the session machine. `None` for CI runs.
    #[serde(default)]
    pub session: Option<SessionSpec>,
    /// Whether the run is a shadow run, which changes nothing outside its branch.
    #[serde(default)]
    pub shadow: bool,
    /// Labels of the GitHub Actions runner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_on: Vec<String>,
    /// Agent and model.
    #[serde(default)]
    pub options: RunOptions,
}

/// Relation of a pull request comment to earlier comments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "style", rename_all = "kebab-case")]
pub enum PullCommentStyle {
    /// Separate comment.
    New,
    /// The only comment of this name on the pull request. It is created, or updated in place.
    #[serde(rename = "pinned")]
    Sticky {
        /// Name of the comment, part of its hidden marker.
        name: String,
    },
}

/// Label of a log excerpt. See docs/behaviour.md#ticket-comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLabel {
    /// Run in a local container failed.
    ContainerFailed,
    /// Run in a local container exceeded its time budget.
    ContainerTimeout,
    /// Run in a machine exceeded its time budget.
    MachineTimeout,
    /// Review after the push left blocking findings open.
    PostPushReviewNotApproved,
    /// Run ended without opening a pull request.
    PrNotFound,
    /// Run failed in CI or in a machine.
    SessionFailed,
}

impl LogLabel {
    /// Returns the label as shown in the comment.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLabel::ContainerFailed => "container_failed",
            LogLabel::ContainerTimeout => "container_timeout",
            LogLabel::MachineTimeout => "machine_timeout",
            LogLabel::PostPushReviewNotApproved => "post_push_review_not_approved",
            LogLabel::PrNotFound => "pr_not_found",
            LogLabel::SessionFailed => "session_failed",
        }
    }
}

/// Draft flag of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DraftState {
    /// Draft: not ready to merge.
    Draft,
    /// Ready for review.
    Ready,
}

/// Chat notification, independent of the vendor. All text is untrusted until a vendor client
/// escapes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatMessage {
    /// First line of the message.
    pub title: String,
    /// Target of the title. Only web addresses become links.
    #[serde(default)]
    pub title_url: Option<String>,
    /// Name and value pairs.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    /// Paragraph below the facts. May be empty.
    #[serde(default)]
    pub text: String,
}

impl Effect {
    /// Returns the issue whose trigger the effect removes, if it does.
    pub fn removes_trigger_of(&self) -> Option<&IssueId> {
        match self {
            Effect::SetMarker { issue, stage } if stage.removes_trigger() => Some(&issue.id),
            _ => None,
        }
    }

    /// Returns whether the effect shows on an issue that its plan is complete.
    pub fn shows_plan(&self) -> bool {
        matches!(self, Effect::SetMarker { stage, .. } if stage.has_plan())
    }

    /// Returns the queue key. Effects with the same queue key are performed strictly in order,
    /// effects with different keys concurrently.
    pub fn queue_key(&self) -> String {
        match self {
            // Runs on an open pull request and shadow runs change nothing on the ticket. They share
            // no queue with the ticket's effects, so that neither waits for the other.
            Effect::StartRun { job, spec, .. } if spec.pr_number.is_some() || spec.shadow => {
                run_queue_key(job)
            }
            Effect::StartRun { issue, .. }
            | Effect::SetMarker { issue, .. }
            | Effect::TicketComment { issue, .. } => ticket_queue_key(issue),
            // A log may be late by minutes. It shares a queue with the machine, which is destroyed after
            // its log was read.
            Effect::LogExcerpt { repo, run, .. } => cleanup_queue_key_of(repo, run),
            // A notice delays no effect that the next run of the ticket waits for.
            Effect::WaitingComment { issue, .. } => format!("waiting:{}", issue.id),
            Effect::PullComment { repo, number, .. }
            | Effect::SetDraft { repo, number, .. }
            | Effect::UpdateBranch { repo, number, .. }
            | Effect::MergePull { repo, number, .. }
            | Effect::DisarmMerge { repo, number }
            | Effect::DeleteBranch { repo, number }
            | Effect::RerunFailedJobs { repo, number, .. } => pull_queue_key(repo, *number),
            Effect::StopRun { job, .. } => run_queue_key(job),
            Effect::DestroyMachine {
                machine,
                issue: Some(_),
                ..
            } => cleanup_queue_key(machine.host, &machine.id),
            Effect::DestroyMachine { machine, .. } => {
                format!("machine:{}:{}", machine.host.as_str(), machine.id)
            }
            Effect::Chat { .. } => "chat".to_owned(),
            // One queue per repository, for all of its mappings. Repository names ignore case.
            Effect::SyncWorkflows { repo, .. } => format!("sync:{repo}").to_lowercase(),
        }
    }

    /// Returns the queue key whose earlier effects are performed before this one. Effects of that
    /// queue do not wait for this one.
    pub fn predecessor_queue_key(&self) -> Option<String> {
        match self {
            Effect::LogExcerpt { issue, .. }
            | Effect::DestroyMachine {
                issue: Some(issue), ..
            } => Some(ticket_queue_key(issue)),
            _ => None,
        }
    }

    /// Returns the job and the issue of the effect, as far as it has them.
    pub fn job_and_issue(&self) -> (Option<&JobId>, Option<&IssueRef>) {
        match self {
            Effect::StartRun { job, issue, .. } => (Some(job), Some(issue)),
            Effect::StopRun { job, .. } => (Some(job), None),
            Effect::DestroyMachine { job, issue, .. } => (job.as_ref(), issue.as_ref()),
            Effect::SetMarker { issue, .. }
            | Effect::TicketComment { issue, .. }
            | Effect::WaitingComment { issue, .. }
            | Effect::LogExcerpt { issue, .. } => (None, Some(issue)),
            Effect::PullComment { .. }
            | Effect::SetDraft { .. }
            | Effect::UpdateBranch { .. }
            | Effect::MergePull { .. }
            | Effect::DisarmMerge { .. }
            | Effect::DeleteBranch { .. }
            | Effect::RerunFailedJobs { .. }
            | Effect::Chat { .. }
            | Effect::SyncWorkflows { .. } => (None, None),
        }
    }

    /// Returns the name of the effect for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Effect::StartRun { .. } => "start run",
            Effect::StopRun { .. } => "end run",
            Effect::DestroyMachine { .. } => "destroy machine",
            Effect::SetMarker { .. } => "move marker",
            Effect::TicketComment { .. } => "comment on ticket",
            Effect::WaitingComment { .. } => "comment about waiting on ticket",
            Effect::LogExcerpt { .. } => "log excerpt on ticket",
            Effect::PullComment { .. } => "comment on pull request",
            Effect::SetDraft { .. } => "set draft flag",
            Effect::UpdateBranch { .. } => "update branch",
            Effect::MergePull { .. } => "merge pull request",
            Effect::DisarmMerge { .. } => "stop merge of pull request",
            Effect::DeleteBranch { .. } => "delete branch",
            Effect::RerunFailedJobs { .. } => "rerun of failed jobs",
            Effect::Chat { .. } => "chat message",
            Effect::SyncWorkflows { .. } => "sync workflows",
        }
    }
}

/// Returns the queue key of a run's start and cancellation.
fn run_queue_key(job: &JobId) -> String {
    format!("run:{job}")
}

/// Returns the queue key of the effects on a pull request.
pub fn pull_queue_key(repo: &Repo, number: u64) -> String {
    format!("pull:{repo}#{number}")
}

/// Returns the queue keys of the effects on the run of a job: start, cancellation, and what follows
/// its end.
pub fn queue_keys_of_run(job: &Job) -> Vec<String> {
    let cleanup = job.run.iter();
    let cleanup = cleanup.map(|run| cleanup_queue_key_of(&job.repo, run));
    { cleanup }.chain([run_queue_key(&job.id)]).collect()
}

fn cleanup_queue_key_of(repo: &Repo, run: &RunHandle) -> String {
    match run {
        RunHandle::Ci { id, .. } => format!("cleanup:{repo}#{id}"),
        RunHandle::Machine { id, .. } => cleanup_queue_key(HostKind::Vm, id),
        RunHandle::Container { id } => cleanup_queue_key(HostKind::Local, id),
        RunHandle::KubernetesJob { id } => cleanup_queue_key(HostKind::Kubernetes, id),
    }
}

/// Returns the queue key of the effects after the end of a run in a machine: log excerpt, then
/// destruction.
fn cleanup_queue_key(host: HostKind, id: &str) -> String {
    format!("cleanup:{}:{id}", host.as_str())
}

/// Returns the queue key of the effects that the next run of a ticket waits for: markers and
/// comments.
pub fn ticket_queue_key(issue: &IssueRef) -> String {
    format!("ticket:{}", issue.id)
}
