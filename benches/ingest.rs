//! How many durable reports and webhooks does the service take, and what does durability cost?
//!
//! Sixty-four connections ask; each server stands in a process of its own and has its store, if any,
//! on a real disk, with a fsync before every answer. In the same run: what the disk, a bare socket and
//! the same service without persistence can do, and programs of others that do the same or less.
//!
//! `cargo bench --bench ingest -- --seconds 5 --dir /var/lib/somewhere`

mod support;

use std::cell::Cell;
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

/// The key with which the host's App would sign; the peer that wants one is given the test key.

#[derive(Parser)]
struct Line {
    /// How long each row is measured in a round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How often each row is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// A folder on the disk to measure.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Where `benches/peers.sh` put the programs of others.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-tools"))]
    tools: PathBuf,
    /// Measures only rows whose name has this in it.
    #[arg(long)]
    only: Option<String>,
    /// Serves, for the benchmark in another process.
    #[arg(long, hide = true)]
    serve: Option<ServeMode>,
    /// What cargo says to every benchmark.
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
const NODE: &str = "peer: Node with SQLite, durable";
const PROBOT: &str = "peer: probot, not durable";
const ADNANH: &str = "peer: webhook starting /bin/true";
const ADNANH_DONE: &str = "peer: webhook, when /bin/true has ended";

fn main() -> Result<()> {
    let line = Line::parse();
    if let Some(what) = line.serve {
        return service::serve(what, &line.dir);
    }
    // One thread, so that the load costs every server the same.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(Bench::new(&line)?.all())?;
    let title = format!(
        "{} connections, {} rounds of {} s each",
        line.connections, line.rounds, line.seconds
    );
    table::print_table(&title, "per second", &rows);
    judge(&rows);
    Ok(())
}

fn judge(rows: &[BenchRow]) {
    let ratio = |one, other, wanted| table::print_ratio(rows, one, other, wanted);
    ratio(PROGRESS, IN_MEMORY, Threshold::AtLeast(0.4));
    ratio(PROGRESS, REFUSED, Threshold::AtLeast(0.4));
    ratio(PROGRESS, GET, Threshold::ReportOnly);
    ratio(PROGRESS, SOCKET, Threshold::ReportOnly);
    ratio(PROGRESS, STORE, Threshold::ReportOnly);
    ratio(PROGRESS, FILE, Threshold::ReportOnly);
    ratio(STORE, FILE, Threshold::ReportOnly);
    ratio(STORE, SINGLE, Threshold::ReportOnly);
    ratio(WEBHOOK, REPEATED, Threshold::AtLeast(0.4));
    ratio(WEBHOOK, NODE, Threshold::AtLeast(5.0));
    ratio(WEBHOOK, PROBOT, Threshold::ReportOnly);
    ratio(WEBHOOK, ADNANH, Threshold::ReportOnly);
    ratio(WEBHOOK, ADNANH_DONE, Threshold::AtLeast(10.0));
    ratio(PROGRESS, NODE, Threshold::AtLeast(5.0));
    ratio(PROGRESS, ADNANH_DONE, Threshold::AtLeast(10.0));
}

struct Bench<'l> {
    line: &'l Line,
    span: Duration,
    token: String,
    /// The body of every webhook, and its signature.
    webhook: (String, String),
    /// The number of the next request, so that none is like another.
    numbers: Cell<u64>,
}

impl<'l> Bench<'l> {
    fn new(line: &'l Line) -> Result<Self> {
        let body = webhook_body();
        let signature = sign(body.as_bytes(), &Secret::new(service::WEBHOOK_SECRET));
        Ok(Self {
            line,
            span: Duration::from_secs_f64(line.seconds),
            token: service::progress_token(),
            webhook: (body, signature),
            numbers: Cell::new(0),
        })
    }

    /// Every row. Round by round, so that what else the machine does falls on all of them.
    async fn all(&self) -> Result<Vec<BenchRow>> {
        let mut rows = self.peers_missing();
        for _ in 0..self.line.rounds {
            self.limits(&mut rows).await?;
            self.service(&mut rows).await?;
            self.peers(&mut rows).await?;
        }
        rows.retain(|row| !row.samples.is_empty());
        Ok(rows)
    }

    fn wants(&self, name: &str) -> bool {
        self.line
            .only
            .as_ref()
            .is_none_or(|only| name.contains(only))
    }

