//! Throughput of durable reports and webhooks, and the cost of durability.
//!
//! 64 connections send requests. Each server runs in its own process. Its store, if any, is on a real disk
//! and is synced before every response. For comparison: the disk alone, a bare socket, the same service
//! without persistence, and other programs that do the same or less.
//!
//! `cargo bench --bench ingest -- --seconds 5 --dir /var/lib/somewhere`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod support;

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use domain::crypto::signature::sign;
use domain::ids::JobId;
use domain::secret::Secret;
use serde_json::{Value, json};
use store::{Store, WriteTx, steps};
use support::fixtures;
use support::load::{self, LoadResult};
use support::peer::{self, PeerProcess};
use support::service::{self, BenchServer, ServeMode};
use support::table::{self, BenchRow, Threshold};
use tokio::sync::{Mutex, mpsc, oneshot};

#[derive(Parser)]
struct Args {
    /// Duration of each row in a round, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of rounds; the median is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Folder on the disk to measure.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Folder into which `benches/peers.sh` installed the peers.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-tools"))]
    tools: PathBuf,
    /// Measures only rows whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Runs as the server process of another benchmark process.
    #[arg(long, hide = true)]
    serve: Option<ServeMode>,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

const SOCKET: &str = "bare socket, 200 to everything";
const FILE: &str = "file appended, grouped fsync";
const STORE: &str = "store alone, grouped";
const SINGLE: &str = "store alone, one commit each";
const GET: &str = "GET /";
const REFUSED: &str = "progress, refused before the store";
const IN_MEMORY: &str = "progress, store in memory";
const PROGRESS: &str = "progress, durable";
const REPEATED: &str = "webhook, known delivery, not stored";
const WEBHOOK: &str = "webhook, durable";
const LARGE_REFUSED: &str = "webhook of 25.6 kB, refused for its signature";
const LARGE_WEBHOOK: &str = "webhook of 25.6 kB, durable";
const LONE: &str = "progress, durable, one connection";
const NODE: &str = "peer: Node with SQLite, durable";
const PROBOT: &str = "peer: probot, not durable";
const ADNANH: &str = "peer: webhook starting /bin/true";
const ADNANH_DONE: &str = "peer: webhook, when /bin/true has ended";

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(mode) = args.serve {
        return service::serve(mode, &args.dir);
    }
    // One thread, so that the load generator takes the same share of the machine from every server.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let bench = Bench::new(&args)?;
    let rows = runtime.block_on(bench.measure_all())?;
    let title = format!(
        "{} connections, {} rounds of {} s each",
        args.connections, args.rounds, args.seconds
    );
    table::print_table(&title, "per second", &rows);
    print_ratios(&rows);
    let mut costs = bench.lone_costs.take();
    costs.sort_by(f64::total_cmp);
    if let Some(cost) = costs.get(costs.len() / 2) {
        let name = format!("{LONE}: processor time, ms");
        table::print_check(&name, cost / 1e3, Threshold::AtMost(0.3));
    }
    Ok(())
}

/// Prints the ratios between rows and their targets.
fn print_ratios(rows: &[BenchRow]) {
    let ratio = |one, other, wanted| table::print_ratio(rows, one, other, wanted);
    ratio(PROGRESS, IN_MEMORY, Threshold::AtLeast(0.4));
    ratio(PROGRESS, REFUSED, Threshold::AtLeast(0.5));
    ratio(PROGRESS, GET, Threshold::ReportOnly);
    ratio(PROGRESS, SOCKET, Threshold::ReportOnly);
    ratio(PROGRESS, STORE, Threshold::ReportOnly);
    ratio(PROGRESS, FILE, Threshold::ReportOnly);
    ratio(STORE, FILE, Threshold::ReportOnly);
    ratio(STORE, SINGLE, Threshold::ReportOnly);
    ratio(WEBHOOK, REPEATED, Threshold::AtLeast(0.4));
    ratio(LARGE_WEBHOOK, LARGE_REFUSED, Threshold::AtLeast(0.55));
    ratio(WEBHOOK, NODE, Threshold::AtLeast(5.0));
    ratio(WEBHOOK, PROBOT, Threshold::ReportOnly);
    ratio(WEBHOOK, ADNANH, Threshold::ReportOnly);
    ratio(WEBHOOK, ADNANH_DONE, Threshold::AtLeast(10.0));
    ratio(PROGRESS, NODE, Threshold::AtLeast(5.0));
    ratio(PROGRESS, ADNANH_DONE, Threshold::AtLeast(10.0));
}

