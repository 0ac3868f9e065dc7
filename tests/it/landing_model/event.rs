//! Possible events and their frequencies.

use proptest::prelude::*;

use super::projects::{FILES, PROJECTS, SLOTS};

/// One action of a person, an operator, a run, the host or the environment. Pull requests and runs are positions in the
/// list of the open or live ones, modulo its length. An event that does not apply is skipped.
#[derive(Debug, Clone, PartialEq)]
pub enum LandingEvent {
    /// A person files the next ticket of a place whose last one is done.
    File(usize),
    /// A live run ends.
    Run(usize, RunEnd),
    /// The workflow run that checks the head of a pull request ends.
    Check(usize, CheckEnd),
    /// Another App reports on the head of a pull request.
    AppCheck(usize, CheckEnd),
    /// A check of an older head of a pull request fails.
    OldCheck(usize),
    /// The workflow run that checks the base branch ends.
    BaseCheck(usize, CheckEnd),
    /// A person changes a file of the base branch.
    MoveBase(usize, usize),
    /// The host has not computed yet whether pull requests can be merged.
    Uncomputed(usize, bool),
    /// A person pushes to the branch of a pull request.
    Push(usize),
    Review(usize, &'static str, &'static str),
    /// The last review of a pull request is dismissed.
    Dismiss(usize),
    /// A person begins a conversation at a line.
    Discuss(usize),
    /// The oldest conversation is resolved.
    Resolve(usize),
    Close(usize),
    Reopen(usize),
    /// A person merges, whatever the rules are.
    MergeByHand(usize),
    /// A person turns auto-merge off, or removes the pull request from the merge queue.
    StopMerge(usize),
    /// The host merges what is in the merge queue.
    RunQueue(usize),
    /// A person takes over the ticket of a place.
    Take(usize),
    GiveBack(usize),
    Project(usize, ProjectChange),
    Tick,
    Poll,
    ProcessOutbox,
    /// Follow-ups, repairs, updates and merges are decided.
    Decide,
    /// Reads what no webhook has delivered.
    Sweep,
    /// Runs without faults until nothing changes, then checks everything.
    Settle,
    /// Minutes.
    Wait(u64),
    Fault(&'static str, LandingFault),
    Webhooks(Delivery),
    Restart,
    /// Ends a tick after this many polls, as `kill -9` would, and restarts the service.
    Kill(usize),
}

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunEnd {
    /// It pushes and reports.
    Done,
    Failed,
    /// Its push is rejected, because somebody pushed before.
    Rejected,
    /// It pushes and ends without a report.
    Unreported,
    /// It ends without a push and without a report.
    Vanished,
}

/// End of a check.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CheckEnd {
    Green,
    /// One of several failures.
    Red(usize),
    Cancelled,
}

/// Change of a project by an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProjectChange {
    /// Whether pull requests are merged by policy.
    Merge(bool),
    MaxOpen(Option<u32>),
    MaxAwaiting(Option<u32>),
    /// Whether colliding tickets run side by side.
    AllowCollisions(bool),
    Pause(bool),
}

/// Fault of the next request of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LandingFault {
    Fails,
    /// The request is carried out, and the response is lost.
    ResponseLost,
}

/// Delivery of webhooks from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delivery {
    InOrder,
    /// Half of them are lost.
    Lossy,
    /// Half of them come twice.
    Repeated,
    /// Those of about the same time are shuffled.
    Shuffled,
}

impl LandingEvent {
    /// Name of the event in the statistics.
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        let kind = match self {
            LandingEvent::Run(_, end) => return format!("Run {end:?}"),
            LandingEvent::Fault(request, fault) => return format!("Fault {request} {fault:?}"),
            _ => text.split('(').next(),
        };
        kind.unwrap_or_default().to_owned()
    }
}

fn run_end() -> impl Strategy<Value = RunEnd> {
    prop_oneof![
        8 => Just(RunEnd::Done),
        2 => Just(RunEnd::Failed),
        1 => Just(RunEnd::Rejected),
        1 => Just(RunEnd::Unreported),
        1 => Just(RunEnd::Vanished),
    ]
}

fn check_end() -> impl Strategy<Value = CheckEnd> {
    prop_oneof![
        6 => Just(CheckEnd::Green),
        5 => (0..3_usize).prop_map(CheckEnd::Red),
        1 => Just(CheckEnd::Cancelled),
    ]
}

/// Requests that fail, by a part of their first line or body. Those of the ticketing system are mutations.
fn fault() -> impl Strategy<Value = LandingEvent> {
    let request = prop_oneof![
        3 => Just("/dispatches"),
        3 => Just("/rerun-failed-jobs"),
        3 => Just("/update-branch"),
        4 => Just("/merge"),
        2 => Just("enablePullRequestAutoMerge"),
        2 => Just("disablePullRequestAutoMerge"),
        2 => Just("enqueuePullRequest"),
        3 => Just("/comments"),
        2 => Just("mergeStateStatus"),
        2 => Just("/check-runs"),
        1 => Just("/statuses"),
        2 => Just("mutation("),
    ];
    let kind = prop_oneof![Just(LandingFault::Fails), Just(LandingFault::ResponseLost)];
    (request, kind).prop_map(|(request, kind)| LandingEvent::Fault(request, kind))
}

