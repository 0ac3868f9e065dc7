//! Time from process start to the first tracker request, and memory use at rest.
//!
//! Runs the real program in its own process, on an empty store and on one with 100,000 jobs, after a clean
//! exit and after a kill. For comparison: the same program with `--version`, and opening the same store. Then
//! measures the memory at rest with 200 mappings and 5,000 issues.
//!
//! `cargo bench --bench start -- --jobs 100000`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use fake_vendors::{FakeService, FakeVendors};
use rustix::process::{Pid, Signal, kill_process};
use store::{Store, mappings};
use support::peer;
use support::table::{self, BenchRow, Threshold, millis};
use support::{fixtures, vendor_setup};

/// Maximum duration of a single step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Args {
    /// Number of jobs in the full store.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Number of measurements per start; the median is reported.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[arg(long, default_value_t = 200)]
    mappings: usize,
    #[arg(long, default_value_t = 5_000)]
    issues: usize,
    /// Number of polls before the memory is measured.
    #[arg(long, default_value_t = 10)]
    polls: usize,
    /// Folder for the stores.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Program to measure, for example one of packaging/build.sh.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_agent-implement"))]
    program: PathBuf,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Exit of the previous process.
#[derive(Clone, Copy)]
enum PreviousExit {
    /// Exit after SIGTERM.
    Clean,
    /// SIGKILL.
    Killed,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    measure_starts(&args).await?;
    measure_memory(&args).await
}

/// Measures the time to the first tracker request.
async fn measure_starts(args: &Args) -> Result<()> {
    let mut table = vec![measure_version(args)?];
    for jobs in [0, args.jobs] {
        let dir = tempfile::tempdir_in(&args.dir)?;
        let store = Store::open(dir.path())?;
        fixtures::fill_store(&store, jobs).await?;
        let mapping = fixtures::mapping("ENG")?;
        store.write(move |tx| mappings::put(tx, &mapping)).await?;
        drop(store);
        println!("{jobs} jobs: {:.0} MB", fixtures::dir_size_mb(dir.path())?);
        for (name, exit) in [
            ("a clean exit", PreviousExit::Clean),
            ("kill -9", PreviousExit::Killed),
        ] {
            let (mut firsts, mut opens) = (Vec::new(), Vec::new());
            // The first start only brings the store into the state that the others measure.
            first_request(args, dir.path(), exit)?;
            for _ in 0..args.rounds {
                firsts.push(first_request(args, dir.path(), exit)?);
            }
            for _ in 0..args.rounds {
                first_request(args, dir.path(), exit)?;
                opens.push(measure_open(dir.path())?);
            }
            table.push(BenchRow::with_samples(
                format!("first poll, {jobs} jobs, after {name}"),
                firsts,
            ));
            table.push(BenchRow::with_samples(
                format!("limit: store opened, {jobs} jobs, after {name}"),
                opens,
            ));
        }
    }
    table::print_table("from exec to the first tracker request", "ms", &table);
    for row in table
        .iter()
        .filter(|row| row.name.starts_with("first poll"))
    {
        table::print_check(
            &format!("{}, ms", row.name),
            row.median(),
            Threshold::AtMost(100.0),
        );
        let limit = format!("{} / --version", row.name);
        table::print_check(
            &limit,
            row.median() / table[0].median(),
            Threshold::ReportOnly,
        );
    }
    Ok(())
}

/// Measures the program with `--version`.
fn measure_version(args: &Args) -> Result<BenchRow> {
    let mut samples = Vec::new();
    for _ in 0..args.rounds {
        let began = Instant::now();
        let output = Command::new(&args.program).arg("--version").output()?;
        samples.push(millis(began.elapsed()));
        ensure!(output.status.success(), "--version failed");
    }
    Ok(BenchRow::with_samples(
        "limit: --version (exec, link, exit)",
        samples,
    ))
}

