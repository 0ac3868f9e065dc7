//! What has been said about a pull request, what became of it, and whose turn it is on its branch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Remark;
use crate::caps;
use crate::comments;
use crate::ids::JobId;
use crate::job::{Job, JobKind, JobState};
use crate::time::Timestamp;

/// Ends feedback that was cut.
const CUT_MARK: &str = "\n[… cut here]";

/// Feedback that asks for more work. Its row is kept after it is dealt with: nothing is asked of a
/// run twice.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub remark: Remark,
    pub seen_at: Timestamp,
    pub state: FindingState,
    /// Follow-ups that were given it so far.
    #[serde(default)]
    pub attempts: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum FindingState {
    /// What its author may do is not known yet.
    New,
    /// It waits for a follow-up.
    Open,
    /// A follow-up is at it.
    Taken {
        job: JobId,
    },
    Resolved {
        job: JobId,
    },
    /// It was taken back, or its pull request is closed.
    Withdrawn,
    /// Too many follow-ups failed over it.
    GivenUp,
}

impl Finding {
    pub fn new(remark: Remark, now: Timestamp) -> Self {
        let body = comments::stripped(&remark.body);
        let body = comments::cut(body.trim(), caps::MAX_FINDING_BYTES, CUT_MARK);
        Self {
            remark: Remark { body, ..remark },
            seen_at: now,
            state: FindingState::New,
            attempts: 0,
        }
    }

    /// Whether something is still to be done about it.
    pub fn is_at_work(&self) -> bool {
        match self.state {
            FindingState::New | FindingState::Open | FindingState::Taken { .. } => true,
            FindingState::Resolved { .. } | FindingState::Withdrawn | FindingState::GivenUp => {
                false
            }
        }
    }

