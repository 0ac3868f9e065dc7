//! Possible events and their frequencies.

use proptest::prelude::*;

use super::reference::SLOTS;

/// One action of a user, an operator, the environment, a vendor or a run. Slots are positions in the
/// list of live tickets. An event that does not apply is skipped.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    Flag(usize),
    Unflag(usize),
    /// Removes all labels.
    Strip(usize),
    Close(usize),
    Reopen(usize),
    /// Another ticket takes the slot.
    Delete(usize),
    Block(usize),
    Unblock(usize),
    Pause(usize, bool),
    Remove(usize),
    Add(usize),
    Cap(usize, u32),
    ClearDedup(usize),
    Unpark(usize),
    /// Cancels the active run of a ticket. Whether its work is dispatched again.
    Cancel(usize, bool),
    /// Retries the latest run of a ticket.
    Retry(usize),
    Tick,
    Poll,
    ProcessOutbox,
    Watch,
    /// Runs without faults until the outbox is empty, then checks everything.
    Settle,
    /// Seconds.
    Wait(u64),
    Fault(ModelFault),
    Begin(RunSelector),
    /// Whether the report names the run.
    Progress(RunSelector, bool),
    Result(RunSelector, ReportedOutcome),
    /// Result that must be rejected.
    Forge(RunSelector, Forgery),
    /// Whether the run leaves a pull request behind.
    End(RunSelector, Conclusion, bool),
    GapFill(usize),
    /// Sends the same webhook twice.
    Webhook(usize),
    Restart,
    /// Ends a tick after this many polls, as `kill -9` would, and restarts the service.
    Kill(usize),
}

/// Selects one of the host's runs that have not ended, or of all its runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunSelector {
    Live(usize),
    Any(usize),
}

/// Fault of the next request of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelFault {
    /// The host rejects the dispatch with this status.
    Refused(u16),
    DispatchFails,
    /// The host accepts the dispatch, and the response is lost.
    DispatchLost,
    /// The host reports success but starts no run.
    DispatchForgotten,
    /// The host accepts the dispatch without naming the run.
    DispatchNameless,
    TicketFails,
    /// The ticketing system applies the change, and the response is lost.
    TicketLost,
    PollFails,
    ListFails,
    /// The host fails to cancel a run.
    CancelFails,
    /// The host cancels a run, and the response is lost.
    CancelLost,
}

/// Final result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReportedOutcome {
    /// Success; an implementation opened its pull request.
    Done,
    /// Success with open review findings.
    DoneWithFindings,
    /// Failure by the review, with a pull request.
    Unapproved,
    Failed,
    /// Failure that does not count against the ticket.
    InfrastructureFailure,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Forgery {
    Signature,
    /// Uses the progress token of the run.
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
    /// Name of the event in the statistics.
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        let kind = match self {
            ModelEvent::Fault(fault) => return format!("Fault {fault:?}"),
            ModelEvent::Result(_, outcome) => return format!("Result {outcome:?}"),
            _ => text.split('(').next(),
        };
        kind.unwrap_or_default().to_owned()
    }
}

/// The first ticket is selected most often, so that long sequences happen to it.
fn slot() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0), 1 => 0..SLOTS]
}

fn run_selector() -> impl Strategy<Value = RunSelector> {
    prop_oneof![
        7 => (0..4_usize).prop_map(RunSelector::Live),
        1 => (0..64_usize).prop_map(RunSelector::Any),
    ]
}

fn reported_outcome() -> impl Strategy<Value = ReportedOutcome> {
    prop_oneof![
        3 => Just(ReportedOutcome::Done),
        1 => Just(ReportedOutcome::DoneWithFindings),
        1 => Just(ReportedOutcome::Unapproved),
        4 => Just(ReportedOutcome::Failed),
        1 => Just(ReportedOutcome::InfrastructureFailure),
    ]
}

fn model_fault() -> impl Strategy<Value = ModelFault> {
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
        1 => Just(CancelFails),
        1 => Just(CancelLost),
    ]
}

/// Faults that bring the start or the end of a run into a state of its own.
fn control_fault() -> impl Strategy<Value = ModelFault> {
    use ModelFault::*;
    prop_oneof![
        Just(DispatchFails),
        Just(DispatchLost),
        Just(DispatchNameless),
        Just(CancelFails),
        Just(CancelLost),
    ]
}

