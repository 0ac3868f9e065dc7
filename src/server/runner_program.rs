//! `GET /runner/program`: the program of this service, for runs whose image does not contain it.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::timeout;
use warp::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue};
use warp::reply::Reply;

use super::error::{ApiError, RunnerApiError};
use super::routing::{Access, ApiResult, QueryParams, Route};
use domain::crypto::run_token::TokenAudience;
use engine::app::App;
use engine::program::OwnProgram;

/// Number of parts queued for the client.
const BACKLOG: usize = 4;

/// Size of a part, in bytes.
const PART: usize = 64 << 10;

/// Maximum time without progress of the client.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time of one download.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum length of the name of a target.
const MAX_TARGET: usize = 64;

/// Routes of `/runner/program`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/runner/program", "downloadProgram", send)
            .access(Access::Run(TokenAudience::Progress)),
    ]
}

/// Streams the program. A failure after the head aborts the response; the run compares the hash in any case.
async fn send(query: QueryParams, app: App) -> ApiResult {
    let target = query.get("target").map(String::as_str).unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if target.is_empty() || target.len() > MAX_TARGET || !target.chars().all(is_name) {
        return Err(RunnerApiError::InvalidTarget.into());
    }
    if target != OwnProgram::target() {
        return Err(RunnerApiError::UnknownTarget.into());
    }
    let program = &app.core.program;
    let permit = program.reserve_download();
    let permit = permit.ok_or(RunnerApiError::TooManyDownloads)?;
    let unreadable = |error: io::Error| {
        tracing::error!(%error, "Failed to read the own program.");
        ApiError::internal()
    };
    let facts = program.facts().await.map_err(unreadable)?.clone();
    let file = program.open().await.map_err(unreadable)?;
    let (sender, mut parts) = mpsc::channel(BACKLOG);
    tasks::spawn(async move {
        let _permit = permit;
        let sent = timeout(TOTAL_TIMEOUT, send_parts(file, facts.size, &sender));
        if let Err(error) = sent
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        {
            tracing::debug!(%error, "Aborted the download of the program.");
            // The client may be gone already.
            let _ = sender.try_send(Err(error));
        }
    });
    let parts = stream::poll_fn(move |cx| parts.poll_recv(cx));
    let mut response = warp::reply::stream(parts).into_response();
    let headers = response.headers_mut();
    let binary = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, binary);
    headers.insert(CONTENT_LENGTH, facts.size.into());
    let etag = HeaderValue::from_str(&format!("\"{}\"", facts.sha256));
    headers.extend(etag.ok().map(|etag| (ETAG, etag)));
    Ok(response)
}

/// Reads `size` bytes of the file and passes them to the response body. Waits while the client reads nothing.
async fn send_parts(
    mut file: File,
    size: u64,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut left = size;
    while left > 0 {
        let length = PART.min(usize::try_from(left).unwrap_or(PART));
        let mut part = vec![0; length];
        file.read_exact(&mut part).await?;
        left -= length as u64;
        let sent = timeout(STALL_TIMEOUT, sender.send(Ok(part.into()))).await;
        sent.map_err(|_| io::ErrorKind::TimedOut)?
            .map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
    Ok(())
}
