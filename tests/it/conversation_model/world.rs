//! The real engine with fake vendors, and what people, runs and operators have done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::ids::JobId;
use domain::issue::System;
use domain::job::JobKind;
use domain::mapping::Mapping;
use domain::plan_approval::{PlanApproval, PlanGate};
use domain::question::OpenQuestion;
use domain::time::Timestamp;
use engine::{outbox_worker, poll};
use fake_vendors::{FakeRepo, FakeService, InjectedFault, RunSnapshot};
use reqwest::Method;
use serde_json::{Value, json};
use store::{jobs, open_questions, outbox, plan_gates};

use super::event::{ConversationEvent, ConversationFault, RunResult, TICKETS};
use super::people::{self, ANSWER, COMMAND, PERSON};
use crate::api_server::send_checked;
use crate::model::service::ModelService;
use crate::test_env::TestEnv;
use crate::test_ticket::{TestTicket, key_in, mapping_for, with_planning};

/// Hours after which the work of the first project goes on without an answer.
const QUESTION_TIMEOUT_HOURS: u32 = 48;

/// Ticket with what was done to it.
pub struct WorldTicket {
    pub key: String,
    pub ticket: TestTicket,
    /// Whether its plans wait for an approval.
    pub is_planned: bool,
    pub closed: bool,
    /// Number of commands by people.
    pub commands: usize,
    /// Those that were written when the ticket had had a run.
    pub known_commands: usize,
    /// Number of answers by people, and of their edits.
    answers: usize,
    pull: Option<u64>,
}

pub struct World {
    pub service: ModelService,
    pub system: System,
    token: String,
    pub tickets: Vec<WorldTicket>,
    /// Title of the ticket when a planning run was reserved.
    pub planned_titles: BTreeMap<JobId, String>,
    /// Jobs seen so far, and those that have ended.
    pub seen: BTreeSet<JobId>,
    pub ended: BTreeSet<JobId>,
    /// Times at which the plan of a job began to wait. A wait that has ended begins again if its ticket shows the plan.
    pub waits: BTreeMap<JobId, BTreeSet<Timestamp>>,
    pub milestones: BTreeMap<String, u64>,
}

fn mappings(system: System) -> Vec<Mapping> {
    vec![
        Mapping {
            question_timeout_hours: Some(QUESTION_TIMEOUT_HOURS),
            ..mapping_for(system, "ENG")
        },
        Mapping {
            plan_approval: PlanApproval::Required,
            ..with_planning(mapping_for(system, "PLN"))
        },
    ]
}

impl World {
    pub async fn start(system: System) -> Self {
        let service = ModelService::start(mappings(system), Vec::new()).await;
        let env = service.env();
        env.vendors.linear().ensure_team("PLN", "Planning");
        for project in ["ENG", "PLN"] {
            env.vendors.jira().ensure_project(project, project);
        }
        if system == System::GitHub {
            for name in ["eng", "pln"] {
                env.seed_repo(name).set_collaborator_role(PERSON, "write");
            }
        }
        let tickets = (0..TICKETS).map(|at| {
            let team = if at == 0 { "ENG" } else { "PLN" };
            let key = key_in(system, &format!("{team}-{}", (at + 1) * 1_000));
            WorldTicket {
                ticket: TestTicket::create(env, system, &key, "Work"),
                key,
                is_planned: at > 0,
                closed: false,
                commands: 0,
                known_commands: 0,
                answers: 0,
                pull: None,
            }
        });
        Self {
            tickets: tickets.collect(),
            service,
            system,
            token: String::new(),
            planned_titles: BTreeMap::new(),
            seen: BTreeSet::new(),
            ended: BTreeSet::new(),
            waits: BTreeMap::new(),
            milestones: BTreeMap::new(),
        }
    }

    pub fn env(&self) -> &TestEnv {
        self.service.env()
    }

    pub fn questions(&self) -> Vec<OpenQuestion> {
        self.env().store.read(open_questions::all).unwrap()
    }

    pub fn gates(&self) -> Vec<PlanGate> {
        self.env().store.read(plan_gates::all).unwrap()
    }

    fn question(&self, at: usize) -> Option<OpenQuestion> {
        let mut all = self.questions().into_iter();
        all.find(|one| one.issue.matches_id_or_key(&self.tickets[at].key))
    }

    fn waiting_gate(&self, at: usize) -> Option<PlanGate> {
        let mut all = self.gates().into_iter().filter(PlanGate::is_waiting);
        all.find(|one| one.issue.matches_id_or_key(&self.tickets[at].key))
    }

    pub fn repos(&self) -> Vec<FakeRepo> {
        let names: &[&str] = match self.system {
            System::GitHub => &["eng", "pln"],
            _ => &["shop"],
        };
        let repo = |name: &&str| self.env().vendors.github().repo("acme", name);
        names.iter().map(repo).collect()
    }

