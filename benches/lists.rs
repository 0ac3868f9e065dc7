//! Response time of the panel's lists for a small and a large store.
//!
//! The service runs on two stores, with 1,000 and with 100,000 jobs of five steps each. Every list is
//! requested over HTTP from both in turn. For comparison, the same number of rows is read directly from the
//! store.
//!
//! The large store is first changed back to the schema version before the indexes and counters of jobs, so that
//! the migration is measured, too.
//!
//! `cargo bench --bench lists -- --jobs 100000`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use domain::crypto::admin_token;
use domain::secret::Secret;
use engine::app::App;
use redb::{Database, DatabaseError, TableDefinition, TableHandle};
use store::admin_tokens::{self, AdminToken};
use store::{STORE_FILE, Store, jobs};
use support::table::{self, BenchRow, Threshold, millis};
use support::{fixtures, load, service};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Number of jobs in the small store. Larger than any page.
const SMALL_STORE_JOBS: usize = 1_000;

/// Minimum number of requests per row whose 99th percentile is reported.
const P99_ROUNDS: usize = 200;

/// Number of runs of the issue with the most runs.
const BUSY_ISSUE_RUNS: usize = 1_000;

/// Number of pending updates in the large store.
const UPDATES: usize = 5_000;

/// Schema version to which the large store is changed back, and the tables that later versions add.
const OLD_SCHEMA: (&[u8], [&str; 9]) = (
    b"3",
    [
        "jobs-by-state-1",
        "jobs-by-team-1",
        "jobs-by-issue-key-1",
        "failed-runs-1",
        "run-hours-1",
        "run-days-1",
        "score-days-1",
        "score-months-1",
        "score-keys-1",
    ],
);

#[derive(Parser)]
struct Args {
    /// Number of jobs in the large store.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Number of requests per list; the median is reported.
    #[arg(long, default_value_t = 51)]
    rounds: usize,
    /// Folder for the stores.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Service with its store.
struct Service {
    app: App,
    store: Store,
    address: SocketAddr,
    token: String,
    jobs: usize,
    _dir: tempfile::TempDir,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    print!("load: {}", std::fs::read_to_string("/proc/loadavg")?);
    let small_service = Service::start(&args, SMALL_STORE_JOBS).await?;
    let large_service = Service::start(&args, args.jobs).await?;
    let mut table = Vec::new();
    for service in [&small_service, &large_service] {
        table.push(service.measure_direct_read(args.rounds)?);
    }
    let direct_read = table[1].median();
    let ratios = measure_lists(&args, [&small_service, &large_service], &mut table).await?;
    // Not before: the metrics count the outbox.
    fixtures::add_updates(&large_service.store, UPDATES).await?;
    let slowest = measure_p99(&args, &large_service, &mut table).await?;
    table::print_table("one caller", "ms", &table);
    for (name, p99, target) in slowest {
        table::print_check(&format!("{name}: p99"), p99, target);
    }
    for (path, large, small) in ratios {
        // Both stores are in the page cache, so the rest is noise of the machine.
        table::print_check(
            &format!("{path}: large store / small"),
            large / small,
            Threshold::AtMost(2.0),
        );
        if path == "/api/log" {
            table::print_check(
                "/api/log / direct read of as many rows",
                large / direct_read,
                Threshold::ReportOnly,
            );
        }
    }
    print!("load: {}", std::fs::read_to_string("/proc/loadavg")?);
    Ok(())
}

/// Measures lists whose time must not depend on the number of jobs. Returns the medians of the large and of the
/// small store.
async fn measure_lists(
    args: &Args,
    [small_service, large_service]: [&Service; 2],
    table: &mut Vec<BenchRow>,
) -> Result<Vec<(String, f64, f64)>> {
    let job = &fixtures::ended_job(SMALL_STORE_JOBS / 2).id;
    let lists = [
        "/api/log".to_owned(),
        "/api/pulls".to_owned(),
        "/api/usage".to_owned(),
        "/api/audit".to_owned(),
        "/api/dedup".to_owned(),
        "/api/blockers".to_owned(),
        format!("/api/jobs/{job}"),
        format!("/api/jobs/{job}/steps"),
        "/metrics".to_owned(),
    ];
    let mut ratios = Vec::new();
    for path in lists {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            small.push(small_service.request_millis(&path).await?);
            large.push(large_service.request_millis(&path).await?);
        }
        let small = BenchRow::with_samples(format!("{path}, {} jobs", small_service.jobs), small);
        let large = BenchRow::with_samples(format!("{path}, {} jobs", large_service.jobs), large);
        ratios.push((path, large.median(), small.median()));
        table.extend([small, large]);
    }
    Ok(ratios)
}

