//! Overhead of a run: the time from the flag to the agent's first output, and from the agent's end to the open
//! pull request.
//!
//! The real `serve` with its production intervals, the fake vendors and the scripted agent, on one machine. One table
//! per runner and repository: a small repository, and one whose history has the size of `--megabytes`. Vendors
//! answer at once, so that the figures are what this program, git and the host add.
//!
//! `cargo bench --bench overhead -- --runner local --engine unix:///var/run/docker.sock`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod repository;
mod run_parts;
mod run_service;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use domain::time::Timestamp;
use fake_vendors::LinearTicket;
use run_parts::RunParts;
use run_service::{RunService, Setup};
use support::table::{self, BenchRow, Threshold};

/// Targets on the large repository with local containers, in milliseconds.
const MAX_AROUND_AGENT: f64 = 2_000.0;
const MAX_CLONE: f64 = 500.0;

/// Time until the service has made the mirror of a repository, after its first run.
const MIRROR_TIME: Duration = Duration::from_secs(15);

/// Maximum duration of one run.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Parser)]
struct Args {
    /// Number of runs per row after the first one; the median is reported.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Size of the history of the large repository.
    #[arg(long, default_value_t = 100)]
    megabytes: usize,
    /// Runners to measure. Default: all.
    #[arg(long)]
    runner: Vec<Runner>,
    /// Measure only the large repository.
    #[arg(long)]
    large_only: bool,
    /// Socket of a container engine. Without one, the fake engine starts processes instead of containers.
    #[arg(long, env = "AGENT_IMPLEMENT_ENGINE")]
    engine: Option<String>,
    /// Measure local containers without mirrors of repositories.
    #[arg(long)]
    no_mirror: bool,
    /// Folder for the stores and the fake vendors.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Where runs execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Runner {
    /// Local containers.
    Local,
    /// GitHub Actions, as the fake vendor executes workflows.
    Ci,
    /// Fly Machines, as the fake vendor starts processes.
    Vm,
    /// Kubernetes, as the fake cluster starts processes.
    Kubernetes,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runners = match args.runner.is_empty() {
        true => Runner::value_variants(),
        false => &args.runner,
    };
    for runner in runners {
        for megabytes in [0, args.megabytes] {
            if megabytes > 0 || !args.large_only {
                measure(&args, *runner, megabytes).await?;
            }
        }
    }
    Ok(())
}

/// Measures one runner with one repository.
async fn measure(args: &Args, runner: Runner, megabytes: usize) -> Result<()> {
    let setup = Setup {
        runner,
        engine: args.engine.as_deref().filter(|_| runner == Runner::Local),
        has_mirror: !args.no_mirror,
        dir: &args.dir,
    };
    let service = RunService::start(&setup, |dir| repository::create(dir, megabytes)).await?;
    let mut flagged = Vec::new();
    for number in 1..=1 + args.rounds {
        flagged.push(run_ticket(&service, &format!("ENG-{number}")).await?);
        // The effects of the end of a run must not count for the next.
        let pause = match (runner, number) {
            (Runner::Local, 1) if !args.no_mirror => MIRROR_TIME,
            _ => Duration::from_secs(1),
        };
        tokio::time::sleep(pause).await;
    }
    let is_real = setup.engine.is_some();
    let (store, vendors, _dir) = service.stop().await?;
    let mut parts = Vec::new();
    for ticket in &flagged {
        parts.push(RunParts::read(&store, &vendors, ticket)?);
    }
    vendors.stop_and_kill_runs().await;
    let repository = match megabytes {
        0 => "small repository".to_owned(),
        size => format!("{size} MB"),
    };
    let host = match (runner, is_real) {
        (Runner::Local, true) => "local containers of a real engine",
        (Runner::Local, false) => "local containers of the fake engine (processes)",
        (Runner::Ci, _) => "GitHub Actions (fake)",
        (Runner::Vm, _) => "Fly Machines (fake)",
        (Runner::Kubernetes, _) => "Kubernetes (fake)",
    };
    let (first, later) = parts.split_first().context("no run")?;
    let rows: Vec<BenchRow> = first
        .named()
        .into_iter()
        .enumerate()
        .map(|(at, (name, cold))| {
            let samples = later.iter().map(|parts| parts.named()[at].1).collect();
            BenchRow::with_samples(name, samples).with_note(format!("first run {cold:.0}"))
        })
        .collect();
    table::print_table(&format!("{host}, {repository}"), "ms", &rows);
    if runner == Runner::Local && megabytes > 0 {
        for (name, target) in [
            (RunParts::BEFORE, MAX_AROUND_AGENT),
            (RunParts::AFTER, MAX_AROUND_AGENT),
            (RunParts::CLONE, MAX_CLONE),
        ] {
            let row = rows.iter().find(|row| row.name == name);
            let median = row.context("unknown row")?.median();
            table::print_check(&format!("{name}, ms"), median, Threshold::AtMost(target));
        }
    }
    Ok(())
}

/// Ticket whose run has ended.
pub struct MeasuredTicket {
    /// Ticket.
    pub issue: LinearTicket,
    /// Time of the flag.
    pub flagged_at: Timestamp,
    /// Time at which the pull request was open.
    pub opened_at: Timestamp,
    /// Branch of the pull request.
    pub branch: String,
}

/// Flags a ticket and waits until its pull request is open and its run has ended.
async fn run_ticket(service: &RunService, key: &str) -> Result<MeasuredTicket> {
    let repo = service.vendors.github().repo("acme", "shop");
    let before = repo.pulls().len();
    let issue = service.vendors.linear().issue(key);
    let issue = issue.title("Do it").describe("Please.");
    let flagged_at = now();
    let issue = issue.add_label("Agent-Implement");
    let opened_at = service
        .wait_until(RUN_TIMEOUT, key, || repo.pulls().len() > before)
        .await?;
    let branch = repo.pulls().pop().context("no pull request")?.head;
    // The link is posted when the run's result was accepted.
    let is_over = || issue.comments().iter().any(|text| text.contains("/pull/"));
    service.wait_until(RUN_TIMEOUT, key, is_over).await?;
    ensure!(repo.pulls().len() == before + 1, "{key}: two pull requests");
    Ok(MeasuredTicket {
        issue,
        flagged_at,
        opened_at,
        branch,
    })
}

/// Returns the time of the system clock.
pub fn now() -> Timestamp {
    Timestamp::EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}