    /// Applies an event and checks what must always hold. Returns false if the event does not apply.
    pub async fn apply(&mut self, event: &ConversationEvent) -> Result<bool, String> {
        // Jobs are in the order of their times.
        self.service.clock.advance(Duration::from_millis(1));
        let applied = match event {
            ConversationEvent::Tick => self.tick().await,
            ConversationEvent::Poll => {
                poll::run_once(&self.env().app).await.unwrap();
                true
            }
            ConversationEvent::ProcessOutbox => {
                outbox_worker::drain(&self.env().app).await.unwrap();
                true
            }
            ConversationEvent::Wait(minutes) => {
                // Retries of effects happen much sooner.
                let queues = self.env().store.read(outbox::queue_keys).unwrap();
                let minutes = if queues.is_empty() {
                    *minutes
                } else {
                    5.min(*minutes)
                };
                self.service
                    .clock
                    .advance(Duration::from_secs(minutes * 60));
                true
            }
            ConversationEvent::Fault(fault) => self.inject(*fault),
            ConversationEvent::Restart => {
                self.service.restart().await;
                true
            }
            ConversationEvent::Kill(polls) => {
                self.service.kill(*polls).await;
                true
            }
            ConversationEvent::Settle => {
                self.settle().await?;
                true
            }
            ConversationEvent::Result(run, result) => self.report_result(*run, *result).await,
            ConversationEvent::Vanish(run) => self.end_run(*run),
            ConversationEvent::AnswerByApi(at)
            | ConversationEvent::ApproveByApi(at)
            | ConversationEvent::RejectByApi(at)
            | ConversationEvent::ReplanByApi(at) => self.operate(event, *at).await?,
            person => self.act(person),
        };
        self.check_always()?;
        Ok(applied)
    }

    pub async fn tick(&self) -> bool {
        self.env().tick().await;
        true
    }

    fn act(&mut self, event: &ConversationEvent) -> bool {
        let (ConversationEvent::Flag(at)
        | ConversationEvent::Unflag(at)
        | ConversationEvent::Close(at)
        | ConversationEvent::Retitle(at)
        | ConversationEvent::Answer(at)
        | ConversationEvent::EditAnswer(at)
        | ConversationEvent::AnswerOfApp(at)
        | ConversationEvent::Command(at, _)
        | ConversationEvent::ApproveByMarker(at)) = event
        else {
            unreachable!("{event:?}")
        };
        let has_run = !self.env().jobs(&self.tickets[*at].key).is_empty();
        let comments = people::comments(
            self.env(),
            &self.tickets[*at].ticket,
            &self.tickets[*at].key,
        );
        let WorldTicket {
            ticket,
            closed,
            commands,
            known_commands,
            answers,
            ..
        } = &mut self.tickets[*at];
        match event {
            // Applying the trigger of a ticket that waits or is worked on would start it anew in Jira.
            ConversationEvent::Flag(_) if ticket.markers().is_empty() && !*closed => {
                ticket.trigger();
            }
            ConversationEvent::Unflag(_) => people::remove_trigger(ticket),
            ConversationEvent::Close(_) if !*closed => {
                people::close(ticket);
                *closed = true;
            }
            ConversationEvent::Retitle(_) => {
                let title = format!("{} again", people::title(ticket));
                people::retitle(ticket, &title);
            }
            ConversationEvent::Answer(_) => {
                *answers += 1;
                people::comment(ticket, &format!("{ANSWER} {answers}"));
            }
            ConversationEvent::EditAnswer(_) => {
                let mut own = comments.iter().rev();
                let Some(latest) = own.find(|one| one.text.starts_with(ANSWER)) else {
                    return false;
                };
                *answers += 1;
                people::edit(ticket, &latest.id, &format!("{ANSWER} {answers}"));
            }
            ConversationEvent::AnswerOfApp(_) => people::comment_of_app(ticket),
            ConversationEvent::Command(_, command) => {
                *commands += 1;
                *known_commands += usize::from(has_run);
                people::comment(ticket, &format!("{COMMAND} {command}"));
            }
            ConversationEvent::ApproveByMarker(_) => people::set_approved(ticket),
            _ => return false,
        }
        true
    }

    /// Sends a request of an operator, and checks its response.
    async fn operate(&mut self, event: &ConversationEvent, at: usize) -> Result<bool, String> {
        let (has_question, has_gate) =
            (self.question(at).is_some(), self.waiting_gate(at).is_some());
        let key = self.tickets[at].key.replace('#', "%23");
        let (path, body, expected) = match event {
            ConversationEvent::AnswerByApi(_) => (
                format!("/api/questions/{key}/answer"),
                json!({"answer": "whatever"}),
                if has_question { 202 } else { 404 },
            ),
            ConversationEvent::ApproveByApi(_) => (
                format!("/api/plans/{key}/approve"),
                Value::Null,
                if has_gate { 200 } else { 404 },
            ),
            ConversationEvent::RejectByApi(_) => (
                format!("/api/plans/{key}/reject"),
                Value::Null,
                if has_gate { 200 } else { 404 },
            ),
            _ => (
                format!("/api/plans/{key}/replan"),
                json!({"instruction": "use sqlite"}),
                if has_gate { 202 } else { 404 },
            ),
        };
        let is_approval = matches!(event, ConversationEvent::ApproveByApi(_));
        let (status, body) = self.admin_request(&path, body).await;
        // The ticket may have changed, or a fault may hide it.
        let is_refusal = is_approval && has_gate && matches!(status, 409 | 502);
        if status != expected && !is_refusal {
            return Err(format!("{path} got status {status} {body}, not {expected}"));
        }
        Ok(status < 300)
    }

