//! What may happen, and how often.

use proptest::prelude::*;

use super::reference::SLOTS;

/// One thing that people, an operator, the machine, the vendors or a run do. Slots are places in the
/// list of living tickets; what does not apply just then is left out.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    Flag(usize),
    Unflag(usize),
    /// All labels of ours are taken off.
    Strip(usize),
    Close(usize),
    Reopen(usize),
    /// Another ticket takes the place.
    Delete(usize),
    Block(usize),
    Unblock(usize),
    Pause(usize, bool),
    Remove(usize),
    Add(usize),
    Cap(usize, u32),
    ClearDedup(usize),
    Unpark(usize),
    Tick,
    Poll,
    ProcessOutbox,
    Watch,
    /// Until nothing is owed and nothing goes wrong; then everything must be as it should be.
    Settle,
    /// Seconds.
    Wait(u64),
    Fault(ModelFault),
    Begin(RunSelector),
    /// Whether the run names itself.
    Progress(RunSelector, bool),
    Result(RunSelector, ReportedOutcome),
    /// A result that must be refused.
    Forge(RunSelector, Forgery),
    /// Whether the run leaves a pull request behind.
    End(RunSelector, Conclusion, bool),
    GapFill(usize),
    /// The same webhook twice.
    Webhook(usize),
    Restart,
    /// A turn that ends after so many looks at it, as by `kill -9`, and a new start.
    Kill(usize),
}

/// One of the runs at the host that have not ended, or of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunSelector {
    Live(usize),
    Any(usize),
}

/// The next request of a kind goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelFault {
    /// The host will not take the dispatch.
    Refused(u16),
    DispatchFails,
    /// The host takes the dispatch, and the answer is lost.
    DispatchLost,
    /// The host says that it took the dispatch; nothing comes of it.
    DispatchForgotten,
    /// The host takes the dispatch without naming the run.
    DispatchNameless,
    TicketFails,
    /// The ticketing system does it, and the answer is lost.
    TicketLost,
    PollFails,
    ListFails,
}

/// What a run reports in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReportedOutcome {
    /// Did what it was to do; an implementation opened its pull request.
    Done,
    /// The same, and its review left something open.
    DoneWithFindings,
    /// A failure by the word of the review, with a pull request.
    Unapproved,
    Failed,
    /// A failure that nobody is to blame for.
    InfrastructureFailure,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Forgery {
    Signature,
    /// The token of the run's progress.
    Audience,
    Phase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Conclusion {
    Success,
    Failure,
    Cancelled,
    TimedOut,
}

impl Conclusion {
    pub fn as_str(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Failure => "failure",
            Conclusion::Cancelled => "cancelled",
            Conclusion::TimedOut => "timed_out",
        }
    }
}

impl ModelEvent {
    /// What it is called where events are counted.
    pub fn name(&self) -> String {
        let told = format!("{self:?}");
        let kind = match self {
            ModelEvent::Fault(trouble) => return format!("Fault {trouble:?}"),
            ModelEvent::Result(_, told) => return format!("Result {told:?}"),
            _ => told.split('(').next(),
        };
        kind.unwrap_or_default().to_owned()
    }
}

/// The first ticket is met most often: what needs many steps happens to it.
fn slot() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0), 1 => 0..SLOTS]
}

fn which() -> impl Strategy<Value = RunSelector> {
    prop_oneof![
        7 => (0..4_usize).prop_map(RunSelector::Live),
        1 => (0..64_usize).prop_map(RunSelector::Any),
    ]
}

fn told() -> impl Strategy<Value = ReportedOutcome> {
    prop_oneof![
        3 => Just(ReportedOutcome::Done),
        1 => Just(ReportedOutcome::DoneWithFindings),
        1 => Just(ReportedOutcome::Unapproved),
        4 => Just(ReportedOutcome::Failed),
        1 => Just(ReportedOutcome::InfrastructureFailure),
    ]
}

