//! What does a poll cost, how soon does it start what is to run, and how often does it ask?
//!
//! The service and the stand-in vendors in one process: 200 mappings and 5,000 flagged issues, of which
//! none may run; then twenty tickets that all run, with vendors that take 100 ms for every answer; then
//! tickets flagged at any moment while the engine turns by itself.
//!
//! `cargo bench --bench poll -- --mappings 200 --issues 5000`

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use domain::decision::{self, SchedulingState};
use domain::issue::FlaggedIssue;
use domain::mapping::Mapping;
use engine::ShutdownSignal;
use engine::app::App;
use fake_vendors::{FakeService, FakeVendors, FaultRates};
use store::{Store, mappings, outbox};
use support::table::{self, BenchRow, Threshold, millis};
use support::{fixtures, service, vendor_setup};

/// How many tickets one poll dispatches, and how long each call to a vendor takes then.
const TICKETS: usize = 20;
const LATENCY: Duration = Duration::from_millis(100);

/// How often the engine that turns by itself looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long may what is owed take?
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Parser)]
struct Line {
    #[arg(long, default_value_t = 200)]
    mappings: usize,
    #[arg(long, default_value_t = 5_000)]
    issues: usize,
    /// How often each row is measured; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A folder for the stores and the town.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let line = Line::parse();
    cycle(&line).await?;
    dispatch(&line).await?;
    trigger(&line).await
}

/// Polls over everything, of which nothing may run.
async fn cycle(line: &Line) -> Result<()> {
    let place = Place::new(line, INTERVAL).await?;
    vendor_setup::create_issues(&place.town, line.mappings, 1..=line.issues / line.mappings);
    let mapped = (1..=line.mappings).map(|number| paused(&vendor_setup::team_key(number)));
    let mapped = mapped.collect::<Result<Vec<Mapping>>>()?;
    place.map(&mapped).await?;
    engine::poll::run_once(&place.app).await?;

    let account = place.app.ticketing.first().context("no account")?;
    let own: Vec<&Mapping> = mapped.iter().collect();
    let view = SchedulingState {
        mappings: mapped
            .iter()
            .map(|mapping| (mapping.team_key.clone(), mapping.clone()))
            .collect(),
        ..SchedulingState::default()
    };
    let (mut polls, mut looks, mut decides, mut copies, mut passes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut asked = 0;
    for _ in 0..line.rounds {
        place.town.requests().clear();
        let began = Instant::now();
        engine::poll::run_once(&place.app).await?;
        polls.push(millis(began.elapsed()));
        asked = place.asked();
        let began = Instant::now();
        let issues = account.snapshot(&own).await?.issues;
        looks.push(millis(began.elapsed()));
        ensure!(issues.len() == line.issues, "{} issues", issues.len());
        let now = place.app.now();
        copies.push(timed(|| issues.clone()));
        passes.push(timed(|| one_pass(&view, &issues)));
        decides.push(timed(|| decision::decide(&view, issues, now)));
    }
    let table = [
        BenchRow::with_samples("a whole poll, stand-in tracker included", polls),
        BenchRow::with_samples("asking and reading alone", looks),
        BenchRow::with_samples("the decision alone", decides),
        BenchRow::with_samples("limit: a copy of every issue", copies),
        BenchRow::with_samples("limit: one pass, each looked up", passes),
    ];
    let title = format!("{} mappings, {} issues", line.mappings, line.issues);
    table::print_table(&title, "ms", &table);
    let pages = line.issues.div_ceil(250) as f64;
    let [poll, look, decide, copy, pass] = &table;
    table::print_check(
        "requests of a poll / pages of 250",
        asked as f64 / pages,
        Threshold::AtMost(1.0),
    );
    table::print_check(
        "the decision / a copy of every issue",
        decide.median() / copy.median(),
        Threshold::ReportOnly,
    );
    table::print_check(
        "the decision / one pass",
        decide.median() / pass.median(),
        Threshold::ReportOnly,
    );
    table::print_check(
        "a whole poll / asking and reading",
        poll.median() / look.median(),
        Threshold::ReportOnly,
    );
    place.end().await;
    Ok(())
}

/// The least that a decision must do: find the mapping of each issue.
fn one_pass(view: &SchedulingState, issues: &[FlaggedIssue]) -> usize {
    let known = issues
        .iter()
        .filter(|issue| view.mappings.contains_key(&issue.team));
    known.count()
}

fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let began = Instant::now();
    std::hint::black_box(work());
    millis(began.elapsed())
}

