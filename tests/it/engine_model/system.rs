//! The real engine beside its reference: carries an event out on both and compares what is to be seen.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_implement::clock::Clock;
use agent_implement::domain::mapping::Mapping;
use agent_implement::flow::{deliver, follow_up, poll, watch};
use agent_implement::sandbox::{Dial, Fault, RunSnapshot, Ticket as TownTicket, Vendor};
use agent_implement::store::outbox;
use reqwest::Method;
use serde_json::{Value, json};

use super::event::{Event, Forgery, Told, Trouble, Which};
use super::reference::{Kind, Reference, SLOTS, TRIGGER, Team, Ticket, Verdict};
use super::step::Stopped;
use crate::api::ACCESS_CODE;
use crate::gap_fill::TRIGGER_SECRET;
use crate::webhooks;
use crate::world::{Engine, Making, World, mapping, planning_mapping};

const TEAMS: [&str; 2] = ["ENG", "PLN"];

/// The engine's clock begins so long before the town's that it never gets past it: what a host lists
/// since some time of ours is then all that it has.
const HEAD_START: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// How much time may pass until nothing is owed?
const PATIENCE: u32 = 60;

pub struct System {
    /// None only while its service is stopped.
    world: Option<World>,
    clock: Clock,
    client: reqwest::Client,
    token: String,
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
    fn file(&mut self, slot: usize) {
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

    fn blocker(&self, at: usize) -> TownTicket {
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

    /// What people do. They keep away from a ticket while it is not known whether a marker has come.
    fn change_ticket(&mut self, event: &Event, slot: usize) -> bool {
        let at = self.slots[slot];
        let unsure = self
            .lane(at)
            .first()
            .is_some_and(|errand| errand.attempts > 0);
        let (real, blocker) = (self.ticket(at), self.blocker(at));
        let ticket = &mut self.model.tickets[at];
        match event {
            Event::Flag(_) if !unsure => {
                real.add_label(TRIGGER);
                ticket.labels.insert(TRIGGER);
            }
            Event::Unflag(_) if !unsure => {
                real.remove_label(TRIGGER);
                ticket.labels.remove(TRIGGER);
            }
            Event::Strip(_) if !unsure => {
                for label in std::mem::take(&mut ticket.labels) {
                    real.clone().remove_label(label);
                }
            }
            Event::Close(_) => {
                real.complete();
                ticket.closed = true;
            }
            Event::Reopen(_) if ticket.closed => {
                real.state("unstarted");
                ticket.closed = false;
            }
            Event::Delete(_) => {
                real.delete();
                ticket.gone = true;
                self.file(slot);
            }
            Event::Block(_) => {
                blocker.state("unstarted");
                ticket.blocked = true;
            }
            Event::Unblock(_) => {
                blocker.complete();
                ticket.blocked = false;
            }
            _ => return false,
        }
        true
    }

    async fn operate(&mut self, event: &Event) -> Verdict {
        let at = |slot: &usize| self.slots[*slot];
        let known = |team: &usize| {
            if self.model.teams[*team].mapped {
                200
            } else {
                404
            }
        };
        let url = |team: &usize| format!("/api/mappings/{}", TEAMS[*team]);
        let key = |slot: &usize| &self.model.tickets[at(slot)].key;
        let (method, path, body, wanted) = match event {
            Event::Pause(team, paused) => (
                Method::PATCH,
                url(team),
                json!({ "paused": paused }),
                known(team),
            ),
            Event::Cap(team, cap) => (
                Method::PATCH,
                url(team),
                json!({"maxInProgressAiIssues": cap}),
                known(team),
            ),
            Event::Remove(team) => (Method::DELETE, url(team), Value::Null, known(team)),
            Event::Add(team) => {
                let plans = self.model.teams[*team].plans;
                let file = plans.then_some("agent-plan.yml");
                let body = json!({
                    "teamKey": TEAMS[*team], "owner": "acme", "repo": "shop", "defaultBranch": "main",
                    "ticketingProvider": "A", "planningEnabled": plans, "planningWorkflowFile": file,
                });
                (Method::POST, "/api/mappings".to_owned(), body, 200)
            }
            Event::ClearDedup(slot) => {
                let held = self.model.deduped().contains(key(slot).as_str());
                let held = held || self.model.tickets[at(slot)].dedup.is_some();
                let wanted = if held { 200 } else { 404 };
                (
                    Method::DELETE,
                    format!("/api/dedup/{}", key(slot)),
                    Value::Null,
                    wanted,
                )
            }
            Event::Unpark(slot) => {
                let body = json!({ "issueId": key(slot) });
                (Method::POST, "/api/parked/unpark".to_owned(), body, 200)
            }
            other => unreachable!("{other:?}"),
        };
        let (status, told) = self.ask(method, &path, body).await;
        if status != wanted {
            return Err(format!(
                "{event:?} was answered {status} {told}, not {wanted}"
            ));
        }
        match event {
            Event::Pause(team, paused) if wanted == 200 => self.model.teams[*team].paused = *paused,
            Event::Cap(team, cap) if wanted == 200 => self.model.teams[*team].cap = *cap,
            Event::Remove(team) => self.model.teams[*team].mapped = false,
            Event::Add(team) => {
                let team = &mut self.model.teams[*team];
                // Whether it is paused is kept, if it was there; the cap is not told, so its default.
                team.paused &= team.mapped;
                (team.mapped, team.cap) = (true, 3);
            }
            Event::ClearDedup(slot) => self.model.tickets[self.slots[*slot]].dedup = None,
            Event::Unpark(slot) => {
                let was = self.model.unpark(self.slots[*slot]);
                if told["unparked"] != json!(was) {
                    return Err(format!("unpark answers {told}, not {was}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks the admin API, signed in.
    pub async fn ask(&mut self, method: Method, path: &str, body: Value) -> (u16, Value) {
        loop {
            let url = format!("{}{path}", self.world().address);
            let mut request = self
                .client
                .request(method.clone(), url)
                .bearer_auth(&self.token);
            if !body.is_null() {
                request = request.json(&body);
            }
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            if status != 401 {
                return (status, answer.json().await.unwrap_or_default());
            }
            let url = format!("{}/api/auth", self.world().address);
            let code = json!({ "code": ACCESS_CODE });
            let answer = self.client.post(url).json(&code).send().await.unwrap();
            let signed_in: Value = answer.json().await.unwrap();
            self.token = signed_in["token"].as_str().unwrap().to_owned();
        }
    }

    fn pick(&self, which: Which) -> Option<RunSnapshot> {
        let mut runs = self.world().repo().runs();
        let at = match which {
            Which::Live(at) => {
                runs.retain(|run| run.status != "completed");
                at
            }
            Which::Any(at) => at,
        };
        (!runs.is_empty()).then(|| runs.swap_remove(at % runs.len()))
    }

    /// What a run does; whether it applied.
    async fn run(&mut self, event: &Event, run: &RunSnapshot) -> Result<bool, String> {
        let id = text(run, "dispatch_id");
        match event {
            Event::Begin(_) if run.status == "queued" => self.world().repo().begin_run(run.id),
            Event::Progress(_, named) => {
                let step =
                    json!({"id": "clone", "type": "clone", "status": "passed", "started_at": "t"});
                let body = match named {
                    true => json!({"step": step, "runId": run.id}),
                    false => json!({ "step": step }),
                };
                let status = self
                    .report("/runner/progress", text(run, "run_progress_token"), &body)
                    .await;
                // As with a result, but it may be told again and again.
                let mut wanted = vec![200];
                wanted.extend(self.model.runs[id].hosted.map(|_| 401));
                if !wanted.contains(&status) {
                    return Err(format!("progress of {id} was answered {status}"));
                }
                let job = &self.jobs()[id];
                if status == 200 && matches!(job.status, "unknown" | "dispatched") {
                    return Err(format!("{id} has told a step and does not run: {job:?}"));
                }
            }
            Event::Result(_, told) => return self.tell_result(run, *told).await.map(|()| true),
            Event::Forge(_, forgery) => return self.forge(run, *forgery).await.map(|()| true),
            Event::End(_, conclusion, leaves_pull) if run.status != "completed" => {
                if *leaves_pull && self.model.runs[id].kind == Kind::Implementation {
                    self.open_pull(run);
                }
                self.world().repo().end_run(run.id, conclusion.word());
                let now = self.model.now;
                self.model.runs.get_mut(id).unwrap().host_end = Some((*conclusion, now));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn report(&self, path: &str, token: &str, body: &Value) -> u16 {
        let request = self.client.post(format!("{}{path}", self.world().address));
        let answer = request.bearer_auth(token).json(body).send().await.unwrap();
        answer.status().as_u16()
    }

    /// The pull request on the run's branch, opened if it is not there.
    fn open_pull(&mut self, run: &RunSnapshot) -> u64 {
        let at = self.model.runs[text(run, "dispatch_id")].ticket;
        let repo = self.world().repo();
        let known = self.model.tickets[at].pull;
        let number =
            known.unwrap_or_else(|| repo.open_pull(text(run, "branch"), "agent", "Work", ""));
        self.model.tickets[at].pull = Some(number);
        number
    }

    async fn tell_result(&mut self, run: &RunSnapshot, told: Told) -> Verdict {
        let id = text(run, "dispatch_id").to_owned();
        let kind = self.model.runs[&id].kind;
        let told = match (kind, told) {
            (Kind::Implementation, told) => told,
            (_, Told::Noted) => Told::Done,
            (_, Told::Unapproved) => Told::Failed,
            (_, told) => told,
        };
        let mut body = result(kind, &id, told);
        if kind == Kind::Implementation
            && matches!(told, Told::Done | Told::Noted | Told::Unapproved)
        {
            let number = self.open_pull(run);
            body["prUrl"] = json!(self.world().repo().pull_url(number));
        }
        let wanted = self.model.reports(&id, told)?;
        let status = self
            .report("/runner/result", text(run, "run_token"), &body)
            .await;
        if status != wanted {
            return Err(format!(
                "{told:?} of {id} was answered {status}, not {wanted}"
            ));
        }
        Ok(())
    }

    async fn forge(&mut self, run: &RunSnapshot, forgery: Forgery) -> Verdict {
        let id = text(run, "dispatch_id");
        let mut body = result(self.model.runs[id].kind, id, Told::Failed);
        let token = match forgery {
            Forgery::Audience => text(run, "run_progress_token").to_owned(),
            Forgery::Signature => format!("{}A", text(run, "run_token")),
            Forgery::Phase => {
                let other = ["planning", "gap-analysis"]
                    .into_iter()
                    .find(|phase| body["phase"] != *phase);
                body["phase"] = json!(other);
                text(run, "run_token").to_owned()
            }
        };
        let status = self.report("/runner/result", &token, &body).await;
        match (status, forgery) {
            (401, _) | (400, Forgery::Phase) => Ok(()),
            _ => Err(format!("{forgery:?} of {id} was answered {status}")),
        }
    }

    /// A person asks for more work on a pull request. The answer waits for the start, so it is
    /// delivered meanwhile.
    async fn ask_for_more(&mut self, slot: usize) -> Result<bool, String> {
        let at = self.slots[slot];
        let Some(number) = self.model.tickets[at].pull else {
            return Ok(false);
        };
        let (ticket, team) = (
            &self.model.tickets[at],
            &self.model.teams[self.model.tickets[at].team],
        );
        let troubled = self.model.refusals + self.model.failures > 0 || self.troubled();
        let wanted = match () {
            () if !team.mapped || (!ticket.pull_known && !team.paused) => 404,
            () if team.paused => 423,
            () if self.model.active(at) || troubled => 502,
            () => 200,
        };
        let url = format!("{}/trigger/gap-fill", self.world().address);
        let body = json!({"issueKey": ticket.key, "prNumber": number});
        let request = self
            .client
            .post(url)
            .bearer_auth(TRIGGER_SECRET)
            .json(&body)
            .send();
        let mut request = std::pin::pin!(request);
        let answer = loop {
            tokio::select! {
                answer = &mut request => break answer.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(3)) => {
                    deliver::drain(&self.world().app).await.unwrap();
                }
            }
        };
        let status = answer.status().as_u16();
        if status != wanted && !(troubled && status == 200) {
            return Err(format!(
                "the gap-fill of {} was answered {status}, not {wanted}",
                ticket.key
            ));
        }
        let before = self.model.runs.len();
        self.observe(Did::Asked)?;
        match (status, self.model.runs.len() - before) {
            (200, 1) | (502, 0 | 1) | (404 | 423, 0) => Ok(true),
            (status, begun) => Err(format!(
                "a gap-fill was answered {status} and began {begun} runs"
            )),
        }
    }

    async fn hook_twice(&mut self, slot: usize) -> Verdict {
        let mut body = webhooks::payload("merged");
        body["pull_request"]["number"] =
            json!(self.model.tickets[self.slots[slot]].pull.unwrap_or(9_999));
        let (body, id) = (body.to_string(), format!("{:032x}", fastrand::u128(..)));
        for again in [false, true] {
            let request = self
                .client
                .post(format!("{}/api/repo-host/webhook", self.world().address));
            let request = request
                .header("x-hub-signature-256", webhooks::signature(body.as_bytes()))
                .header("x-github-event", "pull_request")
                .header("x-github-delivery", &id);
            let answer = request.body(body.clone()).send().await.unwrap();
            let (status, told) = (
                answer.status().as_u16(),
                answer.json::<Value>().await.unwrap(),
            );
            if status != 200 || (told["reason"] == json!("duplicate")) != again {
                return Err(format!(
                    "a webhook, again {again}, was answered {status} {told}"
                ));
            }
        }
        self.model.merges(self.slots[slot]);
        Ok(())
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

fn result(kind: Kind, id: &str, told: Told) -> Value {
    let phase = match kind {
        Kind::Planning => "planning",
        Kind::Implementation => "implementation",
        Kind::GapFill => "gap-analysis",
    };
    let mut body = json!({"phase": phase, "outcome": "success", "comments": [{"body": format!("Said by {id}")}]});
    let failure = match told {
        Told::Done => return body,
        Told::Noted => {
            body["unresolved"] = json!(["a race"]);
            return body;
        }
        Told::Unapproved => json!("REVIEW_UNAPPROVED"),
        Told::Failed => json!("VERIFY_FAILED"),
        Told::Unavailable => json!("PROVIDER_UNAVAILABLE"),
    };
    body["outcome"] = json!("failure");
    body["failureCode"] = failure;
    body["failureReason"] = json!("it did not work");
    body
}
