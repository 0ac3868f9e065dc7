//! The real engine beside its reference: carries an event out on both and compares what is to be seen.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::mapping::Mapping;
use engine::clock::Clock;
use engine::{deliver, follow_up, poll, watch};
use fake_vendors::{Dial, Fault, RunSnapshot, Ticket as TownTicket, Vendor};
use store::outbox;

use super::event::{Event, Trouble};
use super::reference::{Reference, SLOTS, Team, Ticket, Verdict};
use super::step::Stopped;
use crate::gap_fill::TRIGGER_SECRET;
use crate::webhooks;
use crate::world::{Engine, Making, World, mapping, planning_mapping};

pub const TEAMS: [&str; 2] = ["ENG", "PLN"];

/// The engine's clock begins so long before the town's that it never gets past it: what a host lists
/// since some time of ours is then all that it has.
const HEAD_START: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// How much time may pass until nothing is owed?
const PATIENCE: u32 = 60;

pub struct System {
    /// None only while its service is stopped.
    world: Option<World>,
    clock: Clock,
    pub client: reqwest::Client,
    pub token: String,
    pub model: Reference,
    pub slots: [usize; SLOTS],
    filed: usize,
    /// Reasons that were told, by ticket or not.
    pub told: BTreeMap<String, u64>,
}

/// What the service did in a step.
#[derive(Clone, Copy, PartialEq)]
pub enum Did {
    Nothing,
    Poll,
    Watch,
    /// A part of a turn.
    Some,
    /// A person asked for work on a pull request.
    Asked,
}

fn making(mappings: Vec<Mapping>, clock: &Clock) -> Making {
    Making {
        mappings,
        flags: vec![
            ("--gap-fill-trigger-secret", TRIGGER_SECRET.to_owned()),
            ("--scm-webhook-secret", webhooks::SECRET.to_owned()),
        ],
        engine: Engine::ByHand(clock.clone()),
        runs_by_hand: true,
        ..Making::default()
    }
}

fn team_mapping(team: usize) -> Mapping {
    match team {
        0 => Mapping {
            max_in_progress: 2,
            ..mapping()
        },
        _ => Mapping {
            team_key: "PLN".into(),
            max_in_progress: 1,
            ..planning_mapping()
        },
    }
}

impl System {
    pub async fn start() -> Self {
        let real = Clock::Machine.now();
        let clock = Clock::by_hand(real - HEAD_START);
        let world = World::made(making(vec![team_mapping(0), team_mapping(1)], &clock)).await;
        world.town.linear().team("PLN", "Planning");
        let team = |plans, cap| Team {
            mapped: true,
            paused: false,
            plans,
            cap,
        };
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .no_proxy();
        let mut system = Self {
            world: Some(world),
            clock,
            client: client.build().unwrap(),
            token: String::new(),
            model: Reference {
                teams: vec![team(false, 2), team(true, 1)],
                ..Reference::default()
            },
            slots: [0; SLOTS],
            filed: 0,
            told: BTreeMap::new(),
        };
        for slot in 0..SLOTS {
            system.file(slot);
        }
        system
    }

    pub async fn stop(mut self) {
        let asleep = self.world.take().unwrap().asleep().await;
        asleep.town.stop_and_kill_runs().await;
    }

    pub fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    /// A new ticket, and one that may block it.
    pub fn file(&mut self, slot: usize) {
        self.filed += 1;
        let team = usize::from(slot >= SLOTS - 2);
        let key = format!("{}-{}", TEAMS[team], self.filed);
        let linear = self.world().town.linear();
        let blocker = format!("{}-{}", TEAMS[team], 1_000 + self.filed);
        linear.issue(&blocker).title("First this").complete();
        linear
            .issue(&key)
            .title("Work")
            .describe("Please.")
            .blocked_by(&blocker);
        self.slots[slot] = self.model.tickets.len();
        self.model.tickets.push(Ticket {
            key,
            team,
            ..Ticket::default()
        });
    }

    pub fn ticket(&self, at: usize) -> TownTicket {
        self.world()
            .town
            .linear()
            .issue(&self.model.tickets[at].key)
    }

    pub fn blocker(&self, at: usize) -> TownTicket {
        let (team, number) = self.model.tickets[at].key.split_once('-').unwrap();
        let number: usize = number.parse().unwrap();
        self.world()
            .town
            .linear()
            .issue(&format!("{team}-{}", 1_000 + number))
    }

    pub fn lane(&self, at: usize) -> Vec<outbox::Errand> {
        let Some(ticket) = self.ticket(at).snapshot() else {
            return Vec::new();
        };
        let lane = format!("ticket:{}", ticket.id);
        self.world()
            .app
            .store
            .read(|tx| outbox::of_lane(tx, &lane))
            .unwrap()
    }

