//! What may happen, and how often.

use proptest::prelude::*;

use super::reference::SLOTS;

/// One thing that people, an operator, the machine, the vendors or a run do. Slots are places in the
/// list of living tickets; what does not apply just then is left out.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
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
    Turn,
    Poll,
    Deliver,
    Watch,
    /// Until nothing is owed and nothing goes wrong; then everything must be as it should be.
    Settle,
    /// Seconds.
    Wait(u64),
    Fault(Trouble),
    Begin(Which),
    /// Whether the run names itself.
    Progress(Which, bool),
    Result(Which, Told),
    /// A result that must be refused.
    Forge(Which, Forgery),
    /// Whether the run leaves a pull request behind.
    End(Which, Conclusion, bool),
    GapFill(usize),
    /// The same webhook twice.
    Webhook(usize),
    Restart,
    /// A turn that ends after so many looks at it, as by `kill -9`, and a new start.
    Kill(usize),
}

/// One of the runs at the host that have not ended, or of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Which {
    Live(usize),
    Any(usize),
}

/// The next request of a kind goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
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
pub enum Told {
    /// Did what it was to do; an implementation opened its pull request.
    Done,
    /// The same, and its review left something open.
    Noted,
    /// A failure by the word of the review, with a pull request.
    Unapproved,
    Failed,
    /// A failure that nobody is to blame for.
    Unavailable,
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
    pub fn word(self) -> &'static str {
        match self {
            Conclusion::Success => "success",
            Conclusion::Failure => "failure",
            Conclusion::Cancelled => "cancelled",
            Conclusion::TimedOut => "timed_out",
        }
    }
}

impl Event {
    /// What it is called where events are counted.
    pub fn name(&self) -> String {
        let told = format!("{self:?}");
        let kind = match self {
            Event::Fault(trouble) => return format!("Fault {trouble:?}"),
            Event::Result(_, told) => return format!("Result {told:?}"),
            _ => told.split('(').next(),
        };
        kind.unwrap_or_default().to_owned()
    }
}

/// The first ticket is met most often: what needs many steps happens to it.
fn slot() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0), 1 => 0..SLOTS]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        7 => (0..4_usize).prop_map(Which::Live),
        1 => (0..64_usize).prop_map(Which::Any),
    ]
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        3 => Just(Told::Done),
        1 => Just(Told::Noted),
        1 => Just(Told::Unapproved),
        4 => Just(Told::Failed),
        1 => Just(Told::Unavailable),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    use Trouble::*;
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

fn people() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => slot().prop_map(Event::Flag),
        1 => slot().prop_map(Event::Unflag),
        2 => slot().prop_map(Event::Strip),
        1 => slot().prop_map(Event::Close),
        2 => slot().prop_map(Event::Reopen),
        1 => slot().prop_map(Event::Delete),
        1 => slot().prop_map(Event::Block),
        2 => slot().prop_map(Event::Unblock),
    ]
}

fn operator() -> impl Strategy<Value = Event> {
    let team = 0..2_usize;
    prop_oneof![
        1 => team.clone().prop_map(|team| Event::Pause(team, true)),
        2 => team.clone().prop_map(|team| Event::Pause(team, false)),
        1 => team.clone().prop_map(Event::Remove),
        2 => team.clone().prop_map(Event::Add),
        1 => (team, 1..=3_u32).prop_map(|(team, cap)| Event::Cap(team, cap)),
        3 => slot().prop_map(Event::ClearDedup),
        1 => slot().prop_map(Event::Unpark),
        2 => slot().prop_map(Event::GapFill),
        1 => slot().prop_map(Event::Webhook),
    ]
}

fn runs() -> impl Strategy<Value = Event> {
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
        3 => which().prop_map(Event::Begin),
        3 => (which(), any::<bool>()).prop_map(|(run, named)| Event::Progress(run, named)),
        8 => (which(), told()).prop_map(|(run, told)| Event::Result(run, told)),
        1 => (which(), forgery).prop_map(|(run, forgery)| Event::Forge(run, forgery)),
        5 => (which(), conclusion, prop::bool::weighted(0.3))
            .prop_map(|(run, conclusion, pull)| Event::End(run, conclusion, pull)),
    ]
}

fn engine() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => Just(Event::Turn),
        3 => Just(Event::Poll),
        3 => Just(Event::Deliver),
        3 => Just(Event::Watch),
        3 => Just(Event::Settle),
    ]
}

fn machine() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..=120_u64).prop_map(Event::Wait),
        3 => (1..=100_u64).prop_map(|minutes| Event::Wait(minutes * 60)),
        1 => (1..=26_u64).prop_map(|hours| Event::Wait(hours * 3_600)),
        4 => trouble().prop_map(Event::Fault),
        1 => Just(Event::Restart),
        2 => (1..=60_usize).prop_map(Event::Kill),
    ]
}

/// A life of this many events.
pub fn life(events: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        5 => people(),
        2 => operator(),
        8 => runs(),
        8 => engine(),
        4 => machine(),
    ];
    prop::collection::vec(event, events)
}
