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
    let vendors = FakeVendors::start(FakeVendorsOptions::new(dir, program)).await?;
    let files = [
        ("README.md", "# Shop\n"),
        (".github/workflows/agent-implement.yml", WORKFLOW),
    ];
    let repo = vendors.github().repo("acme", "shop");
    repo.seed(&files, "Initial commit")?;
    repo.set_secret("ANTHROPIC_API_KEY", "invalid-key");
    vendors.github().set_start_delay(Duration::from_secs(600));
    vendors.github().set_quota(QUOTA);
    vendors.linear().set_quota(QUOTA);
    Ok(vendors)
}

/// Returns the service flags that point to the fake vendors.
pub fn service_flags(vendors: &FakeVendors, poll: Duration) -> Vec<String> {
    let flags = [
        ("--poll-interval-ms", poll.as_millis().to_string()),
        ("--linear-api-key", vendors.linear().api_key()),
        ("--linear-api-url", vendors.linear_url()),
        (
            "--github-token",
            vendors.github().personal_token().to_owned(),
        ),
        ("--github-api-url", vendors.github_api_url()),
    ];
    let pairs = flags.map(|(flag, value)| [flag.to_owned(), value]);
    pairs.into_iter().flatten().collect()
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