    async fn limits(&self, rows: &mut Vec<BenchRow>) -> Result<()> {
        if self.wants(SOCKET) {
            let server = BenchServer::start(ServeMode::Socket, &self.line.dir)?;
            let load = self.drive(&server, &[200], |n| self.progress(n)).await?;
            note(rows, SOCKET, &load, String::new());
        }
        if self.wants(FILE) {
            let load = self.file().await?;
            note(rows, FILE, &load, String::new());
        }
        for (name, turns) in [(STORE, Turns::Together), (SINGLE, Turns::OneByOne)] {
            if self.wants(name) {
                let (load, commits) = self.store(turns).await?;
                note(rows, name, &load, group(&load, commits));
            }
        }
        Ok(())
    }

    async fn service(&self, rows: &mut Vec<BenchRow>) -> Result<()> {
        let progress = |number| self.progress(number);
        let refused = |_| self.report(&json!({"step": null}).to_string());
        let get = |_| b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
        let fresh = |number| self.webhook(number);
        let known = |_| self.webhook(0);
        self.asked(rows, GET, ServeMode::Disk, get, 200).await?;
        self.asked(rows, REFUSED, ServeMode::Disk, refused, 400)
            .await?;
        self.asked(rows, IN_MEMORY, ServeMode::Memory, progress, 200)
            .await?;
        self.asked(rows, PROGRESS, ServeMode::Disk, progress, 200)
            .await?;
        self.asked(rows, REPEATED, ServeMode::Disk, known, 200)
            .await?;
        self.asked(rows, WEBHOOK, ServeMode::Disk, fresh, 200).await
    }

