use proptest::prelude::*;

use super::*;
use crate::feedback::{HeadCommit, PullRequestReadiness};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn conflicting(head: &str, base: &str) -> PullRequestRecord {
    PullRequestRecord {
        readiness: PullRequestReadiness {
            mergeable: Some(false),
            merge_state: Some(MergeState::Dirty),
            head: Some(HeadCommit {
                sha: head.to_owned(),
                author_email: super::super::COMMIT_EMAIL.to_owned(),
                parents: vec!["p".to_owned()],
            }),
            base: Some(base.to_owned()),
            ..PullRequestReadiness::default()
        },
        head_seen_at: Some(NOW),
        ..PullRequestRecord::default()
    }
}

fn behind(head: &str, base: &str) -> PullRequestRecord {
    let mut record = conflicting(head, base);
    record.readiness.mergeable = Some(true);
    record.readiness.merge_state = Some(MergeState::Behind);
    record
}

fn attempt(head: &str, base: &str) -> ConflictAttempt {
    ConflictAttempt {
        head: head.to_owned(),
        base: base.to_owned(),
        job: "01J".into(),
    }
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

#[test]
fn a_conflict_gets_one_run_per_head_and_base() {
    let record = conflicting("h1", "b1");
    assert_eq!(record.needed_update(NOW), Some(BranchUpdate::ByRun));
    let mut tried = record.clone();
    tried.updates = tried.updates.with_attempt(attempt("h1", "b1"));
    assert_eq!(tried.needed_update(NOW), None);
    for (head, base) in [("h2", "b1"), ("h1", "b2")] {
        let moved = PullRequestRecord {
            updates: tried.updates.clone(),
            ..conflicting(head, base)
        };
        assert_eq!(moved.needed_update(NOW), Some(BranchUpdate::ByRun));
    }
    tried.updates = tried.updates.without_attempt(&"01J".into());
    assert_eq!(tried, record, "an attempt that was none");
}

#[test]
fn a_branch_that_is_behind_is_updated_by_the_host_once() {
    let mut record = behind("h1", "b1");
    assert_eq!(record.needed_update(NOW), Some(BranchUpdate::ByHost));
    record.updates.by_host = Some(HostUpdate {
        head: "h1".to_owned(),
        base: "b1".to_owned(),
        at: NOW,
    });
    assert_eq!(record.needed_update(NOW), None);
    assert!(record.is_updated_by_host(NOW + minutes(9)));
    assert!(!record.is_updated_by_host(NOW + minutes(10)));
    record.readiness.base = Some("b2".to_owned());
    assert_eq!(record.needed_update(NOW), Some(BranchUpdate::ByHost));
}

#[test]
fn what_the_host_has_not_computed_is_asked_for_later() {
    let mut unknown = conflicting("h1", "b1");
    unknown.readiness.mergeable = None;
    unknown.readiness.merge_state = None;
    assert_eq!(unknown.needed_update(NOW), None);
    let mut clean = behind("h1", "b1");
    for state in [MergeState::Clean, MergeState::Blocked, MergeState::Unstable] {
        clean.readiness.merge_state = Some(state);
        assert_eq!(clean.needed_update(NOW), None, "{state:?}");
    }
    let mut closed = conflicting("h1", "b1");
    closed.status = PullRequestStatus::Closed;
    assert_eq!(closed.needed_update(NOW), None);
    assert_eq!(PullRequestRecord::default().needed_update(NOW), None);
}

#[test]
fn a_branch_is_left_to_people_for_ten_minutes_after_their_push() {
    let mut record = conflicting("h1", "b1");
    let set_head = |record: &mut PullRequestRecord, email: &str, parents: &[&str]| {
        record.readiness.head = Some(HeadCommit {
            sha: "h2".to_owned(),
            author_email: email.to_owned(),
            parents: parents.iter().map(|sha| (*sha).to_owned()).collect(),
        });
    };
    set_head(&mut record, "mia@example.com", &["h1"]);
    assert!(!record.head_is_ours());
    assert_eq!(record.needed_update(NOW + minutes(9)), None);
    let after = NOW + minutes(10);
    assert_eq!(record.needed_update(after), Some(BranchUpdate::ByRun));

    record.updates.by_host = Some(HostUpdate {
        head: "h1".to_owned(),
        base: "b0".to_owned(),
        at: NOW,
    });
    let rows: [(&[&str], bool); 4] = [
        (&["h1", "b1"], true),
        (&["h1"], false),
        (&["b1", "h1"], false),
        (&["h0", "b0"], false),
    ];
    for (parents, is_ours) in rows {
        set_head(&mut record, "bot@users.noreply.github.com", parents);
        assert_eq!(record.head_is_ours(), is_ours, "{parents:?}");
    }
}

#[test]
fn remembers_a_limited_number_of_attempts() {
    let attempts = (0..100).map(|number| attempt(&format!("h{number}"), "b"));
    let updates = attempts.fold(
        BranchUpdateRecord::default(),
        BranchUpdateRecord::with_attempt,
    );
    assert_eq!(updates.attempts.len(), MAX_ATTEMPTS);
    assert_eq!(updates.attempts.last().unwrap().head, "h99");
}

/// Event of a repository with several pull requests.
#[derive(Debug, Clone)]
enum Event {
    /// The base branch moves; each pull request is in conflict, behind, clean or unknown.
    BaseMoves(Vec<u8>),
    /// A person pushes to the branch of a pull request.
    PersonPushes(usize),
    /// A reviewer approves, or withdraws that.
    Approval(usize, bool),
    /// Somebody closes or reopens it.
    Closed(usize, bool),
    /// Feedback starts or ends to wait.
    Gate(usize, bool),
    /// The run that is active ends; true with a pushed merge.
    RunEnds(bool),
    /// The host ends an update; false if it moved nothing.
    HostEnds(bool),
    /// Time passes.
    Minutes(u64),
}

const PULLS: usize = 5;

fn event() -> impl Strategy<Value = Event> {
    let pull = 0..PULLS;
    prop_oneof![
        proptest::collection::vec(0u8..4, PULLS).prop_map(Event::BaseMoves),
        pull.clone().prop_map(Event::PersonPushes),
        (pull.clone(), any::<bool>()).prop_map(|(at, is)| Event::Approval(at, is)),
        (pull.clone(), any::<bool>()).prop_map(|(at, is)| Event::Closed(at, is)),
        (pull, any::<bool>()).prop_map(|(at, is)| Event::Gate(at, is)),
        any::<bool>().prop_map(Event::RunEnds),
        any::<bool>().prop_map(Event::HostEnds),
        (1u64..12).prop_map(Event::Minutes),
    ]
}

/// Repository as the host shows it, and what the service has started.
struct World {
    now: Timestamp,
    records: Vec<PullRequestRecord>,
    is_gated: [bool; PULLS],
    /// Pull request with an active run.
    active_run: Option<usize>,
    /// Number of commits made.
    commits: u64,
    /// Everything that was started: pull request, heads and kind.
    started: Vec<(usize, String, String, BranchUpdate)>,
}

impl World {
    fn new() -> Self {
        let records = (0..PULLS).map(|at| conflicting(&format!("start{at}"), "main0"));
        Self {
            now: NOW,
            records: records.collect(),
            is_gated: [false; PULLS],
            active_run: None,
            commits: 0,
            started: Vec::new(),
        }
    }

    fn sha(&mut self) -> String {
        self.commits += 1;
        format!("c{}", self.commits)
    }

    fn move_head(&mut self, at: usize, email: &str, parents: Vec<String>) {
        let sha = self.sha();
        let now = self.now;
        let record = &mut self.records[at];
        record.head_seen_at = Some(now);
        record.readiness.head = Some(HeadCommit {
            sha,
            author_email: email.to_owned(),
            parents,
        });
    }

    /// Merges the base into a head: nothing is behind or in conflict any more.
    fn merge(&mut self, at: usize, email: &str) {
        let (head, base) = self.records[at].commits().unwrap();
        let parents = vec![head.to_owned(), base.to_owned()];
        self.move_head(at, email, parents);
        self.records[at].readiness.mergeable = Some(true);
        self.records[at].readiness.merge_state = Some(MergeState::Clean);
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::BaseMoves(states) => {
                let base = self.sha();
                for (record, state) in self.records.iter_mut().zip(states) {
                    record.readiness.base = Some(base.clone());
                    (record.readiness.mergeable, record.readiness.merge_state) = match state {
                        0 => (Some(false), Some(MergeState::Dirty)),
                        1 => (Some(true), Some(MergeState::Behind)),
                        2 => (Some(true), Some(MergeState::Clean)),
                        _ => (None, None),
                    };
                }
            }
            Event::PersonPushes(at) => self.move_head(*at, "mia@example.com", vec!["x".to_owned()]),
            Event::Approval(at, is_approved) => {
                let decision = is_approved.then_some(ReviewDecision::Approved);
                self.records[*at].readiness.review_decision = decision;
            }
            Event::Closed(at, is_closed) => {
                self.records[*at].status = match is_closed {
                    true => PullRequestStatus::Closed,
                    false => PullRequestStatus::Open,
                };
            }
            Event::Gate(at, is_gated) => self.is_gated[*at] = *is_gated,
            Event::RunEnds(is_merged) => {
                if let Some(at) = self.active_run.take()
                    && *is_merged
                {
                    self.merge(at, super::super::COMMIT_EMAIL);
                }
            }
            Event::HostEnds(is_moved) => {
                let now = self.now;
                let at = self
                    .records
                    .iter()
                    .position(|one| one.is_updated_by_host(now));
                if let (Some(at), true) = (at, is_moved) {
                    self.merge(at, "bot@users.noreply.github.com");
                }
            }
            Event::Minutes(count) => self.now = self.now + minutes(*count),
        }
    }

    /// Starts the next update as the engine does: the first that may start.
    fn start_next(&mut self) {
        let pulls = (0u64..).zip(&self.records);
        let next = next_updates(pulls, self.active_run.is_some(), self.now);
        let free = |number: u64| !self.is_gated[number as usize];
        let Some((number, update)) = next.into_iter().find(|(number, _)| free(*number)) else {
            return;
        };
        let at = number as usize;
        self.check_order(at);
        let (head, base) = self.records[at].commits().unwrap();
        let (head, base) = (head.to_owned(), base.to_owned());
        let now = self.now;
        self.started.push((at, head.clone(), base.clone(), update));
        let updates = &mut self.records[at].updates;
        match update {
            BranchUpdate::ByRun => {
                *updates = updates.clone().with_attempt(attempt(&head, &base));
                assert_eq!(self.active_run.replace(at), None, "two runs at a time");
            }
            BranchUpdate::ByHost => {
                updates.by_host = Some(HostUpdate {
                    head,
                    base,
                    at: now,
                });
            }
        }
        let under_way = self
            .records
            .iter()
            .filter(|one| one.is_updated_by_host(now))
            .count();
        let under_way = under_way + usize::from(self.active_run.is_some());
        assert_eq!(under_way, 1, "more than one update at a time");
    }

    /// Checks the pull request that was chosen against all others.
    fn check_order(&self, chosen: usize) {
        let is_approved = |at: usize| {
            self.records[at].readiness.review_decision == Some(ReviewDecision::Approved)
        };
        let record = &self.records[chosen];
        assert_eq!(record.status, PullRequestStatus::Open);
        let pushed_at = record.head_seen_at.unwrap();
        assert!(
            record.head_is_ours() || self.now.since(pushed_at) >= QUIET_AFTER_PUSH,
            "somebody pushed a short time ago"
        );
        for other in (0..PULLS).filter(|at| *at != chosen && !self.is_gated[*at]) {
            if self.records[other].needed_update(self.now).is_some() {
                assert!(
                    (!is_approved(chosen), chosen) < (!is_approved(other), other),
                    "{other} comes before {chosen}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn updates_one_branch_at_a_time_in_order_and_once_per_pair(
        events in proptest::collection::vec(event(), 1..60)
    ) {
        let mut world = World::new();
        for event in &events {
            world.apply(event);
            world.start_next();
        }
        let mut runs: Vec<_> = world.started.iter()
            .filter(|(.., update)| *update == BranchUpdate::ByRun)
            .map(|(at, head, base, _)| (at, head, base))
            .collect();
        let count = runs.len();
        runs.sort();
        runs.dedup();
        prop_assert_eq!(runs.len(), count, "two attempts with the same commits");
    }
}
