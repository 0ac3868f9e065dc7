//! Tells what happens in the demo, each thing once, and notices when nothing is left to do.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

use domain::decision::Outcome;
use domain::ids::IssueKey;
use domain::job::{Job, JobState};
use engine::app::App;
use fake_vendors::Town;
use fake_vendors::stories::{DEMO_OWNER, DEMO_REPO, DEMO_TICKETS};
use store::{jobs, ledger, outbox, steps};

use super::Place;
use super::board::{Board, Seen};
use super::verdict;

/// How often does it look?
const TICK: Duration = Duration::from_millis(200);

/// How many polls must find nothing to do before the demo counts as idle?
const QUIET_POLLS: u64 = 2;

/// How the demo ended.
pub(super) enum Ending {
    /// Every ticket came to the end that its story has.
    AsTold,
    Interrupted,
    /// Nobody reads what it prints any more.
    Unread,
    /// One did not.
    Otherwise(String),
}

pub(super) struct Narrator {
    app: App,
    town: Town,
    board: Board,
    began: Instant,
    told: RefCell<HashSet<String>>,
    is_unread: Cell<bool>,
}

impl Narrator {
    pub fn new(app: App, town: Town, board: Board) -> Self {
        Self {
            app,
            town,
            board,
            began: Instant::now(),
            told: RefCell::default(),
            is_unread: Cell::new(false),
        }
    }

    pub fn introduce(&self, port: u16, access_code: &str, place: &Place) {
        let repo = self.town.github().repo(DEMO_OWNER, DEMO_REPO);
        let system = self.board.name();
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
            self.board.trigger()
        ));
        for ticket in &DEMO_TICKETS {
            let (key, title, shows) = (ticket.key, ticket.title, ticket.shows);
            self.print(format_args!("  {key}  {title:<27} {shows}"));
        }
        self.print("");
    }

    /// Tells what happens for as long as somebody reads it.
    pub async fn for_ever(&self) -> Ending {
        self.print("Press Ctrl-C to stop.\n");
        while !self.is_unread.get() {
            self.tell_news();
            tokio::time::sleep(TICK).await;
        }
        Ending::Unread
    }

    /// Prints a line, and notes when nobody reads it.
    fn print(&self, line: impl Display) {
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            self.is_unread.set(true);
        }
    }

    /// Tells until every errand is delivered, no run is active and the polls find nothing more.
    pub async fn until_idle(&self, patience: Duration) -> Ending {
        let mut idle_since_poll = None;
        while self.began.elapsed() < patience {
            self.tell_news();
            if self.is_unread.get() {
                return Ending::Unread;
            }
            let polls = self.app.pulse.polls();
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
        Ending::Otherwise(format!(
            "it was still busy after {} seconds",
            patience.as_secs()
        ))
    }

    fn is_at_rest(&self) -> bool {
        let app = &self.app;
        let nothing_owed = app
            .store
            .read(outbox::lanes)
            .is_ok_and(|lanes| lanes.is_empty());
        let nothing_runs = app
            .store
            .read(jobs::active)
            .is_ok_and(|jobs| jobs.is_empty());
        nothing_owed && nothing_runs && app.pulse.polls() > 0
    }

    fn tell_news(&self) {
        let known = self
            .app
            .store
            .read(|tx| jobs::latest(tx, jobs::LOG_SIZE))
            .unwrap_or_default();
        for job in known.iter().rev() {
            self.tell_job(job);
        }
        for ticket in self.board.tickets() {
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

    fn tell_ticket(&self, ticket: &Seen) {
        let key = ticket.key;
        let row = self
            .app
            .store
            .read(|tx| ledger::get(tx, &IssueKey::new(key)));
        let row = row.ok().flatten();
        let current = row.as_ref().and_then(|row| row.current());
        if let Some(decision) = current.filter(|decision| decision.outcome == Outcome::Waiting) {
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
        if job.state != JobState::Unknown {
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

    fn sum_up(&self) -> Ending {
        match verdict::reach(&self.app, &self.town) {
            Ok(ends) => {
                for end in &ends {
                    self.print(format_args!("\n{end}"));
                }
                Ending::AsTold
            }
            Err(reason) => Ending::Otherwise(reason),
        }
    }
}
