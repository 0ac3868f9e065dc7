//! How much durable progress can runs report, and what does durability cost?
//!
//! Sixty-four connections post steps to a server in this process, whose store lies on a real disk
//! and is fsynced before every answer. Beside it, in the same run: the same server asked for what
//! it need not store, and the store alone with and without its grouped writer. Ratios within one
//! run are what counts; absolute numbers belong to the machine.
//!
//! `cargo bench --bench ingest -- --seconds 5 --dir /var/lib/somewhere`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_implement::app::{App, Setting};
use agent_implement::config::{Config, Options};
use agent_implement::domain::ids::{JobId, Repo};
use agent_implement::domain::issue::{IssueRef, System};
use agent_implement::domain::job::{Job, JobKind, JobState, RunnerKind};
use agent_implement::domain::report::Step;
use agent_implement::http;
use agent_implement::keys::run_token::Audience;
use agent_implement::store::{Stats, Store, jobs, steps};
use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

const CONNECTIONS: usize = 64;

const FLAGS: [&str; 5] = [
    "bench",
    "--runner-token-secret",
    "0123456789abcdef0123456789abcdef",
    "--runner-callback-base-url",
    "http://127.0.0.1:1",
];

#[derive(Parser)]
struct Line {
    /// How long each row is measured.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// A folder on the disk to measure.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Parser)]
struct Service {
    #[command(flatten)]
    options: Options,
}

/// One row of the table.
struct Row {
    name: &'static str,
    done: u64,
    took: Duration,
    commits: u64,
}

impl Row {
    fn rate(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let line = Line::parse();
    let span = Duration::from_secs_f64(line.seconds);
    // The engine makes its HTTP clients at the start, and they ask for a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir_in(&line.dir)?;
    let bench = Bench::start(dir.path(), span).await?;
    let rows = [
        bench.http("GET /, nothing stored", |_| get()).await?,
        bench
            .http("POST progress, refused before the store", |_| {
                bench.post(&json!({"step": null}))
            })
            .await?,
        bench
            .http("POST progress, durable", |number| {
                bench.post(&json!({"step": step(number)}))
            })
            .await?,
        bench
            .store_alone("store alone, grouped", Turns::Together)
            .await?,
        bench
            .store_alone("store alone, one commit each", Turns::OneByOne)
            .await?,
    ];
    print(&rows);
    Ok(())
}

fn print(rows: &[Row; 5]) {
    println!("\n{CONNECTIONS} connections\n");
    println!(
        "{:<42}{:>12}{:>10}{:>12}",
        "", "per second", "fsyncs", "each fsync"
    );
    for row in rows {
        let share = match row.commits {
            0 => "-".to_owned(),
            commits => format!("{:.1}", row.done as f64 / commits as f64),
        };
        println!(
            "{:<42}{:>12.0}{:>10}{:>12}",
            row.name,
            row.rate(),
            row.commits,
            share
        );
    }
    let [plain, refused, durable, grouped, single] = rows;
    let ratio = |one: &Row, other: &Row| one.rate() / other.rate();
    println!();
    println!(
        "durable ingest / nothing stored         {:>6.2}",
        ratio(durable, plain)
    );
    println!(
        "durable ingest / same request, refused  {:>6.2}",
        ratio(durable, refused)
    );
    println!(
        "durable ingest / one commit each        {:>6.2}",
        ratio(durable, single)
    );
    println!(
        "grouped store / one commit each         {:>6.2}",
        ratio(grouped, single)
    );
}

/// Whether writers may share a commit.
#[derive(Clone, Copy)]
enum Turns {
    Together,
    OneByOne,
}

struct Bench {
    app: App,
    address: std::net::SocketAddr,
    token: String,
    span: Duration,
    numbers: Arc<AtomicU64>,
}

impl Bench {
    async fn start(dir: &std::path::Path, span: Duration) -> Result<Self> {
        let config = Config::from_options(Service::parse_from(FLAGS).options)?;
        let app =
            App::new(config, Store::open(dir)?, Setting::default()).map_err(|e| anyhow!(e))?;
        let job = job(&app);
        let tokens = app.run_tokens.as_ref().context("no secret for tokens")?;
        let (now, phase) = (app.now(), job.kind.run_phase());
        let expires = now + Duration::from_secs(3600);
        let token = tokens.issue(&job.id, Audience::Progress, phase, now, expires);
        app.store.write(move |tx| jobs::put(tx, &job)).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(http::serve(app.clone(), listener, std::future::pending()));
        Ok(Self {
            app,
            address,
            token: token.expose().to_owned(),
            span,
            numbers: Arc::default(),
        })
    }