/// Options and request data of the benchmark.
struct Bench<'a> {
    args: &'a Args,
    duration: Duration,
    token: String,
    webhook: SignedBody,
    large_webhook: SignedBody,
    /// Processor time of each lone report, in microseconds.
    lone_costs: RefCell<Vec<f64>>,
    /// Number of the next request, which makes each request unique.
    next_number: Cell<u64>,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args) -> Result<Self> {
        Ok(Self {
            args,
            duration: Duration::from_secs_f64(args.seconds),
            token: service::progress_token(),
            webhook: SignedBody::new(webhook_body(60)),
            large_webhook: SignedBody::new(webhook_body(713)),
            lone_costs: RefCell::default(),
            next_number: Cell::new(0),
        })
    }

    /// Measures all rows round by round, so that other load on the machine affects all rows equally.
    async fn measure_all(&self) -> Result<Vec<BenchRow>> {
        self.report_missing_peers();
        let mut rows = Vec::new();
        for _ in 0..self.args.rounds {
            self.measure_limits(&mut rows).await?;
            self.measure_service(&mut rows).await?;
            self.measure_peers(&mut rows).await?;
        }
        rows.retain(|row| !row.samples.is_empty());
        Ok(rows)
    }

    /// Returns whether a row is selected.
    fn wants(&self, name: &str) -> bool {
        self.args
            .only
            .as_ref()
            .is_none_or(|only| name.contains(only))
    }

    /// Measures the bare socket, the file and the store.
    async fn measure_limits(&self, rows: &mut Vec<BenchRow>) -> Result<()> {
        if self.wants(SOCKET) {
            let server = BenchServer::start(ServeMode::Socket, &self.args.dir)?;
            let request = |number| self.progress_request(number);
            let (address, connections) = (server.address, self.args.connections);
            let load = load::drive(address, connections, self.duration, &[200], request).await?;
            add_sample(rows, SOCKET, &load, String::new());
        }
        if self.wants(FILE) {
            let load = self.measure_file().await?;
            add_sample(rows, FILE, &load, String::new());
        }
        for (name, mode) in [(STORE, CommitMode::Grouped), (SINGLE, CommitMode::Single)] {
            if self.wants(name) {
                let (load, commits) = self.measure_store(mode).await?;
                add_sample(rows, name, &load, writes_per_commit(&load, commits));
            }
        }
        Ok(())
    }

    /// Measures the rows of the service.
    async fn measure_service(&self, rows: &mut Vec<BenchRow>) -> Result<()> {
        let progress = |number| self.progress_request(number);
        let refused = |_| self.report_request(&json!({"step": null}).to_string());
        let get = |_| b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
        let fresh = |number| webhook_request(&self.webhook, number);
        let known = |_| webhook_request(&self.webhook, 0);
        let large = |number| webhook_request(&self.large_webhook, number);
        let forged = SignedBody {
            signature: "0".repeat(64),
            ..self.large_webhook.clone()
        };
        let refused_webhook = |number| webhook_request(&forged, number);
        self.measure_server(rows, GET, ServeMode::Disk, get, 200)
            .await?;
        self.measure_server(rows, REFUSED, ServeMode::Disk, refused, 400)
            .await?;
        self.measure_server(rows, IN_MEMORY, ServeMode::Memory, progress, 200)
            .await?;
        self.measure_server(rows, PROGRESS, ServeMode::Disk, progress, 200)
            .await?;
        self.measure_server(rows, REPEATED, ServeMode::Disk, known, 200)
            .await?;
        self.measure_server(rows, WEBHOOK, ServeMode::Disk, fresh, 200)
            .await?;
        self.measure_server(rows, LARGE_REFUSED, ServeMode::Disk, refused_webhook, 401)
            .await?;
        self.measure_server(rows, LARGE_WEBHOOK, ServeMode::Disk, large, 200)
            .await?;
        self.measure_server(rows, LONE, ServeMode::Disk, progress, 200)
            .await
    }

    /// Measures one row with a newly started service on an empty store.
    async fn measure_server(
        &self,
        rows: &mut Vec<BenchRow>,
        name: &'static str,
        mode: ServeMode,
        request: impl Fn(u64) -> Vec<u8>,
        status: u16,
    ) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        let dir = tempfile::tempdir_in(&self.args.dir)?;
        let server = BenchServer::start(mode, dir.path())?;
        let connections = match name {
            LONE => 1,
            _ => self.args.connections,
        };
        let load = load::drive(
            server.address,
            connections,
            self.duration,
            &[status],
            request,
        )
        .await?;
        let used = peer::cpu_time(server.pid())?;
        let commits = server.stop()?;
        let cost = used.as_secs_f64() * 1e6 / load.responses as f64;
        if name == LONE {
            self.lone_costs.borrow_mut().push(cost);
        }
        let note = format!("{cost:.0} us of CPU, {}", writes_per_commit(&load, commits));
        add_sample(rows, name, &load, note);
        Ok(())
    }

    /// Reports the peers that are not installed.
    fn report_missing_peers(&self) {
        for (name, program) in [
            (NODE, self.node_script("receiver.mjs")),
            (PROBOT, self.node_script("probot.mjs")),
            (ADNANH, self.adnanh()),
            (ADNANH_DONE, self.adnanh()),
        ] {
            if self.wants(name) && !program.exists() {
                println!(
                    "{name}: not measured, {} is missing. Run `bash benches/peers.sh` to install it.",
                    program.display()
                );
            }
        }
    }

    fn node_script(&self, name: &str) -> PathBuf {
        self.args.tools.join("node").join(name)
    }

    fn adnanh(&self) -> PathBuf {
        self.args.tools.join("bin/webhook")
    }

    /// Measures the rows of the peers.
    async fn measure_peers(&self, rows: &mut Vec<BenchRow>) -> Result<()> {
        let dir = tempfile::tempdir_in(&self.args.dir)?;
        let database = dir.path().join("receiver.sqlite");
        // Children of a stopped program hold its port for a moment, so each program has its own port.
        let ports = peer::free_ports::<4>()?;
        let mut node = Command::new("node");
        node.arg(self.node_script("receiver.mjs"))
            .arg(ports[0].to_string())
            .arg(&database);
        let mut probot = Command::new("node");
        probot
            .arg(self.node_script("probot.mjs"))
            .arg(ports[1].to_string())
            .env("PRIVATE_KEY", test_support::app_key())
            .env("WEBHOOK_SECRET", service::WEBHOOK_SECRET);
        let hook = json!({"id": "webhook", "execute-command": "/bin/true"});
        let mut waiting_hook = hook.clone();
        waiting_hook["include-command-output-in-response"] = json!(true);
        let adnanh = |port: u16, hook: Value| -> Result<Command> {
            let hooks = dir.path().join(format!("hooks-{port}.json"));
            std::fs::write(&hooks, json!([hook]).to_string())?;
            let mut command = Command::new(self.adnanh());
            command
                .args(["-ip", "127.0.0.1", "-port", &port.to_string()])
                .args(["-urlprefix", "api/repo-host", "-hooks"])
                .arg(hooks);
            Ok(command)
        };
        let all = [
            (NODE, self.node_script("receiver.mjs"), node),
            (PROBOT, self.node_script("probot.mjs"), probot),
            (ADNANH, self.adnanh(), adnanh(ports[2], hook)?),
            (ADNANH_DONE, self.adnanh(), adnanh(ports[3], waiting_hook)?),
        ];
        for ((name, program, command), port) in all.into_iter().zip(ports) {
            if self.wants(name) && program.exists() {
                self.measure_peer(rows, name, command, port).await?;
            }
        }
        Ok(())
    }

    /// Measures the row of one peer.
    async fn measure_peer(
        &self,
        rows: &mut Vec<BenchRow>,
        name: &'static str,
        mut command: Command,
        port: u16,
    ) -> Result<()> {
        let peer = match PeerProcess::start(&mut command, port) {
            Ok(peer) => peer,
            Err(error) => {
                println!("{name}: not measured, {error:#}");
                return Ok(());
            }
        };
        let (connections, before) = (self.args.connections, peer::cpu_time(peer.pid())?);
        let request = |number| webhook_request(&self.webhook, number);
        let load = load::drive(peer.address, connections, self.duration, &[200], request).await?;
        let used = peer::cpu_time(peer.pid())?.saturating_sub(before);
        let cost = used.as_secs_f64() * 1e6 / load.responses as f64;
        add_sample(rows, name, &load, format!("{cost:.0} us of CPU"));
        Ok(())
    }

    /// Measures a file to which records of a report's size are appended: all waiting records, one fsync, then
    /// the replies. This is the upper limit for a program with one log.
    async fn measure_file(&self) -> Result<LoadResult> {
        let dir = tempfile::tempdir_in(&self.args.dir)?;
        let mut file = std::fs::File::create(dir.path().join("log"))?;
        let (queue, mut waiting) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>(1024);
        let thread = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut group, mut bytes) = (Vec::new(), Vec::new());
            while waiting.blocking_recv_many(&mut group, 1024) > 0 {
                bytes.clear();
                group
                    .iter()
                    .for_each(|(record, _)| bytes.extend_from_slice(record));
                file.write_all(&bytes)?;
                file.sync_data()?;
                for (_, reply) in group.drain(..) {
                    // The receiver always waits for the reply.
                    let _ = reply.send(());
                }
            }
            Ok(())
        });
        let record = serde_json::to_vec(&fixtures::step(0))?;
        let load = self
            .repeat(async || {
                let (reply, answer) = oneshot::channel();
                queue.send((record.clone(), reply)).await?;
                Ok(answer.await?)
            })
            .await?;
        drop(queue);
        thread.join().ok().context("the writer panicked")??;
        Ok(load)
    }

    /// Measures writes of a report's rows to the store, without HTTP.
    async fn measure_store(&self, mode: CommitMode) -> Result<(LoadResult, u64)> {
        let dir = tempfile::tempdir_in(&self.args.dir)?;
        let store = Store::open(dir.path())?;
        let writer = Mutex::new(());
        let load = self
            .repeat(async || {
                let _guard = match mode {
                    CommitMode::Grouped => None,
                    CommitMode::Single => Some(writer.lock().await),
                };
                let number = self.next();
                let step = fixtures::step(number % steps::MAX_STEPS);
                let put = move |tx: &WriteTx<'_>| {
                    steps::put(tx, &JobId::from(fixtures::RUNNING_JOB_ID), &step, number)
                };
                Ok(store.write(put).await?)
            })
            .await?;
        Ok((load, store.stats().commits))
    }

    /// Repeats an operation for the duration of a row, concurrently on as many tasks as there are
    /// connections.
    async fn repeat(&self, once: impl AsyncFn() -> Result<()>) -> Result<LoadResult> {
        let began = Instant::now();
        let callers = (0..self.args.connections).map(|_| async {
            let mut took = Vec::new();
            while began.elapsed() < self.duration {
                let started = Instant::now();
                once().await?;
                took.push(started.elapsed());
            }
            Ok::<_, anyhow::Error>(took)
        });
        let all = futures_util::future::try_join_all(callers).await?;
        LoadResult::from_latencies(all, began.elapsed())
    }

    fn next(&self) -> u64 {
        self.next_number.replace(self.next_number.get() + 1)
    }

    fn progress_request(&self, _: u64) -> Vec<u8> {
        self.report_request(
            &json!({"step": fixtures::step(self.next() % steps::MAX_STEPS)}).to_string(),
        )
    }

    fn report_request(&self, body: &str) -> Vec<u8> {
        let head = format!("authorization: Bearer {}\r\n", self.token);
        post("/runner/progress", &head, body)
    }
}

