//! Proxy for runs in isolated containers: `CONNECT` to the hosts that the policy permits, on a socket beside that of the
//! runs.
//!
//! A run authenticates with the nonce of its session. Names are resolved here, and a connection goes to one of the
//! addresses that were checked: a name that resolves to something else later gains nothing.
//!
//! Whatever runs in a container may connect without a nonce. Of the connections whose request is not complete, the oldest
//! is therefore closed when there are too many: nobody can keep the others from connecting.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::file_descriptors::{EGRESS_REQUESTS, EGRESS_TUNNELS};
use super::run_socket;
use super::socket_file::SocketFile;
use domain::egress::{AddressScope, ConnectRequest, Destination, EgressPolicy, MAX_REQUEST_HEAD};
use domain::ids::JobId;
use domain::run_socket::PROXY_FILE;
use engine::app::App;
use engine::{egress, session_events};
use vendors::http::read_head;

/// Maximum number of tunnels of a run.
const MAX_TUNNELS: usize = 64;

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
        policy: egress::policy(&app),
        app,
        tunnels: Mutex::default(),
        requests: Mutex::default(),
    });
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let is_full = connections.len() >= EGRESS_TUNNELS + EGRESS_REQUESTS;
        tokio::select! {
            () = &mut stop => return,
            Some(_) = connections.join_next() => {}
            accepted = socket.0.accept(), if !is_full => match accepted {
                Ok(connection) => {
                    let request = PendingRequest::begin(&proxy);
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
    policy: EgressPolicy,
    /// Number of open tunnels of each run.
    tunnels: Mutex<HashMap<JobId, usize>>,
    requests: Mutex<PendingRequests>,
}

/// Requests that are not complete.
#[derive(Default)]
struct PendingRequests {
    next: u64,
    /// Notified when the connection must be closed. The oldest is the first.
    evictions: BTreeMap<u64, Arc<Notify>>,
}

/// Request that is not complete.
struct PendingRequest {
    proxy: Arc<Proxy>,
    number: u64,
    evicted: Arc<Notify>,
}

impl PendingRequest {
    /// Adds a request, and closes the oldest one above the limit.
    fn begin(proxy: &Arc<Proxy>) -> Self {
        let mut requests = lock(&proxy.requests);
        if requests.evictions.len() >= EGRESS_REQUESTS
            && let Some((_, oldest)) = requests.evictions.pop_first()
        {
            oldest.notify_one();
        }
        let (number, evicted) = (requests.next, Arc::default());
        requests.next += 1;
        requests.evictions.insert(number, Arc::clone(&evicted));
        Self {
            proxy: Arc::clone(proxy),
            number,
            evicted,
        }
    }

    /// Reads the request. `None` if it does not arrive in time, or if others need its place.
    async fn read(self, client: &mut UnixStream) -> Option<io::Result<(String, Vec<u8>)>> {
        let read = timeout(REQUEST_TIMEOUT, read_head(client, MAX_REQUEST_HEAD));
        tokio::select! {
            read = read => read.ok(),
            () = self.evicted.notified() => None,
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        lock(&self.proxy.requests).evictions.remove(&self.number);
    }
}

/// Response to a request that gets no tunnel: status with its reason phrase, and a sentence.
struct Refusal(&'static str, String);

impl Proxy {
    async fn serve(self: Arc<Self>, mut client: UnixStream, request: PendingRequest) {
        let opened = match request.read(&mut client).await {
            Some(Ok((head, rest))) => self.open(&head).await.map(|opened| (opened, rest)),
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(Refusal(
                "400 Bad Request",
                "the request is too long".to_owned(),
            )),
            // Nobody waits for a response.
            Some(Err(_)) | None => return,
        };
        match opened {
            Ok(((mut host, _slot), rest)) => {
                let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
                let begun = async {
                    client.write_all(established).await?;
                    host.write_all(&rest).await
                };
                if begun.await.is_ok() {
                    // An error ends the tunnel, which both ends see.
                    let _ = copy_bidirectional(&mut client, &mut host).await;
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
        let slot = TunnelSlot::take(self, &job)?;
        let destination = request.destination;
        let Some(scope) = self.policy.scope(&destination) else {
            let sentence = format!("LOCAL_EGRESS_HOSTS does not permit {destination}");
            return Err(self.refuse(&job, &destination, sentence).await);
        };
        match timeout(CONNECT_TIMEOUT, connect(&destination, scope)).await {
            Ok(Ok(Some(host))) => Ok((host, slot)),
            Ok(Ok(None)) => {
                let sentence = format!(
                    "{destination} is on this machine or in a private network, and LOCAL_EGRESS_HOSTS does not name it"
                );
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

    async fn refuse(&self, job: &JobId, destination: &Destination, sentence: String) -> Refusal {
        if let Err(error) = egress::record_refusal(&self.app, job, destination).await {
            tracing::error!(job_id = %job, %error, "Failed to record a refused connection.");
        }
        Refusal("403 Forbidden", sentence)
    }
}

/// Slot of one tunnel of a run. Freed when it is dropped.
struct TunnelSlot(Arc<Proxy>, JobId);

impl TunnelSlot {
    fn take(proxy: &Arc<Proxy>, job: &JobId) -> Result<Self, Refusal> {
        let mut tunnels = lock(&proxy.tunnels);
        let (own, all) = (
            tunnels.get(job).copied().unwrap_or_default(),
            tunnels.values().sum::<usize>(),
        );
        let full = |sentence| Err(Refusal("429 Too Many Requests", sentence));
        if own >= MAX_TUNNELS {
            return full(format!("the run has {own} connections already"));
        }
        if all >= EGRESS_TUNNELS {
            return full(format!("all runs together have {all} connections already"));
        }
        tunnels.insert(job.clone(), own + 1);
        Ok(Self(Arc::clone(proxy), job.clone()))
    }
}

impl Drop for TunnelSlot {
    fn drop(&mut self) {
        let mut tunnels = lock(&self.0.tunnels);
        if let Some(count) = tunnels.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                tunnels.remove(&self.1);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to a host. Returns `None` if it has addresses, but none that `scope` permits.
async fn connect(destination: &Destination, scope: AddressScope) -> io::Result<Option<TcpStream>> {
    let found = lookup_host((destination.host.as_str(), destination.port)).await?;
    let is_permitted = |address: &SocketAddr| scope.permits(address.ip(), is_own(address));
    let permitted: Vec<SocketAddr> = found.filter(is_permitted).collect();
    if permitted.is_empty() {
        return Ok(None);
    }
    let host = TcpStream::connect(permitted.as_slice()).await?;
    host.set_nodelay(true)?;
    Ok(Some(host))
}

/// Whether an address belongs to this machine: only those can be bound.
fn is_own(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}
