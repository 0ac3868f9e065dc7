//! What must hold after each event, and what must hold when nothing changes any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::audit::AuditEntry;
use domain::decision::DecisionOutcome;
use domain::issue::{Phase, System};
use domain::job::{Job, JobKind, JobState};
use domain::plan_approval::PlanGate;
use domain::question::{AnswerSource, MAX_ROUNDS, OpenQuestion};
use domain::report::FailureCode;
use store::{audit, decisions, issue_contexts, jobs, outbox};

use super::people::{self, ANSWER, PostedComment, letters};
use super::world::{World, WorldTicket};

/// Ticks without a change after which nothing changes any more. Comments of Jira are read in every fifth poll.
const QUIET_TICKS: u32 = 7;

/// Maximum number of ticks until then.
const MAX_TICKS: u32 = 120;

/// Markers of a run. A question that is no longer open counts as a new trigger.
const WORKING: [&str; 4] = [
    "Agent-Working",
    "Agent-Planning",
    "Implementing",
    "Planning",
];

/// Actions that end the wait of a plan.
const PLAN_DECISIONS: [&str; 3] = ["plan-approved", "plan-rejected", "plan-asked"];

type CheckResult = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(why()) }
}

impl World {
    fn jobs(&self) -> Vec<Job> {
        let mut jobs = self
            .env()
            .store
            .read(|tx| jobs::latest(tx, 10_000))
            .unwrap();
        jobs.sort_by(|one, other| (one.reserved_at, &one.id).cmp(&(other.reserved_at, &other.id)));
        jobs
    }

    fn audit(&self) -> Vec<AuditEntry> {
        let read = self.env().store.read(|tx| audit::latest(tx, None, 100_000));
        read.unwrap()
    }

    fn comments(&self, ticket: &WorldTicket) -> Vec<PostedComment> {
        people::comments(self.env(), &ticket.ticket, &ticket.key)
    }

    fn our_comments(&self, ticket: &WorldTicket) -> Vec<String> {
        let comments = self.comments(ticket).into_iter();
        comments
            .filter(|one| one.is_ours)
            .map(|one| one.text)
            .collect()
    }

    /// Counts what happened in this case.
    pub fn count_all(&self) -> BTreeMap<String, u64> {
        let mut all = self.milestones.clone();
        for entry in self.audit() {
            *all.entry(entry.action).or_default() += 1;
        }
        for job in self.jobs() {
            let name = format!("{} {}", job.kind.as_str(), job.state.status());
            *all.entry(name).or_default() += 1;
        }
        all
    }

    /// Checks what holds at any time.
    pub fn check_always(&mut self) -> CheckResult {
        let (jobs, audit) = (self.jobs(), self.audit());
        for gate in self.gates() {
            let waits = self.waits.entry(gate.job).or_default();
            waits.insert(gate.planned_at);
        }
        self.check_runs(&jobs)?;
        self.check_new_jobs(&jobs, &audit)?;
        for job in &jobs {
            let is_repeated = self.ended.contains(&job.id) && job.is_active();
            ensure(!is_repeated, || format!("{} goes on after its end", job.id))?;
            if !job.is_active() {
                self.ended.insert(job.id.clone());
            }
            let waits = self.waits.get(&job.id).map_or(1, BTreeSet::len);
            for (actions, detail, expected) in [
                (&["question-answered"][..], "of job", 1),
                (&PLAN_DECISIONS, "plan of job", waits),
            ] {
                let detail = format!("{detail} {}", job.id);
                let counts = |entry: &&AuditEntry| {
                    actions.contains(&entry.action.as_str()) && entry.detail.contains(&detail)
                };
                let counted = audit.iter().filter(counts).count();
                ensure(counted <= expected, || {
                    format!("{actions:?} count {counted} times for {}", job.id)
                })?;
            }
        }
        for ticket in &self.tickets {
            self.check_ticket(ticket, &jobs, &audit)?;
        }
        Ok(())
    }

    /// One run per dispatch, and one active run per ticket.
    fn check_runs(&self, jobs: &[Job]) -> CheckResult {
        let mut active = BTreeSet::new();
        for job in jobs.iter().filter(|job| job.is_active()) {
            ensure(active.insert(&job.issue.id), || {
                format!("two runs of {}: {jobs:#?}", job.issue.key)
            })?;
        }
        let mut dispatched = BTreeSet::new();
        for run in self.repos().iter().flat_map(|repo| repo.runs()) {
            let id = run.inputs["dispatch_id"].to_string();
            ensure(dispatched.insert(id.clone()), || format!("{id} runs twice"))?;
        }
        Ok(())
    }

