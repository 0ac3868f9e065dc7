//! Floods of thousands of connections, beside a host that sends webhooks and a run that reports.
//!
//! The flood has its own thread and its own addresses: one address or 200 of 127.0.1.0/24 and
//! 127.0.2.0/24. A connection that is closed is replaced at once. The measured clients connect from
//! 127.0.0.1, with one connection per request.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::crypto::run_token::{RunTokenIssuer, TokenAudience};
use domain::crypto::signature::sign;
use domain::ids::JobId;
use domain::job::Job;
use domain::report::RunPhase;
use domain::secret::Secret;
use domain::time::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use store::{Store, jobs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::http_client::{HttpConnection, encode_request};
use super::measurements::LatencyHistogram;
use super::process::ServiceProcess;

const SECRET: &str = "a secret that is long enough";
const ACCESS_CODE: &str = "an access code that is long enough";
const JOB: &str = "01JFLOOD";

/// Use of each connection of the flood.
#[derive(Debug, Clone, Copy)]
enum FloodKind {
    /// Sends nothing.
    Idle,
    /// Sends half a request head.
    Head,
    /// Sends the head of a webhook and the beginning of its body.
    Body,
    /// One third of the connections each.
    All,
}

/// Maximum 99th percentile of the latency. Checked in release builds only.
const MAX_P99: Duration = Duration::from_millis(250);

struct Plan {
    sockets: usize,
    duration: Duration,
    /// Interval between two requests of one kind.
    pause: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and the whole machine"]
async fn serves_requests_during_a_flood_of_five_thousand_connections() {
    let _guard = super::EXCLUSIVE.lock().await;
    let plan = Plan {
        sockets: 5_000,
        duration: Duration::from_secs(20),
        pause: Duration::from_millis(20),
    };
    let phases = [
        FloodKind::Idle,
        FloodKind::Head,
        FloodKind::Body,
        FloodKind::All,
    ]
    .map(|kind| [(kind, 1), (kind, 200)])
    .concat();
    let longest = run_phases(&plan, &phases).await;
    if !cfg!(debug_assertions) {
        assert!(longest.p99 <= MAX_P99, "{:?}", longest.p99);
    }
}

/// Worst latency of all phases.
#[derive(Default)]
struct Worst {
    p99: Duration,
    max: Duration,
}

async fn run_phases(plan: &Plan, phases: &[(FloodKind, usize)]) -> Worst {
    raise_descriptor_limit(plan.sockets);
    let dir = tempfile::tempdir().unwrap();
    let token = Arc::new(create_store(dir.path()).await);
    let flags = [
        "--admin-access-code",
        ACCESS_CODE,
        "--runner-token-secret",
        SECRET,
        "--runner-callback-base-url",
        "http://127.0.0.1:1",
        "--scm-webhook-secret",
        SECRET,
    ];
    let service = ServiceProcess::start(dir.path(), &flags);
    let address: SocketAddr = service.address.replace("http://", "").parse().unwrap();
    let mut worst = Worst::default();
    println!(
        "connections, addresses | request | count | p50 | p99 | longest | failed | connections opened"
    );
    for (kind, addresses) in phases {
        let flood = ConnectionFlood::start(address, *kind, plan.sockets, *addresses);
        // The flood must be at its rate. It is rejected all the time, so no number of connections shows that.
        tokio::time::sleep(plan.duration / 4).await;
        let until = Instant::now() + plan.duration;
        let webhooks = tokio::spawn(send_requests(address, webhooks(), until, plan.pause));
        let reports = tokio::spawn(send_requests(address, reports(&token), until, plan.pause));
        let (webhooks, reports) = (webhooks.await.unwrap(), reports.await.unwrap());
        let opened = flood.stop();
        for (request_name, results) in [("webhook", webhooks), ("run report", reports)] {
            let times = &results.times;
            let (p99, max) = (times.quantile(0.99), times.max());
            println!(
                "{} {kind:?}, {addresses} | {request_name} | {} | {:?} | {p99:?} | {max:?} | {} | {opened}",
                plan.sockets,
                times.count(),
                times.quantile(0.5),
                results.failed.len(),
            );
            assert!(
                results.failed.is_empty(),
                "{request_name}: {:?}",
                results.failed
            );
            worst.p99 = worst.p99.max(p99);
            worst.max = worst.max.max(max);
        }
    }
    assert_eq!(service.stop(), 0);
    worst
}

/// Creates a store with an active run and returns the run's token.
async fn create_store(dir: &Path) -> String {
    let now = Timestamp::from_millis(
        u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap(),
    );
    let job: Job = serde_json::from_value(json!({
        "id": JOB, "group": JOB, "kind": "implementation", "team": "ENG", "runner": "ci",
        "issue": {"system": "A", "id": "i", "key": "ENG-1", "title": "t", "url": "https://tickets.test/ENG-1"},
        "repo": {"owner": "acme", "name": "shop"}, "dispatchNumber": 1, "branch": "b",
        "callbacks": true, "minutes": 90, "state": {"status": "running"}, "reservedAt": now, "dispatchedAt": now,
    }))
    .unwrap();
    let store = Store::open(dir).unwrap();
    let write = store.write(move |tx| jobs::put(tx, &job));
    write.await.unwrap();
    let tokens = RunTokenIssuer::new(&Secret::new(SECRET));
    let (id, phase) = (JobId::from(JOB), RunPhase::Implementation);
    let expires_at = now + Duration::from_secs(3600);
    let token = tokens.issue(&id, TokenAudience::Progress, phase, now, expires_at);
    token.expose().to_owned()
}

/// A small webhook and a large one.
fn webhooks() -> Vec<Vec<u8>> {
    let body = |size: usize| json!({"zen": "z".repeat(size)}).to_string();
    let bodies = [100, 200_000].map(body);
    let encode_webhook = |body: &String| {
        let signature = format!("sha256={}", sign(body.as_bytes(), &Secret::new(SECRET)));
        let headers = [
            ("x-github-event", "ping"),
            ("x-hub-signature-256", signature.as_str()),
        ];
        encode_request("POST", "/api/repo-host/webhook", &headers, body.as_bytes())
    };
    bodies.iter().map(encode_webhook).collect()
}

/// A small report and a large one.
fn reports(token: &str) -> Vec<Vec<u8>> {
    let bearer = format!("Bearer {token}");
    let step = json!({"id": "a", "type": "a", "status": "running", "started_at": "t"});
    let body = |size: usize| json!({"step": step, "log": "line\n".repeat(size / 5)}).to_string();
    let report = |size: usize| {
        let headers = [("authorization", bearer.as_str())];
        encode_request("POST", "/runner/progress", &headers, body(size).as_bytes())
    };
    [100, 100_000].map(report).into()
}

#[derive(Default)]
struct RequestResults {
    times: LatencyHistogram,
    failed: Vec<String>,
}

/// Sends the requests in turn, one per interval, and measures from the time at which each was due.
async fn send_requests(
    address: SocketAddr,
    requests: Vec<Vec<u8>>,
    until: Instant,
    pause: Duration,
) -> RequestResults {
    let mut results = RequestResults::default();
    let mut due = Instant::now();
    for request in requests.iter().cycle() {
        tokio::time::sleep_until(due.into()).await;
        match HttpConnection::new(address).send(request).await {
            Ok(response) if response.status == 200 => results.times.add(due.elapsed()),
            Ok(response) => {
                results
                    .failed
                    .push(format!("{} {}", response.status, response.excerpt()))
            }
            Err(error) => results.failed.push(error.to_string()),
        }
        due += pause;
        if Instant::now() >= until {
            break;
        }
    }
    results
}

/// Running connection flood.
struct ConnectionFlood {
    end: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl ConnectionFlood {
    fn start(to: SocketAddr, kind: FloodKind, sockets: usize, addresses: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let opened = Arc::new(AtomicU64::new(0));
            for number in 0..sockets {
                let address_index = number % addresses;
                let from = Ipv4Addr::new(
                    127,
                    0,
                    1 + (address_index / 100) as u8,
                    1 + (address_index % 100) as u8,
                );
                let kind = match kind {
                    FloodKind::All => {
                        [FloodKind::Idle, FloodKind::Head, FloodKind::Body][number % 3]
                    }
                    kind => kind,
                };
                runtime.spawn(hold_connection(from, to, kind, Arc::clone(&opened)));
            }
            runtime.block_on(async {
                while !stop_flag.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            runtime.shutdown_background();
            opened.load(Ordering::Relaxed)
        });
        Self { end, thread }
    }

    /// Stops the flood and returns the number of connections that it opened.
    fn stop(self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Holds a connection and opens another when it is closed.
async fn hold_connection(from: Ipv4Addr, to: SocketAddr, kind: FloodKind, opened: Arc<AtomicU64>) {
    let head = "POST /api/repo-host/webhook HTTP/1.1\r\nhost: a\r\n";
    let payload = match kind {
        FloodKind::Idle | FloodKind::All => String::new(),
        FloodKind::Head => head.to_owned(),
        FloodKind::Body => format!(
            "{head}x-hub-signature-256: sha256={}\r\ncontent-length: 26214400\r\n\r\n{}",
            "0".repeat(64),
            "x".repeat(70_000)
        ),
    };
    loop {
        let attempt = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((from, 0)))?;
            let mut stream = socket.connect(to).await?;
            opened.fetch_add(1, Ordering::Relaxed);
            stream.write_all(payload.as_bytes()).await?;
            stream.read_u8().await
        };
        if attempt
            .await
            .is_err_and(|error| error.raw_os_error().is_some())
        {
            // Reset by the service, or temporarily out of ports.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Raises the file descriptor limit and checks that it suffices for the sockets.
fn raise_descriptor_limit(sockets: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(
        current > sockets as u64 + 500,
        "too few file descriptors: {current}"
    );
}
