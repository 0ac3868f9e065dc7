//! What has been said about a pull request, what became of it, and whose turn it is on its branch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ReviewComment;
use crate::comments;
use crate::ids::JobId;
use crate::job::{Job, JobKind, JobState};
use crate::limits;
use crate::time::Timestamp;

/// Ends feedback that was cut.
const CUT_MARK: &str = "\n[… cut here]";

/// Feedback that asks for more work. Its row is kept after it is dealt with: nothing is asked of a
/// run twice.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewFinding {
    #[serde(rename = "remark")]
    pub comment: ReviewComment,
    pub seen_at: Timestamp,
    pub state: ReviewFindingState,
    /// Follow-ups that were given it so far.
    #[serde(default)]
    pub attempts: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ReviewFindingState {
    /// What its author may do is not known yet.
    New,
    /// It waits for a follow-up.
    Open,
    /// A follow-up is at it.
    #[serde(rename = "taken")]
    InProgress {
        job: JobId,
    },
    Resolved {
        job: JobId,
    },
    /// It was taken back, or its pull request is closed.
    Withdrawn,
    /// Too many follow-ups failed over it.
    #[serde(rename = "given-up")]
    Abandoned,
}

impl ReviewFinding {
    pub fn new(remark: ReviewComment, now: Timestamp) -> Self {
        let body = comments::strip_invisible_chars(&remark.body);
        let body = comments::truncate(body.trim(), limits::MAX_FINDING_BYTES, CUT_MARK);
        Self {
            comment: ReviewComment { body, ..remark },
            seen_at: now,
            state: ReviewFindingState::New,
            attempts: 0,
        }
    }

    /// Whether something is still to be done about it.
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

    /// Whether it waits for a follow-up, or for its author to be looked up.
    pub fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            ReviewFindingState::New | ReviewFindingState::Open
        )
    }

    /// After the follow-up that had taken it.
    pub fn with_follow_up_result(mut self, job: &Job) -> Self {
        self.state = match job.state {
            JobState::Completed => ReviewFindingState::Resolved {
                job: job.id.clone(),
            },
            // The provider had no room for it: that says nothing about the feedback.
            _ if job.resumes_at.is_some() => {
                self.attempts = self.attempts.saturating_sub(1);
                ReviewFindingState::Open
            }
            _ if self.attempts >= limits::MAX_FINDING_ATTEMPTS => ReviewFindingState::Abandoned,
            _ => ReviewFindingState::Open,
        };
        self
    }
}

/// A run that somebody asked for in a comment.
///
/// Two may tell of one comment: the host's webhook and the repository's own workflow, which does not
/// say which comment it was. Each is noted, so that a comment is one run and two comments are two.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommentCommand {
    /// The host's number of the comment, once the webhook has told it.
    #[serde(rename = "comment", default)]
    pub comment_id: Option<u64>,
    /// Who asked. None when the workflow did, which has looked at what they may do.
    #[serde(rename = "by", default)]
    pub author: Option<String>,
    #[serde(default)]
    pub instruction: Option<String>,
    #[serde(rename = "askedAt")]
    pub requested_at: Timestamp,
    /// Whether the repository's workflow has told of it.
    #[serde(rename = "byWorkflow", default)]
    pub reported_by_workflow: bool,
    pub state: CommentCommandState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum CommentCommandState {
    Waiting,
    Started {
        job: JobId,
    },
    /// Its author was told that no run is started for it; it is kept, so that it is not heard again.
    Refused,
}

impl CommentCommand {
    pub fn is_waiting(&self) -> bool {
        self.state == CommentCommandState::Waiting
    }

    /// Whether the other messenger, speaking of this instruction now, means this one.
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

/// What is known of a pull request beside its jobs.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestRecord {
    #[serde(rename = "standing", default)]
    pub status: PullRequestStatus,
    /// As the host last told.
    #[serde(default)]
    pub draft: Option<bool>,
    /// Until when people have been told that automatic follow-ups pause.
    #[serde(rename = "toldUntil", default)]
    pub pause_notified_until: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PullRequestStatus {
    #[default]
    Open,
    Closed,
    Merged {
        commit: String,
        at: Timestamp,
    },
}

impl PullRequestStatus {
    pub fn as_str(&self) -> &'static str {
        match self {
            PullRequestStatus::Open => "open",
            PullRequestStatus::Closed => "closed",
            PullRequestStatus::Merged { .. } => "merged",
        }
    }
}

