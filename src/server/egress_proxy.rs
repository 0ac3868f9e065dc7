//! Proxy for runs in isolated containers: `CONNECT` to the hosts that the policy permits, on a socket beside that of the
//! runs.
//!
//! A run authenticates with the nonce of its session. Names are resolved here, and a connection goes to one of the
//! addresses that were checked: a name that resolves to something else later gains nothing. Whatever runs in a container
//! may connect without a nonce, so everything has [`limits`].

mod limits;
mod tunnel;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::file_descriptors::EGRESS_CONNECTIONS;
use super::run_socket;
use super::socket_file::SocketFile;
use domain::egress::{AddressScope, ConnectRequest, Destination, MAX_REQUEST_HEAD};
use domain::ids::JobId;
use domain::job::Job;
use domain::run_socket::PROXY_FILE;
use engine::app::App;
use engine::{egress, session_events};
use limits::{Limits, RequestSlot, TunnelSlot};
use store::jobs;
use tunnel::TIMINGS;
use vendors::http::read_head;

/// Maximum duration of receiving a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum duration of resolving a name and connecting to its host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Pause after an error of the system, such as a lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Listening socket of the proxy. Its file is removed when it is dropped.
pub struct EgressSocket(SocketFile);

impl EgressSocket {
    /// Opens the socket in the data directory. Only the service that has locked the store of the directory may call
    /// this.
    ///
    /// # Errors
    /// When the socket cannot be created in the directory.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        run_socket::create(data_dir, PROXY_FILE).map(Self)
    }
}

