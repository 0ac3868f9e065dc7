//! Tickets of the crash tests that wait for people: what they and the service write, in order.

use domain::issue::System;
use domain::job::JobKind;

/// Ticket whose runs ask a question or whose plan waits for an approval. Its runs are fake runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conversation {
    /// A comment answers the question.
    AnsweredByComment,
    /// An operator answers the question, after a person asked for the status.
    AnsweredByApi,
    /// Nobody answers the question.
    Unanswered,
    /// The planning run asks, and its plan is approved.
    AskedWhilePlanning,
    ApprovedByComment,
    ApprovedByMarker,
    ApprovedByApi,
    /// The rule of the project approves the plan.
    ApprovedByRule,
    /// The plan is made three times.
    Replanned,
    RejectedByComment,
    RejectedByApi,
    /// Nobody approves the plan.
    Unapproved,
}

pub const CONVERSATIONS: [Conversation; 12] = [
    Conversation::AnsweredByComment,
    Conversation::AnsweredByApi,
    Conversation::Unanswered,
    Conversation::AskedWhilePlanning,
    Conversation::ApprovedByComment,
    Conversation::ApprovedByMarker,
    Conversation::ApprovedByApi,
    Conversation::ApprovedByRule,
    Conversation::Replanned,
    Conversation::RejectedByComment,
    Conversation::RejectedByApi,
    Conversation::Unapproved,
];

/// One line of a conversation, in the order in which it must appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Beginning of a comment of the service.
    Service(&'static str),
    /// Comment of a person.
    Person(&'static str),
    /// Marker of an approval, which a person sets.
    ApprovalMarker,
    /// Request of an operator.
    Operator(Request),
}

/// Request of an operator about a ticket that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Answer,
    Approve,
    Reject,
    Replan,
}

impl Line {
    /// Text of the comment that the line is, or how it begins.
    pub fn comment(self) -> Option<&'static str> {
        match self {
            Line::Service(text) | Line::Person(text) => Some(text),
            Line::ApprovalMarker | Line::Operator(_) => None,
        }
    }

    /// Whether a person or an operator causes the line.
    pub fn is_of_people(self) -> bool {
        !matches!(self, Line::Service(_))
    }
}

pub const QUESTION: &str = "Which one?";
pub const PLAN: &str = "What is wanted, and how";
pub const ANSWER: &str = "The first one, please.";

const ASKS: Line = Line::Service("The implementation needs an answer from you");
const THANKS: Line = Line::Service("Thanks. The work goes on with this answer.");
const ANSWERED: Line = Line::Service("Answered by ");
const PLANNED: Line = Line::Service(PLAN);
const WAITS: Line = Line::Service("The plan waits for approval.");
const APPROVED: Line = Line::Service("Plan approved by ");
const PULL: Line = Line::Service("Pull request opened");
const AGAIN: Line = Line::Service("The plan is made again, as ");
const REJECTED: Line = Line::Service("Plan rejected by ");
/// The state of the ticket decides how the reply begins.
const STATUS: Line = Line::Service("");

