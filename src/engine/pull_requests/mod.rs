//! More work on open pull requests: feedback, commands and the pull request that a run reports.
//!
//! 1. [`feedback`] stores what a webhook of GitHub reports, and [`reconcile`] finds what no webhook
//!    delivered. Both write to the [`ledger`]: findings of reviewers, and commands in comments.
//! 2. Once a pull request is quiet, [`follow_up`] reads its conversation and starts a run for the
//!    findings or the next command. [`gap_fill`] starts a run for a command that the repository's
//!    workflow reports.
//! 3. [`run`] reserves such a run. [`wait_comments`] posts on the pull request why one waits.
//! 4. [`landing`] starts what the service does by itself: [`branch_updates`] keeps branches mergeable, [`checks`]
//!    repairs failing checks, and [`merge`] merges what people have approved, if the project asks for that.
//! 5. At the end of a run, [`ledger`] settles the findings that it addressed, and [`ownership`]
//!    verifies the pull request that it reports. [`changed_files`] reads what it changes.

pub mod feedback;
pub mod follow_up;
pub mod gap_fill;
pub mod merge;
pub mod reconcile;

pub(crate) mod branch_updates;
pub(crate) mod ledger;
pub(crate) mod ownership;

mod changed_files;
mod checks;
mod landing;
mod readiness;
mod run;
mod stored_pull;
mod wait_comments;

pub use checks::BaseChecks;

use std::time::Duration;

use tokio::time::timeout;

use domain::ids::IssueKey;
use domain::issue::IssueLookup;
use domain::mapping::Mapping;
use domain::vendor::Vendor;
use vendors::ticketing::TicketingClient;

/// Timeout of an issue lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);

/// Looks up an issue by its key. The error is the reason.
async fn find_issue(
    account: &TicketingClient,
    mappings: &[&Mapping],
    key: &IssueKey,
) -> Result<Vec<IssueLookup>, String> {
    match timeout(LOOKUP_TIMEOUT, account.find_issue(mappings, key)).await {
        Ok(found) => found.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "{} did not answer in time",
            Vendor::from(account.system())
        )),
    }
}
