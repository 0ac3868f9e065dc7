//! `GET /api/backup`: online backup of the store. Available on the control socket only.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::Reply;

use super::routing::{ApiResult, Route};
use domain::audit::Actor;
use engine::admin::downloads;
use engine::app::App;
use store::crash_injection::{CrashPlan, CrashPoint};

/// Maximum number of chunks queued for the client.
const BACKLOG: usize = 8;

/// Maximum time without progress of the client. The store keeps its snapshot until the backup ends.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Routes of `/api/backup`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/backup", "backup", send).undescribed()]
}

/// Streams the backup. The status is sent before the store has been read completely. A later failure
/// aborts the response, and a truncated backup is recognized as such.
async fn send(by: Actor, app: App) -> ApiResult {
    downloads::record_backup(&app.core, by).await?;
    let (sender, mut chunks) = mpsc::channel(BACKLOG);
    let runtime = Handle::current();
    let writing = tasks::spawn_blocking(move || {
        let mut writer = ChunkWriter {
            sender: sender.clone(),
            runtime,
            crash: app.core.crash_plan.clone(),
        };
        match app.core.store().back_up(app.core.now(), &mut writer) {
            Ok(_) => tracing::info!("Completed a backup."),
            Err(error) => {
                tracing::error!(%error, "Failed to complete a backup.");
                let aborted = io::Error::other("the backup was aborted");
                // The client may be gone already.
                let _ = sender.try_send(Err(aborted));
            }
        }
    });
    // Ends with the response.
    drop(writing);
    let chunks = stream::poll_fn(move |cx| chunks.poll_recv(cx));
    let mut response = warp::reply::stream(chunks).into_response();
    let content_type = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// Writer that passes chunks from the blocking thread to the response body.
struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    crash: CrashPlan,
}

impl io::Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = Ok(Bytes::copy_from_slice(bytes));
        let sent = async { timeout(STALL_TIMEOUT, self.sender.send(chunk)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => {
                self.crash.crash_if_planned(CrashPoint::BackupHalfSent);
                Ok(bytes.len())
            }
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client read nothing for 60 seconds",
            )),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