    /// Carries an event out; whether it applied.
    pub async fn step(&mut self, event: &Event) -> Result<bool, String> {
        self.model.now = self.clock.now().as_millis();
        let did = match event {
            Event::Flag(slot)
            | Event::Unflag(slot)
            | Event::Strip(slot)
            | Event::Close(slot)
            | Event::Reopen(slot)
            | Event::Delete(slot)
            | Event::Block(slot)
            | Event::Unblock(slot) => self.change_ticket(event, *slot).then_some(Did::Nothing),
            Event::Pause(..)
            | Event::Remove(_)
            | Event::Add(_)
            | Event::Cap(..)
            | Event::ClearDedup(_)
            | Event::Unpark(_) => {
                self.operate(event).await?;
                Some(Did::Nothing)
            }
            Event::Begin(which)
            | Event::Progress(which, _)
            | Event::Result(which, _)
            | Event::Forge(which, _)
            | Event::End(which, ..) => {
                let Some(run) = self.pick(*which) else {
                    return Ok(false);
                };
                self.run(event, &run).await?.then_some(Did::Nothing)
            }
            Event::Turn => {
                self.turn().await?;
                Some(Did::Nothing)
            }
            Event::Poll => Some(self.poll().await),
            Event::Deliver => Some(self.deliver().await),
            Event::Watch => Some(self.watch().await),
            Event::Settle => {
                self.settle().await?;
                Some(Did::Nothing)
            }
            Event::Wait(seconds) => {
                self.wait(*seconds);
                Some(Did::Nothing)
            }
            Event::Fault(trouble) => {
                self.trouble(*trouble);
                Some(Did::Nothing)
            }
            Event::GapFill(slot) => return self.ask_for_more(*slot).await,
            Event::Webhook(slot) => {
                self.hook_twice(*slot).await?;
                Some(Did::Nothing)
            }
            Event::Restart => {
                self.restart().await;
                Some(Did::Nothing)
            }
            Event::Kill(looks) => Some(self.kill(*looks).await),
        };
        match did {
            Some(did) => self.observe(did).map(|()| true),
            None => Ok(false),
        }
    }

    pub fn troubled(&self) -> bool {
        let town = &self.world().town;
        [Vendor::Linear, Vendor::GitHub]
            .iter()
            .any(|vendor| town.faults(*vendor).pending() > 0)
    }

    fn trouble(&mut self, trouble: Trouble) {
        let town = &self.world().town;
        let (linear, github) = (
            town.faults(Vendor::Linear).clone(),
            town.faults(Vendor::GitHub).clone(),
        );
        let dispatch = |fault| github.next_on("/dispatches", fault);
        match trouble {
            Trouble::Refused(status) => {
                self.model.refusals += 1;
                dispatch(Fault::Status(status));
            }
            Trouble::DispatchFails => {
                self.model.failures += 1;
                dispatch(Fault::Status(500));
            }
            Trouble::DispatchLost => {
                self.model.failures += 1;
                dispatch(Fault::DropAfter);
            }
            Trouble::DispatchForgotten => dispatch(Fault::Status(204)),
            Trouble::DispatchNameless => dispatch(Fault::StatusAfter(204)),
            Trouble::TicketFails => linear.next_on("mutation(", Fault::Status(500)),
            Trouble::TicketLost => linear.next_on("mutation(", Fault::DropAfter),
            Trouble::PollFails => linear.next_on("orderBy: createdAt", Fault::Status(500)),
            Trouble::ListFails => github.next_on("/actions/runs?", Fault::Status(500)),
        }
    }

    /// Time passes; not much while something is owed, because nobody would wait so long to try again.
    fn wait(&mut self, seconds: u64) {
        let owed = !self
            .world()
            .app
            .store
            .read(outbox::lanes)
            .unwrap()
            .is_empty();
        let seconds = if owed { seconds.min(300) } else { seconds };
        self.clock.advance(Duration::from_secs(seconds));
        self.model.now = self.clock.now().as_millis();
    }

    fn owes(&self) -> bool {
        let lanes = self.world().app.store.read(outbox::lanes).unwrap();
        !lanes.is_empty()
    }

    async fn poll(&mut self) -> Did {
        poll::once(&self.world().app).await.unwrap();
        Did::Poll
    }

    async fn deliver(&mut self) -> Did {
        deliver::drain(&self.world().app).await.unwrap();
        Did::Nothing
    }

    async fn watch(&mut self) -> Did {
        follow_up::once(&self.world().app).await.unwrap();
        watch::once(&self.world().app).await.unwrap();
        Did::Watch
    }

    async fn turn(&mut self) -> Verdict {
        let did = self.poll().await;
        self.observe(did)?;
        let did = self.deliver().await;
        self.observe(did)?;
        let did = self.watch().await;
        self.observe(did)?;
        let did = self.deliver().await;
        self.observe(did)
    }

    async fn restart(&mut self) {
        let asleep = self.world.take().unwrap().asleep().await;
        self.world = Some(asleep.awake(making(Vec::new(), &self.clock)).await);
    }

    /// The service goes away in the middle of a turn. What the vendors were asked for, they still do.
    async fn kill(&mut self, looks: usize) -> Did {
        Stopped::after(looks, self.world().turn()).await;
        self.world().town.at_rest().await;
        self.restart().await;
        Did::Some
    }

    /// Nothing goes wrong any more, and the engine is turned until nothing is owed and nothing changes.
    async fn settle(&mut self) -> Verdict {
        let town = &self.world().town;
        for vendor in [Vendor::Linear, Vendor::GitHub] {
            town.faults(vendor).clear();
            town.faults(vendor).set(Dial::default());
        }
        (self.model.refusals, self.model.failures) = (0, 0);
        for _ in 0..PATIENCE {
            let before = (self.owes(), self.jobs_told());
            self.turn().await?;
            if before == (false, self.jobs_told()) && !self.owes() {
                return self.compare().await;
            }
            if self.owes() {
                self.clock.advance(Duration::from_secs(61));
                self.model.now = self.clock.now().as_millis();
            }
        }
        let owed = self.world().app.store.read(outbox::pending).unwrap();
        Err(format!("it never comes to rest: {owed:#?}"))
    }
}

pub fn text<'r>(run: &'r RunSnapshot, input: &str) -> &'r str {
    run.inputs[input].as_str().unwrap()
}
