//! Request bodies: read as a whole, with a size limit, a minimum rate and a memory limit for all of them.
//!
//! Most bodies are small. A larger body reserves memory as its bytes arrive, from the budget of its
//! [`TrustLevel`]: anonymous requests cannot use up the memory for run reports. The signature of a
//! webhook covers the whole body, so any client may send a large one; see [`BodyMemory`] for how clients
//! share memory.

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::body_memory::{BodyMemory, BodyReservation};
use super::client_identity::ClientIdentity;
use super::connection_limit::{ClientKey, TrustLevel};
use super::error::ApiError;
use super::tarpit;

/// Maximum body size of all routes except webhooks, in bytes.
pub(crate) const MAX_BODY: usize = 1 << 20;

/// Maximum body size of a webhook, in bytes. GitHub sends no larger ones.
pub(crate) const MAX_WEBHOOK_BODY: usize = 25 << 20;

/// Number of bytes that a body may use without a reservation.
const UNRESERVED: usize = 64 << 10;

/// Step by which a reservation grows, in bytes.
const RESERVATION_STEP: usize = 256 << 10;

/// Memory for larger bodies by trust level. Static, because the memory of the process is shared by all
/// listeners.
static ANONYMOUS: BodyMemory = BodyMemory::new(8 << 20);
static UNVERIFIED: BodyMemory = BodyMemory::new(28 << 20);
static AUTHENTICATED: BodyMemory = BodyMemory::new(28 << 20);

/// Number of bytes read and discarded beyond the limit, so that the sender receives the error response.
const MAX_DISCARDED: usize = 8 << 20;

/// Time that a body may lag behind [`MIN_RATE`].
const GRACE: Duration = Duration::from_secs(10);

/// Minimum rate of a body, in bytes per second.
const MIN_RATE: u64 = 32 << 10;

/// Maximum time that a body waits for memory.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Body that has not been read yet.
pub(crate) struct BodyStream(BoxStream<'static, Result<Bytes, warp::Error>>);

impl BodyStream {
    /// Wraps the body of a request.
    pub(crate) fn new(
        stream: impl Stream<Item = Result<impl Buf, warp::Error>> + Send + 'static,
    ) -> Self {
        let to_bytes = |mut chunk| {
            let length = Buf::remaining(&chunk);
            Buf::copy_to_bytes(&mut chunk, length)
        };
        Self(stream.map(move |chunk| chunk.map(to_bytes)).boxed())
    }
}

/// Reads the whole body of a client.
///
/// # Errors
/// 413 above `limit` bytes, with or without a Content-Length; 408 if it arrives too slowly, 429 if it gets no
/// memory, 400 if it is cut off.
pub(crate) async fn read(
    body: &mut BodyStream,
    limit: usize,
    client: ClientIdentity,
) -> Result<Bytes, ApiError> {
    collect(&mut body.0, limit, memory_for(client.trust), client.key).await
}

fn memory_for(trust: TrustLevel) -> &'static BodyMemory {
    match trust {
        TrustLevel::Anonymous => &ANONYMOUS,
        TrustLevel::UnverifiedSignature => &UNVERIFIED,
        TrustLevel::Authenticated => &AUTHENTICATED,
    }
}

/// Body with its memory reservation, released when the last reference is dropped.
struct ReservedBytes {
    bytes: Vec<u8>,
    _reservation: Option<BodyReservation>,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

async fn collect(
    stream: &mut BoxStream<'static, Result<Bytes, warp::Error>>,
    limit: usize,
    memory: &'static BodyMemory,
    client: ClientKey,
) -> Result<Bytes, ApiError> {
    let (mut bytes, mut reservation): (Vec<u8>, Option<BodyReservation>) = (Vec::new(), None);
    let (mut length, mut reserved, mut began) = (0_usize, UNRESERVED, Instant::now());
    loop {
        let deadline = began + GRACE + Duration::from_secs_f64(length as f64 / MIN_RATE as f64);
        let chunk = tokio::select! {
            chunk = timeout_at(deadline, stream.next()) => chunk.map_err(|_| ApiError::body_timeout())?,
            () = revoked(reservation.as_ref()) => return Err(memory_unavailable(bytes, reservation).await),
        };
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|_| ApiError::incomplete_body())?;
        reservation
            .iter()
            .for_each(BodyReservation::record_progress);
        length += chunk.len();
        if length > limit {
            // The rest is read and discarded, so that the sender receives the error response.
            (bytes, reservation) = (Vec::new(), None);
            if length > limit + MAX_DISCARDED {
                break;
            }
            continue;
        }
        if length > reserved {
            reserved = length.next_multiple_of(RESERVATION_STEP).min(limit);
            let requested_at = Instant::now();
            let grown = reservation
                .get_or_insert_with(|| memory.reserve(client))
                .grow(reserved);
            if !matches!(
                timeout_at(requested_at + RESERVATION_TIMEOUT, grown).await,
                Ok(Ok(()))
            ) {
                return Err(memory_unavailable(bytes, reservation).await);
            }
            // The connection is not read while the body waits, so the wait does not count against its rate.
            began += requested_at.elapsed();
            bytes.reserve_exact(reserved - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
    if length > limit {
        return Err(ApiError::body_too_large(limit));
    }
    Ok(Bytes::from_owner(ReservedBytes {
        bytes,
        _reservation: reservation,
    }))
}

/// Releases the memory and returns the error after a delay, which slows down clients that retry at once.
async fn memory_unavailable(bytes: Vec<u8>, reservation: Option<BodyReservation>) -> ApiError {
    drop((bytes, reservation));
    sleep(tarpit::DELAY).await;
    ApiError::too_many_large_bodies()
}

/// Resolves when the reservation is revoked. Never resolves without a reservation.
async fn revoked(reservation: Option<&BodyReservation>) {
    match reservation {
        Some(reservation) => reservation.revoked().await,
        None => std::future::pending().await,
    }
}