/// Measures numbers, filtered pages and large responses of the large store. Returns their 99th percentiles.
async fn measure_p99(
    args: &Args,
    service: &Service,
    table: &mut Vec<BenchRow>,
) -> Result<Vec<(String, f64, Threshold)>> {
    let mut rows: Vec<(String, Vec<String>, Threshold)> = Vec::new();
    let number = Threshold::AtMost(20.0);
    for window in ["24h", "7d", "30d"] {
        for team in ["", "&team=ENG"] {
            let path = format!("/api/summary?window={window}{team}");
            rows.push((path.clone(), vec![path], number));
        }
    }
    let now = service.app.core.now();
    let year = now - Duration::from_secs(365 * 24 * 60 * 60);
    for by in ["team", "agent", "model", "kind", "label"] {
        let path = format!("/api/scoreboard?by={by}");
        let of_year = format!("{path}&from={year}&to={now}");
        rows.push((format!("{path}, a year"), vec![of_year], number));
        rows.push((path.clone(), vec![path], number));
    }
    let other = Threshold::ReportOnly;
    for path in [
        "/api/log?status=failed",
        "/api/log?team=ENG&kind=implementation&status=completed",
        "/api/log?q=absent",
        "/api/incidents",
    ] {
        rows.push((path.to_owned(), vec![path.to_owned()], other));
    }
    let pages = (0..args.jobs).step_by(jobs::DISPATCH_LOG_SIZE);
    let before = |number: usize| format!("/api/log?before={}", fixtures::ended_job(number).id);
    rows.push((
        "/api/log, every page".to_owned(),
        pages.map(before).collect(),
        other,
    ));
    let busy = format!("/api/why/{}", fixtures::BUSY_ISSUE);
    rows.push((format!("{busy}, {BUSY_ISSUE_RUNS} runs"), vec![busy], other));
    let outbox = "/api/outbox".to_owned();
    rows.push((format!("{outbox}, {UPDATES} updates"), vec![outbox], other));
    let mut slowest = Vec::new();
    for (name, paths, target) in rows {
        let mut samples = Vec::new();
        let rounds = args.rounds.max(P99_ROUNDS).max(paths.len());
        for path in paths.iter().cycle().take(rounds) {
            samples.push(service.request_millis(path).await?);
        }
        let row = BenchRow::with_samples(format!("{name}, {} jobs", args.jobs), samples);
        slowest.push((name, row.p99(), target));
        table.push(row);
    }
    Ok(slowest)
}

/// Reopens a store as it is, and after it was changed back to an old schema version. Prints both times.
async fn migrate(store: Store, dir: &Path) -> Result<Store> {
    drop(store);
    drop(open_file(dir).await?);
    let began = Instant::now();
    let store = Store::open(dir)?;
    let opened = began.elapsed().as_secs_f64();
    drop(store);
    downgrade(&open_file(dir).await?)?;
    let began = Instant::now();
    let store = Store::open(dir)?;
    let migrated = began.elapsed().as_secs_f64();
    println!("opened in {opened:.2} s, with the migration of all jobs in {migrated:.2} s");
    Ok(store)
}

/// Opens the file of a store as soon as the store is closed.
async fn open_file(dir: &Path) -> Result<Database> {
    loop {
        match Database::open(dir.join(STORE_FILE)) {
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Changes a store back to an old schema version: without the tables that later versions add.
fn downgrade(db: &Database) -> Result<()> {
    let (version, tables) = OLD_SCHEMA;
    let tx = db.begin_write()?;
    let found: Vec<_> = tx.list_tables()?.collect();
    for table in found {
        if tables.contains(&table.name()) {
            tx.delete_table(table)?;
        }
    }
    let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta-1");
    tx.open_table(meta)?.insert("schema", version)?;
    Ok(tx.commit()?)
}

impl Service {
    async fn start(args: &Args, jobs: usize) -> Result<Self> {
        let dir = tempfile::tempdir_in(&args.dir)?;
        let store = Store::open(dir.path())?;
        let began = Instant::now();
        fixtures::fill_store(&store, jobs).await?;
        println!(
            "{jobs} jobs: {:.0} MB, filled in {:.1} s",
            fixtures::dir_size_mb(dir.path())?,
            began.elapsed().as_secs_f64()
        );
        let store = match jobs {
            SMALL_STORE_JOBS => store,
            _ => {
                fixtures::add_busy_issue(&store, BUSY_ISSUE_RUNS).await?;
                migrate(store, dir.path()).await?
            }
        };
        let app = service::build_app(store.clone(), &[])?;
        let token = admin_token::generate_token().map_err(|error| anyhow!(error))?;
        let token = token.expose().to_owned();
        let code = Secret::new(service::ACCESS_CODE);
        let (hash, now) = (admin_token::hash_token(&token, &code), app.core.now());
        let expires_at = now + Duration::from_secs(3600);
        let put =
            store.write(move |tx| admin_tokens::put(tx, &hash, &AdminToken { expires_at }, now));
        put.await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(server::serve(app.clone(), listener, std::future::pending()));
        Ok(Self {
            app,
            store,
            address,
            token,
            jobs,
            _dir: dir,
        })
    }

    /// Sends one request. Returns the response time in milliseconds.
    async fn request_millis(&self, path: &str) -> Result<f64> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
            self.token
        );
        let began = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let status = load::read_status(&mut stream, &mut Vec::new()).await?;
        ensure!(status == 200, "{path}: status {status}");
        Ok(millis(began.elapsed()))
    }

    /// Measures the direct read of one page of the dispatch log.
    fn measure_direct_read(&self, rounds: usize) -> Result<BenchRow> {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let began = Instant::now();
            let read = self
                .app
                .core
                .store()
                .read(|tx| jobs::latest(tx, jobs::DISPATCH_LOG_SIZE))?;
            samples.push(millis(began.elapsed()));
            ensure!(read.len() == jobs::DISPATCH_LOG_SIZE, "too few jobs");
        }
        let name = format!(
            "{} rows read and decoded, {} jobs",
            jobs::DISPATCH_LOG_SIZE,
            self.jobs
        );
        Ok(BenchRow::with_samples(name, samples))
    }
}