    /// An implementation of a planned ticket follows an approval of the latest plan since it waits, for the text that
    /// was planned.
    fn check_new_jobs(&mut self, jobs: &[Job], audit: &[AuditEntry]) -> CheckResult {
        for job in jobs {
            if !self.seen.insert(job.id.clone()) {
                continue;
            }
            let mut tickets = self.tickets.iter();
            let ticket = tickets.find(|one| job.issue.matches_id_or_key(&one.key));
            let ticket = ticket.unwrap();
            let title = people::title(&ticket.ticket);
            if job.kind == JobKind::Planning {
                self.planned_titles.insert(job.id.clone(), title);
                continue;
            }
            if !ticket.is_planned || job.kind != JobKind::Implementation {
                continue;
            }
            let of_ticket = jobs.iter().filter(|one| one.issue.id == job.issue.id);
            let mut plans = of_ticket.filter(|one| one.kind == JobKind::Planning);
            let Some(plan) = plans.rfind(|one| one.state == JobState::Completed) else {
                return Err(format!("{} is implemented without a plan", ticket.key));
            };
            let detail = format!("plan of job {}", plan.id);
            let mut approvals = audit.iter().filter(|entry| entry.action == "plan-approved");
            let waits_since = self.waits.get(&plan.id).and_then(|waits| waits.last());
            let is_approved = approvals.any(|entry| {
                entry.detail.contains(&detail) && waits_since.is_none_or(|since| entry.at >= *since)
            });
            ensure(is_approved, || {
                format!("{} is implemented without an approval", ticket.key)
            })?;
            let planned = &self.planned_titles[&plan.id];
            ensure(*planned == title, || {
                format!("{} was planned for {planned:?}, not {title:?}", ticket.key)
            })?;
        }
        Ok(())
    }

    fn check_ticket(
        &self,
        ticket: &WorldTicket,
        jobs: &[Job],
        audit: &[AuditEntry],
    ) -> CheckResult {
        let ours = self.our_comments(ticket);
        let of_ticket = jobs
            .iter()
            .filter(|job| job.issue.matches_id_or_key(&ticket.key));
        for job in of_ticket {
            for text in [
                format!("Which one {}?", job.id),
                format!("Plan of {}", job.id),
            ] {
                let text = letters(&text);
                let is_it = |one: &&String| one.contains(&text) && !one.contains("Nobodyanswered");
                let count = ours.iter().filter(is_it).count();
                ensure(count <= 1, || format!("{text:?} {count} times: {ours:#?}"))?;
            }
            let context = self
                .env()
                .store
                .read(|tx| issue_contexts::get(tx, &job.issue.id))
                .unwrap();
            for phase in [Phase::Planning, Phase::Implementation] {
                let rounds = context.exchanges.iter().filter(|one| one.phase == phase);
                let rounds = u32::try_from(rounds.count()).unwrap();
                ensure(rounds <= MAX_ROUNDS, || {
                    format!("{rounds} rounds: {context:#?}")
                })?;
            }
            let foreign = context
                .exchanges
                .iter()
                .find(|one| one.source == AnswerSource::Comment && !one.answer.starts_with(ANSWER));
            ensure(foreign.is_none(), || format!("{foreign:#?} is no answer"))?;
        }
        for (action, comments, exact) in self.counted(ticket, audit, &ours) {
            ensure(comments <= exact, || {
                format!("{action}: {exact} times, {comments} comments: {ours:#?}")
            })?;
        }
        let commands = count_audit(audit, "ticket-command", &ticket.key);
        ensure(commands <= ticket.commands, || {
            format!(
                "{commands} of {} commands of {}",
                ticket.commands, ticket.key
            )
        })
    }