fn person_event() -> impl Strategy<Value = LandingEvent> {
    use LandingEvent::*;
    let pull = || 0..6_usize;
    let reviewer = prop_oneof![
        4 => Just("mia"),
        3 => Just("kim"),
        1 => Just("guest"),
        1 => Just("agent-implement[bot]"),
        1 => Just("review-app[bot]"),
    ];
    let opinion = prop_oneof![
        6 => Just("APPROVED"),
        1 => Just("CHANGES_REQUESTED"),
        1 => Just("COMMENTED"),
    ];
    prop_oneof![
        4 => (0..SLOTS).prop_map(File),
        3 => pull().prop_map(Push),
        10 => (pull(), reviewer, opinion).prop_map(|(pull, who, opinion)| Review(pull, who, opinion)),
        1 => pull().prop_map(Dismiss),
        1 => pull().prop_map(Discuss),
        3 => pull().prop_map(Resolve),
        1 => pull().prop_map(Close),
        2 => pull().prop_map(Reopen),
        1 => pull().prop_map(MergeByHand),
        1 => pull().prop_map(StopMerge),
        2 => (0..PROJECTS).prop_map(RunQueue),
        4 => (0..PROJECTS, 0..FILES).prop_map(|(project, file)| MoveBase(project, file)),
    ]
}

fn operator_event() -> impl Strategy<Value = LandingEvent> {
    use LandingEvent::*;
    let limit = || prop::option::weighted(0.7, 1..=3_u32);
    let change = prop_oneof![
        3 => prop::bool::weighted(0.8).prop_map(ProjectChange::Merge),
        2 => limit().prop_map(ProjectChange::MaxOpen),
        2 => limit().prop_map(ProjectChange::MaxAwaiting),
        1 => prop::bool::weighted(0.3).prop_map(ProjectChange::AllowCollisions),
        2 => prop::bool::weighted(0.3).prop_map(ProjectChange::Pause),
    ];
    prop_oneof![
        2 => (0..SLOTS).prop_map(Take),
        3 => (0..SLOTS).prop_map(GiveBack),
        2 => (0..PROJECTS, change).prop_map(|(project, change)| Project(project, change)),
    ]
}

fn host_event() -> impl Strategy<Value = LandingEvent> {
    use LandingEvent::*;
    let pull = || 0..6_usize;
    prop_oneof![
        10 => (0..4_usize, run_end()).prop_map(|(run, end)| Run(run, end)),
        10 => (pull(), check_end()).prop_map(|(pull, end)| Check(pull, end)),
        3 => (pull(), check_end()).prop_map(|(pull, end)| AppCheck(pull, end)),
        1 => pull().prop_map(OldCheck),
        2 => (0..PROJECTS, check_end()).prop_map(|(project, end)| BaseCheck(project, end)),
        1 => (0..PROJECTS, any::<bool>()).prop_map(|(project, unknown)| Uncomputed(project, unknown)),
    ]
}

fn engine_event() -> impl Strategy<Value = LandingEvent> {
    use LandingEvent::*;
    prop_oneof![
        12 => Just(Tick),
        2 => Just(Poll),
        3 => Just(ProcessOutbox),
        4 => Just(Decide),
        3 => Just(Sweep),
        1 => Just(Settle),
    ]
}

fn environment_event() -> impl Strategy<Value = LandingEvent> {
    use LandingEvent::*;
    let delivery = prop_oneof![
        3 => Just(Delivery::InOrder),
        1 => Just(Delivery::Lossy),
        1 => Just(Delivery::Repeated),
        1 => Just(Delivery::Shuffled),
    ];
    prop_oneof![
        6 => (1..=12_u64).prop_map(Wait),
        1 => (1..=26_u64).prop_map(|hours| Wait(hours * 60)),
        5 => fault(),
        1 => delivery.prop_map(Webhooks),
        1 => Just(Restart),
        3 => (1..=120_usize).prop_map(Kill),
    ]
}

/// Check of a pull request that stays red: each time it fails, runs end that may repair it, and another failure follows.
fn stubborn_check() -> impl Strategy<Value = Vec<LandingEvent>> {
    use LandingEvent::*;
    (0..6_usize).prop_map(|pull| {
        let rounds = (0..3).flat_map(move |failure| {
            let fails = || [Check(pull, CheckEnd::Red(failure)), Wait(12), Tick];
            let runs_end = (0..4).map(|run| Run(run, RunEnd::Done));
            // It fails again when its failed jobs have run again.
            let twice = fails().into_iter().chain(fails());
            twice.chain(runs_end).chain([Tick])
        });
        rounds.collect()
    })
}

/// Pull request whose checks pass and that two people approve, at once or one after the other. The rules of a project
/// may need the first approval, and those of its repository the second.
fn smooth_merge() -> impl Strategy<Value = Vec<LandingEvent>> {
    use LandingEvent::*;
    (0..6_usize, any::<bool>()).prop_map(|(pull, is_slow)| {
        let passes = [
            Tick,
            Check(pull, CheckEnd::Green),
            AppCheck(pull, CheckEnd::Green),
        ];
        let approve = |who| Review(pull, who, "APPROVED");
        let mut events = [&passes[..], &[approve("mia")]].concat();
        events.extend(is_slow.then_some(Tick));
        events.extend([approve("kim"), Tick]);
        events.extend((0..PROJECTS).map(RunQueue));
        events
    })
}

/// This many events, now and then a [`stubborn_check`] or a [`smooth_merge`] instead of one. Every place begins with a
/// ticket.
pub fn event_sequence(events: usize) -> impl Strategy<Value = Vec<LandingEvent>> {
    let start = (0..SLOTS).map(LandingEvent::File);
    let start: Vec<LandingEvent> = start.chain([LandingEvent::Tick]).collect();
    let event = prop_oneof![
        6 => person_event(),
        2 => operator_event(),
        10 => host_event(),
        9 => engine_event(),
        4 => environment_event(),
    ];
    let part = prop_oneof![
        120 => event.prop_map(|event| vec![event]),
        1 => stubborn_check(),
        2 => smooth_merge(),
    ];
    prop::collection::vec(part, events)
        .prop_map(move |parts| [start.clone(), parts.concat()].concat())
}
