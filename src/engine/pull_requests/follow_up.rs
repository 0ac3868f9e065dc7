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

use crate::app::{App, Core, Vendors};
use domain::agent_choice::AgentChoice;
use domain::comments;
use domain::feedback::{
    self, CommentCommand, FeedbackAuthor, FollowUpPolicy, NextPullRequestRun, PullRequestId,
    ReviewFinding, ReviewFindingState,
};
use domain::issue::{IssueLookup, RelatedIssues};
use domain::job::Job;
use domain::limits;
use domain::mapping::Mapping;
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use domain::usage::BudgetUsage;
use store::pull_feedback::KeyedRow;
use store::{ReadableTx, StoreResult, jobs, mappings, pull_feedback, webhook_deliveries};
use vendors::http::VendorError;
use vendors::scm::{GitHub, PullRequestFeedback};

use super::find_issue;
use super::run;
use super::wait_comments::{self, BUDGET_COMMENT, FOLLOW_UP_BUDGET_COMMENT};
use crate::{budget, dispatch, provider_limit, repo_image};

use authors::{authors_of_requests, check_authors};
use reservation::reserve;

/// Maximum number of pull requests processed concurrently.
pub(super) const MAX_CONCURRENT_PULLS: usize = 8;

/// Maximum number of webhook deliveries removed in one transaction.
const MAX_REMOVED_DELIVERIES: usize = 2_000;

/// Checks once every pull request with open feedback or commands.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub async fn run_once(app: &App) -> StoreResult<()> {
    remove_old_deliveries(&app.core).await?;
    let pulls = app.core.store.read(pull_feedback::pulls_with_open_work)?;
    stream::iter(pulls.iter().map(Ok))
        .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |pull| process_pull(app, pull))
        .await
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

/// State of a pull request in the store.
struct StoredPull {
    /// Latest job of the pull request.
    last_job: Job,
    mapping: Mapping,
    findings: Vec<KeyedRow<ReviewFinding>>,
    commands: Vec<KeyedRow<CommentCommand>>,
    next_run: NextPullRequestRun,
    block: Option<Block>,
}

/// Reason why no run of the mapping may start now.
enum Block {
    Budget(BudgetUsage),
    ProviderLimit(Timestamp),
}

impl StoredPull {
    /// Reads the state. Returns `None` while no run is possible: the pull request has no job, its
    /// repository is not mapped, or the mapping is paused or ineligible.
    fn read(
        tx: &impl ReadableTx,
        app: &App,
        pull: &PullRequestId,
        now: Timestamp,
    ) -> StoreResult<Option<Self>> {
        let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
        let Some(last_job) = of_pull.last().cloned() else {
            return Ok(None);
        };
        let mode = app.core.runner_mode(tx)?;
        let mapping = mappings::get(tx, &last_job.team)?
            .filter(|mapping| !mapping.paused && mapping.target_repo() == pull.repo)
            .filter(|mapping| dispatch::ineligible_reason(app, mode, mapping).is_none());
        let Some(mapping) = mapping else {
            return Ok(None);
        };
        let findings = pull_feedback::unresolved(tx, pull)?;
        let commands = pull_feedback::commands(tx, pull)?;
        let next_run = feedback::next_pull_request_run(
            &FollowUpPolicy::default(),
            run::active_run(tx, &last_job)?.is_some(),
            &of_pull,
            &values(&findings),
            &values(&commands),
            now,
        );
        let block = match budget::exhausted(tx, &mapping, now)? {
            Some(spending) => Some(Block::Budget(spending)),
            None => {
                let labels = AgentChoice::from_labels(last_job.labels.iter().map(String::as_str));
                let choice = provider_limit::available_choice(tx, app, &mapping, &labels, now)?;
                choice.err().map(Block::ProviderLimit)
            }
        };
        Ok(Some(Self {
            last_job,
            mapping,
            findings,
            commands,
            next_run,
            block,
        }))
    }

    /// Authors of new findings and waiting commands.
    fn authors(&self) -> Vec<FeedbackAuthor> {
        let new = self
            .findings
            .iter()
            .filter(|(_, one)| one.state == ReviewFindingState::New);
        let of_findings = new.map(|(_, finding)| finding.comment.author.clone());
        let waiting = self.commands.iter().filter(|(_, one)| one.is_waiting());
        let of_commands = waiting.filter_map(|(_, command)| {
            let login = command.author.clone()?;
            Some(FeedbackAuthor::Person { login })
        });
        of_findings.chain(of_commands).collect()
    }
}

fn values<T: Clone>(keyed: &[KeyedRow<T>]) -> Vec<T> {
    keyed.iter().map(|(_, value)| value.clone()).collect()
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
        ticket: ticket(&app.vendors, stored).await?,
        image: repo_image::fetch(app, &pull.repo, &stored.mapping.default_branch).await?,
        conversation,
    })
}

/// Reads the current ticket. If it no longer exists, the ticket of the last job is used: work on an
/// open pull request outlives its ticket.
async fn ticket(vendors: &Vendors, stored: &StoredPull) -> Result<IssueLookup, String> {
    let issue = &stored.last_job.issue;
    let account = vendors
        .account(issue.system)
        .ok_or("its ticketing system is not configured")?;
    let found = find_issue(account, &[&stored.mapping], &issue.key)
        .await
        .map_err(|reason| format!("the ticket could not be looked up: {reason}"))?;
    let same = found.into_iter().find(|lookup| lookup.issue.id == issue.id);
    Ok(same.unwrap_or_else(|| IssueLookup {
        issue: issue.clone(),
        team: stored.mapping.team_key.clone(),
        description: String::new(),
        related: RelatedIssues::default(),
        labels: stored.last_job.labels.clone(),
    }))
}