    /// Audited actions of a ticket with the number of their comments and of themselves.
    fn counted(
        &self,
        ticket: &WorldTicket,
        audit: &[AuditEntry],
        ours: &[String],
    ) -> Vec<(&'static str, usize, usize)> {
        let rows: [(&str, &[&str]); 4] = [
            (
                "question-answered",
                &["Theworkgoesonwiththisanswer", "Nobodyansweredintime"],
            ),
            ("plan-approved", &["Planapprovedby"]),
            ("plan-rejected", &["Planrejectedby"]),
            ("plan-asked", &["Theplanismadeagainas"]),
        ];
        let row = |(action, texts): (&'static str, &[&str])| {
            let is_it = |one: &&String| texts.iter().any(|text| one.contains(text));
            let comments = ours.iter().filter(is_it).count();
            (action, comments, count_audit(audit, action, &ticket.key))
        };
        rows.into_iter().map(row).collect()
    }

    /// Ends all faults, and runs ticks until nothing changes any more. Then checks everything.
    pub async fn settle(&mut self) -> CheckResult {
        self.clear_faults();
        let mut quiet = 0;
        for _ in 0..MAX_TICKS {
            let before = self.state();
            self.tick().await;
            self.check_always()?;
            self.service.clock.advance(Duration::from_secs(61));
            let is_drained = self
                .env()
                .store
                .read(outbox::queue_keys)
                .unwrap()
                .is_empty();
            quiet = match is_drained && before == self.state() {
                true => quiet + 1,
                false => 0,
            };
            if quiet == QUIET_TICKS {
                return self.check_at_rest();
            }
        }
        Err(format!("never at rest: {}", self.state()))
    }

    fn state(&self) -> String {
        let jobs = self.jobs();
        let jobs: Vec<_> = jobs.iter().map(|job| (&job.id, &job.state)).collect();
        format!("{jobs:?} {:?} {:?}", self.questions(), self.gates())
    }

    fn check_at_rest(&mut self) -> CheckResult {
        let (jobs, audit) = (self.jobs(), self.audit());
        let dead = self.env().store.read(outbox::dead).unwrap();
        ensure(dead.is_empty(), || {
            format!("dead outbox entries: {dead:#?}")
        })?;
        for question in self.questions() {
            self.check_open_question(&question)?;
        }
        for gate in self.gates().iter().filter(|gate| gate.is_waiting()) {
            self.check_waiting_plan(gate)?;
        }
        for ticket in &self.tickets {
            let ours = self.our_comments(ticket);
            for (action, comments, exact) in self.counted(ticket, &audit, &ours) {
                ensure(comments == exact, || {
                    format!("{action}: {exact} times, {comments} comments: {ours:#?}")
                })?;
            }
            let own: Vec<&Job> = jobs
                .iter()
                .filter(|job| job.issue.matches_id_or_key(&ticket.key))
                .collect();
            let commands = count_audit(&audit, "ticket-command", &ticket.key);
            // The polls of Jira and GitHub read comments of tickets that they find or that wait; others need a webhook.
            let is_read = self.system == System::Linear;
            ensure(!is_read || commands >= ticket.known_commands, || {
                format!(
                    "{commands} of {} commands of {}",
                    ticket.commands, ticket.key
                )
            })?;
            self.check_not_forgotten(ticket, &own, &audit)?;
            for job in &own {
                let asked = letters(&format!("Which one {}?", job.id));
                let is_asked = ours.iter().any(|one| one.contains(&asked));
                ensure(is_asked == is_question(job), || {
                    format!("asked: {is_asked}, {job:#?} {ours:#?}")
                })?;
            }
        }
        self.count_milestones(&jobs);
        Ok(())
    }

    fn ticket_of(&self, issue: &domain::issue::IssueRef) -> &WorldTicket {
        let mut tickets = self.tickets.iter();
        tickets
            .find(|one| issue.matches_id_or_key(&one.key))
            .unwrap()
    }

    /// A question that is open stands on an open, flagged ticket without an answer.
    fn check_open_question(&self, question: &OpenQuestion) -> CheckResult {
        let ticket = self.ticket_of(&question.issue);
        let comments = self.comments(ticket);
        let (markers, text) = (
            ticket.ticket.markers(),
            letters(&format!("Which one {}?", question.job)),
        );
        let at = comments.iter().position(|one| one.text.contains(&text));
        let Some(at) = at else {
            return Err(format!("{question:?} is not posted: {comments:#?}"));
        };
        let answer = comments[at..]
            .iter()
            .find(|one| one.text.starts_with(ANSWER));
        ensure(answer.is_none(), || {
            format!("{answer:?} is ignored by {question:#?}")
        })?;
        ensure(!ticket.closed && !markers.is_empty(), || {
            format!(
                "{question:#?} waits on {markers:?}, closed: {}",
                ticket.closed
            )
        })
    }