/// Serves the proxy until `stop` resolves. Tunnels end with it.
pub async fn serve_egress(app: App, socket: EgressSocket, stop: impl Future<Output = ()>) {
    let proxy = Arc::new(Proxy {
        app,
        limits: Limits::new(),
    });
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let is_full = connections.len() >= EGRESS_CONNECTIONS;
        tokio::select! {
            () = &mut stop => return,
            Some(_) = connections.join_next() => {}
            accepted = socket.0.accept(), if !is_full => match accepted {
                Ok(connection) => {
                    let request = proxy.limits.begin_request();
                    connections.spawn(tasks::boxed(Arc::clone(&proxy).serve(connection, request)));
                }
                Err(error) => {
                    tracing::error!(%error, "Failed to accept a connection of a run.");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

struct Proxy {
    app: App,
    limits: Arc<Limits>,
}

/// Response to a request that gets no tunnel: status with its reason phrase, and a sentence.
struct Refusal(&'static str, String);

impl Proxy {
    async fn serve(self: Arc<Self>, mut client: UnixStream, request: RequestSlot) {
        let read = timeout(REQUEST_TIMEOUT, read_head(&mut client, MAX_REQUEST_HEAD));
        let read = tokio::select! {
            read = read => read.ok(),
            () = request.evicted() => None,
        };
        drop(request);
        let opened = match read {
            Some(Ok((head, rest))) => self.open(&head).await.map(|opened| (opened, rest)),
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(Refusal(
                "400 Bad Request",
                "the request is too long".to_owned(),
            )),
            // Nobody waits for a response.
            Some(Err(_)) | None => return,
        };
        match opened {
            Ok(((mut host, slot), rest)) => {
                let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
                let begun = async {
                    client.write_all(established).await?;
                    host.write_all(&rest).await
                };
                if begun.await.is_ok() {
                    let is_needed = || self.is_active(slot.job());
                    tokio::select! {
                        () = tunnel::relay(&mut client, &mut host, &TIMINGS, is_needed) => {}
                        () = slot.evicted() => {}
                    }
                }
            }
            Err(Refusal(status, sentence)) => {
                let response = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\n{sentence}.\n",
                    sentence.len() + 2
                );
                let _ = client.write_all(response.as_bytes()).await;
            }
        }
    }

    /// Connects to the host of a request.
    async fn open(self: &Arc<Self>, head: &str) -> Result<(TcpStream, TunnelSlot), Refusal> {
        let request = ConnectRequest::parse(head)
            .map_err(|error| Refusal("400 Bad Request", error.to_string()))?;
        let job = self.job(request.nonce.as_deref())?;
        let slot = self.limits.begin_tunnel(&job);
        let slot = slot.map_err(|sentence| Refusal("429 Too Many Requests", sentence))?;
        let destination = request.destination;
        // GitHub may have been connected since the start.
        let policy = egress::policy(&self.app.latest());
        let Some(scope) = policy.scope(&destination) else {
            let sentence = format!("LOCAL_EGRESS_HOSTS does not permit {destination}");
            return Err(self.refuse(&job, &destination, sentence).await);
        };
        let connected = tokio::select! {
            connected = timeout(CONNECT_TIMEOUT, connect(&destination, scope, &slot)) => connected,
            () = slot.evicted() => {
                let sentence = "another run needs the place of this connection";
                return Err(Refusal("429 Too Many Requests", sentence.to_owned()));
            }
        };
        match connected {
            Ok(Ok(Some(host))) => Ok((host, slot)),
            Ok(Ok(None)) => {
                let sentence = match scope {
                    AddressScope::Named => format!(
                        "{destination} is a loopback or link-local address, or that of a metadata service, which runs never reach"
                    ),
                    AddressScope::Public => format!(
                        "{destination} is on this machine or in a private network, and LOCAL_EGRESS_HOSTS does not name it"
                    ),
                };
                Err(self.refuse(&job, &destination, sentence).await)
            }
            Ok(Err(error)) => {
                let sentence = format!("connecting to {destination} failed: {error}");
                Err(Refusal("502 Bad Gateway", sentence))
            }
            Err(_) => {
                let sentence = format!("connecting to {destination} took too long");
                Err(Refusal("504 Gateway Timeout", sentence))
            }
        }
    }

    /// Returns the active job with this nonce.
    fn job(&self, nonce: Option<&str>) -> Result<JobId, Refusal> {
        let unknown = || {
            let sentence = "the request needs the nonce of an active run";
            Refusal("407 Proxy Authentication Required", sentence.to_owned())
        };
        let nonce = nonce.ok_or_else(unknown)?;
        let job = self
            .app
            .core
            .store()
            .read(|tx| session_events::job_by_nonce(tx, nonce));
        let job = job.map_err(|error| Refusal("503 Service Unavailable", error.to_string()))?;
        job.map(|job| job.id).ok_or_else(unknown)
    }

    /// Whether a run still works. Also if that cannot be read.
    fn is_active(&self, job: &JobId) -> bool {
        let job = self.app.core.store().read(|tx| jobs::get(tx, job));
        job.map_or(true, |job| job.as_ref().is_some_and(Job::is_active))
    }

    async fn refuse(&self, job: &JobId, destination: &Destination, sentence: String) -> Refusal {
        if let Err(error) = egress::record_refusal(&self.app, job, destination).await {
            tracing::error!(job_id = %job, %error, "Failed to record a refused connection.");
        }
        Refusal("403 Forbidden", sentence)
    }
}

/// Connects to a host. Returns `None` if it has addresses, but none that `scope` permits.
async fn connect(
    destination: &Destination,
    scope: AddressScope,
    slot: &TunnelSlot,
) -> io::Result<Option<TcpStream>> {
    let is_permitted = |address: &SocketAddr| scope.permits(address.ip(), is_own(address));
    let mut permitted = resolve(destination, slot).await?;
    permitted.retain(is_permitted);
    if permitted.is_empty() {
        return Ok(None);
    }
    let host = TcpStream::connect(permitted.as_slice()).await?;
    host.set_nodelay(true)?;
    Ok(Some(host))
}

/// Returns the addresses of a host. The thread of the lookup may work longer than anyone waits for it.
async fn resolve(destination: &Destination, slot: &TunnelSlot) -> io::Result<Vec<SocketAddr>> {
    let permits = slot.lookup_permits().await;
    let permits = permits.ok_or(io::ErrorKind::Interrupted)?;
    let (host, port) = (destination.host.clone(), destination.port);
    let found = tasks::spawn_blocking(move || {
        let found = (host.as_str(), port).to_socket_addrs();
        drop(permits);
        Ok(found?.collect())
    });
    found
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Whether an address belongs to this machine: only those can be bound.
fn is_own(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}
