//! Checks of a head commit: check runs of Apps, commit statuses, and which of them the base branch requires.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use crate::http::VendorError;
use domain::ids::Repo;
use domain::red_checks::{ActionsJob, CheckKey, CheckOutcome, HeadCheck};

use super::{CheckRun, GitHub};

/// Slug of the App that reports the jobs of workflows.
const ACTIONS_APP: &str = "github-actions";

impl GitHub {
    /// Lists the latest check of each App and name on a commit.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn head_checks(&self, repo: &Repo, sha: &str) -> Result<Vec<HeadCheck>, VendorError> {
        let runs = self.check_runs(repo, sha).await?;
        let statuses = self.commit_statuses(repo, sha).await?;
        let runs = runs.into_iter().map(|run| head_check(run, true));
        let statuses = statuses.into_iter().map(|status| head_check(status, false));
        Ok(runs.chain(statuses).collect())
    }

    /// Returns the check runs of a pull request's head commit that its base branch requires.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub async fn required_checks(
        &self,
        repo: &Repo,
        number: u64,
    ) -> Result<BTreeSet<CheckKey>, VendorError> {
        let query = "query($owner: String!, $name: String!, $number: Int!) { \
            repository(owner: $owner, name: $name) { pullRequest(number: $number) { \
            statusCheckRollup { contexts(first: 100) { nodes { \
            ... on CheckRun { name isRequired(pullRequestNumber: $number) \
            checkSuite { app { slug } } } } } } } } }";
        let variables = json!({"owner": repo.owner, "name": repo.name, "number": number});
        let action = "reading the required checks of the pull request";
        let data: QueryData = self.graphql(repo, action, query, &variables).await?;
        let rollup = data.repository.pull_request.status_check_rollup;
        let nodes = rollup
            .map(|rollup| rollup.contexts.nodes)
            .unwrap_or_default();
        Ok(nodes
            .into_iter()
            .flatten()
            .filter_map(Context::required_key)
            .collect())
    }
}

fn head_check(check: CheckRun, is_run: bool) -> HeadCheck {
    let is_job = is_run && check.app_slug == ACTIONS_APP;
    let run = check.details_url.as_deref().and_then(run_of_address);
    HeadCheck {
        outcome: CheckOutcome::of(check.conclusion.as_deref()),
        job: is_job.then_some(ActionsJob {
            id: check.id,
            run,
            suite: check.suite,
            ended_at: check.completed_at,
        }),
        url: check.details_url,
        name: check.name,
        app: check.app_slug,
        title: check.title,
        summary: check.summary,
    }
}

/// Returns the id of the workflow run in the address of a job. Its author may be a workflow, so it proves nothing.
fn run_of_address(url: &str) -> Option<u64> {
    let (_, rest) = url.split_once("/actions/runs/")?;
    rest.split(['/', '?', '#']).next()?.parse().ok()
}

#[derive(Deserialize)]
struct QueryData {
    repository: RepositoryNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryNode {
    pull_request: PullNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullNode {
    status_check_rollup: Option<Rollup>,
}

#[derive(Deserialize)]
struct Rollup {
    contexts: Contexts,
}

#[derive(Deserialize)]
struct Contexts {
    nodes: Vec<Option<Context>>,
}

/// Check run. Empty for a commit status, of which it does not matter whether it is required.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Context {
    name: String,
    is_required: bool,
    check_suite: Option<SuiteNode>,
}

#[derive(Deserialize)]
struct SuiteNode {
    app: Option<AppNode>,
}

#[derive(Deserialize)]
struct AppNode {
    slug: String,
}

impl Context {
    fn required_key(self) -> Option<CheckKey> {
        let app = self.check_suite.and_then(|suite| suite.app);
        let slug = app.map(|app| app.slug).unwrap_or_default();
        self.is_required.then_some((self.name, slug))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_run_of_a_job_from_its_address() {
        for (url, run) in [
            (
                "https://github.com/acme/shop/actions/runs/12/job/34",
                Some(12),
            ),
            (
                "https://github.com/acme/shop/actions/runs/12?pr=1",
                Some(12),
            ),
            ("https://ci.example/builds/5", None),
            ("https://github.com/acme/shop/actions/runs/x/job/1", None),
        ] {
            assert_eq!(run_of_address(url), run, "{url}");
        }
    }
}
