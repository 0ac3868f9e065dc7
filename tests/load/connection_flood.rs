//! Strangers that hold thousands of connections, beside a host that sends webhooks and a run that reports.
//!
//! The strangers have a thread and addresses of their own: one or 200 of 127.0.1.0/24 and 127.0.2.0/24. Each opens
//! another connection as soon as it loses one. The others come from 127.0.0.1, with a connection for each request.

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

const SECRET: &str = "a secret that is long enough for anybody";
const ACCESS_CODE: &str = "an access code that is long enough";
const JOB: &str = "01JSTRANGERS";

/// What strangers do with a connection.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Nothing.
    Idle,
    /// Half a head.
    Head,
    /// The head of a webhook and the beginning of its body.
    Body,
    /// A third of them each.
    All,
}

/// A share of 100 requests that may take longer. Of the release build alone.
const MAX_P99: Duration = Duration::from_millis(250);

struct Plan {
    sockets: usize,
    span: Duration,
    /// From one request of a kind to the next.
    pause: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and the whole machine"]
async fn five_thousand_strangers() {
    let _turn = super::TURN.lock().await;
    let plan = Plan {
        sockets: 5_000,
        span: Duration::from_secs(20),
        pause: Duration::from_millis(20),
    };
    let phases = [Deed::Idle, Deed::Head, Deed::Body, Deed::All]
        .map(|deed| [(deed, 1), (deed, 200)])
        .concat();
    let longest = prove(&plan, &phases).await;
    if !cfg!(debug_assertions) {
        assert!(longest.p99 <= MAX_P99, "{:?}", longest.p99);
    }
}

/// The worst of all phases.
#[derive(Default)]
struct Worst {
    p99: Duration,
    max: Duration,
}

async fn prove(plan: &Plan, phases: &[(Deed, usize)]) -> Worst {
    raise_descriptors(plan.sockets);
    let dir = tempfile::tempdir().unwrap();
    let token = Arc::new(furnish(dir.path()).await);
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
        "strangers, addresses | request | count | p50 | p99 | longest | failed | connections opened"
    );
    for (deed, addresses) in phases {
        let strangers = Strangers::come(address, *deed, plan.sockets, *addresses);
        tokio::time::sleep(plan.span / 4).await;
        let until = Instant::now() + plan.span;
        let hooks = tokio::spawn(ask(address, hooks(), until, plan.pause));
        let reports = tokio::spawn(ask(address, reports(&token), until, plan.pause));
        let (hooks, reports) = (hooks.await.unwrap(), reports.await.unwrap());
        let opened = strangers.leave();
        for (what, told) in [("webhook", hooks), ("run report", reports)] {
            let times = &told.times;
            let (p99, max) = (times.quantile(0.99), times.max());
            println!(
                "{} {deed:?}, {addresses} | {what} | {} | {:?} | {p99:?} | {max:?} | {} | {opened}",
                plan.sockets,
                times.count(),
                times.quantile(0.5),
                told.failed.len(),
            );
            assert!(told.failed.is_empty(), "{what}: {:?}", told.failed);
            worst.p99 = worst.p99.max(p99);
            worst.max = worst.max.max(max);
        }
    }
    assert_eq!(service.stop(), 0);
    worst
}

/// A store with a run that reports, and its token.
async fn furnish(dir: &Path) -> String {
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
    let put = store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    let tokens = RunTokenIssuer::new(&Secret::new(SECRET));
    let (id, phase) = (JobId::from(JOB), RunPhase::Implementation);
    let life = now + Duration::from_secs(3600);
    let token = tokens.issue(&id, TokenAudience::Progress, phase, now, life);
    token.expose().to_owned()
}

/// A small delivery and one that takes room.
fn hooks() -> Vec<Vec<u8>> {
    let body = |size: usize| json!({"zen": "z".repeat(size)}).to_string();
    let bodies = [100, 200_000].map(body);
    let hook = |body: &String| {
        let signature = format!("sha256={}", sign(body.as_bytes(), &Secret::new(SECRET)));
        let headers = [
            ("x-github-event", "ping"),
            ("x-hub-signature-256", signature.as_str()),
        ];
        encode_request("POST", "/api/repo-host/webhook", &headers, body.as_bytes())
    };
    bodies.iter().map(hook).collect()
}

/// A small report and one that takes room.
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
struct Told {
    times: LatencyHistogram,
    failed: Vec<String>,
}

/// Sends the requests in turn, one each pause, and measures from when it was due.
async fn ask(address: SocketAddr, requests: Vec<Vec<u8>>, until: Instant, pause: Duration) -> Told {
    let mut told = Told::default();
    let mut due = Instant::now();
    for request in requests.iter().cycle() {
        tokio::time::sleep_until(due.into()).await;
        match HttpConnection::new(address).send(request).await {
            Ok(answer) if answer.status == 200 => told.times.add(due.elapsed()),
            Ok(answer) => told
                .failed
                .push(format!("{} {}", answer.status, answer.excerpt())),
            Err(error) => told.failed.push(error.to_string()),
        }
        due += pause;
        if Instant::now() >= until {
            break;
        }
    }
    told
}

/// Strangers at work.
struct Strangers {
    end: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Strangers {
    fn come(to: SocketAddr, deed: Deed, sockets: usize, addresses: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let opened = Arc::new(AtomicU64::new(0));
            for number in 0..sockets {
                let at = number % addresses;
                let from = Ipv4Addr::new(127, 0, 1 + (at / 100) as u8, 1 + (at % 100) as u8);
                let deed = match deed {
                    Deed::All => [Deed::Idle, Deed::Head, Deed::Body][number % 3],
                    deed => deed,
                };
                runtime.spawn(hold_on(from, to, deed, Arc::clone(&opened)));
            }
            runtime.block_on(async {
                while !told.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            runtime.shutdown_background();
            opened.load(Ordering::Relaxed)
        });
        Self { end, thread }
    }

    /// How many connections they have opened.
    fn leave(self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Holds a connection, and opens another when it is closed.
async fn hold_on(from: Ipv4Addr, to: SocketAddr, deed: Deed, opened: Arc<AtomicU64>) {
    let head = "POST /api/repo-host/webhook HTTP/1.1\r\nhost: a\r\n";
    let says = match deed {
        Deed::Idle | Deed::All => String::new(),
        Deed::Head => head.to_owned(),
        Deed::Body => format!(
            "{head}x-hub-signature-256: sha256={}\r\ncontent-length: 26214400\r\n\r\n{}",
            "0".repeat(64),
            "x".repeat(70_000)
        ),
    };
    loop {
        let held = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((from, 0)))?;
            let mut stream = socket.connect(to).await?;
            opened.fetch_add(1, Ordering::Relaxed);
            stream.write_all(says.as_bytes()).await?;
            stream.read_u8().await
        };
        if held
            .await
            .is_err_and(|error| error.raw_os_error().is_some())
        {
            // Reset, or out of ports for the moment.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// As many file descriptors as there are sockets, and some more.
fn raise_descriptors(sockets: usize) {
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
