//! How we are, told to the service manager that started us.
//!
//! It is fed only while the service lives: the store's writer answers, and no task is overdue that
//! said when it would be heard from again. A process that merely exists feeds nobody, so that a
//! service which is stuck is started anew.
//!
//! Absent on purpose: `RELOADING=1`. The configuration is read once; a change takes a restart.

use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use engine::app::App;
use engine::config::Supervisor;
use store::{StoreResult, jobs, outbox};

/// How often is the state told when nobody asked for a pace?
const PACE: Duration = Duration::from_secs(20);

/// The line to the service manager; without one, nothing is said.
pub struct ServiceManagerNotifier(Option<Line>);

struct Line {
    socket: UnixDatagram,
    to: SocketAddr,
    watched: bool,
    /// A third of what the watchdog allows: two beats may be late before it bites.
    pace: Duration,
}

impl ServiceManagerNotifier {
    /// Opens the line. A service manager that cannot be reached is no reason not to run.
    pub fn connect(supervisor: Option<&Supervisor>) -> Self {
        let opened = supervisor.map(Line::open);
        Self(opened.and_then(|line| {
            line.inspect_err(
                |error| tracing::warn!(%error, "The service manager is not told how we are."),
            )
            .ok()
        }))
    }

    /// The store is open and connections are taken.
    pub fn notify_ready(&self) {
        self.say("READY=1\nSTATUS=Started.");
    }

    /// The signal to stop has come, or the store is lost.
    pub fn notify_stopping(&self) {
        self.say("STOPPING=1\nSTATUS=Stopping.");
    }

    /// Tells again and again how we are; ends only when it is dropped.
    pub async fn report_periodically(&self, app: &App) -> Infallible {
        let Some(line) = &self.0 else {
            return std::future::pending().await;
        };
        let mut beat = tokio::time::interval(line.pace);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let alive = if line.watched { "WATCHDOG=1\n" } else { "" };
        loop {
            beat.tick().await;
            let word = match faint(app, line.pace).await {
                None => format!("{alive}STATUS={}", state(app, line.pace).await),
                Some(cause) => {
                    tracing::error!(cause, "The service is stuck.");
                    format!("STATUS=Stuck: {cause}.")
                }
            };
            self.say(&word);
        }
    }

    fn say(&self, word: &str) {
        if let Some(line) = &self.0
            && let Err(error) = line.socket.send_to_addr(word.as_bytes(), &line.to)
        {
            tracing::debug!(%error, "The service manager did not hear us.");
        }
    }
}

impl Line {
    fn open(supervisor: &Supervisor) -> std::io::Result<Self> {
        let to = match supervisor.socket.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&supervisor.socket)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not hold us up.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            to,
            watched: supervisor.watchdog.is_some(),
            pace: supervisor.watchdog.map_or(PACE, |allowed| allowed / 3),
        })
    }
}

/// What keeps the service from its work, if anything does.
async fn faint(app: &App, patience: Duration) -> Option<String> {
    if let Some(task) = app.heartbeats.overdue(Instant::now()) {
        return Some(format!("the task {task} has not been heard from"));
    }
    // Nothing is written, but it must be the writer itself that answers.
    match tokio::time::timeout(patience, app.store.write(|_| Ok(()))).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the store's writer does not answer".to_owned()),
    }
}

/// What is going on, in a line for `systemctl status`. Whoever has to wait for it longer than `patience`
/// is told that much: others read, too, and that is no reason to be held for dead.
async fn state(app: &App, patience: Duration) -> String {
    let counted = app.store.read_long(|tx| -> StoreResult<_> {
        Ok((jobs::active(tx)?.len(), outbox::pending(tx)?.len()))
    });
    match tokio::time::timeout(patience, counted).await {
        Ok(Ok((runs, owed))) => {
            let trouble = app.store.disk_space().problem();
            let trouble = trouble.map_or_else(String::new, |what| format!("{what}; "));
            format!(
                "{trouble}{runs} under way, {} flagged in sight, {owed} to deliver, {} polls so far",
                app.poll_snapshots.issue_count(),
                app.heartbeats.polls()
            )
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "at work; long lists are being read".to_owned(),
    }
}

#[cfg(test)]
mod tests;
