//! Number of vendor requests of a poll, with no issue and with fifty issues that wait for an answer.
//!
//! `cargo bench --bench waits`

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
use domain::issue::System;
use domain::mapping::{Mapping, TicketingConfig};
use engine::app::App;
use fake_vendors::{FakeService, FakeVendors};
use store::{Store, mappings, open_questions};
use support::table::{self, BenchRow, Threshold};
use support::{fixtures, service, vendor_setup};

/// Number of flagged issues of each system. Those of Linear are on one page.
const ISSUES: usize = 50;

/// Polls in which each system reads all its comments twice.
const POLLS: usize = 10;

/// Poll interval. The loops of the engine do not run.
const INTERVAL: Duration = Duration::from_secs(60);

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
    create_issues(&vendors);
    let store = Store::open(&dir.path().join("data"))?;
    let app = service::build_app(store.clone(), &flags(&vendors))?;
    let mapped = [paused(fixtures::mapping("ENG")?), jira_mapping()?];
    let put = move |tx: &store::WriteTx<'_>| {
        let mut mapped = mapped.iter();
        mapped.try_for_each(|mapping| mappings::put(tx, mapping))
    };
    store.write(put).await?;

    // Comments are read of issues that changed after the first poll. Jira and GitHub may count whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = requests_of_polls(&app, &vendors).await?;
    for (system, team) in [(System::Linear, "ENG"), (System::Jira, "OPS")] {
        let snapshots = app.live.poll_snapshots.all();
        let polled = snapshots.get(&system).map(|one| one.issues.clone());
        let polled = polled.unwrap_or_default();
        ensure!(
            polled.len() == ISSUES,
            "{system:?}: {} issues",
            polled.len()
        );
        for issue in polled.iter() {
            let issue = issue.issue.issue.clone();
            let question = test_support::open_question(issue, team.into(), app.core.now());
            let put = move |tx: &store::WriteTx<'_>| open_questions::put(tx, &question);
            store.write(put).await?;
        }
    }
    let waiting = requests_of_polls(&app, &vendors).await?;

    let rows = [
        ("Linear, nothing waits", &idle.linear),
        ("Linear, 50 issues wait", &waiting.linear),
        ("Jira, nothing waits", &idle.jira),
        ("Jira, 50 issues wait", &waiting.jira),
    ];
    let rows = rows.map(|(name, samples)| BenchRow::with_samples(name, samples.clone()));
    table::print_table("vendor requests of a poll", "requests", &rows);
    let sum = |samples: &[f64]| samples.iter().sum::<f64>();
    table::print_check(
        "Linear: requests with 50 waiting / with none",
        sum(&waiting.linear) / sum(&idle.linear),
        Threshold::AtMost(1.0),
    );
    table::print_check(
        "Jira: requests beyond the idle poll, per waiting issue and poll",
        (sum(&waiting.jira) - sum(&idle.jira)) / (ISSUES * POLLS) as f64,
        Threshold::AtMost(0.2),
    );
    vendors.stop_and_kill_runs().await;
    Ok(())
}

/// Numbers of requests of each poll.
#[derive(Default)]
struct Requests {
    linear: Vec<f64>,
    jira: Vec<f64>,
}

/// Polls, after a round of polls that reads what is cached afterwards.
async fn requests_of_polls(app: &App, vendors: &FakeVendors) -> Result<Requests> {
    let mut requests = Requests::default();
    for poll in 0..2 * POLLS {
        vendors.requests().clear();
        engine::poll::run_once(app).await?;
        let count = |vendor| vendors.requests().for_service(vendor).len() as f64;
        if poll >= POLLS {
            requests.linear.push(count(FakeService::Linear));
            requests.jira.push(count(FakeService::Jira));
        }
    }
    Ok(requests)
}

fn flags(vendors: &FakeVendors) -> Vec<String> {
    let mut flags = vendor_setup::service_flags(vendors, INTERVAL);
    let jira = [
        ("--jira-site-url", vendors.jira_url()),
        ("--jira-email", vendors.jira().email().to_owned()),
        ("--jira-api-token", vendors.jira().api_token().to_owned()),
    ];
    let jira = jira.map(|(flag, value)| [flag.to_owned(), value]);
    flags.extend(jira.into_iter().flatten());
    flags
}

/// Creates flagged issues whose projects are paused.
fn create_issues(vendors: &FakeVendors) {
    vendors.jira().ensure_project("OPS", "Operations");
    for number in 1..=ISSUES {
        let issue = vendors.linear().issue(&format!("ENG-{number}"));
        issue.title("Do it").add_label("Agent-Implement");
        let ticket = vendors.jira().issue(&format!("OPS-{number}"));
        ticket.title("Do it").repo("shop").status("Ready");
    }
}

fn paused(mapping: Mapping) -> Mapping {
    Mapping {
        paused: true,
        ..mapping
    }
}

fn jira_mapping() -> Result<Mapping> {
    Ok(Mapping {
        ticketing: TicketingConfig::Jira {
            jql: "project = OPS".to_owned(),
            repo_field_value: "shop".to_owned(),
            status_field_override: None,
            repo_field_override: None,
        },
        ..paused(fixtures::mapping("OPS")?)
    })
}
