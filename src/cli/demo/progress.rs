//! Progress output of the demo, each event once, and detection of the idle state.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

use domain::decision::DecisionOutcome;
use domain::ids::IssueKey;
use domain::job::{Job, JobState};
use domain::report::FailureCode;
use engine::app::App;
use fake_vendors::FakeVendors;
use fake_vendors::demo::{DEMO_OWNER, DEMO_PLAIN, DEMO_REPO, DEMO_TICKETS, Tracker};
use store::{decisions, jobs, outbox, steps};

use super::DemoDir;
use super::outcomes;
use super::printed::PrintedEvents;
use super::replies;
use super::tickets::{DemoTickets, TicketView};

/// Interval between two checks for progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Number of polls without new work after which the demo counts as idle.
const IDLE_POLLS: u64 = 2;

/// Detection of the idle state: nothing to do for some polls.
#[derive(Default)]
struct IdleWatch {
    /// Number of the poll since which nothing was to do.
    since: Option<u64>,
}

impl IdleWatch {
    fn is_idle_now(&mut self, progress: &DemoProgress) -> bool {
        let polls = progress.app.live.heartbeats.polls();
        self.since = match progress.is_idle() {
            true => self.since.or(Some(polls)),
            false => None,
        };
        self.since.is_some_and(|since| polls >= since + IDLE_POLLS)
    }
}

/// Result of the demo.
pub(super) enum DemoResult {
    /// Every ticket had its expected outcome.
    Expected,
    /// A signal stopped the demo.
    Interrupted,
    /// Standard output was closed.
    OutputClosed,
    /// A ticket did not have its expected outcome; with the reason.
    Unexpected(String),
}

/// Printer of what happens in the demo.
pub(super) struct DemoProgress {
    app: App,
    vendors: FakeVendors,
    tickets: DemoTickets,
    started: Instant,
    printed: RefCell<PrintedEvents>,
    /// Whether something was printed since the last summary. True at the start, so that a resumed demo ends with one.
    is_summary_due: Cell<bool>,
    is_output_closed: Cell<bool>,
}

impl DemoProgress {
    /// Creates the printer; nothing is printed yet.
    pub(super) fn new(
        app: App,
        vendors: FakeVendors,
        tickets: DemoTickets,
        printed: PrintedEvents,
    ) -> Self {
        Self {
            app,
            vendors,
            tickets,
            started: Instant::now(),
            printed: RefCell::new(printed),
            is_summary_due: Cell::new(true),
            is_output_closed: Cell::new(false),
        }
    }

    /// Prints the addresses and the tickets of the demo.
    pub(super) fn print_introduction(&self, port: u16, access_code: &str, demo_dir: &DemoDir) {
        let repo = self.vendors.github().repo(DEMO_OWNER, DEMO_REPO);
        let system = self.tickets.system_name();
        let vendors = match self.tickets.tracker() {
            Tracker::GitHub => system.to_owned(),
            Tracker::Linear | Tracker::Jira => format!("{system}, GitHub"),
        };
        let version = env!("CARGO_PKG_VERSION");
        self.print(format_args!("Agent Implement {version}: the demo"));
        self.print(format_args!(
            "  panel        http://127.0.0.1:{port}/admin   (access code {access_code})"
        ));
        self.print(format_args!(
            "  vendors      fake {vendors} and Slack on http://127.0.0.1:{}",
            self.vendors.port()
        ));
        self.print(format_args!("  data         {demo_dir}"));
        self.print(format_args!("  repository   {}", repo.clone_url()));
        self.print(format_args!(
            "\n{system} has these tickets, each with {}:\n",
            self.tickets.trigger_description()
        ));
        for ticket in &DEMO_TICKETS {
            let tracker = self.tickets.tracker();
            let (key, title) = (tracker.key(ticket.key), ticket.title);
            let outcome = ticket.expected_outcome;
            let outcome = outcome.replace(DEMO_PLAIN, tracker.key(DEMO_PLAIN));
            let width = tracker.key(DEMO_PLAIN).len();
            self.print(format_args!("  {key:<width$}  {title:<27} {outcome}"));
        }
        self.print("");
        if !self.printed.borrow().is_empty() {
            self.print("Resuming. What was printed before is left out.\n");
        }
    }

