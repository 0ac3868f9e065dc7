//! Notifications to systemd (`sd_notify`): ready, stopping, status and watchdog.
//!
//! The watchdog is notified only while the store's writer responds and no task is overdue with its heartbeat,
//! so that systemd restarts a service that hangs.
//!
//! Absent on purpose: `RELOADING=1`. The configuration is read once; a change needs a restart.

use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use engine::app::App;
use engine::config::Supervisor;
use engine::liveness;
use store::{StoreResult, jobs, outbox};

/// Interval of status notifications without a watchdog.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(20);

/// Sender of notifications to systemd. Does nothing without a notification socket.
pub(super) struct ServiceManagerNotifier(Option<NotifySocket>);

struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
    has_watchdog: bool,
    /// A third of the watchdog timeout, so that two notifications may be late.
    interval: Duration,
}

impl ServiceManagerNotifier {
    /// Opens the notification socket. If that fails, the service runs without notifications.
    pub(super) fn connect(supervisor: Option<&Supervisor>) -> Self {
        let opened = supervisor.map(NotifySocket::open);
        Self(opened.and_then(|socket| {
            socket
                .inspect_err(|error| tracing::warn!(%error, "Failed to open the notification socket of systemd."))
                .ok()
        }))
    }

    /// Reports that the store is open and connections are accepted.
    pub(super) fn notify_ready(&self) {
        self.send("READY=1\nSTATUS=Started.");
    }

    /// Reports that the service stops.
    pub(super) fn notify_stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Stopping.");
    }

    /// Reports the status and notifies the watchdog at regular intervals. Never returns.
    pub(super) async fn report_periodically(&self, app: &App) -> Infallible {
        let Some(socket) = &self.0 else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(socket.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watchdog = if socket.has_watchdog {
            "WATCHDOG=1\n"
        } else {
            ""
        };
        loop {
            ticks.tick().await;
            let message = match liveness::find_blockage(app, socket.interval).await {
                None => format!("{watchdog}STATUS={}", status(app, socket.interval).await),
                Some(cause) => {
                    tracing::error!(cause, "The service is stuck.");
                    format!("STATUS=Stuck: {cause}.")
                }
            };
            self.send(&message);
        }
    }

    fn send(&self, message: &str) {
        if let Some(NotifySocket {
            socket, address, ..
        }) = &self.0
            && let Err(error) = socket.send_to_addr(message.as_bytes(), address)
        {
            tracing::debug!(%error, "Failed to notify systemd.");
        }
    }
}

impl NotifySocket {
    fn open(supervisor: &Supervisor) -> std::io::Result<Self> {
        let address = match supervisor.socket.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&supervisor.socket)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not block the service.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            address,
            has_watchdog: supervisor.watchdog.is_some(),
            interval: supervisor
                .watchdog
                .map_or(DEFAULT_INTERVAL, |timeout| timeout / 3),
        })
    }
}

/// Status line for `systemctl status`. If reading it takes longer than `timeout`, a shorter line: other long
/// reads may be in progress, which does not mean that the service is stuck.
async fn status(app: &App, timeout: Duration) -> String {
    let counted = app.core.store().read_long(|tx| -> StoreResult<_> {
        Ok((jobs::active(tx)?.len(), outbox::pending(tx)?.len()))
    });
    match tokio::time::timeout(timeout, counted).await {
        Ok(Ok((runs, pending))) => {
            let problem = app.core.store().disk_space().problem();
            let problem = problem.map_or_else(String::new, |problem| format!("{problem}; "));
            format!(
                "{problem}{runs} runs under way, {} labelled tickets, {pending} pending updates, {} polls",
                app.live.poll_snapshots.issue_count(),
                app.live.heartbeats.polls()
            )
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "working; long reads are in progress".to_owned(),
    }
}

#[cfg(test)]
mod tests;
