//! Bodies: whole, within a limit each and within one for all of them, and in time.
//!
//! Most are small. A larger one takes room as its bytes come, of what is set aside for requests of its
//! [`Standing`]: what strangers send takes no room from a run's report. The signature of a webhook is over the
//! whole body, so that anybody may send a large one; see [`Room`] for how clients share.

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt, pin_mut};
use tokio::time::{Instant, sleep, timeout_at};
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reject::Rejection;

use super::body_memory::{BodyMemory, BodyReservation};
use super::client_identity::ClientIdentity;
use super::connection_limit::{ClientKey, TrustLevel};
use super::error::ApiError;
use super::tarpit;

/// Largest body of any route but the webhooks'.
pub const MAX_BODY: usize = 1 << 20;

/// Largest body of a webhook; the host sends no more.
pub const MAX_WEBHOOK_BODY: usize = 25 << 20;

/// What a body may hold without asking for room.
const SMALL: usize = 64 << 10;

/// Room is taken in pieces of so many bytes.
const PIECE: usize = 256 << 10;

/// Room for all larger bodies. The memory of this process is one, however many services it serves.
static OF_STRANGERS: BodyMemory = BodyMemory::new(8 << 20);
static SIGNED: BodyMemory = BodyMemory::new(28 << 20);
static KNOWN: BodyMemory = BodyMemory::new(28 << 20);

/// How much beyond its limit is a body read, so that its sender gets to see the refusal?
const DRAINED: usize = 8 << 20;

/// How long may a body be behind the rate at which it has to come?
const GRACE: Duration = Duration::from_secs(10);

/// Minimum rate of a body, in bytes a second.
const RATE: u64 = 32 << 10;

/// How long may a body wait for room?
const WAIT: Duration = Duration::from_secs(10);

/// The whole body; 413 beyond `limit` bytes, with or without a length in its head.
pub fn body(limit: usize) -> BoxedFilter<(Bytes,)> {
    warp::ext::optional::<ClientIdentity>()
        .and(warp::body::stream())
        .and_then(move |guest: Option<ClientIdentity>, stream| async move {
            let (room, owner) = match guest {
                Some(guest) => (room_of(guest.trust), guest.key),
                None => (&OF_STRANGERS, ClientKey::Trusted),
            };
            let collected = collect(stream, limit, room, owner).await;
            collected.map_err(Rejection::from)
        })
        .boxed()
}

fn room_of(standing: TrustLevel) -> &'static BodyMemory {
    match standing {
        TrustLevel::Anonymous => &OF_STRANGERS,
        TrustLevel::UnverifiedSignature => &SIGNED,
        TrustLevel::Authenticated => &KNOWN,
    }
}

/// A body, and the room that it takes for as long as somebody holds it.
struct Kept {
    bytes: Vec<u8>,
    _hold: Option<BodyReservation>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

async fn collect(
    stream: impl Stream<Item = Result<impl Buf, warp::Error>>,
    limit: usize,
    room: &'static BodyMemory,
    owner: ClientKey,
) -> Result<Bytes, ApiError> {
    pin_mut!(stream);
    let (mut bytes, mut hold): (Vec<u8>, Option<BodyReservation>) = (Vec::new(), None);
    let (mut length, mut held, mut began) = (0_usize, SMALL, Instant::now());
    loop {
        let deadline = began + GRACE + Duration::from_secs_f64(length as f64 / RATE as f64);
        let chunk = tokio::select! {
            chunk = timeout_at(deadline, stream.next()) => chunk.map_err(|_| ApiError::body_timeout())?,
            () = cut(hold.as_ref()) => return Err(crowded(bytes, hold).await),
        };
        let Some(chunk) = chunk else { break };
        let mut chunk = chunk.map_err(|_| ApiError::incomplete_body())?;
        hold.iter().for_each(BodyReservation::record_progress);
        length += chunk.remaining();
        if length > limit {
            // The rest is read for its sender's sake, and not kept.
            (bytes, hold) = (Vec::new(), None);
            if length > limit + DRAINED {
                break;
            }
            continue;
        }
        if length > held {
            held = length.next_multiple_of(PIECE).min(limit);
            let asked = Instant::now();
            let grown = hold.get_or_insert_with(|| room.reserve(owner)).grow(held);
            if !matches!(timeout_at(asked + WAIT, grown).await, Ok(Ok(()))) {
                return Err(crowded(bytes, hold).await);
            }
            // While it waits, nobody reads what is sent.
            began += asked.elapsed();
            bytes.reserve_exact(held - bytes.len());
        }
        bytes.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
    }
    if length > limit {
        return Err(ApiError::body_too_large(limit));
    }
    Ok(Bytes::from_owner(Kept { bytes, _hold: hold }))
}

/// Refuses a body after a while, so that a client that repeats it at once does so no more often.
async fn crowded(bytes: Vec<u8>, hold: Option<BodyReservation>) -> ApiError {
    drop((bytes, hold));
    sleep(tarpit::DELAY).await;
    ApiError::too_many_large_bodies()
}

/// Resolves when a body must make room for others, and never for one that takes none.
async fn cut(hold: Option<&BodyReservation>) {
    match hold {
        Some(hold) => hold.revoked().await,
        None => std::future::pending().await,
    }
}