    /// A plan that waits was read back and stands on an open, flagged ticket without an approval.
    fn check_waiting_plan(&self, gate: &PlanGate) -> CheckResult {
        let ticket = self.ticket_of(&gate.issue);
        let (ours, markers) = (self.our_comments(ticket), ticket.ticket.markers());
        let plan = letters(&format!("Plan of {}", gate.job));
        let at = ours.iter().position(|one| one.contains(&plan));
        let asks = |at: usize| {
            ours[at..]
                .iter()
                .any(|one| one.contains("Theplanwaitsforapproval"))
        };
        ensure(gate.hashes.is_some() && at.is_some_and(asks), || {
            format!("nobody was asked about {gate:#?}: {ours:#?}")
        })?;
        let is_flagged = !ticket.closed && !markers.is_empty();
        let is_approved = markers
            .iter()
            .any(|one| one.to_lowercase().contains("approved"));
        ensure(is_flagged && !is_approved, || {
            format!("{gate:#?} waits on {markers:?}, closed: {}", ticket.closed)
        })
    }

    /// A flagged ticket that shows work has a run. One whose question was answered, or whose plan was approved, has
    /// another run, or the decision about it names why it waits.
    fn check_not_forgotten(
        &self,
        ticket: &WorldTicket,
        jobs: &[&Job],
        audit: &[AuditEntry],
    ) -> CheckResult {
        let markers = ticket.ticket.markers();
        let Some(job) = jobs
            .last()
            .filter(|_| !ticket.closed && !markers.is_empty())
        else {
            return Ok(());
        };
        let has_run = jobs.iter().any(|job| job.is_active());
        let shows_run = markers.iter().any(|one| WORKING.contains(&one.as_str()));
        ensure(has_run || !shows_run, || {
            format!("{} shows {markers:?} without a run: {job:#?}", ticket.key)
        })?;
        let is_named = |action: &str| {
            let mut entries = audit.iter().filter(|entry| entry.action == action);
            entries.any(|entry| entry.detail.ends_with(&format!("of job {}", job.id)))
        };
        let is_resumed = is_named("question-answered") || is_named("plan-approved");
        let read = self
            .env()
            .store
            .read(|tx| decisions::get(tx, &job.issue.key));
        let history = read.unwrap();
        let current = history.as_ref().and_then(|history| history.current());
        let waits = current.is_some_and(|one| one.outcome == DecisionOutcome::Waiting);
        // On GitHub, only projects that plan look for the marker of an approval.
        let is_read = |one: &&String| {
            ticket.is_planned || self.system != System::GitHub || *one != "Plan-Approved"
        };
        let is_flagged = markers
            .iter()
            .filter(is_read)
            .any(|one| one != "Planning Failed" && one != "Implementation Failed");
        ensure(!is_resumed || has_run || waits || !is_flagged, || {
            format!("nothing follows {job:#?}: {markers:?} {current:#?}")
        })
    }

    fn count_milestones(&mut self, jobs: &[Job]) {
        let mut add = |name: &str, count: usize| {
            if count > 0 {
                *self.milestones.entry(name.to_owned()).or_default() += count as u64;
            }
        };
        let third = |job: &&Job| matches!(&job.state, JobState::Failed { reason, .. } if reason.contains("may not ask"));
        add("third round", jobs.iter().filter(third).count());
        let ours: Vec<String> = { self.tickets.iter() }
            .flat_map(|ticket| people::comments(self.service.env(), &ticket.ticket, &ticket.key))
            .map(|one| one.text)
            .collect();
        let with = |text: &str| ours.iter().filter(|one| one.contains(text)).count();
        add("answered by comment", with("ThanksTheworkgoeson"));
        add("answered by nobody", with("Nobodyansweredintime"));
    }
}

fn count_audit(audit: &[AuditEntry], action: &str, key: &str) -> usize {
    let is_it = |entry: &&AuditEntry| {
        entry.action == action
            && (entry.target == key || entry.target.ends_with(&format!("/{key}")))
    };
    audit.iter().filter(is_it).count()
}

fn is_question(job: &Job) -> bool {
    matches!(
        &job.state,
        JobState::Failed {
            code: Some(FailureCode::NeedsInput),
            ..
        }
    )
}
