//! Findings and commands on a pull request, and the decision about the next run on its branch.

use serde::{Deserialize, Serialize};

use super::{
    BranchUpdateRecord, FollowUpPolicy, PullRequestReadiness, ReviewComment,
    automatic_runs_resume_at,
};
use crate::ids::JobId;
use crate::job::{AfterCancel, Job, JobKind, JobState};
use crate::limits;
use crate::merge_policy::MergeRecord;
use crate::red_checks::CiRecord;
use crate::sanitize;
use crate::scoreboard::RunAttributes;
use crate::take_over::{self, TakeOver};
use crate::time::Timestamp;

/// End of a truncated finding.
const TRUNCATION_MARK: &str = "\n[… truncated]";

/// Review comment that requests changes, and its state. It is kept after it was resolved, so that
/// it is never passed to a run again.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewFinding {
    /// Review comment.
    #[serde(rename = "remark")]
    pub comment: ReviewComment,
    /// Time at which the service first saw it.
    pub seen_at: Timestamp,
    /// State.
    pub state: ReviewFindingState,
    /// Number of follow-up runs that got this finding.
    #[serde(default)]
    pub attempts: u32,
    /// Last follow-up run that got this finding. `None` for findings of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_job: Option<JobId>,
    /// Whether an operator requested another run: it starts without the usual waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_retried: bool,
}

/// State of a review finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ReviewFindingState {
    /// New: the permissions of its author were not looked up yet.
    New,
    /// Waiting for a follow-up run.
    Open,
    /// A follow-up run works on it.
    #[serde(rename = "taken")]
    InProgress {
        /// Job of the run.
        job: JobId,
    },
    /// A follow-up run resolved it.
    Resolved {
        /// Job of the run.
        job: JobId,
    },
    /// Withdrawn, or its pull request was closed.
    Withdrawn,
    /// Too many follow-up runs failed to resolve it.
    #[serde(rename = "given-up")]
    Abandoned,
}

impl ReviewFinding {
    /// Creates a finding in the state [`ReviewFindingState::New`]. Its text is cleaned and
    /// truncated.
    pub fn new(comment: ReviewComment, now: Timestamp) -> Self {
        let body = sanitize::strip_invisible(&comment.body);
        let body = sanitize::truncate(body.trim(), limits::MAX_FINDING_BYTES, TRUNCATION_MARK)
            .into_owned();
        Self {
            comment: ReviewComment { body, ..comment },
            seen_at: now,
            state: ReviewFindingState::New,
            attempts: 0,
            last_job: None,
            is_retried: false,
        }
    }

    /// Returns whether a follow-up was the last that got this finding.
    pub fn was_taken_by(&self, job: &JobId) -> bool {
        // Findings of older versions name only the follow-up that works on them or resolved them.
        let by = match &self.state {
            ReviewFindingState::InProgress { job } | ReviewFindingState::Resolved { job } => {
                Some(job)
            }
            _ => None,
        };
        self.last_job.as_ref().or(by) == Some(job)
    }

    /// Returns whether the finding is new, open or in progress.
    pub fn is_unresolved(&self) -> bool {
        match self.state {
            ReviewFindingState::New
            | ReviewFindingState::Open
            | ReviewFindingState::InProgress { .. } => true,
            ReviewFindingState::Resolved { .. }
            | ReviewFindingState::Withdrawn
            | ReviewFindingState::Abandoned => false,
        }
    }

    /// Returns whether the finding waits for a follow-up run or for the lookup of its author.
    pub fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            ReviewFindingState::New | ReviewFindingState::Open
        )
    }

    /// Returns the finding after the end of the follow-up run that worked on it.
    pub fn with_follow_up_result(mut self, job: &Job) -> Self {
        self.state = match job.state {
            JobState::Completed => ReviewFindingState::Resolved {
                job: job.id.clone(),
            },
            // The usage limit was reached. This is not a failed attempt at the finding.
            _ if job.resumes_at.is_some() => {
                self.attempts = self.attempts.saturating_sub(1);
                ReviewFindingState::Open
            }
            _ if job.after_cancel() == Some(AfterCancel::Retry) => return self.retried(),
            _ if job.after_cancel() == Some(AfterCancel::Stop) => ReviewFindingState::Abandoned,
            _ if self.attempts >= limits::MAX_FINDING_ATTEMPTS => ReviewFindingState::Abandoned,
            _ => ReviewFindingState::Open,
        };
        self
    }

    /// Returns the finding for a follow-up run that starts at once.
    pub fn retried(self) -> Self {
        Self {
            state: ReviewFindingState::Open,
            attempts: 0,
            is_retried: true,
            ..self
        }
    }

    /// Returns the finding for a follow-up run that works on it.
    pub fn taken_by(self, job: &JobId) -> Self {
        Self {
            state: ReviewFindingState::InProgress { job: job.clone() },
            attempts: self.attempts.saturating_add(1),
            last_job: Some(job.clone()),
            is_retried: false,
            ..self
        }
    }
}