/// Body of a webhook, and its signature.
#[derive(Clone)]
struct SignedBody {
    body: String,
    signature: String,
}

impl SignedBody {
    fn new(body: String) -> Self {
        let signature = sign(body.as_bytes(), &Secret::new(service::WEBHOOK_SECRET));
        Self { body, signature }
    }
}

/// Builds a webhook delivery. Deliveries with the same number have the same id.
fn webhook_request(signed: &SignedBody, number: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number);
    let head = format!(
        "x-github-event: pull_request\r\nx-github-delivery: {:032x}\r\nx-hub-signature-256: sha256={}\r\n",
        random.u128(..),
        signed.signature,
    );
    post(WEBHOOK_PATH, &head, &signed.body)
}

const WEBHOOK_PATH: &str = "/api/repo-host/webhook";

/// Commit mode of concurrent writers.
#[derive(Clone, Copy)]
enum CommitMode {
    Grouped,
    Single,
}

/// Builds a POST request.
fn post(path: &str, head: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Builds the payload of a new head of a pull request, which the service records without further action. Each line of
/// its description has 34 bytes.
fn webhook_body(lines: usize) -> String {
    let user = json!({"login": "mona", "id": 1, "type": "User", "url": "https://api.github.com/users/mona"});
    json!({
        "action": "synchronize",
        "number": 7,
        "pull_request": {
            "number": 7, "state": "open", "title": "Remember the address",
            "body": "The checkout forgets the address.\n".repeat(lines),
            "user": user, "head": {"ref": "feature", "sha": "0".repeat(40)}, "base": {"ref": "main"},
            "html_url": "https://github.com/acme/shop/pull/7", "merged": false,
        },
        "repository": {"id": 9, "name": "shop", "full_name": "acme/shop", "owner": user},
        "sender": user,
    })
    .to_string()
}

/// Formats the number of writes per commit.
fn writes_per_commit(load: &LoadResult, commits: u64) -> String {
    match commits {
        0 | 1 => String::new(),
        commits => format!("{:.1} a commit", load.responses as f64 / commits as f64),
    }
}

/// Adds the result of one round to a row, and creates the row if it is new.
fn add_sample(rows: &mut Vec<BenchRow>, name: &str, load: &LoadResult, note: String) {
    let p99 = table::millis(load.p99);
    let note = format!("p99 {p99:.1} ms  {note}");
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => {
            row.samples.push(load.rate());
            row.note = note;
        }
        None => rows.push(BenchRow::with_samples(name, vec![load.rate()]).with_note(note)),
    }
}
