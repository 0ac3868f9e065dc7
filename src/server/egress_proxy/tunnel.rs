//! Tunnel between a run and a host.

use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Size of the buffer of each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Durations after which a tunnel is closed.
pub(super) struct TunnelTimings {
    /// Interval at which it is checked whether the tunnel is still needed.
    pub check: Duration,
    /// Time without a byte.
    pub silence: Duration,
    /// The same when one side has sent everything: a host that never closes its side would keep the tunnel for ever.
    pub silence_half_closed: Duration,
}

/// Durations of a service. A model may think for minutes.
pub(super) const TIMINGS: TunnelTimings = TunnelTimings {
    check: Duration::from_secs(5),
    silence: Duration::from_secs(15 * 60),
    silence_half_closed: Duration::from_secs(60),
};

/// Time at which the last bytes were passed on.
struct Activity(Mutex<Instant>);

impl Activity {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn silence(&self) -> Duration {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.elapsed()
    }
}

/// Passes bytes on in both directions until both sides have sent everything, one of them fails, nothing was sent for too
/// long, or `is_needed` is false.
pub(super) async fn relay(
    client: &mut UnixStream,
    host: &mut TcpStream,
    timings: &TunnelTimings,
    is_needed: impl Fn() -> bool,
) {
    let activity = Activity(Mutex::new(Instant::now()));
    let (client_reads, client_writes) = client.split();
    let (host_reads, host_writes) = host.split();
    let mut up = pin!(pass(client_reads, host_writes, &activity));
    let mut down = pin!(pass(host_reads, client_writes, &activity));
    let (mut up_ended, mut down_ended) = (false, false);
    while !(up_ended && down_ended) {
        tokio::select! {
            passed = &mut up, if !up_ended => match passed {
                Ok(()) => up_ended = true,
                Err(_) => return,
            },
            passed = &mut down, if !down_ended => match passed {
                Ok(()) => down_ended = true,
                Err(_) => return,
            },
            () = tokio::time::sleep(timings.check) => {
                let limit = match up_ended || down_ended {
                    true => timings.silence_half_closed,
                    false => timings.silence,
                };
                if activity.silence() > limit || !is_needed() {
                    return;
                }
            }
        }
    }
}

/// Passes bytes on until there are no more, and says so to the other side.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        activity.note();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    /// Returns both ends of a client's connection, and both ends of a host's.
    async fn connections() -> [(UnixStream, TcpStream); 2] {
        let (client, served) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (dialled, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        [(client, accepted.unwrap().0), (served, dialled.unwrap())]
    }

    #[tokio::test]
    async fn passes_bytes_until_both_sides_have_ended() {
        let [(mut client, mut host), (mut served, mut dialled)] = connections().await;
        let relayed =
            tokio::spawn(async move { relay(&mut served, &mut dialled, &TIMINGS, || true).await });
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = String::new();
        host.read_to_string(&mut received).await.unwrap();
        host.write_all(b"answer").await.unwrap();
        drop(host);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        relayed.await.unwrap();
        assert_eq!((received.as_str(), answer.as_str()), ("question", "answer"));
    }

    const QUICK: TunnelTimings = TunnelTimings {
        check: Duration::from_millis(20),
        silence: Duration::from_secs(600),
        silence_half_closed: Duration::from_millis(100),
    };

    #[tokio::test]
    async fn a_host_that_never_closes_its_side_does_not_keep_the_tunnel() {
        let [(client, _host), (mut served, mut dialled)] = connections().await;
        drop(client);
        let relayed = relay(&mut served, &mut dialled, &QUICK, || true);
        let limit = Duration::from_secs(30);
        assert!(tokio::time::timeout(limit, relayed).await.is_ok());
    }

    #[tokio::test]
    async fn a_tunnel_ends_with_its_run() {
        let [(_client, _host), (mut served, mut dialled)] = connections().await;
        let is_active = AtomicBool::new(true);
        let is_needed = || is_active.load(Ordering::Relaxed);
        let mut relayed = pin!(relay(&mut served, &mut dialled, &QUICK, is_needed));
        let early = tokio::time::timeout(Duration::from_millis(300), &mut relayed).await;
        assert!(early.is_err());
        is_active.store(false, Ordering::Relaxed);
        let ended = tokio::time::timeout(Duration::from_secs(30), relayed).await;
        assert!(ended.is_ok());
    }
}
