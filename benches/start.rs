//! How soon after its start does the service ask its tracker, and how much memory does it hold at rest?
//!
//! The real program in a process of its own, on an empty store and on one of a hundred thousand jobs,
//! after a clean end and after a kill. In the same run: the same program that only says its version, and
//! the opening of the same store. Then the program at rest with 200 mappings and 5,000 issues.
//!
//! `cargo bench --bench start -- --jobs 100000`

mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use fake_vendors::FakeService;
use rustix::process::{Pid, Signal, kill_process};
use store::{Store, mappings};
use support::peer;
use support::table::{self, BenchRow, Threshold, millis};
use support::{fixtures, vendor_setup};

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// How long may the program take for anything?
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Line {
    /// How many jobs the full store has.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// How often each start is measured; the median counts.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[arg(long, default_value_t = 200)]
    mappings: usize,
    #[arg(long, default_value_t = 5_000)]
    issues: usize,
    /// How many polls the program makes before its memory is looked at.
    #[arg(long, default_value_t = 10)]
    polls: usize,
    /// A folder for the stores.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How a start's predecessor ended.
#[derive(Clone, Copy)]
enum End {
    Clean,
    Killed,
}

#[tokio::main]
async fn main() -> Result<()> {
    let line = Line::parse();
    starts(&line).await?;
    memory(&line).await
}

async fn starts(line: &Line) -> Result<()> {
    let mut table = vec![version(line.rounds)?];
    for jobs in [0, line.jobs] {
        let dir = tempfile::tempdir_in(&line.dir)?;
        let store = Store::open(dir.path())?;
        fixtures::fill_store(&store, jobs).await?;
        let mapping = fixtures::mapping("ENG")?;
        store.write(move |tx| mappings::put(tx, &mapping)).await?;
        drop(store);
        println!("{jobs} jobs: {:.0} MB", fixtures::dir_size_mb(dir.path())?);
        for (how, end) in [("a clean end", End::Clean), ("kill -9", End::Killed)] {
            let (mut firsts, mut opens) = (Vec::new(), Vec::new());
            // The first only leaves the store as the others are to find it.
            first_request(dir.path(), end)?;
            for _ in 0..line.rounds {
                firsts.push(first_request(dir.path(), end)?);
            }
            for _ in 0..line.rounds {
                first_request(dir.path(), end)?;
                opens.push(opened(dir.path())?);
            }
            table.push(BenchRow::with_samples(
                format!("first poll, {jobs} jobs, after {how}"),
                firsts,
            ));
            table.push(BenchRow::with_samples(
                format!("limit: store opened, {jobs} jobs, after {how}"),
                opens,
            ));
        }
    }
    table::print_table(
        "from exec to the first request at the tracker",
        "ms",
        &table,
    );
    for row in table
        .iter()
        .filter(|row| row.name.starts_with("first poll"))
    {
        table::print_check(
            &format!("{}, ms", row.name),
            row.median(),
            Threshold::AtMost(200.0),
        );
        let limit = format!("{} / the program that says its version", row.name);
        table::print_check(
            &limit,
            row.median() / table[0].median(),
            Threshold::ReportOnly,
        );
    }
    Ok(())
}

fn version(rounds: usize) -> Result<BenchRow> {
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let output = Command::new(PROGRAM).arg("--version").output()?;
        samples.push(millis(began.elapsed()));
        ensure!(output.status.success(), "--version failed");
    }
    Ok(BenchRow::with_samples(
        "limit: --version (exec, link, exit)",
        samples,
    ))
}

/// Opens the store as the program does, and lets go of it.
fn opened(dir: &Path) -> Result<f64> {
    let began = Instant::now();
    let store = Store::open(dir)?;
    let took = millis(began.elapsed());
    drop(store);
    // The writer's thread lets go of the file a moment later.
    let freed = Instant::now();
    while let Err(error) = Store::open(dir) {
        ensure!(freed.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(took)
}

/// Starts the program, waits until it asks its tracker, and ends it. Answers the milliseconds.
fn first_request(dir: &Path, end: End) -> Result<f64> {
    let tracker = TcpListener::bind("127.0.0.1:0")?;
    let address: SocketAddr = tracker.local_addr()?;
    let began = Instant::now();
    let mut program = serve(dir)
        .args(["--linear-api-key", "lin_api_bench"])
        .args(["--linear-api-url", &format!("http://{address}")])
        .spawn()?;
    let (mut stream, _) = tracker.accept()?;
    ensure!(stream.read(&mut [0; 16])? > 0, "nothing was asked");
    let took = millis(began.elapsed());
    drop((stream, tracker));
    match end {
        End::Clean => stop(&mut program)?,
        End::Killed => {
            program.kill()?;
            program.wait()?;
        }
    }
    Ok(took)
}

fn serve(dir: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["serve", "--port", "0", "--data-dir"])
        .arg(dir)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn stop(program: &mut Child) -> Result<()> {
    kill_process(Pid::from_child(program), Signal::TERM)?;
    let status = program.wait()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

/// The memory of a program that has polled for a while and has nothing to do.
async fn memory(line: &Line) -> Result<()> {
    let dir = tempfile::tempdir_in(&line.dir)?;
    let town = vendor_setup::start_vendors(&dir.path().join("town")).await?;
    vendor_setup::create_issues(&town, line.mappings, 1..=line.issues / line.mappings);
    let data = dir.path().join("data");
    let store = Store::open(&data)?;
    let mapped = (1..=line.mappings)
        .map(|number| {
            let mut mapping = fixtures::mapping(&vendor_setup::team_key(number))?;
            mapping.paused = true;
            Ok(mapping)
        })
        .collect::<Result<Vec<_>>>()?;
    let put = store.write(move |tx| mapped.iter().try_for_each(|one| mappings::put(tx, one)));
    put.await?;
    drop(store);
    let mut program = Running(
        serve(&data)
            .args(vendor_setup::service_flags(&town, Duration::from_secs(1)))
            .spawn()?,
    );
    let pages = line.issues.div_ceil(250);
    let began = Instant::now();
    while town.requests().for_service(FakeService::Linear).len() < pages * line.polls {
        let ended = program.0.try_wait()?;
        ensure!(ended.is_none(), "the program ended");
        ensure!(began.elapsed() < 10 * PATIENCE, "it does not poll");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (resident, most) = peer::memory_mib(program.0.id()).context("its memory cannot be read")?;
    println!(
        "\n{} mappings, {} issues, after {} polls",
        line.mappings, line.issues, line.polls
    );
    table::print_check("resident, MiB", resident, Threshold::AtMost(64.0));
    table::print_check("most that was resident, MiB", most, Threshold::ReportOnly);
    stop(&mut program.0)?;
    town.stop_and_kill_runs().await;
    Ok(())
}

/// A program that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Mostly it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