    /// Whether it waits for a follow-up, or for its author to be looked up.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, FindingState::New | FindingState::Open)
    }

    /// After the follow-up that had taken it.
    pub fn after(mut self, job: &Job) -> Self {
        self.state = match job.state {
            JobState::Completed => FindingState::Resolved {
                job: job.id.clone(),
            },
            // The provider had no room for it: that says nothing about the feedback.
            _ if job.resumes_at.is_some() => {
                self.attempts = self.attempts.saturating_sub(1);
                FindingState::Open
            }
            _ if self.attempts >= caps::MAX_FINDING_ATTEMPTS => FindingState::GivenUp,
            _ => FindingState::Open,
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
pub struct Command {
    /// The host's number of the comment, once the webhook has told it.
    #[serde(default)]
    pub comment: Option<u64>,
    /// Who asked. None when the workflow did, which has looked at what they may do.
    #[serde(default)]
    pub by: Option<String>,
    #[serde(default)]
    pub instruction: Option<String>,
    pub asked_at: Timestamp,
    /// Whether the repository's workflow has told of it.
    #[serde(default)]
    pub by_workflow: bool,
    pub state: CommandState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum CommandState {
    Waiting,
    Started {
        job: JobId,
    },
    /// Its author was told that no run is started for it; it is kept, so that it is not heard again.
    Refused,
}

impl Command {
    pub fn is_waiting(&self) -> bool {
        self.state == CommandState::Waiting
    }

    /// Whether the other messenger, speaking of this instruction now, means this one.
    pub fn is_meant(&self, instruction: Option<&str>, now: Timestamp) -> bool {
        let fold = |text: Option<&str>| -> Vec<String> {
            let words = text.unwrap_or_default().split_whitespace();
            words.map(str::to_owned).collect()
        };
        let is_recent = self.is_waiting() || now.since(self.asked_at) <= caps::COMMAND_ECHO;
        is_recent && fold(self.instruction.as_deref()) == fold(instruction)
    }
}

/// What is known of a pull request beside its jobs.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRow {
    #[serde(default)]
    pub standing: PullStanding,
    /// As the host last told.
    #[serde(default)]
    pub draft: Option<bool>,
    /// Until when people have been told that automatic follow-ups pause.
    #[serde(default)]
    pub told_until: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PullStanding {
    #[default]
    Open,
    Closed,
    Merged {
        commit: String,
        at: Timestamp,
    },
}

impl PullStanding {
    pub fn as_str(&self) -> &'static str {
        match self {
            PullStanding::Open => "open",
            PullStanding::Closed => "closed",
            PullStanding::Merged { .. } => "merged",
        }
    }
}

/// How fast and how often follow-ups come.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// For how long must nothing new have been said?
    pub quiet: Duration,
    /// After how long is there a follow-up although more is being said?
    pub patience: Duration,
    /// How long after a failed follow-up does the next one come?
    pub pause: Duration,
    /// How many follow-ups in [`Pace::window`]?
    pub budget: usize,
    pub window: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(30),
            patience: Duration::from_secs(5 * 60),
            pause: Duration::from_secs(10 * 60),
            budget: 4,
            window: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Whose turn it is on the branch of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nobody's: nothing waits, a run is at work, or it is not yet time.
    Nobodys,
    Command,
    FollowUp,
    /// The budget is spent until then.
    Spent(Timestamp),
}

/// Decides whose turn it is. `jobs` are the jobs of the pull request, `is_busy` says whether any run
/// is at work on its branch. What people ask for outright goes first, and counts against nothing.
pub fn turn(
    pace: &Pace,
    is_busy: bool,
    jobs: &[Job],
    findings: &[Finding],
    commands: &[Command],
    now: Timestamp,
) -> Turn {
    if is_busy {
        return Turn::Nobodys;
    }
    if commands.iter().any(Command::is_waiting) {
        return Turn::Command;
    }
    let seen: Vec<Timestamp> = findings
        .iter()
        .filter(|finding| finding.is_waiting())
        .map(|finding| finding.seen_at)
        .collect();
    let (Some(first), Some(last)) = (seen.iter().min(), seen.iter().max()) else {
        return Turn::Nobodys;
    };
    let is_quiet = now.since(*last) >= pace.quiet || now.since(*first) >= pace.patience;
    let follow_ups = || jobs.iter().filter(|job| job.kind == JobKind::FollowUp);
    let has_paused = follow_ups()
        .next_back()
        .filter(|job| job.state != JobState::Completed)
        .and_then(|job| job.finished_at)
        .is_none_or(|failed_at| now.since(failed_at) >= pace.pause);
    if !is_quiet || !has_paused {
        return Turn::Nobodys;
    }
    let mut recent: Vec<Timestamp> = follow_ups()
        .filter(|job| job.resumes_at.is_none())
        .map(|job| job.reserved_at)
        .filter(|at| now.since(*at) < pace.window)
        .collect();
    recent.sort();
    match recent.len().checked_sub(pace.budget) {
        Some(surplus) => Turn::Spent(recent[surplus] + pace.window),
        None => Turn::FollowUp,
    }
}

/// What a follow-up is told of feedback, and how many of the findings that is: those that do not fit
/// wait for the next.
pub fn told(findings: &[&Finding]) -> (String, usize) {
    let (mut told, mut count) = (String::new(), 0);
    for finding in findings {
        let line = line(count + 1, &finding.remark);
        if count > 0 && told.len() + line.len() > caps::MAX_FINDINGS_BYTES {
            break;
        }
        told.push_str(&line);
        count += 1;
    }
    (told.trim_end().to_owned(), count)
}

fn line(number: usize, remark: &Remark) -> String {
    let place = match (&remark.path, remark.line) {
        (Some(path), Some(line)) => format!(", at {path}:{line}"),
        (Some(path), None) => format!(", at {path}"),
        (None, _) => String::new(),
    };
    let body = match remark.body.trim() {
        "" => "Requests changes; what they are stands in the remarks at the lines.",
        body => body,
    };
    let who = comments::stripped(remark.author.name());
    format!(
        "{number}. By {who}{}:\n{body}\n\n",
        comments::stripped(&place)
    )
}