/// A run that an operator controls in one of its first states. Separate random events seldom meet there.
fn controlled_start() -> impl Strategy<Value = Vec<ModelEvent>> {
    let fault = prop::option::of(control_fault());
    (slot(), fault, 0..4_usize, any::<bool>(), any::<bool>()).prop_map(
        |(slot, fault, progress, with_retry, then_retry)| {
            let mut events = vec![
                ModelEvent::Unpark(slot),
                ModelEvent::ClearDedup(slot),
                ModelEvent::Flag(slot),
            ];
            events.extend(fault.map(ModelEvent::Fault));
            events.push(ModelEvent::Poll);
            let advance = [ModelEvent::ProcessOutbox, ModelEvent::Watch];
            events.extend(advance.into_iter().take(progress));
            if progress > 2 {
                events.extend([ModelEvent::Begin(RunSelector::Live(0)), ModelEvent::Watch]);
            }
            events.push(ModelEvent::Cancel(slot, with_retry));
            events.extend(then_retry.then_some(ModelEvent::Retry(slot)));
            events
        },
    )
}

fn user_event() -> impl Strategy<Value = ModelEvent> {
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

fn operator_event() -> impl Strategy<Value = ModelEvent> {
    let team = 0..2_usize;
    prop_oneof![
        1 => team.clone().prop_map(|team| ModelEvent::Pause(team, true)),
        2 => team.clone().prop_map(|team| ModelEvent::Pause(team, false)),
        1 => team.clone().prop_map(ModelEvent::Remove),
        2 => team.clone().prop_map(ModelEvent::Add),
        1 => (team, 1..=3_u32).prop_map(|(team, cap)| ModelEvent::Cap(team, cap)),
        3 => slot().prop_map(ModelEvent::ClearDedup),
        1 => slot().prop_map(ModelEvent::Unpark),
        3 => (slot(), any::<bool>()).prop_map(|(slot, retry)| ModelEvent::Cancel(slot, retry)),
        3 => slot().prop_map(ModelEvent::Retry),
        2 => slot().prop_map(ModelEvent::GapFill),
        1 => slot().prop_map(ModelEvent::Webhook),
    ]
}

fn run_event() -> impl Strategy<Value = ModelEvent> {
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
        3 => run_selector().prop_map(ModelEvent::Begin),
        3 => (run_selector(), any::<bool>()).prop_map(|(run, with_run_id)| ModelEvent::Progress(run, with_run_id)),
        8 => (run_selector(), reported_outcome()).prop_map(|(run, outcome)| ModelEvent::Result(run, outcome)),
        1 => (run_selector(), forgery).prop_map(|(run, forgery)| ModelEvent::Forge(run, forgery)),
        5 => (run_selector(), conclusion, prop::bool::weighted(0.3))
            .prop_map(|(run, conclusion, pull)| ModelEvent::End(run, conclusion, pull)),
    ]
}

fn engine_event() -> impl Strategy<Value = ModelEvent> {
    prop_oneof![
        12 => Just(ModelEvent::Tick),
        3 => Just(ModelEvent::Poll),
        3 => Just(ModelEvent::ProcessOutbox),
        3 => Just(ModelEvent::Watch),
        3 => Just(ModelEvent::Settle),
    ]
}

fn environment_event() -> impl Strategy<Value = ModelEvent> {
    prop_oneof![
        6 => (1..=120_u64).prop_map(ModelEvent::Wait),
        3 => (1..=100_u64).prop_map(|minutes| ModelEvent::Wait(minutes * 60)),
        1 => (1..=26_u64).prop_map(|hours| ModelEvent::Wait(hours * 3_600)),
        4 => model_fault().prop_map(ModelEvent::Fault),
        1 => Just(ModelEvent::Restart),
        2 => (1..=60_usize).prop_map(ModelEvent::Kill),
    ]
}

/// Sequence of about this many events.
pub fn event_sequence(events: usize) -> impl Strategy<Value = Vec<ModelEvent>> {
    let event = prop_oneof![
        5 => user_event(),
        3 => operator_event(),
        8 => run_event(),
        8 => engine_event(),
        4 => environment_event(),
    ];
    let group = prop_oneof![
        28 => event.prop_map(|event| vec![event]),
        1 => controlled_start(),
    ];
    prop::collection::vec(group, events).prop_map(|groups| groups.concat())
}
