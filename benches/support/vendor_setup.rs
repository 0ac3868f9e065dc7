//! Fake vendors for benchmarks, and the service flags to use them.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fake_vendors::{FakeVendors, FakeVendorsOptions};

/// Workflow file of the target repository.
const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");

/// Hourly request quota that no benchmark exhausts.
const QUOTA: u64 = 100_000_000;

/// Starts fake vendors with the repository `acme/shop`. Runs start after ten minutes, so that none starts
/// during a benchmark.
pub async fn start_vendors(dir: &Path) -> Result<FakeVendors> {
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let options = FakeVendorsOptions {
        app_key_pem: Some(test_support::app_key()),
        ..FakeVendorsOptions::new(dir, program)
    };
    let vendors = FakeVendors::start(options).await?;
    vendors.keep_in_memory();
    create_repo(&vendors, "shop")?;
    vendors.github().set_start_delay(Duration::from_secs(600));
    vendors.github().set_quota(QUOTA);
    vendors.linear().set_quota(QUOTA);
    Ok(vendors)
}

/// Creates a repository of `acme` that runs can target.
pub fn create_repo(vendors: &FakeVendors, name: &str) -> Result<()> {
    let files = [
        ("README.md", "# Shop\n"),
        (".github/workflows/agent-implement.yml", WORKFLOW),
    ];
    let repo = vendors.github().repo("acme", name);
    repo.seed(&files, "Initial commit")?;
    repo.set_secret("ANTHROPIC_API_KEY", "invalid-key");
    Ok(())
}

/// Returns the service flags that point to the fake vendors, with a token of GitHub.
pub fn service_flags(vendors: &FakeVendors, poll: Duration) -> Vec<String> {
    let token = vendors.github().personal_token().to_owned();
    flags(vendors, poll, vec![("--github-token", token)])
}

/// Returns the service flags that point to the fake vendors, with a GitHub App.
pub fn app_flags(vendors: &FakeVendors, poll: Duration) -> Vec<String> {
    let id = vendors.github().app_id().to_string();
    let key = test_support::app_key();
    let app = vec![("--github-app-id", id), ("--github-app-private-key", key)];
    flags(vendors, poll, app)
}

fn flags(vendors: &FakeVendors, poll: Duration, credentials: Vec<(&str, String)>) -> Vec<String> {
    let flags = [
        ("--poll-interval-ms", poll.as_millis().to_string()),
        ("--linear-api-key", vendors.linear().api_key()),
        ("--linear-api-url", vendors.linear_url()),
        ("--github-api-url", vendors.github_api_url()),
    ];
    let pairs = flags.into_iter().chain(credentials);
    pairs
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

/// Returns the key of the team with this number.
pub fn team_key(number: usize) -> String {
    format!("T{number}")
}

/// Creates flagged issues with these numbers for each team.
pub fn create_issues(vendors: &FakeVendors, teams: usize, numbers: RangeInclusive<usize>) {
    for number in 1..=teams {
        for at in numbers.clone() {
            let issue = vendors
                .linear()
                .issue(&format!("{}-{at}", team_key(number)));
            issue
                .title("Make the checkout remember the address")
                .describe(&"The checkout forgets the address on the way back. ".repeat(10))
                .add_label("Agent-Implement");
        }
    }
}
