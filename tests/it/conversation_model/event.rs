//! Possible events and their frequencies.

use proptest::prelude::*;

/// Number of tickets. The first belongs to a project without planning, the others to one whose plans wait.
pub const TICKETS: usize = 3;

/// One action of a person, an operator, a run, a vendor or the environment. An event that does not apply is skipped.
#[derive(Debug, Clone, PartialEq)]
pub enum ConversationEvent {
    Flag(usize),
    Unflag(usize),
    Close(usize),
    /// Changes the title.
    Retitle(usize),
    /// A person writes a comment that answers whatever is asked.
    Answer(usize),
    /// A person edits the latest such comment.
    EditAnswer(usize),
    /// An app writes the same.
    AnswerOfApp(usize),
    /// A person writes a command.
    Command(usize, &'static str),
    /// A person sets the marker of an approval.
    ApproveByMarker(usize),
    AnswerByApi(usize),
    ApproveByApi(usize),
    RejectByApi(usize),
    ReplanByApi(usize),
    /// A live run reports its result.
    Result(usize, RunResult),
    /// A live run ends without a result.
    Vanish(usize),
    Tick,
    Poll,
    ProcessOutbox,
    /// Runs without faults until nothing changes, then checks everything.
    Settle,
    /// Minutes.
    Wait(u64),
    Fault(ConversationFault),
    Restart,
    /// Ends a tick after this many polls, as `kill -9` would, and restarts the service.
    Kill(usize),
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunResult {
    Done,
    Failed,
    /// It asks people, and keeps its work as a patch or has none.
    Asks(bool),
}

/// Fault of the next request of a kind to the ticketing system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConversationFault {
    Fails,
    /// The request is carried out, and the response is lost.
    ResponseLost,
}

impl ConversationEvent {
    /// Name of the event in the statistics.
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        let kind = match self {
            ConversationEvent::Command(_, text) => return format!("Command {text}"),
            ConversationEvent::Result(_, result) => return format!("Result {result:?}"),
            _ => text.split('(').next(),
        };
        kind.unwrap_or_default().to_owned()
    }
}

fn command() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        2 => Just("status"),
        1 => Just("cancel"),
        1 => Just("retry"),
        5 => Just("approve"),
        1 => Just("reject"),
        2 => Just("replan use sqlite"),
        1 => Just("dance"),
    ]
}

fn run_result() -> impl Strategy<Value = RunResult> {
    prop_oneof![
        4 => Just(RunResult::Done),
        1 => Just(RunResult::Failed),
        4 => any::<bool>().prop_map(RunResult::Asks),
    ]
}

fn event() -> impl Strategy<Value = ConversationEvent> {
    use ConversationEvent::*;
    let ticket = || 0..TICKETS;
    let person = prop_oneof![
        8 => ticket().prop_map(Flag),
        1 => ticket().prop_map(Unflag),
        1 => ticket().prop_map(Close),
        1 => ticket().prop_map(Retitle),
        6 => ticket().prop_map(Answer),
        2 => ticket().prop_map(EditAnswer),
        2 => ticket().prop_map(AnswerOfApp),
        8 => (ticket(), command()).prop_map(|(ticket, command)| Command(ticket, command)),
        3 => ticket().prop_map(ApproveByMarker),
    ];
    let operator = prop_oneof![
        3 => ticket().prop_map(AnswerByApi),
        3 => ticket().prop_map(ApproveByApi),
        1 => ticket().prop_map(RejectByApi),
        1 => ticket().prop_map(ReplanByApi),
    ];
    let run = prop_oneof![
        10 => (0..4_usize, run_result()).prop_map(|(run, result)| Result(run, result)),
        1 => (0..4_usize).prop_map(Vanish),
    ];
    let engine = prop_oneof![
        10 => Just(Tick),
        2 => Just(Poll),
        2 => Just(ProcessOutbox),
        2 => Just(Settle),
    ];
    let fault = prop_oneof![
        Just(ConversationFault::Fails),
        Just(ConversationFault::ResponseLost)
    ];
    let environment = prop_oneof![
        4 => (1..=5_u64).prop_map(Wait),
        1 => (1..=80_u64).prop_map(|hours| Wait(hours * 60)),
        3 => fault.prop_map(Fault),
        1 => Just(Restart),
        3 => (1..=60_usize).prop_map(Kill),
    ];
    prop_oneof![
        8 => person,
        2 => operator,
        7 => run,
        9 => engine,
        3 => environment,
    ]
}

/// Sequence of this many events. Every ticket begins with its trigger.
pub fn event_sequence(events: usize) -> impl Strategy<Value = Vec<ConversationEvent>> {
    let start = (0..TICKETS).map(ConversationEvent::Flag);
    let start: Vec<ConversationEvent> = start.chain([ConversationEvent::Tick]).collect();
    prop::collection::vec(event(), events).prop_map(move |events| [start.clone(), events].concat())
}