fn trouble() -> impl Strategy<Value = ModelFault> {
    use ModelFault::*;
    prop_oneof![
        1 => Just(Refused(422)),
        1 => Just(Refused(403)),
        1 => Just(DispatchFails),
        2 => Just(DispatchLost),
        1 => Just(DispatchForgotten),
        1 => Just(DispatchNameless),
        1 => Just(TicketFails),
        2 => Just(TicketLost),
        1 => Just(PollFails),
        1 => Just(ListFails),
    ]
}

fn people() -> impl Strategy<Value = ModelEvent> {
    prop_oneof![
        12 => slot().prop_map(ModelEvent::Flag),
        1 => slot().prop_map(ModelEvent::Unflag),
        2 => slot().prop_map(ModelEvent::Strip),
        1 => slot().prop_map(ModelEvent::Close),
        2 => slot().prop_map(ModelEvent::Reopen),
        1 => slot().prop_map(ModelEvent::Delete),
        1 => slot().prop_map(ModelEvent::Block),
        2 => slot().prop_map(ModelEvent::Unblock),
    ]
}

fn operator() -> impl Strategy<Value = ModelEvent> {
    let team = 0..2_usize;
    prop_oneof![
        1 => team.clone().prop_map(|team| ModelEvent::Pause(team, true)),
        2 => team.clone().prop_map(|team| ModelEvent::Pause(team, false)),
        1 => team.clone().prop_map(ModelEvent::Remove),
        2 => team.clone().prop_map(ModelEvent::Add),
        1 => (team, 1..=3_u32).prop_map(|(team, cap)| ModelEvent::Cap(team, cap)),
        3 => slot().prop_map(ModelEvent::ClearDedup),
        1 => slot().prop_map(ModelEvent::Unpark),
        2 => slot().prop_map(ModelEvent::GapFill),
        1 => slot().prop_map(ModelEvent::Webhook),
    ]
}

fn runs() -> impl Strategy<Value = ModelEvent> {
    let conclusion = prop_oneof![
        2 => Just(Conclusion::Success),
        2 => Just(Conclusion::Failure),
        1 => Just(Conclusion::Cancelled),
        1 => Just(Conclusion::TimedOut),
    ];
    let forgery = prop_oneof![
        Just(Forgery::Signature),
        Just(Forgery::Audience),
        Just(Forgery::Phase),
    ];
    prop_oneof![
        3 => which().prop_map(ModelEvent::Begin),
        3 => (which(), any::<bool>()).prop_map(|(run, named)| ModelEvent::Progress(run, named)),
        8 => (which(), told()).prop_map(|(run, told)| ModelEvent::Result(run, told)),
        1 => (which(), forgery).prop_map(|(run, forgery)| ModelEvent::Forge(run, forgery)),
        5 => (which(), conclusion, prop::bool::weighted(0.3))
            .prop_map(|(run, conclusion, pull)| ModelEvent::End(run, conclusion, pull)),
    ]
}

fn engine() -> impl Strategy<Value = ModelEvent> {
    prop_oneof![
        12 => Just(ModelEvent::Tick),
        3 => Just(ModelEvent::Poll),
        3 => Just(ModelEvent::ProcessOutbox),
        3 => Just(ModelEvent::Watch),
        3 => Just(ModelEvent::Settle),
    ]
}

fn machine() -> impl Strategy<Value = ModelEvent> {
    prop_oneof![
        6 => (1..=120_u64).prop_map(ModelEvent::Wait),
        3 => (1..=100_u64).prop_map(|minutes| ModelEvent::Wait(minutes * 60)),
        1 => (1..=26_u64).prop_map(|hours| ModelEvent::Wait(hours * 3_600)),
        4 => trouble().prop_map(ModelEvent::Fault),
        1 => Just(ModelEvent::Restart),
        2 => (1..=60_usize).prop_map(ModelEvent::Kill),
    ]
}

/// A life of this many events.
pub fn event_sequence(events: usize) -> impl Strategy<Value = Vec<ModelEvent>> {
    let event = prop_oneof![
        5 => people(),
        2 => operator(),
        8 => runs(),
        8 => engine(),
        4 => machine(),
    ];
    prop::collection::vec(event, events)
}