/// How fast and how often follow-ups come.
#[derive(Debug, Clone, Copy)]
pub struct FollowUpPolicy {
    /// For how long must nothing new have been said?
    pub quiet_period: Duration,
    /// After how long is there a follow-up although more is being said?
    pub max_wait: Duration,
    /// How long after a failed follow-up does the next one come?
    pub failure_backoff: Duration,
    /// How many follow-ups in [`Pace::window`]?
    pub max_follow_ups: usize,
    pub window: Duration,
}

impl Default for FollowUpPolicy {
    fn default() -> Self {
        Self {
            quiet_period: Duration::from_secs(30),
            max_wait: Duration::from_secs(5 * 60),
            failure_backoff: Duration::from_secs(10 * 60),
            max_follow_ups: 4,
            window: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Whose turn it is on the branch of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextPullRequestRun {
    /// Nobody's: nothing waits, a run is at work, or it is not yet time.
    NotDue,
    Command,
    FollowUp,
    /// The budget is spent until then.
    LimitReached(Timestamp),
}

/// Decides whose turn it is. `jobs` are the jobs of the pull request, `is_busy` says whether any run
/// is at work on its branch. What people ask for outright goes first, and counts against nothing.
pub fn next_pull_request_run(
    pace: &FollowUpPolicy,
    is_busy: bool,
    jobs: &[Job],
    findings: &[ReviewFinding],
    commands: &[CommentCommand],
    now: Timestamp,
) -> NextPullRequestRun {
    if is_busy {
        return NextPullRequestRun::NotDue;
    }
    if commands.iter().any(CommentCommand::is_waiting) {
        return NextPullRequestRun::Command;
    }
    let seen: Vec<Timestamp> = findings
        .iter()
        .filter(|finding| finding.is_waiting())
        .map(|finding| finding.seen_at)
        .collect();
    let (Some(first), Some(last)) = (seen.iter().min(), seen.iter().max()) else {
        return NextPullRequestRun::NotDue;
    };
    let is_quiet = now.since(*last) >= pace.quiet_period || now.since(*first) >= pace.max_wait;
    let follow_ups = || jobs.iter().filter(|job| job.kind == JobKind::FollowUp);
    let has_paused = follow_ups()
        .next_back()
        .filter(|job| job.state != JobState::Completed)
        .and_then(|job| job.finished_at)
        .is_none_or(|failed_at| now.since(failed_at) >= pace.failure_backoff);
    if !is_quiet || !has_paused {
        return NextPullRequestRun::NotDue;
    }
    let mut recent: Vec<Timestamp> = follow_ups()
        .filter(|job| job.resumes_at.is_none())
        .map(|job| job.reserved_at)
        .filter(|at| now.since(*at) < pace.window)
        .collect();
    recent.sort();
    match recent.len().checked_sub(pace.max_follow_ups) {
        Some(surplus) => NextPullRequestRun::LimitReached(recent[surplus] + pace.window),
        None => NextPullRequestRun::FollowUp,
    }
}

/// What a follow-up is told of feedback, and how many of the findings that is: those that do not fit
/// wait for the next.
pub fn format_findings(findings: &[&ReviewFinding]) -> (String, usize) {
    let (mut told, mut count) = (String::new(), 0);
    for finding in findings {
        let line = line(count + 1, &finding.comment);
        if count > 0 && told.len() + line.len() > limits::MAX_FINDINGS_BYTES {
            break;
        }
        told.push_str(&line);
        count += 1;
    }
    (told.trim_end().to_owned(), count)
}

fn line(number: usize, remark: &ReviewComment) -> String {
    let place = match (&remark.path, remark.line) {
        (Some(path), Some(line)) => format!(", at {path}:{line}"),
        (Some(path), None) => format!(", at {path}"),
        (None, _) => String::new(),
    };
    let body = match remark.body.trim() {
        "" => "Requests changes; what they are stands in the remarks at the lines.",
        body => body,
    };
    let who = comments::strip_invisible_chars(remark.author.name());
    format!(
        "{number}. By {who}{}:\n{body}\n\n",
        comments::strip_invisible_chars(&place)
    )
}