impl Conversation {
    /// What is written on the ticket and requested about it.
    pub fn lines(self) -> &'static [Line] {
        use Line::{ApprovalMarker, Operator, Person};
        match self {
            Self::AnsweredByComment => &[ASKS, Person(ANSWER), THANKS, PULL],
            Self::AnsweredByApi => &[
                ASKS,
                Person("/agent-implement status"),
                STATUS,
                Operator(Request::Answer),
                ANSWERED,
                PULL,
            ],
            Self::Unanswered => &[ASKS],
            Self::AskedWhilePlanning => &[
                Line::Service("The plan needs an answer from you"),
                Operator(Request::Answer),
                ANSWERED,
                PLANNED,
                WAITS,
                Person("/agent-implement approve"),
                APPROVED,
                PULL,
            ],
            Self::ApprovedByComment => &[
                PLANNED,
                WAITS,
                Person("/agent-implement approve"),
                APPROVED,
                PULL,
            ],
            Self::ApprovedByMarker => &[PLANNED, WAITS, ApprovalMarker, APPROVED, PULL],
            Self::ApprovedByApi => &[PLANNED, WAITS, Operator(Request::Approve), APPROVED, PULL],
            Self::ApprovedByRule => &[
                PLANNED,
                Line::Service("The plan is inside the bounds of the project"),
                PULL,
            ],
            Self::Replanned => &[
                PLANNED,
                WAITS,
                Person("/agent-implement replan use sqlite"),
                AGAIN,
                PLANNED,
                WAITS,
                Operator(Request::Replan),
                AGAIN,
                PLANNED,
                WAITS,
                ApprovalMarker,
                APPROVED,
                PULL,
            ],
            Self::RejectedByComment => {
                &[PLANNED, WAITS, Person("/agent-implement reject"), REJECTED]
            }
            Self::RejectedByApi => &[PLANNED, WAITS, Operator(Request::Reject), REJECTED],
            Self::Unapproved => &[PLANNED, WAITS],
        }
    }

    fn count(self, is_it: impl Fn(&Line) -> bool) -> usize {
        self.lines().iter().filter(|line| is_it(line)).count()
    }

    /// Whether the first run of the ticket asks a question.
    pub fn asks(self) -> bool {
        matches!(
            self,
            Self::AnsweredByComment
                | Self::AnsweredByApi
                | Self::Unanswered
                | Self::AskedWhilePlanning
        )
    }

    /// Whether the ticket is planned first.
    pub fn is_planned(self) -> bool {
        self.lines().contains(&PLANNED)
    }

    /// Whether the ticket waits for an answer at the end.
    pub fn ends_with_question(self) -> bool {
        self == Self::Unanswered
    }

    /// Whether the ticket waits for an approval at the end.
    pub fn ends_with_plan(self) -> bool {
        self == Self::Unapproved
    }

    /// Expected jobs in order, and whether each succeeds.
    pub fn expected_jobs(self) -> Vec<(JobKind, bool)> {
        let first = match self.is_planned() {
            true => JobKind::Planning,
            false => JobKind::Implementation,
        };
        let mut jobs = vec![(first, false); usize::from(self.asks())];
        jobs.extend(vec![
            (JobKind::Planning, true);
            self.count(|line| *line == PLANNED)
        ]);
        jobs.extend(vec![
            (JobKind::Implementation, true);
            self.count(|line| *line == PULL)
        ]);
        jobs
    }

    /// Numbers of audited actions.
    pub fn expected_audit(self) -> [(&'static str, usize); 5] {
        let is_command = |line: &Line| {
            let text = line.comment().unwrap_or_default();
            text.starts_with("/agent-implement")
        };
        let is_approval = |line: &Line| {
            *line == APPROVED || line.comment().unwrap_or_default().contains("the bounds")
        };
        [
            (
                "question-answered",
                self.count(|line| [THANKS, ANSWERED].contains(line)),
            ),
            ("plan-approved", self.count(is_approval)),
            ("plan-rejected", self.count(|line| *line == REJECTED)),
            ("plan-asked", self.count(|line| *line == AGAIN)),
            ("ticket-command", self.count(is_command)),
        ]
    }

    /// Expected chat messages, and how many of them equal an earlier one.
    pub fn expected_chat(self) -> (usize, usize) {
        let waits = self.count(|line| *line == WAITS);
        let jobs = self.expected_jobs();
        let of_kind = |kind| jobs.iter().filter(|(one, _)| *one == kind).count();
        let starts = [JobKind::Planning, JobKind::Implementation].map(of_kind);
        let repeated_starts: usize = starts.iter().map(|count| count.saturating_sub(1)).sum();
        let plans = self.count(|line| *line == PLANNED);
        let repeated_plans = plans.saturating_sub(1) + waits.saturating_sub(1);
        (jobs.len() * 2 + waits, repeated_starts + repeated_plans)
    }

    /// Expected marker changes, as [`crate::tickets::ExpectedTicket::expected_history`] has them.
    pub fn expected_history(self, system: System) -> Vec<&'static str> {
        match system {
            System::Jira => self.expected_statuses(),
            System::Linear | System::GitHub => self.expected_labels(system),
        }
    }

    fn expected_statuses(self) -> Vec<&'static str> {
        let mut all = vec!["Ready"];
        let (work, approved) = match self.is_planned() {
            true => ("Planning", "Plan Approved"),
            false => ("Implementing", ""),
        };
        if self.asks() {
            all.extend([work, "Needs Input"]);
        }
        for line in self.lines() {
            match line {
                line if [THANKS, ANSWERED].contains(line) => all.push("Ready"),
                line if *line == PLANNED => all.extend([work, "Plan Ready"]),
                line if *line == AGAIN => all.push("Ready"),
                line if *line == REJECTED => all.push(""),
                line if *line == PULL => {
                    if self.is_planned() {
                        all.push(approved);
                    }
                    all.extend(["Implementing", "PR Ready"]);
                }
                _ => {}
            }
        }
        all
    }

    fn expected_labels(self, system: System) -> Vec<&'static str> {
        let mut all = vec!["+Agent-Implement"];
        let work = match self.is_planned() {
            true => ("+Agent-Planning", "-Agent-Planning"),
            false => ("+Agent-Working", "-Agent-Working"),
        };
        if self.asks() {
            all.extend([work.0, "+Agent-Waiting", work.1]);
        }
        for line in self.lines() {
            match line {
                line if [THANKS, ANSWERED].contains(line) => all.push("-Agent-Waiting"),
                line if *line == PLANNED => all.extend([work.0, "+Plan-Complete", work.1]),
                line if *line == AGAIN => all.push("-Plan-Complete"),
                line if *line == REJECTED && system == System::Linear => {
                    all.extend(["-Plan-Complete", "-Agent-Implement"]);
                }
                line if *line == REJECTED => all.extend(["-Agent-Implement", "-Plan-Complete"]),
                line if *line == PULL => {
                    if self.is_planned() {
                        all.extend([
                            "+Plan-Approved",
                            "-Plan-Complete",
                            "+Agent-Working",
                            "-Plan-Approved",
                        ]);
                    } else {
                        all.push("+Agent-Working");
                    }
                    all.extend(["+Ready for Review", "-Agent-Working"]);
                }
                _ => {}
            }
        }
        all
    }
}
