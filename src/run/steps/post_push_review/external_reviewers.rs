//! Requests to GitHub for external reviews, and waiting for reviewers.

use std::time::Duration;

use futures_util::future::try_join;
use tokio::time::{Instant, sleep};

use super::evaluation;
use crate::blocking_finding::BlockingFinding;
use crate::context::{Connections, PUSH_RESERVE, RunContext, Workspace};
use crate::failure::RunFailure;
use crate::git::Git;
use crate::orchestrator_client::RepoAccess;
use crate::repo_config::ExternalReviewConfig;
use crate::retry::retry;
use domain::ids::Repo;
use vendors::http::VendorError;
use vendors::scm::{CheckRun, GitHub, PullRequest};

/// Time after which a repository token is replaced. GitHub's tokens are valid for one hour.
const ACCESS_LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Maximum time to retry reading reviews and threads.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time between the last check run and reading reviews, in which reviewers publish their
/// comments.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Repository access and client, held only while no process of the agent runs.
pub(super) struct GitHubSession {
    /// GitHub client.
    pub github: GitHub,
    access: RepoAccess,
    opened_at: Instant,
}

impl GitHubSession {
    /// Fetches repository access.
    pub(super) async fn open(
        connections: &mut Connections,
        workspace: &Workspace,
    ) -> Result<Self, RunFailure> {
        let access = connections.fetch_repo_access(workspace).await?;
        Ok(Self {
            github: connections.github_client(&access)?,
            access,
            opened_at: Instant::now(),
        })
    }

    /// Fetches new access if the current one is too old.
    async fn keep_open(
        &mut self,
        connections: &mut Connections,
        workspace: &Workspace,
    ) -> Result<(), RunFailure> {
        if self.opened_at.elapsed() > ACCESS_LIFETIME {
            *self = Self::open(connections, workspace).await?;
        }
        Ok(())
    }
}

/// Waits for external reviewers, up to their timeout and the run's, and returns the findings about
/// a commit. A reviewer that has not approved by then is a finding.
pub(super) async fn collect_findings(
    run: &mut RunContext,
    session: &mut GitHubSession,
    reviewers: &ExternalReviewConfig,
    pull: &PullRequest,
    commit: &str,
) -> Result<Vec<BlockingFinding>, RunFailure> {
    let expected = evaluation::expected_reviewers(reviewers);
    let names: Vec<&str> = expected
        .iter()
        .map(evaluation::ExternalReviewer::name)
        .collect();
    run.reporting.log(&format!(
        "Waiting for reviews of {commit} by {}",
        names.join(", ")
    ));
    let unreadable = |what: &str, error: &VendorError| {
        let title = format!("The reviewers' {what} could not be read");
        vec![BlockingFinding::unfixable(&title, &error.to_string())]
    };
    let runs = match wait(run, session, reviewers, &expected, commit).await? {
        Ok(runs) => runs,
        Err(error) => return Ok(unreadable("check runs", &error)),
    };
    sleep(reviewers.poll_interval.min(SETTLE_TIME)).await;
    let log = |line: &str| run.reporting.log(line);
    let github = &session.github;
    let reviews = retry(&log, READ_TIMEOUT, async || {
        github.reviews(&run.dispatch.repo, pull.number).await
    });
    let reviews = match reviews.await {
        Ok(reviews) => reviews,
        Err(error) => return Ok(unreadable("reviews", &error)),
    };
    let threads = retry(&log, READ_TIMEOUT, async || {
        github
            .review_threads(&run.dispatch.repo, &pull.node_id)
            .await
    });
    let threads = match threads.await {
        Ok(threads) => threads,
        Err(error) => return Ok(unreadable("comments", &error)),
    };
    let findings = evaluation::evaluate(&expected, commit, &runs, &reviews, &threads);
    for finding in &findings {
        run.reporting
            .log(&format!("Review: {}", finding.summary_line()));
    }
    Ok(findings)
}

/// Polls the check runs of a commit until every reviewer has finished or the timeout has passed.
async fn wait(
    run: &mut RunContext,
    session: &mut GitHubSession,
    reviewers: &ExternalReviewConfig,
    expected: &[evaluation::ExternalReviewer],
    commit: &str,
) -> Result<Result<Vec<CheckRun>, VendorError>, RunFailure> {
    let latest = run.limits.deadline_before(PUSH_RESERVE);
    let until = Instant::now().checked_add(reviewers.timeout);
    let until = until.map_or(latest, |until| until.min(latest));
    loop {
        session
            .keep_open(&mut run.connections, &run.workspace)
            .await?;
        let result = check_runs_and_statuses(&session.github, &run.dispatch.repo, commit).await;
        let is_waiting = match &result {
            Ok(runs) => evaluation::is_pending(expected, runs),
            Err(error) => {
                run.reporting
                    .log(&format!("Failed to read check runs: {error}"));
                !error.is_permanent()
            }
        };
        let next_poll = Instant::now().checked_add(reviewers.poll_interval);
        if !is_waiting || next_poll.is_none_or(|next_poll| next_poll > until) {
            return Ok(result);
        }
        sleep(reviewers.poll_interval).await;
    }
}

/// Returns the check runs and commit statuses of a commit.
async fn check_runs_and_statuses(
    github: &GitHub,
    repo: &Repo,
    commit: &str,
) -> Result<Vec<CheckRun>, VendorError> {
    let (mut runs, statuses) = try_join(
        github.check_runs(repo, commit),
        github.commit_statuses(repo, commit),
    )
    .await?;
    runs.extend(statuses);
    Ok(runs)
}

/// Returns a finding if the branch has moved: the reviewed commit is not what would be merged.
pub(super) async fn branch_moved_finding(
    git: &Git,
    branch: &str,
    session: &GitHubSession,
    commit: &str,
) -> Option<BlockingFinding> {
    let token = session.access.token.as_ref();
    let problem = match git.remote_head(token, branch).await {
        Ok(Some(head)) if head == commit => return None,
        Ok(Some(head)) => format!("somebody pushed {head}; the reviewed commit is {commit}"),
        Ok(None) => "it was deleted".to_owned(),
        Err(error) => format!("its head could not be read: {error}"),
    };
    Some(BlockingFinding::unfixable(
        &format!("The branch {branch} has moved"),
        &problem,
    ))
}
