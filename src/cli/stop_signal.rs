//! Signals that end a command in good order.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Future that resolves on SIGTERM or SIGINT.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