    /// Measures a row of the service, which starts anew for it on an empty store.
    async fn asked(
        &self,
        rows: &mut Vec<BenchRow>,
        name: &'static str,
        serving: ServeMode,
        request: impl Fn(u64) -> Vec<u8>,
        status: u16,
    ) -> Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        let dir = tempfile::tempdir_in(&self.line.dir)?;
        let server = BenchServer::start(serving, dir.path())?;
        let load = self.drive(&server, &[status], request).await?;
        let used = peer::cpu_time(server.pid())?;
        let commits = server.stop()?;
        let cost = used.as_secs_f64() * 1e6 / load.responses as f64;
        let seen = format!("{cost:.0} us of processor, {}", group(&load, commits));
        note(rows, name, &load, seen);
        Ok(())
    }

    async fn drive(
        &self,
        server: &BenchServer,
        statuses: &[u16],
        request: impl Fn(u64) -> Vec<u8>,
    ) -> Result<LoadResult> {
        let connections = self.line.connections;
        load::drive(server.address, connections, self.span, statuses, request).await
    }

    /// Says which programs of others there are not.
    fn peers_missing(&self) -> Vec<BenchRow> {
        for (name, program) in [
            (NODE, self.node_script("receiver.mjs")),
            (PROBOT, self.node_script("probot.mjs")),
            (ADNANH, self.adnanh()),
            (ADNANH_DONE, self.adnanh()),
        ] {
            if self.wants(name) && !program.exists() {
                println!(
                    "{name}: not measured, there is no {}; `bash benches/peers.sh` installs it",
                    program.display()
                );
            }
        }
        Vec::new()
    }

    fn node_script(&self, name: &str) -> PathBuf {
        self.line.tools.join("node").join(name)
    }

    fn adnanh(&self) -> PathBuf {
        self.line.tools.join("bin/webhook")
    }

    async fn peers(&self, rows: &mut Vec<BenchRow>) -> Result<()> {
        let dir = tempfile::tempdir_in(&self.line.dir)?;
        let database = dir.path().join("receiver.sqlite");
        // Children of a program that has ended hold its port for a moment: each has one of its own.
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
        let started = json!({"id": "webhook", "execute-command": "/bin/true"});
        let mut ended = started.clone();
        ended["include-command-output-in-response"] = json!(true);
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
            (ADNANH, self.adnanh(), adnanh(ports[2], started)?),
            (ADNANH_DONE, self.adnanh(), adnanh(ports[3], ended)?),
        ];
        for ((name, program, command), port) in all.into_iter().zip(ports) {
            if self.wants(name) && program.exists() {
                self.peer(rows, name, command, port).await?;
            }
        }
        Ok(())
    }

    async fn peer(
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
        let (connections, before) = (self.line.connections, peer::cpu_time(peer.pid())?);
        let request = |number| self.webhook(number);
        let load = load::drive(peer.address, connections, self.span, &[200], request).await?;
        let used = peer::cpu_time(peer.pid())?.saturating_sub(before);
        let cost = used.as_secs_f64() * 1e6 / load.responses as f64;
        note(rows, name, &load, format!("{cost:.0} us of processor"));
        Ok(())
    }

    /// A file to which records of a report's size are appended: all that wait, then one fsync, then
    /// the answers. No program with one log can do better.
    async fn file(&self) -> Result<LoadResult> {
        let dir = tempfile::tempdir_in(&self.line.dir)?;
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
                    // Nobody gives up before the answer.
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

    /// The rows of a report put into the store without HTTP.
    async fn store(&self, turns: Turns) -> Result<(LoadResult, u64)> {
        let dir = tempfile::tempdir_in(&self.line.dir)?;
        let store = Store::open(dir.path())?;
        let turn = Mutex::new(());
        let load = self
            .repeat(async || {
                let _turn = match turns {
                    Turns::Together => None,
                    Turns::OneByOne => Some(turn.lock().await),
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

    /// Does something over and over, as often at once as there are connections.
    async fn repeat(&self, once: impl AsyncFn() -> Result<()>) -> Result<LoadResult> {
        let began = Instant::now();
        let callers = (0..self.line.connections).map(|_| async {
            let mut took = Vec::new();
            while began.elapsed() < self.span {
                let asked = Instant::now();
                once().await?;
                took.push(asked.elapsed());
            }
            Ok::<_, anyhow::Error>(took)
        });
        let all = futures_util::future::try_join_all(callers).await?;
        LoadResult::from_latencies(all, began.elapsed())
    }

    fn next(&self) -> u64 {
        self.numbers.replace(self.numbers.get() + 1)
    }

    fn progress(&self, _: u64) -> Vec<u8> {
        self.report(&json!({"step": fixtures::step(self.next() % steps::MAX_STEPS)}).to_string())
    }

    fn report(&self, body: &str) -> Vec<u8> {
        let head = format!("authorization: Bearer {}\r\n", self.token);
        post("/runner/progress", &head, body)
    }

    /// A delivery whose id the host would have made; deliveries of one number are one.
    fn webhook(&self, number: u64) -> Vec<u8> {
        let (body, signature) = &self.webhook;
        let mut random = fastrand::Rng::with_seed(number);
        let head = format!(
            "x-github-event: pull_request\r\nx-github-delivery: {:032x}\r\nx-hub-signature-256: sha256={signature}\r\n",
            random.u128(..)
        );
        post(WEBHOOK_PATH, &head, body)
    }
}

const WEBHOOK_PATH: &str = "/api/repo-host/webhook";

/// Whether writers may share a commit.
#[derive(Clone, Copy)]
enum Turns {
    Together,
    OneByOne,
}

fn post(path: &str, head: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A pull request that was labelled: of some size, and nothing follows from it but that it is taken.
fn webhook_body() -> String {
    let user = json!({"login": "mona", "id": 1, "type": "User", "url": "https://api.github.com/users/mona"});
    json!({
        "action": "labeled",
        "number": 7,
        "label": {"id": 3, "name": "bug", "color": "d73a4a"},
        "pull_request": {
            "number": 7, "state": "open", "title": "Remember the address",
            "body": "The checkout forgets the address.\n".repeat(60),
            "user": user, "head": {"ref": "feature", "sha": "0".repeat(40)}, "base": {"ref": "main"},
            "html_url": "https://github.com/acme/shop/pull/7", "merged": false,
        },
        "repository": {"id": 9, "name": "shop", "full_name": "acme/shop", "owner": user},
        "sender": user,
    })
    .to_string()
}

fn group(load: &LoadResult, commits: u64) -> String {
    match commits {
        0 | 1 => String::new(),
        commits => format!("{:.1} a commit", load.responses as f64 / commits as f64),
    }
}

fn note(rows: &mut Vec<BenchRow>, name: &str, load: &LoadResult, seen: String) {
    let p99 = table::millis(load.p99);
    let seen = format!("p99 {p99:.1} ms  {seen}");
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => {
            row.samples.push(load.rate());
            row.note = seen;
        }
        None => rows.push(BenchRow::with_samples(name, vec![load.rate()]).with_note(seen)),
    }
}
