//! Tells what happens in the demo, each thing once, and notices when nothing is left to do.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

use domain::decision::DecisionOutcome;
use domain::ids::IssueKey;
use domain::job::{Job, JobState};
use engine::app::App;
use fake_vendors::FakeVendors;
use fake_vendors::demo::{DEMO_OWNER, DEMO_REPO, DEMO_TICKETS};
use store::{decisions, jobs, outbox, steps};

use super::DemoDir;
use super::outcomes;
use super::tickets::{DemoTickets, TicketView};

/// How often does it look?
const TICK: Duration = Duration::from_millis(200);

/// How many polls must find nothing to do before the demo counts as idle?
const QUIET_POLLS: u64 = 2;

/// How the demo ended.
pub(super) enum DemoResult {
    /// Every ticket came to the end that its story has.
    Expected,
    Interrupted,
    /// Nobody reads what it prints any more.
    OutputClosed,
    /// One did not.
    Unexpected(String),
}

pub(super) struct DemoProgress {
    app: App,
    town: FakeVendors,
    board: DemoTickets,
    began: Instant,
    told: RefCell<HashSet<String>>,
    is_unread: Cell<bool>,
}

impl DemoProgress {
    pub fn new(app: App, town: FakeVendors, board: DemoTickets) -> Self {
        Self {
            app,
            town,
            board,
            began: Instant::now(),
            told: RefCell::default(),
            is_unread: Cell::new(false),
        }
    }

    pub fn print_introduction(&self, port: u16, access_code: &str, place: &DemoDir) {
        let repo = self.town.github().repo(DEMO_OWNER, DEMO_REPO);
        let system = self.board.system_name();
        let version = env!("CARGO_PKG_VERSION");
        self.print(format_args!("Agent Implement {version}: the demo"));
        self.print(format_args!(
            "  service      http://127.0.0.1:{port}   (access code {access_code})"
        ));
        self.print(format_args!(
            "  vendors      stand-ins for {system}, GitHub and Slack on http://127.0.0.1:{}",
            self.town.port()
        ));
        self.print(format_args!("  kept in      {place}"));
        self.print(format_args!("  repository   {}", repo.clone_url()));
        self.print(format_args!(
            "\n{system} has these tickets, each with {}:\n",
            self.board.trigger_description()
        ));
        for ticket in &DEMO_TICKETS {
            let (key, title, shows) = (ticket.key, ticket.title, ticket.expected_outcome);
            self.print(format_args!("  {key}  {title:<27} {shows}"));
        }
        self.print("");
    }

    /// Tells what happens for as long as somebody reads it.
    pub async fn follow(&self) -> DemoResult {
        self.print("Press Ctrl-C to stop.\n");
        while !self.is_unread.get() {
            self.tell_news();
            tokio::time::sleep(TICK).await;
        }
        DemoResult::OutputClosed
    }

    /// Prints a line, and notes when nobody reads it.
    fn print(&self, line: impl Display) {
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            self.is_unread.set(true);
        }
    }

    /// Tells until every errand is delivered, no run is active and the polls find nothing more.
    pub async fn follow_until_idle(&self, patience: Duration) -> DemoResult {
        let mut idle_since_poll = None;
        while self.began.elapsed() < patience {
            self.tell_news();
            if self.is_unread.get() {
                return DemoResult::OutputClosed;
            }
            let polls = self.app.heartbeats.polls();
            idle_since_poll = if self.is_at_rest() {
                idle_since_poll.or(Some(polls))
            } else {
                None
            };
            if idle_since_poll.is_some_and(|since| polls >= since + QUIET_POLLS) {
                return self.sum_up();
            }
            tokio::time::sleep(TICK).await;
        }
        DemoResult::Unexpected(format!(
            "it was still busy after {} seconds",
            patience.as_secs()
        ))
    }

    fn is_at_rest(&self) -> bool {
        let app = &self.app;
        let nothing_owed = app
            .store
            .read(outbox::queue_keys)
            .is_ok_and(|lanes| lanes.is_empty());
        let nothing_runs = app
            .store
            .read(jobs::active)
            .is_ok_and(|jobs| jobs.is_empty());
        nothing_owed && nothing_runs && app.heartbeats.polls() > 0
    }

    fn tell_news(&self) {
        let known = self
            .app
            .store
            .read(|tx| jobs::latest(tx, jobs::DISPATCH_LOG_SIZE))
            .unwrap_or_default();
        for job in known.iter().rev() {
            self.tell_job(job);
        }
        for ticket in self.board.views() {
            self.tell_ticket(&ticket);
        }
        for (number, message) in self.town.chat().messages().iter().enumerate() {
            let text = message
                .body
                .get("text")
                .and_then(|text| text.as_str())
                .unwrap_or_default();
            self.tell(format!("chat message {}: {text}", number + 1));
        }
    }

    fn tell_ticket(&self, ticket: &TicketView) {
        let key = ticket.key;
        let row = self
            .app
            .store
            .read(|tx| decisions::get(tx, &IssueKey::new(key)));
        let row = row.ok().flatten();
        let current = row.as_ref().and_then(|row| row.current());
        if let Some(decision) =
            current.filter(|decision| decision.outcome == DecisionOutcome::Waiting)
        {
            self.tell(format!("{key} waits: {}", decision.message));
        }
        for (number, change) in ticket.changes.iter().enumerate() {
            self.tell_once(format!("{key} change {number}"), &format!("{key} {change}"));
        }
        for (number, comment) in ticket.comments.iter().enumerate() {
            let first = comment.lines().next().unwrap_or_default();
            let line = format!("{key} gets a comment: {first}");
            self.tell_once(format!("{key} comment {number}"), &line);
        }
    }

    fn tell_job(&self, job: &Job) {
        let run = format!("{} run {}", job.issue.key, job.dispatch_number);
        let tell = |news: String| self.tell(format!("{run}: {news}"));
        tell(format!("reserved for {} as {}", job.kind.as_str(), job.id));
        let steps = self.app.store.read(|tx| steps::of_job(tx, &job.id));
        for step in steps.unwrap_or_default() {
            if step.parent_step_id.is_none() && step.status != "running" {
                tell(format!("step {} {}", step.id, step.status));
            }
        }
        if job.state != JobState::Reserved {
            tell(job.state.status().to_owned());
        }
    }

    /// Prints a line unless it was printed before.
    fn tell(&self, line: String) {
        self.tell_once(line.clone(), &line);
    }

    /// Prints a line unless news of this name was told before.
    fn tell_once(&self, name: String, line: &str) {
        if self.told.borrow_mut().insert(name) {
            let seconds = self.began.elapsed().as_secs_f64();
            self.print(format_args!("{seconds:6.1}s  {line}"));
        }
    }

    fn sum_up(&self) -> DemoResult {
        match outcomes::check(&self.app, &self.town) {
            Ok(ends) => {
                for end in &ends {
                    self.print(format_args!("\n{end}"));
                }
                DemoResult::Expected
            }
            Err(reason) => DemoResult::Unexpected(reason),
        }
    }
}
