//! Duration of a poll, latency from flag to run, and number of vendor requests.
//!
//! The service and the fake vendors run in one process. Four measurements: a poll of 200 mappings and 5,000
//! flagged issues of which none may run; the dispatch of twenty tickets with vendors that take 100 ms per
//! response; and tickets flagged at random moments while the engine polls periodically, or is told by a webhook.
//!
//! `cargo bench --bench poll -- --mappings 200 --issues 5000`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use domain::decision::{self, SchedulingState};
use domain::issue::{FlaggedIssue, System};
use domain::mapping::Mapping;
use domain::ticket_comment::CommentWatch;
use engine::ShutdownSignal;
use engine::app::App;
use engine::ticket_webhooks;
use fake_vendors::{FakeService, FakeVendors, FaultRates};
use store::{Store, mappings, outbox};
use support::table::{self, BenchRow, Threshold, millis};
use support::{fixtures, service, vendor_setup};

/// Number of tickets that one poll dispatches.
const TICKETS: usize = 20;
/// Response time of the fake vendors during that dispatch.
const LATENCY: Duration = Duration::from_millis(100);

/// Poll interval of the running engine.
const INTERVAL: Duration = Duration::from_secs(1);

/// Poll interval of an engine that is told by webhooks.
const LONG_INTERVAL: Duration = Duration::from_secs(600);

/// Maximum time until all effects are performed.
const EFFECTS_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 200)]
    mappings: usize,
    #[arg(long, default_value_t = 5_000)]
    issues: usize,
    /// Number of measurements per row; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Folder for the stores and the fake vendors.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    measure_poll(&args).await?;
    for repos in [1, TICKETS] {
        measure_dispatch(&args, repos).await?;
    }
    measure_latency(&args).await?;
    measure_trigger(&args).await
}

/// Measures polls in which no issue may run.
async fn measure_poll(args: &Args) -> Result<()> {
    let setup = Setup::new(args, INTERVAL).await?;
    vendor_setup::create_issues(
        &setup.vendors,
        args.mappings,
        1..=args.issues / args.mappings,
    );
    let mapped = (1..=args.mappings).map(|number| paused(&vendor_setup::team_key(number)));
    let mapped = mapped.collect::<Result<Vec<Mapping>>>()?;
    setup.put_mappings(&mapped).await?;
    engine::poll::run_once(&setup.app).await?;

    let account = setup.app.vendors.ticketing.first().context("no account")?;
    let own: Vec<&Mapping> = mapped.iter().collect();
    let state = SchedulingState {
        mappings: mapped
            .iter()
            .map(|mapping| (mapping.team_key.clone(), mapping.clone()))
            .collect(),
        ..SchedulingState::default()
    };
    let (mut polls, mut snapshots, mut decides, mut copies, mut lookups) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut requests = 0;
    for _ in 0..args.rounds {
        setup.vendors.requests().clear();
        let began = Instant::now();
        engine::poll::run_once(&setup.app).await?;
        polls.push(millis(began.elapsed()));
        requests = setup.request_count();
        let began = Instant::now();
        let issues = account
            .snapshot(&own, &CommentWatch::default())
            .await?
            .issues;
        snapshots.push(millis(began.elapsed()));
        ensure!(issues.len() == args.issues, "{} issues", issues.len());
        let now = setup.app.core.now();
        copies.push(timed(|| issues.clone()));
        lookups.push(timed(|| lookup_mappings(&state, &issues)));
        decides.push(timed(|| decision::decide(&state, issues, now)));
    }
    let table = [
        BenchRow::with_samples("whole poll, including the fake tracker", polls),
        BenchRow::with_samples("requests and parsing only", snapshots),
        BenchRow::with_samples("decision only", decides),
        BenchRow::with_samples("limit: copy of every issue", copies),
        BenchRow::with_samples("limit: one lookup per issue", lookups),
    ];
    let title = format!("{} mappings, {} issues", args.mappings, args.issues);
    table::print_table(&title, "ms", &table);
    let pages = args.issues.div_ceil(250) as f64;
    let [poll, snapshot, decide, copy, lookup] = &table;
    table::print_check(
        "requests per poll / pages of 250",
        requests as f64 / pages,
        Threshold::AtMost(1.0),
    );
    table::print_check(
        "decision / copy of every issue",
        decide.median() / copy.median(),
        Threshold::ReportOnly,
    );
    table::print_check(
        "decision / one lookup per issue",
        decide.median() / lookup.median(),
        Threshold::ReportOnly,
    );
    table::print_check(
        "whole poll / requests and parsing",
        poll.median() / snapshot.median(),
        Threshold::ReportOnly,
    );
    setup.stop().await;
    Ok(())
}

