//! Cancellation by SIGTERM, SIGINT or SIGHUP.
//!
//! The handlers stay installed for the life of the process, so the signals no longer end it by default.
//! Every long operation must wait for the signal itself.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

/// Time to report a result after a stop signal. CI and container hosts kill the process after at
/// most ten seconds.
const REPORT_GRACE: Duration = Duration::from_secs(5);

/// Offset of exit codes caused by a signal.
const SIGNAL_EXIT_BASE: u8 = 128;

/// First stop signal that the process received.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<Option<u8>>);

impl StopSignal {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = watch::channel(None);
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ] {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
            tasks::spawn(watch_signal(signal(kind)?, number, sender.clone()));
        }
        Ok(Self(receiver))
    }

    /// Waits for a stop signal and returns its number.
    pub async fn wait(&self) -> u8 {
        let mut receiver = self.0.clone();
        match receiver.wait_for(Option::is_some).await {
            Ok(number) => number.unwrap_or_default(),
            // The sender is gone only while the runtime shuts down.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for a stop signal, then for the time a last report may take.
    pub async fn wait_grace_period(&self) {
        self.wait().await;
        sleep(REPORT_GRACE).await;
    }

    /// Returns the exit code of a stopped process, or `None` if no signal arrived.
    pub fn exit_code(&self) -> Option<u8> {
        let received = *self.0.borrow();
        received.map(|number| SIGNAL_EXIT_BASE + number)
    }
}

async fn watch_signal(mut signal: Signal, number: u8, sender: watch::Sender<Option<u8>>) {
    while signal.recv().await.is_some() {
        sender.send_if_modified(|first| first.is_none() && first.replace(number).is_none());
    }
}
