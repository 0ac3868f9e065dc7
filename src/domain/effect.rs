//! One errand as data: something the outside must be told or made to do.
//!
//! Effects are stored in the same commit as the state that owes them and performed by
//! `flow/deliver` alone, at least once. That is only honest because each is idempotent:
//!
//! | effect | doing it twice is doing it once, because |
//! |---|---|
//! | start run | its dispatch id stands in the run's name (or is the machine's name): a run that carries it is adopted, and a second is started only when the host is known not to have the first |
//! | end run | ending an ended run is success |
//! | destroy machine | one that is gone is success |
//! | move marker | it is set, not toggled; taking off an absent label is success |
//! | ticket comment | on system A its id is made by us from the effect's id, and one that exists is success; on system B it carries the effect's id and is looked for before a retry, which waits until an earlier try can no longer arrive |
//! | pull request comment | it carries an invisible marker with the effect's id, looked for and waited for in the same way |
//! | comment about waiting | as a ticket comment, with an id made from its name; taking away one that is gone is success |
//! | draft flag | it is set, not toggled |
//! | log excerpt | the comment that it is added to is replaced as a whole |
//! | sync workflows | it looks what the repository and the sync branch hold, and writes only what is not there |
//! | chat | a message whose answer was lost may rarely come twice; nothing depends on it |

use serde::{Deserialize, Serialize};

use super::ids::{JobId, Repo, TeamKey};
use super::issue::{IssueRef, RelatedIssues};
use super::job::RunHandle;
use super::machine::{HostKind, MachineRef, SessionSpec};
use super::mapping::ModelProvider;
use super::plan::PostedComment;
use super::stage::Stage;

/// An errand.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum Effect {
    StartRun {
        job: JobId,
        issue: IssueRef,
        #[serde(rename = "brief")]
        spec: Box<RunSpec>,
    },
    #[serde(rename = "end-run")]
    StopRun {
        job: JobId,
        repo: Repo,
        /// None of a run that was dispatched and never seen: it is looked for by its name.
        #[serde(default)]
        run: Option<RunHandle>,
    },
    /// Takes a session's machine down.
    DestroyMachine {
        machine: MachineRef,
        /// The job it was made for, if there is one.
        job: Option<JobId>,
        /// The ticket whose effects go first, the log excerpt among them: it is read while the machine
        /// still exists.
        issue: Option<IssueRef>,
    },
    #[serde(rename = "move-marker")]
    SetMarker {
        issue: IssueRef,
        stage: Stage,
    },
    TicketComment {
        issue: IssueRef,
        body: String,
    },
    /// The comment that says why the ticket waits.
    WaitingComment {
        issue: IssueRef,
        /// Tells it from those of other waits.
        name: String,
        /// None takes the comment away.
        body: Option<String>,
    },
    /// The end of a run's log, added to the comment about its failure once the run is over.
    LogExcerpt {
        issue: IssueRef,
        repo: Repo,
        run: RunHandle,
        label: LogLabel,
        /// Filled in by the commit that stores both. Without it, the log is a comment of its own.
        #[serde(default)]
        comment: Option<PostedComment>,
    },
    PullComment {
        repo: Repo,
        number: u64,
        style: PullCommentStyle,
        body: String,
    },
    SetDraft {
        repo: Repo,
        number: u64,
        draft: DraftState,
    },
    Chat {
        message: ChatMessage,
    },
    /// Our files, offered to the repository of a project in one pull request.
    SyncWorkflows {
        team: TeamKey,
        repo: Repo,
    },
}

/// What the start of a run needs beyond its job. Lives as long as the effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSpec {
    pub workflow_file: String,
    /// The branch whose copy of the workflow runs: the repository's default branch.
    pub git_ref: String,
    pub description: String,
    pub related: RelatedIssues,
    pub provider: ModelProvider,
    pub pr_number: Option<u64>,
    pub instruction: Option<String>,
    pub findings: Option<String>,
    pub runner_image: Option<String>,
    /// Whether the host did not show which image the repository asks for.
    #[serde(rename = "imageUnread", default)]
    pub image_lookup_failed: bool,
    pub max_turns: Option<u32>,
    pub max_iterations: Option<u32>,
    pub job_timeout_minutes: Option<u32>,
    /// Of runs in machines of ours.
    #[serde(default)]
    pub session: Option<SessionSpec>,
    /// Whether the run goes beside the one that counts.
    #[serde(default)]
    pub shadow: bool,
}

