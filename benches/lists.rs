//! Does a page of the panel cost more when the store has more behind it?
//!
//! Two stores, of a thousand and of a hundred thousand jobs with five steps each, and the service over
//! each; every list is asked for over HTTP, in turn. In the same run: the bare read of as many rows.
//!
//! `cargo bench --bench lists -- --jobs 100000`

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

/// How many jobs the small store has: more than any page.
const FEW: usize = 1_000;

#[derive(Parser)]
struct Line {
    /// How many jobs the large store has.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// How often each list is asked for; the median counts.
    #[arg(long, default_value_t = 51)]
    rounds: usize,
    /// A folder for the stores.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A service with its store.
struct Side {
    app: App,
    address: SocketAddr,
    token: String,
    jobs: usize,
    _dir: tempfile::TempDir,
}

#[tokio::main]
async fn main() -> Result<()> {
    let line = Line::parse();
    let few = Side::start(&line, FEW).await?;
    let many = Side::start(&line, line.jobs).await?;
    let job = &fixtures::ended_job(FEW / 2).id;
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
    let mut table = Vec::new();
    for side in [&few, &many] {
        table.push(side.bare(line.rounds)?);
    }
    let mut ratios = Vec::new();
    for path in &lists {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..line.rounds {
            small.push(few.ask(path).await?);
            large.push(many.ask(path).await?);
        }
        let small = BenchRow::with_samples(format!("{path}, {} jobs", few.jobs), small);
        let large = BenchRow::with_samples(format!("{path}, {} jobs", many.jobs), large);
        ratios.push((path, large.median(), small.median()));
        table.extend([small, large]);
    }
    let bare = table[1].median();
    table::print_table("one caller", "ms", &table);
    for (path, large, small) in ratios {
        // Both sides have pages in memory; what scatters is the machine.
        table::print_check(
            &format!("{path}: large store / small"),
            large / small,
            Threshold::AtMost(2.0),
        );
        if path == "/api/log" {
            table::print_check(
                "/api/log / bare read of as many rows",
                large / bare,
                Threshold::ReportOnly,
            );
        }
    }
    Ok(())
}

impl Side {
    async fn start(line: &Line, jobs: usize) -> Result<Self> {
        let dir = tempfile::tempdir_in(&line.dir)?;
        let store = Store::open(dir.path())?;
        let began = Instant::now();
        fixtures::fill_store(&store, jobs).await?;
        println!(
            "{jobs} jobs: {:.0} MB, made in {:.1} s",
            fixtures::dir_size_mb(dir.path())?,
            began.elapsed().as_secs_f64()
        );
        let app = service::build_app(store, &[])?;
        let token = admin_token::generate_token().map_err(|error| anyhow!(error))?;
        let token = token.expose().to_owned();
        let code = Secret::new(service::ACCESS_CODE);
        let (hash, now) = (admin_token::hash_token(&token, &code), app.now());
        let expires_at = now + Duration::from_secs(3600);
        let put = app
            .store
            .write(move |tx| admin_tokens::put(tx, &hash, &AdminToken { expires_at }, now));
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

    /// Asks once, and says how many milliseconds the answer took.
    async fn ask(&self, path: &str) -> Result<f64> {
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

    /// The read that a page of the dispatch log cannot do without.
    fn bare(&self, rounds: usize) -> Result<BenchRow> {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let began = Instant::now();
            let read = self
                .app
                .store
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
