//! Tells what happens in the demo, each thing once, and notices when nothing is left to do.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::app::App;
use crate::domain::decision::Outcome;
use crate::domain::ids::IssueKey;
use crate::domain::job::{Job, JobState};
use crate::sandbox::{Town, stories};
use crate::store::{jobs, ledger, outbox, steps};

/// How often does it look?
const TICK: Duration = Duration::from_millis(200);

/// How many polls must find nothing to do before the demo counts as idle?
const QUIET_POLLS: u64 = 2;

/// How the demo ended.
pub(super) enum Ending {
    PullRequestsOpen,
    Interrupted,
    /// Without the pull requests it is there to show.
    Without(String),
}

pub(super) struct Narrator {
    app: App,
    town: Town,
    began: Instant,
    told: RefCell<HashSet<String>>,
}

impl Narrator {
    pub fn new(app: App, town: Town) -> Self {
        Self {
            app,
            town,
            began: Instant::now(),
            told: RefCell::default(),
        }
    }

    pub fn introduce(&self, port: u16, access_code: &str, dir: &Path) {
        println!("Agent Implement {}: the demo", env!("CARGO_PKG_VERSION"));
        println!("  service      http://127.0.0.1:{port}   (access code {access_code})");
        println!(
            "  vendors      stand-ins on http://127.0.0.1:{}",
            self.town.port()
        );
        println!("  kept in      {}", dir.display());
        println!(
            "  repository   {}",
            self.town
                .github()
                .repo(stories::DEMO_OWNER, stories::DEMO_REPO)
                .clone_url()
        );
        println!();
        for ticket in self.town.linear().issues() {
            println!(
                "  {}  {}   [{}]",
                ticket.identifier,
                ticket.title,
                ticket.labels.join(", ")
            );
        }
        println!();
    }

    pub async fn until_interrupted(&self) -> Ending {
        println!("Press Ctrl-C to stop.\n");
        tokio::select! {
            _ = tokio::signal::ctrl_c() => Ending::Interrupted,
            () = self.tell_forever() => Ending::Interrupted,
        }
    }

    async fn tell_forever(&self) {
        loop {
            self.tell_news();
            tokio::time::sleep(TICK).await;
        }
    }

    /// Tells until every errand is delivered, no run is active and the polls find nothing more.
    pub async fn until_idle(&self, patience: Duration) -> Ending {
        let mut idle_since_poll = None;
        while self.began.elapsed() < patience {
            self.tell_news();
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
        Ending::Without(format!(
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
        for ticket in self.town.linear().issues() {
            let key = IssueKey::new(&ticket.identifier);
            let row = self
                .app
                .store
                .read(|tx| ledger::get(tx, &key))
                .ok()
                .flatten();
            let current = row.as_ref().and_then(|row| row.current());
            if let Some(decision) = current.filter(|decision| decision.outcome == Outcome::Waiting)
            {
                self.tell(format!("{key} waits: {}", decision.message));
            }
            let shown = format!("{key} shows on the ticket: {}", ticket.labels.join(", "));
            if ticket.history.len() > 1 {
                self.tell(shown);
            }
            for comment in &ticket.comments {
                self.tell(format!(
                    "{key} is told: {}",
                    comment.body.lines().next().unwrap_or_default()
                ));
            }
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

    fn tell_job(&self, job: &Job) {
        let (key, number) = (&job.issue.key, job.dispatch_number);
        self.tell(format!(
            "{key} run {number} is reserved: {} ({})",
            job.kind.as_str(),
            job.id
        ));
        for step in self
            .app
            .store
            .read(|tx| steps::of_job(tx, &job.id))
            .unwrap_or_default()
        {
            if step.parent_step_id.is_none() && step.status != "running" {
                self.tell(format!(
                    "{key} run {number} step {} {}",
                    step.id, step.status
                ));
            }
        }
        if job.state != JobState::Unknown {
            self.tell(format!("{key} run {number} is {}", job.state.status()));
        }
    }

    /// Prints a line unless it was printed before.
    fn tell(&self, line: String) {
        if !self.told.borrow().contains(&line) {
            println!("{:6.1}s  {line}", self.began.elapsed().as_secs_f64());
            self.told.borrow_mut().insert(line);
        }
    }

    /// Both stories must have reached their pull request: the plain one, and the planned one.
    fn sum_up(&self) -> Ending {
        for key in [stories::DEMO_PLAIN, stories::DEMO_PLANNED] {
            if let Err(reason) = self.sum_up_ticket(key) {
                return Ending::Without(reason);
            }
        }
        Ending::PullRequestsOpen
    }

    fn sum_up_ticket(&self, key: &str) -> Result<(), String> {
        let latest = self
            .app
            .store
            .read(|tx| jobs::latest(tx, jobs::LOG_SIZE))
            .unwrap_or_default();
        let found = latest.iter().find(|job| job.issue.key.as_str() == key);
        let job = found.ok_or_else(|| format!("{key} was not dispatched"))?;
        match (&job.state, &job.pull) {
            (JobState::Completed | JobState::ReviewFailed { .. }, Some(pull)) => {
                println!("\n{key} has its pull request: {}", pull.url);
                println!("  branch {} of {}", job.branch, job.repo);
                self.show_commits(job);
                Ok(())
            }
            (JobState::Failed { reason, .. }, _) => Err(reason.clone()),
            (state, _) => Err(format!("{key} ended {}", state.status())),
        }
    }

    fn show_commits(&self, job: &Job) {
        let repo = self.town.github().repo(&job.repo.owner, &job.repo.name);
        for commit in repo.commits(&job.branch).iter().take(1) {
            println!(
                "  commit {} {}",
                &commit.sha[..commit.sha.len().min(10)],
                commit.message.lines().next().unwrap_or_default()
            );
        }
    }
}
