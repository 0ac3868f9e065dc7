//! Check whether the service still works, for the watchdog of systemd.

use std::time::Duration;

use tokio::time::Instant;

use crate::app::App;

/// Cause that blocks the service, if any: an overdue task, or a store whose writer does not respond
/// within `timeout`.
pub async fn find_blockage(app: &App, timeout: Duration) -> Option<String> {
    if let Some(task) = app.live.heartbeats.overdue(Instant::now()) {
        return Some(format!("the task {task} missed its heartbeat"));
    }
    // Writes nothing, but only the writer thread can respond.
    match tokio::time::timeout(timeout, app.core.store.write(|_| Ok(()))).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the store's writer does not respond".to_owned()),
    }
}