/// Command in a comment that requests a run.
///
/// Two sources can report the same comment: the webhook of the host, and the repository's workflow,
/// which does not send the id of the comment. Both are recorded, so that one comment starts one run
/// and two comments start two.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommentCommand {
    /// Id of the comment at the host. Set when the webhook reports it.
    #[serde(rename = "comment", default)]
    pub comment_id: Option<u64>,
    /// Login of the author. `None` if only the workflow reported the comment. The workflow checks
    /// the permissions of the author.
    #[serde(rename = "by", default)]
    pub author: Option<String>,
    /// Text after the command.
    #[serde(default)]
    pub instruction: Option<String>,
    /// Time of the first report.
    #[serde(rename = "askedAt")]
    pub requested_at: Timestamp,
    /// Whether the repository's workflow reported the command.
    #[serde(rename = "byWorkflow", default)]
    pub reported_by_workflow: bool,
    /// State.
    pub state: CommentCommandState,
}

/// State of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum CommentCommandState {
    /// Waiting for its run.
    Waiting,
    /// Its run was dispatched.
    Started {
        /// Job of the run.
        job: JobId,
    },
    /// Refused, and its author was informed. It is kept so that a second report is recognized.
    Refused,
}

impl CommentCommand {
    /// Returns whether the command waits for its run.
    pub fn is_waiting(&self) -> bool {
        self.state == CommentCommandState::Waiting
    }

    /// Returns whether a report of this instruction from the other source means the same command.
    pub fn is_same_request(&self, instruction: Option<&str>, now: Timestamp) -> bool {
        let fold = |text: Option<&str>| -> Vec<String> {
            let words = text.unwrap_or_default().split_whitespace();
            words.map(str::to_owned).collect()
        };
        let is_recent =
            self.is_waiting() || now.since(self.requested_at) <= limits::COMMAND_DEDUP_WINDOW;
        is_recent && fold(self.instruction.as_deref()) == fold(instruction)
    }
}

/// Stored data of a pull request beside its jobs.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestRecord {
    /// Status at the host.
    #[serde(rename = "standing", default)]
    pub status: PullRequestStatus,
    /// Draft flag in the last report of the host.
    #[serde(default)]
    pub draft: Option<bool>,
    /// End of the pause of automatic follow-up runs that was announced on the pull request.
    #[serde(rename = "toldUntil", default)]
    pub pause_notified_until: Option<Timestamp>,
    /// Creation time, in the last report of the host.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// Checks and reviews in the last report of the host; of a closed pull request, those before its end.
    #[serde(default)]
    pub readiness: PullRequestReadiness,
    /// Time at which the service first saw the head commit of [`Self::readiness`].
    #[serde(default)]
    pub head_seen_at: Option<Timestamp>,
    /// Updates of the branch from its base branch.
    #[serde(default)]
    pub updates: BranchUpdateRecord,
    /// Update time of the pull request at which its feedback was last read by a sweep.
    #[serde(default)]
    pub feedback_read_at: Option<Timestamp>,
    /// Update time of the pull request at which its feedback was read twice: a sweep need not read it again.
    #[serde(default)]
    pub feedback_settled_at: Option<Timestamp>,
    /// Opening by a run of the service. `None` if no such run is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<PullRequestOpening>,
    /// Number of runs for feedback on the pull request.
    #[serde(default)]
    pub review_rounds: u32,
    /// Number of commits of people after the first commit of a run, in the last report of the host.
    #[serde(default)]
    pub human_commits: Option<u32>,
    /// Whether the commits were read after the pull request was merged. They cannot change any more.
    #[serde(default)]
    pub has_final_commits: bool,
    /// Merge by policy.
    #[serde(default, skip_serializing_if = "MergeRecord::is_empty")]
    pub merge: MergeRecord,
    /// Repairs of failing checks.
    #[serde(default)]
    pub ci: CiRecord,
}

impl PullRequestRecord {
    /// Returns whether the host has reported the pull request, not only a run.
    pub fn is_reported(&self) -> bool {
        let is_open = self.status == PullRequestStatus::Open;
        self.created_at.is_some() || self.draft.is_some() || !is_open
    }
}

/// Opening of a pull request by a run, with the facts about the run that the scoreboard needs.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestOpening {
    /// Job of the first run that named the pull request.
    pub job: JobId,
    /// Time at which the run named it: stands for the opening until the host has reported that.
    pub at: Timestamp,
    /// Time of the request that the run answered.
    #[serde(default)]
    pub triggered_at: Option<Timestamp>,
    /// Rows of the scoreboard that the pull request counts in.
    #[serde(flatten)]
    pub run: RunAttributes,
}