/// Looks up the mapping of each issue, which is the minimum work of a decision.
fn lookup_mappings(state: &SchedulingState, issues: &[FlaggedIssue]) -> usize {
    let known = issues
        .iter()
        .filter(|issue| state.mappings.contains_key(&issue.team));
    known.count()
}

/// Returns the duration of `work` in milliseconds.
fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let began = Instant::now();
    std::hint::black_box(work());
    millis(began.elapsed())
}

/// Measures one poll that starts twenty runs in this number of repositories of one owner, while every vendor is slow.
async fn measure_dispatch(args: &Args, repos: usize) -> Result<()> {
    let (mut took, mut calls, mut monitor_calls) = (Vec::new(), 0, 0);
    for _ in 0..args.rounds {
        let setup = Setup::with_flags(args, INTERVAL, vendor_setup::app_flags).await?;
        let mut mapped = Vec::new();
        for number in 1..=repos {
            let mut mapping = fixtures::mapping(&vendor_setup::team_key(number))?;
            if number > 1 {
                mapping.repo = format!("shop-{number}");
                vendor_setup::create_repo(&setup.vendors, &mapping.repo)?;
            }
            mapped.push(mapping);
        }
        setup.put_mappings(&mapped).await?;
        let (stop, stopped) = ShutdownSignal::new();
        let worker = tokio::spawn(engine::outbox_worker::run(setup.app.clone(), stopped));
        // The first tickets trigger requests that are cached afterwards, such as those for label ids.
        vendor_setup::create_issues(&setup.vendors, repos, 1..=1);
        setup.poll_and_wait(repos).await?;
        vendor_setup::create_issues(&setup.vendors, repos, 2..=1 + TICKETS / repos);
        for vendor in [FakeService::Linear, FakeService::GitHub] {
            setup.vendors.faults(vendor).set_rates(FaultRates {
                latency: LATENCY,
                ..FaultRates::default()
            });
        }
        setup.vendors.requests().clear();
        let began = Instant::now();
        setup.poll_and_wait(repos + TICKETS).await?;
        took.push(millis(began.elapsed()));
        calls = setup.request_count();
        setup.vendors.requests().clear();
        engine::run_monitor::run_once(&setup.app).await?;
        monitor_calls = setup.request_count();
        stop.send(true)?;
        worker.await?;
        setup.stop().await;
    }
    let table = [
        BenchRow::with_samples("twenty tickets, from poll to all effects done", took),
        BenchRow::with_samples("limit: one poll and one call", vec![2.0 * millis(LATENCY)]),
    ];
    let title = format!("20 tickets in {repos} repositories, 100 ms a call");
    table::print_table(&title, "ms", &table);
    let seconds = table[0].median() / 1e3;
    table::print_check("seconds", seconds, Threshold::AtMost(0.6));
    let each = calls as f64 / TICKETS as f64;
    table::print_check("calls per ticket", each, Threshold::AtMost(3.2));
    table::print_check(
        "calls to watch the runs, per repository",
        monitor_calls as f64 / repos as f64,
        Threshold::AtMost(1.0),
    );
    Ok(())
}

/// Measures the time from the flag on a ticket to its run at the host, with a running engine.
async fn measure_latency(args: &Args) -> Result<()> {
    let setup = Setup::new(args, INTERVAL).await?;
    setup
        .put_mappings(&[fixtures::mapping(&vendor_setup::team_key(1))?])
        .await?;
    let (stop, stopped) = ShutdownSignal::new();
    let engine = tokio::spawn(engine::run(setup.app.clone(), stopped));
    let mut waits = Vec::new();
    for number in 1..=2 * args.rounds {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..1000))).await;
        let began = Instant::now();
        let issue = setup
            .vendors
            .linear()
            .issue(&format!("{}-{number}", vendor_setup::team_key(1)));
        issue.title("Do it").add_label("Agent-Implement");
        while setup.vendors.github().repo("acme", "shop").runs().len() < number {
            ensure!(began.elapsed() < Duration::from_secs(60), "not dispatched");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        waits.push(millis(began.elapsed()));
    }
    let slowest = waits.iter().copied().fold(0.0, f64::max);
    let interval = millis(INTERVAL);
    let table = [
        BenchRow::with_samples("from flag to run at the host", waits),
        BenchRow::with_samples("limit: half an interval on average", vec![interval / 2.0]),
    ];
    table::print_table("engine that polls every second", "ms", &table);
    table::print_check(
        "slowest, seconds beyond the interval",
        (slowest - interval).max(0.0) / 1e3,
        Threshold::AtMost(2.0),
    );
    stop.send(true)?;
    engine.await?;
    setup.stop().await;
    Ok(())
}

