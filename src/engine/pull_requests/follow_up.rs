//! Follow-up runs and commands on open pull requests.
//!
//! Once a pull request is quiet, its conversation, the permissions of the authors and the current
//! ticket are read. Then one transaction decides from the store alone, reserves the run, and
//! records which feedback it addresses; a concurrent check finds the branch busy. If something
//! cannot be read, nothing changes and the next cycle tries again.
//!
//! Commands received by webhook are started here too, so that they wait for a free branch.

mod authors;
mod reservation;

use std::collections::HashMap;

use futures_util::{TryStreamExt, stream};

use crate::app::{App, Core};
use domain::comments;
use domain::feedback::{FeedbackAuthor, FollowUpPolicy, NextPullRequestRun, PullRequestId};
use domain::issue::IssueLookup;
use domain::limits;
use domain::runner_image::RequestedImage;
use store::{StoreResult, pull_feedback, webhook_deliveries};
use vendors::http::VendorError;
use vendors::scm::{GitHub, PullRequestFeedback};

use super::landing;
use super::readiness;
use super::stored_pull::{Block, StoredPull, current_ticket};
use super::wait_comments::{self, BUDGET_COMMENT, FOLLOW_UP_BUDGET_COMMENT};
use crate::repo_image;

pub(super) use authors::{authors_of_requests, check_authors};
use reservation::reserve;

/// Maximum number of pull requests processed concurrently.
pub(super) const MAX_CONCURRENT_PULLS: usize = 8;

/// Maximum number of webhook deliveries removed in one transaction.
const MAX_REMOVED_DELIVERIES: usize = 2_000;

/// Checks once every pull request with open feedback or commands, then every open pull request.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    remove_old_deliveries(&app.core).await?;
    readiness::update_changed(app).await?;
    let pulls = app.core.store.read(pull_feedback::pulls_with_open_work)?;
    stream::iter(pulls.iter().map(Ok))
        .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |pull| process_pull(app, pull))
        .await?;
    Box::pin(landing::run_once(app)).await
}

async fn remove_old_deliveries(core: &Core) -> StoreResult<()> {
    let then = core.now() - limits::WEBHOOK_DEDUP_WINDOW;
    if core
        .store
        .read(|tx| webhook_deliveries::any_before(tx, then))?
    {
        let swept = core
            .store
            .write(move |tx| webhook_deliveries::remove_before(tx, then, MAX_REMOVED_DELIVERIES));
        swept.await?;
    }
    Ok(())
}

/// State read from GitHub and the ticketing system.
#[derive(Clone)]
struct ExternalState {
    conversation: PullRequestFeedback,
    /// Whether the feedback of an author is addressed. Authors whose lookup failed are missing.
    permitted: HashMap<FeedbackAuthor, bool>,
    ticket: IssueLookup,
    /// Image named by the repository.
    image: RequestedImage,
}

async fn process_pull(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    let now = app.core.now();
    let stored = app
        .core
        .store
        .read(|tx| StoredPull::read(tx, app, pull, now))?;
    let (Some(stored), Some(github)) = (stored, &app.vendors.github) else {
        return Ok(());
    };
    match (stored.next_run, &stored.block) {
        (NextPullRequestRun::NotDue, _)
        | (NextPullRequestRun::FollowUp, Some(Block::ProviderLimit(_))) => {
            return Ok(());
        }
        (NextPullRequestRun::LimitReached(until), _) => {
            let body =
                comments::follow_up_limit_reached(FollowUpPolicy::default().max_follow_ups, until);
            return wait_comments::post_once(
                &app.core,
                pull,
                until,
                FOLLOW_UP_BUDGET_COMMENT,
                body,
            )
            .await;
        }
        (NextPullRequestRun::FollowUp, Some(Block::Budget(spending))) => {
            let reason = spending.exhausted_message(&stored.mapping.team_key);
            let body = comments::follow_ups_over_budget(&reason);
            return wait_comments::post_once(
                &app.core,
                pull,
                spending.month.end(),
                BUDGET_COMMENT,
                body,
            )
            .await;
        }
        // The wait for the provider limit has been announced on the pull request.
        (NextPullRequestRun::Command, Some(Block::ProviderLimit(until)))
            if wait_comments::is_posted(&app.core, pull, *until)? =>
        {
            return Ok(());
        }
        (NextPullRequestRun::Command | NextPullRequestRun::FollowUp, _) => {}
    }
    let external = match fetch_external_state(app, github, pull, &stored).await {
        Ok(external) => external,
        Err(reason) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, reason, "Postponed a run on a pull request.");
            return Ok(());
        }
    };
    let (handle, pull_id) = (app.clone(), pull.clone());
    let reserved = app
        .core
        .store
        .write(move |tx| reserve(tx, &handle, &pull_id, &external, now))
        .await?;
    if let Some(job) = reserved {
        tracing::info!(job_id = %job, repo = %pull.repo, pull = pull.number, "Reserved a run from feedback on a pull request.");
    }
    Ok(())
}

/// Reads everything that the decision needs from GitHub and the ticketing system.
async fn fetch_external_state(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    stored: &StoredPull,
) -> Result<ExternalState, String> {
    let message = |error: VendorError| error.to_string();
    let conversation = github.pull_feedback(pull).await.map_err(message)?;
    let mut authors = stored.authors();
    authors.extend(authors_of_requests(&conversation));
    authors.sort();
    authors.dedup();
    Ok(ExternalState {
        permitted: check_authors(app, github, pull, &stored.mapping, authors).await,
        ticket: current_ticket(&app.vendors, stored).await?,
        image: repo_image::fetch(app, &pull.repo, &stored.mapping.default_branch).await?,
        conversation,
    })
}