    /// Prints progress, and a summary whenever nothing is left to do, until standard output is closed.
    pub(super) async fn follow(&self) -> DemoResult {
        self.print("Press Ctrl-C to stop.\n");
        let mut idle = IdleWatch::default();
        while !self.is_output_closed.get() {
            self.print_news();
            if idle.is_idle_now(self) && self.is_summary_due.take() {
                self.print_summary();
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        DemoResult::OutputClosed
    }

    fn print_summary(&self) {
        match outcomes::check(&self.app, &self.vendors, self.tickets.tracker()) {
            Ok(outcomes) => {
                self.print_summaries(&outcomes.summaries);
                let next = outcomes.next.iter();
                let next: String = next.map(|next| format!("Next: {next}\n")).collect();
                self.print(format_args!("\n{next}"));
            }
            Err(reason) => self.print(format_args!("\nNot as expected: {reason}\n")),
        }
    }

    fn print_summaries(&self, summaries: &[String]) {
        for summary in summaries {
            self.print(format_args!("\n{summary}"));
        }
    }

    /// Prints a line; records whether standard output is closed.
    fn print(&self, line: impl Display) {
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            self.is_output_closed.set(true);
        }
    }

    /// Prints progress and replies to what waits for people, until the outbox is empty, no run is active and polls
    /// find no new work; at most for `timeout`.
    pub(super) async fn follow_until_idle(&self, timeout: Duration) -> DemoResult {
        let mut idle = IdleWatch::default();
        while self.started.elapsed() < timeout {
            self.print_news();
            if self.is_output_closed.get() {
                return DemoResult::OutputClosed;
            }
            if idle.is_idle_now(self) {
                match Box::pin(replies::reply(&self.app)).await {
                    Ok(done) if done.is_empty() => return self.summarize(),
                    Ok(done) => done.into_iter().for_each(|line| self.print_once(line)),
                    Err(reason) => return DemoResult::Unexpected(reason),
                }
                idle = IdleWatch::default();
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        DemoResult::Unexpected(format!("still busy after {} seconds", timeout.as_secs()))
    }

    fn is_idle(&self) -> bool {
        let app = &self.app;
        let is_outbox_empty = app
            .core
            .store()
            .read(outbox::queue_keys)
            .is_ok_and(|queue_keys| queue_keys.is_empty());
        let has_no_runs = app
            .core
            .store()
            .read(jobs::active)
            .is_ok_and(|jobs| jobs.is_empty());
        is_outbox_empty && has_no_runs && app.live.heartbeats.polls() > 0
    }

    fn print_news(&self) {
        let jobs = self
            .app
            .core
            .store()
            .read(|tx| jobs::latest(tx, jobs::DISPATCH_LOG_SIZE))
            .unwrap_or_default();
        for job in jobs.iter().rev() {
            self.print_job(job);
        }
        for ticket in self.tickets.views() {
            self.print_ticket(&ticket);
        }
        let merged = |key: &str| format!("{key} is completed: its pull request was merged");
        let is_new = |key: &str| !self.printed.borrow().contains(&merged(key));
        for key in self.tickets.complete_merged(is_new) {
            self.print_once(merged(key));
        }
        for (number, message) in self.vendors.chat().messages().iter().enumerate() {
            let text = message
                .body
                .get("text")
                .and_then(|text| text.as_str())
                .unwrap_or_default();
            self.print_once(format!("chat message {}: {text}", number + 1));
        }
    }

    fn print_ticket(&self, ticket: &TicketView) {
        let key = ticket.key;
        let row = self
            .app
            .core
            .store()
            .read(|tx| decisions::get(tx, &IssueKey::new(key)));
        let row = row.ok().flatten();
        let current = row.as_ref().and_then(|row| row.current());
        if let Some(decision) =
            current.filter(|decision| decision.outcome == DecisionOutcome::Waiting)
        {
            self.print_once(format!("{key} waits: {}", decision.message));
        }
        for (number, change) in ticket.changes.iter().enumerate() {
            let line = format!("{key} {change}");
            self.print_event_once(format!("{key} change {number}"), &line);
        }
        for (number, comment) in ticket.comments.iter().enumerate() {
            let first = comment.lines().next().unwrap_or_default();
            let line = format!("{key} gets a comment: {first}");
            self.print_event_once(format!("{key} comment {number}"), &line);
        }
    }

    fn print_job(&self, job: &Job) {
        let run = format!("{} run {}", job.issue.key, job.dispatch_number);
        let print = |event: String| self.print_once(format!("{run}: {event}"));
        print(format!("reserved for {} as {}", job.kind.as_str(), job.id));
        let steps = self.app.core.store().read(|tx| steps::of_job(tx, &job.id));
        for step in steps.unwrap_or_default() {
            if step.parent_step_id.is_none() && step.status != "running" {
                print(format!("step {} {}", step.id, step.status));
            }
        }
        match job.state {
            JobState::Reserved => {}
            JobState::Failed {
                code: Some(FailureCode::NeedsInput),
                ..
            } => print("ended with a question".to_owned()),
            ref state => print(state.status().to_owned()),
        }
    }

    /// Prints a line unless it was printed before.
    fn print_once(&self, line: String) {
        self.print_event_once(line.clone(), &line);
    }

    /// Prints a line unless a line with this key was printed before.
    fn print_event_once(&self, key: String, line: &str) {
        if self.printed.borrow().contains(&key) {
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.print(format_args!("{seconds:6.1}s  {line}"));
        self.printed.borrow_mut().insert(key);
        self.is_summary_due.set(true);
    }

    fn summarize(&self) -> DemoResult {
        match outcomes::check(&self.app, &self.vendors, self.tickets.tracker()) {
            Ok(outcomes) => {
                self.print_summaries(&outcomes.summaries);
                DemoResult::Expected
            }
            Err(reason) => DemoResult::Unexpected(reason),
        }
    }
}
