//! Number of GitHub requests of a sweep over a hundred open pull requests.
//!
//! `cargo bench --bench sweep`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
mod support;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use domain::ids::JobId;
use domain::job::{Job, PullRequestRef};
use engine::app::App;
use engine::pull_requests::reconcile;
use fake_vendors::{FakeService, FakeVendors};
use serde_json::json;
use store::{Store, WriteTx, jobs, mappings, pull_feedback};
use support::table::{self, BenchRow, Threshold};
use support::{fixtures, service, vendor_setup};
use ulid::Ulid;

/// Number of open pull requests of the service.
const PULLS: usize = 100;

/// Number of pull requests per request.
const PER_REQUEST: usize = 25;

/// Number of later sweeps. GitHub counts whole seconds, so the feedback on each pull request is read twice.
const SWEEPS: usize = 12;

#[derive(Parser)]
struct Args {
    /// Folder for the store and the fake vendors.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let dir = tempfile::tempdir_in(&args.dir)?;
    let vendors = vendor_setup::start_vendors(&dir.path().join("vendors")).await?;
    let data = dir.path().join("data");
    let store = Store::open(&data)?;
    let pulls = open_pulls(&vendors)?;
    let mapping = fixtures::mapping("ENG")?;
    let put = move |tx: &WriteTx<'_>| {
        mappings::put(tx, &mapping)?;
        pulls.iter().try_for_each(|job| jobs::put(tx, job))
    };
    store.write(put).await?;
    let flags = vendor_setup::service_flags(&vendors, Duration::from_secs(60));

    let app = service::build_app(store.clone(), &flags)?;
    let first = sweep(&app, &vendors).await?;
    let second = sweep(&app, &vendors).await?;
    let known = store.read(|tx| {
        let open = pull_feedback::open_pulls(tx)?;
        let records = open.iter().map(|pull| pull_feedback::get_pull(tx, pull));
        records.collect::<store::StoreResult<Vec<_>>>()
    })?;
    let read = known.iter().filter(|known| known.readiness.head.is_some());
    ensure!(read.count() == PULLS, "not every pull request was read");
    drop(app);
    // A service that starts again knows what it has read.
    let app = service::build_app(store, &flags)?;
    let restarted = sweep(&app, &vendors).await?;
    let mut later = Vec::new();
    for _ in 0..SWEEPS {
        later.push(sweep(&app, &vendors).await?);
    }
    let rows = [
        BenchRow::with_samples("pull requests never read", vec![first]),
        BenchRow::with_samples("their feedback again, within its second", vec![second]),
        BenchRow::with_samples("after a restart", vec![restarted]),
        BenchRow::with_samples("nothing changed", later.clone()),
    ];
    table::print_table(
        "GitHub requests of a sweep over 100 pull requests",
        "requests",
        &rows,
    );
    // One more request lists the open pull requests.
    let pages = (PULLS / PER_REQUEST + 1) as f64;
    for (name, requests) in [
        ("never read", first),
        ("after a restart", restarted),
        ("nothing changed", later[0]),
    ] {
        table::print_check(
            &format!("requests / pages of 25, and one list: {name}"),
            requests / pages,
            Threshold::AtMost(1.0),
        );
    }
    vendors.stop_and_kill_runs().await;
    Ok(())
}

/// Sweeps once, and returns the number of GitHub requests.
async fn sweep(app: &App, vendors: &FakeVendors) -> Result<f64> {
    vendors.requests().clear();
    reconcile::run_once(app).await?;
    Ok(vendors.requests().for_service(FakeService::GitHub).len() as f64)
}

/// Opens the pull requests, and returns the jobs that opened them.
fn open_pulls(vendors: &FakeVendors) -> Result<Vec<Job>> {
    let repo = vendors.github().repo("acme", "shop");
    let mut opened = Vec::new();
    for number in 0..PULLS {
        let mut job = fixtures::ended_job(90_000 + number);
        // A sweep reads the time of a job from its id, and leaves out old ones.
        job.id =
            JobId::new(Ulid::from_parts(job.reserved_at.as_millis(), number as u128).to_string());
        job.group = job.id.clone();
        let (path, text) = (format!("src/{number}.txt"), format!("{number}\n"));
        repo.commit(&job.branch, &[(path.as_str(), text.as_str())], "Do it")?;
        let meta = json!({"issueId": job.issue.id, "jobId": job.id});
        let body = format!("<!-- agent-implement-meta {meta} -->");
        let number = repo.open_pull(&job.branch, "agent-implement[bot]", "Do it", &body);
        let url = repo.pull_url(number);
        opened.push(Job {
            team: "ENG".into(),
            pull: PullRequestRef::from_url(&url),
            ..job
        });
    }
    Ok(opened)
}
