//! Bodies: whole, within a limit each and within one for all of them, and in time.
//!
//! Most are small. Large ones come from the repository host, which signs what it sends; but the
//! signature is over the whole body, so that anybody may send one. All of them together have room for
//! [`ROOM`] bytes: who comes later waits for their turn, and small ones pass by.

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt, pin_mut};
use tokio::sync::{Semaphore, SemaphorePermit};
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::header::CONTENT_LENGTH;
use warp::reject::Rejection;

use super::error::ApiError;

/// Largest body of any route but the webhooks'.
pub const BODY: usize = 1 << 20;

/// Largest body of a webhook; the host sends no more.
pub const WEBHOOK_BODY: usize = 25 << 20;

/// What a body may hold without asking for room.
const SMALL: usize = 64 << 10;

/// Room for all bodies that are larger, in bytes.
const ROOM: usize = 64 << 20;

/// The memory of this process is one, however many services it serves.
static LARGE: Semaphore = Semaphore::const_new(ROOM);

/// How much beyond its limit is a body read, so that its sender gets to see the refusal?
const DRAINED: usize = 8 << 20;

/// How long may a body take to arrive?
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The whole body; 413 beyond `limit` bytes, with or without a length in its head.
pub fn body(limit: usize) -> BoxedFilter<(Bytes,)> {
    warp::header::optional::<usize>(CONTENT_LENGTH.as_str())
        .and(warp::body::stream())
        .and_then(move |length: Option<usize>, stream| async move {
            let most = length.unwrap_or(limit).min(limit);
            match tokio::time::timeout(BODY_TIMEOUT, collect(stream, limit, most)).await {
                Ok(collected) => collected.map_err(Rejection::from),
                Err(_) => Err(ApiError::too_slow().into()),
            }
        })
        .boxed()
}

/// A body, and the room that it takes for as long as somebody holds it.
struct Kept {
    bytes: Vec<u8>,
    _room: Option<SemaphorePermit<'static>>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// `most` is what the sender said would come, or all that may.
async fn collect(
    stream: impl Stream<Item = Result<impl Buf, warp::Error>>,
    limit: usize,
    most: usize,
) -> Result<Bytes, ApiError> {
    pin_mut!(stream);
    let (mut bytes, mut room) = (Vec::new(), None);
    let mut length = 0_usize;
    while let Some(chunk) = stream.next().await {
        let mut chunk = chunk.map_err(|_| ApiError::cut_off())?;
        length += chunk.remaining();
        if length > limit + DRAINED {
            break;
        }
        if length > SMALL && length <= limit && room.is_none() {
            room = Some(room_for(most).await?);
        }
        if length <= limit {
            bytes.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
        }
    }
    if length > limit {
        return Err(ApiError::too_large(limit));
    }
    Ok(Bytes::from_owner(Kept { bytes, _room: room }))
}

/// All that a body may need, at once: two that wait for each other's rest would wait for ever.
async fn room_for(most: usize) -> Result<SemaphorePermit<'static>, ApiError> {
    let all = u32::try_from(most.min(ROOM)).unwrap_or(u32::MAX);
    let room = LARGE.acquire_many(all).await;
    room.map_err(|_| ApiError::internal())
}
