//! Connections of a run to the orchestrator and to GitHub.

use super::dispatch::Dispatch;
use super::workspace::Workspace;
use crate::failure::RunFailure;
use crate::orchestrator_client::{OrchestratorClient, RepoAccess, TokenSource};
use domain::job::PullRequestRef;
use domain::secret::Secret;
use vendors::http::{Client, Redactor};
use vendors::scm::{GitHub, ScmCredentials};

/// Clients of the orchestrator and of GitHub.
pub(crate) struct Connections {
    /// Client of the orchestrator.
    pub orchestrator: OrchestratorClient,
    /// Client for GitHub. Its certificates were read before repository code ran.
    web_client: Client,
    /// Base URL of the GitHub API.
    api_url: String,
    /// Values to redact, except the current repository token.
    secrets: Vec<Secret>,
    /// Whether the workflow token was used, because the orchestrator could not be reached.
    workflow_token_used: bool,
}

impl Connections {
    /// Creates the clients. `secrets` are redacted in errors of GitHub.
    pub(crate) fn new(
        orchestrator: OrchestratorClient,
        web_client: Client,
        api_url: String,
        secrets: Vec<Secret>,
    ) -> Self {
        Self {
            orchestrator,
            web_client,
            api_url,
            secrets,
            workflow_token_used: false,
        }
    }

    /// Whether the workflow token was used, because the orchestrator could not be reached.
    pub(crate) fn workflow_token_used(&self) -> bool {
        self.workflow_token_used
    }

    /// Fetches repository access for one step. Kills orphan processes first: no process of the
    /// agent or a script may run while a token is held.
    pub(crate) async fn fetch_repo_access(
        &mut self,
        workspace: &Workspace,
    ) -> Result<RepoAccess, RunFailure> {
        workspace.kill_orphan_processes().await?;
        workspace.git.verify_program().map_err(RunFailure::other)?;
        let access = self
            .orchestrator
            .fetch_repo_access()
            .await
            .map_err(RunFailure::other)?;
        self.workflow_token_used |= access.source == TokenSource::Workflow;
        Ok(access)
    }

    /// Creates a GitHub client with the access.
    pub(crate) fn github_client(&self, access: &RepoAccess) -> Result<GitHub, RunFailure> {
        let token = access
            .token
            .clone()
            .ok_or_else(|| RunFailure::other("the run has no access to its repository"))?;
        let secrets = self.secrets.iter().chain([&token]).map(Secret::expose);
        // A new client would read certificates again, which the agent may have replaced.
        let client = self.web_client.for_vendor("GitHub", Redactor::new(secrets));
        Ok(GitHub::new(
            client,
            &self.api_url,
            ScmCredentials::Token(token),
        ))
    }

    /// Returns the open pull request of the run's branch.
    pub(crate) async fn find_open_pull(
        &self,
        access: &RepoAccess,
        dispatch: &Dispatch,
    ) -> Result<Option<PullRequestRef>, RunFailure> {
        let github = self.github_client(access)?;
        let pull = github.find_open_pull(&dispatch.repo, dispatch.branch());
        let pull = pull.await.map_err(RunFailure::other)?;
        Ok(pull.map(|pull| PullRequestRef {
            number: pull.number,
            url: pull.url,
        }))
    }
}