/// Opens and closes the store. Returns the milliseconds to open it.
fn measure_open(dir: &Path) -> Result<f64> {
    let began = Instant::now();
    let store = Store::open(dir)?;
    let took = millis(began.elapsed());
    drop(store);
    // The writer thread releases the file a moment later.
    let closed = Instant::now();
    while let Err(error) = Store::open(dir) {
        ensure!(closed.elapsed() < STEP_TIMEOUT, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(took)
}

/// Starts the program, waits for its first tracker request, and ends it. Returns the milliseconds.
fn first_request(args: &Args, dir: &Path, exit: PreviousExit) -> Result<f64> {
    let tracker = TcpListener::bind("127.0.0.1:0")?;
    let address: SocketAddr = tracker.local_addr()?;
    let began = Instant::now();
    let mut program = serve_command(&args.program, dir)
        .args(["--linear-api-key", "lin_api_bench"])
        .args(["--linear-api-url", &format!("http://{address}")])
        .spawn()?;
    let (mut stream, _) = tracker.accept()?;
    ensure!(
        stream.read(&mut [0; 16])? > 0,
        "the program sent no request"
    );
    let took = millis(began.elapsed());
    drop((stream, tracker));
    match exit {
        PreviousExit::Clean => stop(&mut program)?,
        PreviousExit::Killed => {
            program.kill()?;
            program.wait()?;
        }
    }
    Ok(took)
}

/// Returns the command that starts the service.
fn serve_command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["serve", "--port", "0", "--data-dir"])
        .arg(dir)
        .env_clear()
        .envs(test_support::allocator_settings())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Stops the program with SIGTERM.
fn stop(program: &mut Child) -> Result<()> {
    kill_process(Pid::from_child(program), Signal::TERM)?;
    let status = program.wait()?;
    ensure!(status.success(), "the program exited with {status}");
    Ok(())
}

/// Measures the memory and the processor time of a program that does nothing but poll.
async fn measure_memory(args: &Args) -> Result<()> {
    let dir = tempfile::tempdir_in(&args.dir)?;
    let vendors = vendor_setup::start_vendors(&dir.path().join("vendors")).await?;
    vendor_setup::create_issues(&vendors, args.mappings, 1..=args.issues / args.mappings);
    let data = dir.path().join("data");
    let store = Store::open(&data)?;
    let paused_mappings = (1..=args.mappings)
        .map(|number| {
            let mut mapping = fixtures::mapping(&vendor_setup::team_key(number))?;
            mapping.paused = true;
            Ok(mapping)
        })
        .collect::<Result<Vec<_>>>()?;
    let put = store.write(move |tx| {
        paused_mappings
            .iter()
            .try_for_each(|mapping| mappings::put(tx, mapping))
    });
    put.await?;
    drop(store);
    let mut program = ProgramGuard(
        serve_command(&args.program, &data)
            .args(vendor_setup::service_flags(
                &vendors,
                Duration::from_secs(1),
            ))
            .spawn()?,
    );
    wait_for_polls(args, &vendors, &mut program, 1).await?;
    let before = peer::cpu_time(program.0.id())?;
    wait_for_polls(args, &vendors, &mut program, args.polls).await?;
    let used = peer::cpu_time(program.0.id())?.saturating_sub(before);
    let (resident, peak) =
        peer::memory_mib(program.0.id()).context("cannot read the memory of the program")?;
    println!(
        "\n{} mappings, {} issues, after {} polls",
        args.mappings, args.issues, args.polls
    );
    let polls = args.polls.saturating_sub(1).max(1) as f64;
    table::print_check(
        "processor time of a poll, ms",
        millis(used) / polls,
        Threshold::AtMost(100.0),
    );
    table::print_check("resident, MiB", resident, Threshold::AtMost(64.0));
    table::print_check("peak resident, MiB", peak, Threshold::ReportOnly);
    stop(&mut program.0)?;
    vendors.stop_and_kill_runs().await;
    Ok(())
}

/// Waits until the program has requested the pages of this many polls.
async fn wait_for_polls(
    args: &Args,
    vendors: &FakeVendors,
    program: &mut ProgramGuard,
    polls: usize,
) -> Result<()> {
    let pages = args.issues.div_ceil(250);
    let began = Instant::now();
    while vendors.requests().for_service(FakeService::Linear).len() < pages * polls {
        let ended = program.0.try_wait()?;
        ensure!(ended.is_none(), "the program exited");
        ensure!(
            began.elapsed() < 10 * STEP_TIMEOUT,
            "the program does not poll"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Child process that is killed on drop.
struct ProgramGuard(Child);

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        // The process has usually exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