    fn post(&self, body: &serde_json::Value) -> Vec<u8> {
        let body = body.to_string();
        format!(
            "POST /runner/progress HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        )
        .into_bytes()
    }

    /// Asks on all connections at once, each waiting for its answer.
    async fn http(&self, name: &'static str, request: impl Fn(u64) -> Vec<u8>) -> Result<Row> {
        let (began, before) = (Instant::now(), self.app.store.stats());
        let callers = (0..CONNECTIONS).map(|_| async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let (mut buffer, mut done) = (vec![0; 8192], 0);
            while began.elapsed() < self.span {
                let number = self.numbers.fetch_add(1, Ordering::Relaxed);
                stream.write_all(&request(number)).await?;
                read_answer(&mut stream, &mut buffer).await?;
                done += 1;
            }
            Ok::<u64, anyhow::Error>(done)
        });
        let done = futures_util::future::try_join_all(callers).await?;
        Ok(self.row(name, done.into_iter().sum(), began, before))
    }

    /// Writes the rows that a report writes, without HTTP.
    async fn store_alone(&self, name: &'static str, turns: Turns) -> Result<Row> {
        let (began, before) = (Instant::now(), self.app.store.stats());
        let turn = Mutex::new(());
        let writers = (0..CONNECTIONS).map(|_| async {
            let mut done = 0;
            while began.elapsed() < self.span {
                let number = self.numbers.fetch_add(1, Ordering::Relaxed);
                let _turn = match turns {
                    Turns::Together => None,
                    Turns::OneByOne => Some(turn.lock().await),
                };
                let step = step(number);
                let put = move |tx: &agent_implement::store::WriteTx<'_>| {
                    steps::put(tx, &JobId::from("01BENCH"), &step, number)
                };
                self.app.store.write(put).await?;
                done += 1;
            }
            Ok::<u64, anyhow::Error>(done)
        });
        let done = futures_util::future::try_join_all(writers).await?;
        Ok(self.row(name, done.into_iter().sum(), began, before))
    }

    fn row(&self, name: &'static str, done: u64, began: Instant, before: Stats) -> Row {
        Row {
            name,
            done,
            took: began.elapsed(),
            commits: self.app.store.stats().commits - before.commits,
        }
    }
}

fn get() -> Vec<u8> {
    b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()
}

/// Reads one answer; its end is where the length in its head says.
async fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        ensure!(read > 0, "the server hung up");
        filled += read;
        let text = std::str::from_utf8(&buffer[..filled])?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let (_, length) = head
            .split_once("content-length: ")
            .context("an answer without its length")?;
        let length: usize = length.split("\r\n").next().unwrap_or_default().parse()?;
        if body.len() >= length {
            let is_expected = head.starts_with("HTTP/1.1 200") || head.starts_with("HTTP/1.1 400");
            ensure!(is_expected, "unexpected answer: {text}");
            return Ok(());
        }
    }
}

fn step(number: u64) -> Step {
    Step {
        id: format!("step-{number:08}"),
        kind: "feedback-loop".into(),
        status: "running".into(),
        started_at: "2027-01-15T08:00:00.000Z".into(),
        ended_at: None,
        elapsed_ms: Some(1200),
        parent_step_id: None,
        outputs: Some(json!({"iteration": 1, "findings": ["one", "two"]})),
        logs_url: None,
    }
}

fn job(app: &App) -> Job {
    Job {
        id: "01BENCH".into(),
        group: "01BENCH".into(),
        kind: JobKind::Implementation,
        issue: IssueRef {
            system: System::A,
            id: "issue-1".into(),
            key: "ENG-1".into(),
            title: "Make it fast".into(),
            url: "https://tickets.test/ENG-1".into(),
            marker_field: None,
        },
        team: "ENG".into(),
        repo: Repo::new("acme", "shop"),
        runner: RunnerKind::Ci,
        shadow: false,
        session_image: None,
        dispatch_number: 1,
        branch: "agent-implement/eng-1".into(),
        callbacks: true,
        minutes: 90,
        state: JobState::Running,
        run: None,
        pull: None,
        conclusion: None,
        refused_with: None,
        reserved_at: app.now(),
        dispatched_at: Some(app.now()),
        started_at: Some(app.now()),
        run_ended_at: None,
        finished_at: None,
        usage: None,
        nonce_hash: None,
        machine_gone_at: None,
        asked_at: None,
        resumes_at: None,
        failure_told: false,
        reported: false,
    }
}