impl PullRequestOpening {
    /// Returns the opening by a job.
    pub fn by(job: &Job) -> Self {
        let known = [
            job.finished_at,
            job.run_ended_at,
            job.started_at,
            job.dispatched_at,
        ];
        Self {
            job: job.id.clone(),
            at: known
                .into_iter()
                .flatten()
                .next()
                .unwrap_or(job.reserved_at),
            triggered_at: job.triggered_at,
            run: RunAttributes::of(job),
        }
    }
}

/// Status of a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PullRequestStatus {
    /// Open.
    #[default]
    Open,
    /// Closed without a merge.
    Closed,
    /// Merged.
    Merged {
        /// SHA of the merge commit.
        commit: String,
        /// Time of the merge.
        at: Timestamp,
    },
}

impl PullRequestStatus {
    /// Returns the name in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            PullRequestStatus::Open => "open",
            PullRequestStatus::Closed => "closed",
            PullRequestStatus::Merged { .. } => "merged",
        }
    }
}

/// Next run on the branch of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextPullRequestRun {
    /// No run: nothing waits, a run is active, or the wait is not over.
    NotDue,
    /// A run for the oldest waiting command.
    Command,
    /// A follow-up run for the waiting findings.
    FollowUp,
    /// No run: the limit of follow-up runs is reached until this time.
    LimitReached(Timestamp),
}

/// Decides which run on the branch of a pull request is next.
///
/// `jobs` are the jobs of the pull request. `is_busy` states whether any run is active on its
/// branch. Commands come before findings and do not count against the limit. A finding that an
/// operator retries waits for nothing. While a person has taken over the issue, other findings start
/// no run.
pub fn next_pull_request_run(
    policy: &FollowUpPolicy,
    is_busy: bool,
    jobs: &[Job],
    findings: &[ReviewFinding],
    commands: &[CommentCommand],
    take_over: Option<&TakeOver>,
    now: Timestamp,
) -> NextPullRequestRun {
    if is_busy {
        return NextPullRequestRun::NotDue;
    }
    if commands.iter().any(CommentCommand::is_waiting) {
        return NextPullRequestRun::Command;
    }
    if findings
        .iter()
        .any(|finding| finding.is_retried && finding.is_waiting())
    {
        return NextPullRequestRun::FollowUp;
    }
    if take_over::check_automatic_work(take_over).is_err() {
        return NextPullRequestRun::NotDue;
    }
    let seen: Vec<Timestamp> = findings
        .iter()
        .filter(|finding| finding.is_waiting())
        .map(|finding| finding.seen_at)
        .collect();
    let (Some(first), Some(last)) = (seen.iter().min(), seen.iter().max()) else {
        return NextPullRequestRun::NotDue;
    };
    let is_quiet = now.since(*last) >= policy.quiet_period || now.since(*first) >= policy.max_wait;
    let mut follow_ups = jobs.iter().filter(|job| job.kind == JobKind::FollowUp);
    let backoff_elapsed = follow_ups
        .next_back()
        .filter(|job| job.state != JobState::Completed)
        .and_then(|job| job.finished_at)
        .is_none_or(|failed_at| now.since(failed_at) >= policy.failure_backoff);
    if !is_quiet || !backoff_elapsed {
        return NextPullRequestRun::NotDue;
    }
    match automatic_runs_resume_at(policy, jobs, now) {
        Some(until) => NextPullRequestRun::LimitReached(until),
        None => NextPullRequestRun::FollowUp,
    }
}

/// Formats findings for a follow-up run. Returns the text and the number of findings in it.
/// Findings that do not fit wait for the next run.
pub fn format_findings(findings: &[&ReviewFinding]) -> (String, usize) {
    let (mut text, mut count) = (String::new(), 0);
    for finding in findings {
        let entry = format_finding(count + 1, &finding.comment);
        if count > 0 && text.len() + entry.len() > limits::MAX_FINDINGS_BYTES {
            break;
        }
        text.push_str(&entry);
        count += 1;
    }
    (text.trim_end().to_owned(), count)
}

fn format_finding(number: usize, comment: &ReviewComment) -> String {
    let location = match (&comment.path, comment.line) {
        (Some(path), Some(line)) => format!(", at {path}:{line}"),
        (Some(path), None) => format!(", at {path}"),
        (None, _) => String::new(),
    };
    let body = match comment.body.trim() {
        "" => "Requests changes. The review comments at the lines contain the details.",
        body => body,
    };
    let author = sanitize::single_line(comment.author.name());
    format!(
        "{number}. By {author}{}:\n{body}\n\n",
        sanitize::single_line(&location)
    )
}
