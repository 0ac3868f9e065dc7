//! Asking the host what reviewers say, and waiting for those who have not said it yet.

use std::time::Duration;

use futures_util::future::try_join;
use tokio::time::{Instant, sleep};

use super::evaluation;
use crate::context::{RunContext, RunFailure};
use crate::orchestrator_client::RepoAccess;
use crate::repo_config::ExternalReviewConfig;
use crate::retry::retry;
use crate::steps::PUSH_RESERVE;
use crate::steps::review::BlockingFinding;
use domain::ids::Repo;
use vendors::http::VendorError;
use vendors::scm::{CheckRun, GitHub, PullRequest};

/// For how long is one access used? The host's tokens live for an hour.
const ACCESS_LIFETIME: Duration = Duration::from_secs(30 * 60);

/// How long is asked for what reviewers have written?
const READING: Duration = Duration::from_secs(60);

/// How long at most after the last check do reviewers get to publish what they found?
const SETTLING: Duration = Duration::from_secs(10);

/// Access to the host, while nothing of the agent's is alive.
pub struct GitHubSession {
    pub github: GitHub,
    access: RepoAccess,
    since: Instant,
}

impl GitHubSession {
    pub async fn open(run: &mut RunContext) -> Result<Self, RunFailure> {
        let access = run.fetch_repo_access().await?;
        Ok(Self {
            github: run.github_client(&access)?,
            access,
            since: Instant::now(),
        })
    }

    async fn keep_open(&mut self, run: &mut RunContext) -> Result<(), RunFailure> {
        if self.since.elapsed() > ACCESS_LIFETIME {
            *self = Self::open(run).await?;
        }
        Ok(())
    }
}

/// What reviewers outside have against a commit. They are waited for, up to their time and the
/// run's; one who has not approved by then stands in the way.
pub async fn collect_findings(
    run: &mut RunContext,
    door: &mut GitHubSession,
    reviewers: &ExternalReviewConfig,
    pull: &PullRequest,
    commit: &str,
) -> Result<Vec<BlockingFinding>, RunFailure> {
    let awaited = evaluation::expected_reviewers(reviewers);
    let names: Vec<&str> = awaited
        .iter()
        .map(evaluation::ExternalReviewer::name)
        .collect();
    run.console
        .log(&format!("waiting for {} on {commit}", names.join(", ")));
    let unreadable = |what: &str, error: &VendorError| {
        let title = format!("The reviewers' {what} could not be read");
        vec![BlockingFinding::unfixable(&title, &error.to_string())]
    };
    let runs = match wait(run, door, reviewers, &awaited, commit).await? {
        Ok(runs) => runs,
        Err(error) => return Ok(unreadable("check runs", &error)),
    };
    sleep(reviewers.poll_interval.min(SETTLING)).await;
    let say = |line: &str| run.console.log(line);
    let host = &door.github;
    let reviews = retry(&say, READING, async || {
        host.reviews(&run.repo, pull.number).await
    });
    let reviews = match reviews.await {
        Ok(reviews) => reviews,
        Err(error) => return Ok(unreadable("reviews", &error)),
    };
    let threads = retry(&say, READING, async || {
        host.review_threads(&run.repo, &pull.node_id).await
    });
    let threads = match threads.await {
        Ok(threads) => threads,
        Err(error) => return Ok(unreadable("remarks", &error)),
    };
    let findings = evaluation::evaluate(&awaited, commit, &runs, &reviews, &threads);
    for finding in &findings {
        run.console
            .log(&format!("review: {}", finding.summary_line()));
    }
    Ok(findings)
}

/// The check runs of a commit, once everybody has ended or the time is over.
async fn wait(
    run: &mut RunContext,
    door: &mut GitHubSession,
    reviewers: &ExternalReviewConfig,
    awaited: &[evaluation::ExternalReviewer],
    commit: &str,
) -> Result<Result<Vec<CheckRun>, VendorError>, RunFailure> {
    let last = run
        .deadline
        .checked_sub(PUSH_RESERVE)
        .unwrap_or(run.deadline);
    let until = Instant::now().checked_add(reviewers.timeout);
    let until = until.map_or(last, |until| until.min(last));
    loop {
        door.keep_open(run).await?;
        let seen = said_of(&door.github, &run.repo, commit).await;
        let is_waiting = match &seen {
            Ok(runs) => evaluation::is_pending(awaited, runs),
            Err(error) => {
                run.console.log(&format!("the check runs: {error}"));
                !error.is_permanent()
            }
        };
        let again = Instant::now().checked_add(reviewers.poll_interval);
        if !is_waiting || again.is_none_or(|again| again > until) {
            return Ok(seen);
        }
        sleep(reviewers.poll_interval).await;
    }
}

/// What Apps say of a commit, in either way that the host has for it.
async fn said_of(host: &GitHub, repo: &Repo, commit: &str) -> Result<Vec<CheckRun>, VendorError> {
    let (mut said, statuses) = try_join(
        host.check_runs(repo, commit),
        host.commit_statuses(repo, commit),
    )
    .await?;
    said.extend(statuses);
    Ok(said)
}

/// Whether the branch stands elsewhere by now: what was reviewed is not what would be merged.
pub async fn branch_moved_finding(
    run: &RunContext,
    door: &GitHubSession,
    commit: &str,
) -> Option<BlockingFinding> {
    let branch = &run.config.branch;
    let problem = match run
        .git
        .remote_head(door.access.token.as_ref(), branch)
        .await
    {
        Ok(Some(head)) if head == commit => return None,
        Ok(Some(head)) => format!("somebody pushed {head}; what was reviewed is {commit}"),
        Ok(None) => "it was deleted".to_owned(),
        Err(error) => format!("where it stands could not be read: {error}"),
    };
    Some(BlockingFinding::unfixable(
        &format!("The branch {branch} has moved"),
        &problem,
    ))
}