    async fn admin_request(&mut self, path: &str, body: Value) -> (u16, Value) {
        loop {
            let url = format!("{}{path}", self.env().address);
            let mut request = reqwest::Client::new().request(Method::POST, url);
            request = request.bearer_auth(&self.token);
            if !body.is_null() {
                request = request.json(&body);
            }
            let response = send_checked(request).await;
            if response.status != 401 {
                return (response.status, response.body);
            }
            self.token = self.env().sign_in().await;
        }
    }

    fn live_run(&self, which: usize) -> Option<(FakeRepo, RunSnapshot)> {
        let repos = self.repos().into_iter();
        let runs = repos.flat_map(|repo| {
            let runs = repo.runs().into_iter();
            runs.map(move |run| (repo.clone(), run)).collect::<Vec<_>>()
        });
        let mut live: Vec<_> = runs.filter(|(_, run)| run.status != "completed").collect();
        (!live.is_empty()).then(|| live.swap_remove(which % live.len()))
    }

    fn end_run(&self, which: usize) -> bool {
        let Some((repo, run)) = self.live_run(which) else {
            return false;
        };
        repo.complete_run(run.id, "failure");
        true
    }

    /// Reports a result, until it is acknowledged or refused, and ends the run.
    async fn report_result(&mut self, which: usize, result: RunResult) -> bool {
        let Some((repo, run)) = self.live_run(which) else {
            return false;
        };
        let id = JobId::from(input(&run, "dispatch_id"));
        let job = self.env().store.read(|tx| jobs::get(tx, &id)).unwrap();
        let Some(job) = job else { return false };
        let is_planning = job.kind == JobKind::Planning;
        let phase = if is_planning {
            "planning"
        } else {
            "implementation"
        };
        let mut body = json!({"phase": phase, "outcome": "success", "comments": []});
        match result {
            RunResult::Done if is_planning => {
                let plan = format!("Plan of {id}\n\n## Files\n\n- `src/cart.rs`");
                body["comments"] = json!([{ "body": plan }]);
            }
            RunResult::Done => {
                let key = input(&run, "issue_identifier");
                let ticket = { self.tickets.iter_mut() }.find(|one| one.key == key);
                let pull = &mut ticket.unwrap().pull;
                let branch = input(&run, "branch");
                let number =
                    *pull.get_or_insert_with(|| repo.open_pull(branch, "agent", "Work", ""));
                body["prUrl"] = json!(repo.pull_url(number));
            }
            RunResult::Failed => {
                body["outcome"] = json!("failure");
                body["failureCode"] = json!("VERIFY_FAILED");
                body["failureReason"] = json!("it did not work");
            }
            RunResult::Asks(has_patch) => {
                body["outcome"] = json!("failure");
                body["failureCode"] = json!("NEEDS_INPUT");
                body["questions"] = json!([{"text": format!("Which one {id}?"), "choices": ["a", "b"], "default": "a"}]);
                if has_patch {
                    body["patch"] = json!("diff --git a/x b/x\n");
                }
            }
        }
        let request = reqwest::Client::new().post(format!("{}/runner/result", self.env().address));
        let request = request.bearer_auth(input(&run, "run_token")).json(&body);
        request.send().await.unwrap();
        let conclusion = match result {
            RunResult::Done => "success",
            _ => "failure",
        };
        repo.complete_run(run.id, conclusion);
        true
    }

    fn service(&self) -> FakeService {
        match self.system {
            System::Linear => FakeService::Linear,
            System::Jira => FakeService::Jira,
            System::GitHub => FakeService::GitHub,
        }
    }

    fn inject(&self, fault: ConversationFault) -> bool {
        let faults = self.env().vendors.faults(self.service());
        let fault = match fault {
            ConversationFault::Fails => InjectedFault::ErrorStatus(500),
            ConversationFault::ResponseLost => InjectedFault::DropResponse,
        };
        let change = match self.system {
            System::Linear => "mutation(",
            System::Jira => "/comment",
            System::GitHub => "/comments",
        };
        faults.inject_on_match(change, fault);
        true
    }

    pub fn clear_faults(&self) {
        self.env().vendors.faults(self.service()).clear();
    }
}

fn input<'r>(run: &'r RunSnapshot, name: &str) -> &'r str {
    run.inputs[name].as_str().unwrap()
}
