//! The stand-in vendors, and the service's flags for them.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fake_vendors::{FakeVendors, FakeVendorsOptions};

/// The workflow that a target repository has.
const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");

/// More requests an hour than any benchmark makes.
const PLENTY: u64 = 100_000_000;

/// A town with the repository `acme/shop`, whose runs wait ten minutes before they begin.
pub async fn start_vendors(dir: &Path) -> Result<FakeVendors> {
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let town = FakeVendors::start(FakeVendorsOptions::new(dir, program)).await?;
    let files = [
        ("README.md", "# Shop\n"),
        (".github/workflows/agent-implement.yml", WORKFLOW),
    ];
    let repo = town.github().repo("acme", "shop");
    repo.seed(&files, "Begin")?;
    repo.set_secret("ANTHROPIC_API_KEY", "not a key of anybody");
    town.github().set_start_delay(Duration::from_secs(600));
    town.github().set_quota(PLENTY);
    town.linear().set_quota(PLENTY);
    Ok(town)
}

/// What the service is told on its command line beside the usual.
pub fn service_flags(town: &FakeVendors, poll: Duration) -> Vec<String> {
    let flags = [
        ("--poll-interval-ms", poll.as_millis().to_string()),
        ("--linear-api-key", town.linear().api_key()),
        ("--linear-api-url", town.linear_url()),
        ("--github-token", town.github().personal_token().to_owned()),
        ("--github-api-url", town.github_api_url()),
    ];
    let pairs = flags.map(|(flag, value)| [flag.to_owned(), value]);
    pairs.into_iter().flatten().collect()
}

/// The key of the n-th team.
pub fn team_key(number: usize) -> String {
    format!("T{number}")
}

/// Files flagged issues of these numbers for each team, every one with a text.
pub fn create_issues(town: &FakeVendors, teams: usize, numbers: RangeInclusive<usize>) {
    for number in 1..=teams {
        for at in numbers.clone() {
            let issue = town.linear().issue(&format!("{}-{at}", team_key(number)));
            issue
                .title("Make the checkout remember the address")
                .describe(&"The checkout forgets the address on the way back. ".repeat(10))
                .add_label("Agent-Implement");
        }
    }
}