/// Measures the time from a webhook about a flagged ticket to its run at the host, for two tickets 100 ms apart.
async fn measure_trigger(args: &Args) -> Result<()> {
    let setup = Setup::new(args, LONG_INTERVAL).await?;
    let team = vendor_setup::team_key(1);
    setup.put_mappings(&[fixtures::mapping(&team)?]).await?;
    let (stop, stopped) = ShutdownSignal::new();
    let engine = tokio::spawn(engine::run(setup.app.clone(), stopped));
    let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
    for round in 0..2 * args.rounds {
        // The burst of the round before must not count.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let first = 2 * round + 1;
        let second = async {
            tokio::time::sleep(LATENCY).await;
            setup.trigger(&team, first + 1).await
        };
        let (first, second) = tokio::try_join!(setup.trigger(&team, first), second)?;
        firsts.push(first);
        seconds.push(second);
    }
    let table = [
        BenchRow::with_samples("webhook to run at the host", firsts),
        BenchRow::with_samples("the same, 100 ms after another", seconds),
    ];
    table::print_table("trigger by webhook", "ms", &table);
    for row in &table {
        table::print_check(
            &format!("{}, ms", row.name),
            row.median(),
            Threshold::AtMost(100.0),
        );
    }
    stop.send(true)?;
    engine.await?;
    setup.stop().await;
    Ok(())
}

/// Fake vendors and a service whose loops are not running.
struct Setup {
    vendors: FakeVendors,
    app: App,
    store: Store,
    _dir: tempfile::TempDir,
}

impl Setup {
    async fn new(args: &Args, poll: Duration) -> Result<Self> {
        Self::with_flags(args, poll, vendor_setup::service_flags).await
    }

    async fn with_flags(
        args: &Args,
        poll: Duration,
        flags: fn(&FakeVendors, Duration) -> Vec<String>,
    ) -> Result<Self> {
        let dir = tempfile::tempdir_in(&args.dir)?;
        let vendors = vendor_setup::start_vendors(&dir.path().join("vendors")).await?;
        let store = Store::open(&dir.path().join("data"))?;
        let app = service::build_app(store.clone(), &flags(&vendors, poll))?;
        Ok(Self {
            vendors,
            app,
            store,
            _dir: dir,
        })
    }

    /// Stores mappings.
    async fn put_mappings(&self, mapped: &[Mapping]) -> Result<()> {
        let mapped = mapped.to_vec();
        let put = self.store.write(move |tx| {
            mapped
                .iter()
                .try_for_each(|mapping| mappings::put(tx, mapping))
        });
        Ok(put.await?)
    }

    /// Returns the number of vendor requests since the request log was cleared.
    fn request_count(&self) -> usize {
        let count = |vendor| self.vendors.requests().for_service(vendor).len();
        count(FakeService::Linear) + count(FakeService::GitHub)
    }

    /// Polls once and waits until the outbox is empty and `runs` runs are started in total.
    async fn poll_and_wait(&self, runs: usize) -> Result<()> {
        engine::poll::run_once(&self.app).await?;
        let began = Instant::now();
        loop {
            let is_idle = self.store.read(outbox::queue_keys)?.is_empty();
            let started = self.vendors.github().runs_after(0).len();
            if is_idle && started == runs {
                return Ok(());
            }
            ensure!(
                began.elapsed() < EFFECTS_TIMEOUT,
                "{started} runs of {runs}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Flags a ticket, announces it like a webhook, and returns the milliseconds until its run is at the host.
    async fn trigger(&self, team: &str, number: usize) -> Result<f64> {
        let key = format!("{team}-{number}");
        let issue = self.vendors.linear().issue(&key);
        issue.title("Do it").add_label("Agent-Implement");
        let began = Instant::now();
        ticket_webhooks::receive(&self.app, System::Linear, &key, None).await?;
        let is_started = || {
            let runs = self.vendors.github().repo("acme", "shop").runs();
            runs.iter()
                .any(|run| run.inputs.get("issue_identifier") == Some(&serde_json::json!(key)))
        };
        while !is_started() {
            ensure!(began.elapsed() < Duration::from_secs(60), "not dispatched");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(millis(began.elapsed()))
    }

    /// Stops the fake vendors.
    async fn stop(self) {
        self.vendors.stop_and_kill_runs().await;
    }
}

/// Creates a paused mapping.
fn paused(team: &str) -> Result<Mapping> {
    Ok(Mapping {
        paused: true,
        ..fixtures::mapping(team)?
    })
}