/// How a comment on a pull request relates to earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "style", rename_all = "kebab-case")]
pub enum PullCommentStyle {
    /// A comment of its own.
    New,
    /// The one comment of this name on the pull request, made or updated in place.
    #[serde(rename = "pinned")]
    Sticky { name: String },
}

/// What a log excerpt is labelled with. (spec: *Ticket comments posted*)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLabel {
    ContainerFailed,
    ContainerTimeout,
    MachineTimeout,
    PostPushReviewNotApproved,
    PrNotFound,
    SessionFailed,
}

impl LogLabel {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DraftState {
    Draft,
    Ready,
}

/// A chat notification, before either vendor's dress. All text is untrusted until then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatMessage {
    pub title: String,
    /// Where the title leads; only web addresses become links.
    #[serde(default)]
    pub title_url: Option<String>,
    /// Short facts: name and value.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    /// A paragraph; may be empty.
    #[serde(default)]
    pub text: String,
}

impl Effect {
    /// The queue it stands in: effects of one lane are performed strictly in order, lanes side by
    /// side.
    pub fn queue_key(&self) -> String {
        match self {
            // Work on an open pull request changes nothing on the ticket, nor does a shadow: they
            // need not wait for what the ticket is owed, and it need not wait for them.
            Effect::StartRun {
                job, spec: brief, ..
            } if brief.pr_number.is_some() || brief.shadow => run_lane(job),
            Effect::StartRun { issue, .. }
            | Effect::SetMarker { issue, .. }
            | Effect::TicketComment { issue, .. } => ticket_queue_key(issue),
            // A log may be late by minutes, and a machine is not destroyed before its log is read.
            Effect::LogExcerpt { repo, run, .. } => match run {
                RunHandle::Ci { id, .. } => format!("cleanup:{repo}#{id}"),
                RunHandle::Machine { id, .. } => cleanup_lane(HostKind::Vm, id),
                RunHandle::Container { id } => cleanup_lane(HostKind::Local, id),
            },
            // What only informs holds up nothing that the ticket waits for.
            Effect::WaitingComment { issue, .. } => format!("waiting:{}", issue.id),
            Effect::PullComment { repo, number, .. } | Effect::SetDraft { repo, number, .. } => {
                format!("pull:{repo}#{number}")
            }
            Effect::StopRun { job, .. } => run_lane(job),
            Effect::DestroyMachine {
                machine,
                issue: Some(_),
                ..
            } => cleanup_lane(machine.host, &machine.id),
            Effect::DestroyMachine { machine, .. } => {
                format!("machine:{}:{}", machine.host.as_str(), machine.id)
            }
            Effect::Chat { .. } => "chat".to_owned(),
            // All of a repository, whichever project asks and however it spells the name.
            Effect::SyncWorkflows { repo, .. } => format!("sync:{repo}").to_lowercase(),
        }
    }

    /// Returns the queue key of another queue whose earlier effects go first. That queue does not
    /// wait for this effect.
    pub fn predecessor_queue_key(&self) -> Option<String> {
        match self {
            Effect::LogExcerpt { issue, .. }
            | Effect::DestroyMachine {
                issue: Some(issue), ..
            } => Some(ticket_queue_key(issue)),
            _ => None,
        }
    }

    /// The job and the issue that it is for, where it names them.
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
            | Effect::Chat { .. }
            | Effect::SyncWorkflows { .. } => (None, None),
        }
    }

    /// What it does, in the words of a log line.
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
            Effect::Chat { .. } => "chat message",
            Effect::SyncWorkflows { .. } => "sync workflows",
        }
    }
}

fn run_lane(job: &JobId) -> String {
    format!("run:{job}")
}

/// Returns the queue key of what follows the end of a run in a machine: its log, then its destruction.
fn cleanup_lane(host: HostKind, id: &str) -> String {
    format!("cleanup:{}:{id}", host.as_str())
}

/// Returns the queue key of the effects that a ticket's next run waits for: markers and comments.
pub fn ticket_queue_key(issue: &IssueRef) -> String {
    format!("ticket:{}", issue.id)
}
