//! Being stopped from outside, by a signal.
//!
//! The handlers stay installed for the life of the process, so whatever takes long must look for the
//! signal: by default it would have ended the process.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

/// How long may a process that was stopped still report? Hosts kill it after ten seconds or less.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a shell adds to a signal's number to make an exit code of it.
const BY_SIGNAL: u8 = 128;

/// The first signal to stop that the process gets: SIGTERM, SIGINT or SIGHUP.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<Option<u8>>);

impl StopSignal {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the system refuses one.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = watch::channel(None);
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ] {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
            tokio::spawn(wait(signal(kind)?, number, sender.clone()));
        }
        Ok(Self(receiver))
    }

    /// Waits for the signal; answers its number.
    pub async fn wait(&self) -> u8 {
        let mut receiver = self.0.clone();
        match receiver.wait_for(Option::is_some).await {
            Ok(given) => given.unwrap_or_default(),
            // The runtime is going down, and this with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for the signal, and then for as long as a last report may take.
    pub async fn wait_grace_period(&self) {
        self.wait().await;
        sleep(LAST_WORDS).await;
    }

    /// The exit code of a process that was stopped.
    pub fn exit_code(&self) -> Option<u8> {
        let given = *self.0.borrow();
        given.map(|number| BY_SIGNAL + number)
    }
}

async fn wait(mut signal: Signal, number: u8, sender: watch::Sender<Option<u8>>) {
    while signal.recv().await.is_some() {
        sender.send_if_modified(|given| given.is_none() && given.replace(number).is_none());
    }
}