/// One poll starts twenty runs while every vendor is slow.
async fn dispatch(line: &Line) -> Result<()> {
    let (mut took, mut calls, mut more, mut watched) = (Vec::new(), 0, 0, 0);
    for _ in 0..line.rounds {
        let place = Place::new(line, INTERVAL).await?;
        place
            .map(&[fixtures::mapping(&vendor_setup::team_key(1))?])
            .await?;
        let (stop, stopped) = ShutdownSignal::new();
        let delivery = tokio::spawn(engine::outbox_worker::run(place.app.clone(), stopped));
        // With the first ticket the service learns what it asks for once, the ids of labels say.
        vendor_setup::create_issues(&place.town, 1, 1..=1);
        place.poll_and_deliver(1).await?;
        // What a poll asks for whatever the number of its tickets, one ticket shows.
        place.town.requests().clear();
        vendor_setup::create_issues(&place.town, 1, 2..=2);
        place.poll_and_deliver(2).await?;
        let of_one = place.asked();
        vendor_setup::create_issues(&place.town, 1, 3..=2 + TICKETS);
        for vendor in [FakeService::Linear, FakeService::GitHub] {
            place.town.faults(vendor).set_rates(FaultRates {
                latency: LATENCY,
                ..FaultRates::default()
            });
        }
        place.town.requests().clear();
        let began = Instant::now();
        place.poll_and_deliver(2 + TICKETS).await?;
        took.push(millis(began.elapsed()));
        calls = place.asked();
        more = calls - of_one;
        place.town.requests().clear();
        engine::run_monitor::run_once(&place.app).await?;
        watched = place.asked();
        stop.send(true)?;
        delivery.await?;
        place.end().await;
    }
    let table = [
        BenchRow::with_samples("twenty tickets, from poll to all delivered", took),
        BenchRow::with_samples(
            "limit: one poll and one call after it",
            vec![2.0 * millis(LATENCY)],
        ),
    ];
    table::print_table("20 tickets, 100 ms a call", "ms", &table);
    let seconds = table[0].median() / 1e3;
    table::print_check("seconds", seconds, Threshold::AtMost(2.0));
    println!("({calls} calls, those of the poll itself among them)");
    let each = more as f64 / (TICKETS - 1) as f64;
    table::print_check("calls of one more ticket", each, Threshold::AtMost(3.0));
    table::print_check(
        "calls to watch the runs of one repository",
        watched as f64,
        Threshold::AtMost(1.0),
    );
    Ok(())
}

/// From the moment a ticket is flagged to its run at the host, while the engine turns by itself.
async fn trigger(line: &Line) -> Result<()> {
    let place = Place::new(line, INTERVAL).await?;
    place
        .map(&[fixtures::mapping(&vendor_setup::team_key(1))?])
        .await?;
    let (stop, stopped) = ShutdownSignal::new();
    let engine = tokio::spawn(engine::run(place.app.clone(), stopped));
    let mut waits = Vec::new();
    for number in 1..=2 * line.rounds {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..1000))).await;
        let began = Instant::now();
        let issue = place
            .town
            .linear()
            .issue(&format!("{}-{number}", vendor_setup::team_key(1)));
        issue.title("Do it").add_label("Agent-Implement");
        while place.town.github().repo("acme", "shop").runs().len() < number {
            ensure!(began.elapsed() < Duration::from_secs(60), "not dispatched");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        waits.push(millis(began.elapsed()));
    }
    let slowest = waits.iter().copied().fold(0.0, f64::max);
    let interval = millis(INTERVAL);
    let table = [
        BenchRow::with_samples("from the flag to the run at the host", waits),
        BenchRow::with_samples(
            "limit: half an interval, as luck has it",
            vec![interval / 2.0],
        ),
    ];
    table::print_table("an engine that polls every second", "ms", &table);
    table::print_check(
        "slowest, seconds beyond the interval",
        (slowest - interval).max(0.0) / 1e3,
        Threshold::AtMost(2.0),
    );
    stop.send(true)?;
    engine.await?;
    place.end().await;
    Ok(())
}

/// The vendors and a service that nobody turns.
struct Place {
    town: FakeVendors,
    app: App,
    _dir: tempfile::TempDir,
}

impl Place {
    async fn new(line: &Line, poll: Duration) -> Result<Self> {
        let dir = tempfile::tempdir_in(&line.dir)?;
        let town = vendor_setup::start_vendors(&dir.path().join("town")).await?;
        let store = Store::open(&dir.path().join("data"))?;
        let app = service::build_app(store, &vendor_setup::service_flags(&town, poll))?;
        Ok(Self {
            town,
            app,
            _dir: dir,
        })
    }

    async fn map(&self, mapped: &[Mapping]) -> Result<()> {
        let mapped = mapped.to_vec();
        let put = self.app.store.write(move |tx| {
            mapped
                .iter()
                .try_for_each(|mapping| mappings::put(tx, mapping))
        });
        Ok(put.await?)
    }

    /// How often the vendors were asked since the log was cleared.
    fn asked(&self) -> usize {
        let asked = |vendor| self.town.requests().for_service(vendor).len();
        asked(FakeService::Linear) + asked(FakeService::GitHub)
    }

    /// Polls once and waits until nothing is owed any more and so many runs have been started.
    async fn poll_and_deliver(&self, runs: usize) -> Result<()> {
        engine::poll::run_once(&self.app).await?;
        let began = Instant::now();
        loop {
            let is_idle = self.app.store.read(outbox::queue_keys)?.is_empty();
            let started = self.town.github().repo("acme", "shop").runs().len();
            if is_idle && started == runs {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{started} runs of {runs}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn end(self) {
        self.town.stop_and_kill_runs().await;
    }
}

fn paused(team: &str) -> Result<Mapping> {
    Ok(Mapping {
        paused: true,
        ..fixtures::mapping(team)?
    })
}
