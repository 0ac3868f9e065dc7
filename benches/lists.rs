//! Response time of the panel's lists for a small and a large store.
//!
//! The service runs on two stores, with 1,000 and with 100,000 jobs of five steps each. Every list is
//! requested over HTTP from both in turn. For comparison, the same number of rows is read directly from the
//! store.
//!
//! `cargo bench --bench lists -- --jobs 100000`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use domain::crypto::admin_token;
use domain::secret::Secret;
use engine::app::App;
use store::admin_tokens::{self, AdminToken};
use store::{Store, jobs};
use support::table::{self, BenchRow, Threshold, millis};
use support::{fixtures, load, service};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Number of jobs in the small store. Larger than any page.
const SMALL_STORE_JOBS: usize = 1_000;

/// Minimum number of requests per summary and scoreboard, of which the 99th percentile is reported.
const NUMBER_ROUNDS: usize = 200;

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
    address: SocketAddr,
    token: String,
    jobs: usize,
    _dir: tempfile::TempDir,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let small_service = Service::start(&args, SMALL_STORE_JOBS).await?;
    let large_service = Service::start(&args, args.jobs).await?;
    let job = &fixtures::ended_job(SMALL_STORE_JOBS / 2).id;
    let lists = [
        "/api/log".to_owned(),
        "/api/pulls".to_owned(),
        "/api/usage".to_owned(),
        "/api/audit".to_owned(),
        "/api/dedup".to_owned(),
        "/api/outbox".to_owned(),
        "/api/blockers".to_owned(),
        format!("/api/jobs/{job}"),
        format!("/api/jobs/{job}/steps"),
        "/metrics".to_owned(),
    ];
    let numbers = [
        "/api/summary?window=24h",
        "/api/summary?window=30d",
        "/api/summary?window=30d&team=ENG",
        "/api/scoreboard",
        "/api/scoreboard?by=model",
        "/api/scoreboard?by=label",
        "/api/log?status=failed",
        "/api/log?team=ENG&kind=implementation&status=completed",
    ];
    let mut table = Vec::new();
    for service in [&small_service, &large_service] {
        table.push(service.measure_direct_read(args.rounds)?);
    }
    let mut ratios = Vec::new();
    for path in &lists {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            small.push(small_service.request_millis(path).await?);
            large.push(large_service.request_millis(path).await?);
        }
        let small = BenchRow::with_samples(format!("{path}, {} jobs", small_service.jobs), small);
        let large = BenchRow::with_samples(format!("{path}, {} jobs", large_service.jobs), large);
        ratios.push((path, large.median(), small.median()));
        table.extend([small, large]);
    }
    let mut slowest = Vec::new();
    for path in numbers {
        let mut samples = Vec::new();
        for _ in 0..args.rounds.max(NUMBER_ROUNDS) {
            samples.push(large_service.request_millis(path).await?);
        }
        let row = BenchRow::with_samples(format!("{path}, {} jobs", args.jobs), samples);
        slowest.push((path, row.p99()));
        table.push(row);
    }
    let direct_read = table[1].median();
    table::print_table("one caller", "ms", &table);
    for (path, p99) in slowest {
        table::print_check(&format!("{path}: p99"), p99, Threshold::AtMost(20.0));
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
    Ok(())
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
