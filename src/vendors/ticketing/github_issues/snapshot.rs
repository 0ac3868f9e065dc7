//! Poll of all flagged issues: one series of requests per installation, each about many repositories.
//!
//! GitHub charges a query for each list that it may have to read: a list of labels inside a list of 100
//! issues costs 100 times as much as the list of issues. The poll therefore has no lists inside lists.
//! It reads one list per label of the service, and an issue has the labels of the lists that contain it.
//! Details that need a list (blockers, who set the label) are read for the issues that need them.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde::Deserialize;

use crate::http::VendorError;
use domain::ids::{IssueId, IssueKey, Repo, TeamKey};
use domain::issue::{FlaggedIssue, OpenBlocker, PollResult};
use domain::mapping::Mapping;
use domain::time::Timestamp;

use super::pages::PageReader;
use super::{Connection, GitHubIssues, IssueKeys, IssueState, RELATED_FIELDS, RelatedIssue};

/// Maximum number of repositories tried to find one on which the App is installed.
const MAX_ACCESS_CHECKS: usize = 5;

pub(super) const ACTION: &str = "reading flagged issues";

/// Key shown for a blocker that the credentials cannot read.
const UNREADABLE_BLOCKER: &str = "an issue that GitHub does not show";

/// Repository with the mapping that its issues belong to.
pub(super) struct MappedRepo {
    pub(super) repo: Repo,
    pub(super) team: TeamKey,
}

/// Flagged issue with what the poll needs to complete it.
pub(super) struct PolledIssue {
    pub(super) flagged: FlaggedIssue,
    pub(super) updated_at: Timestamp,
    pub(super) has_blockers: bool,
    /// Whether strangers may file issues in its repository.
    pub(super) is_open_to_strangers: bool,
}

impl PolledIssue {
    pub(super) fn id(&self) -> &IssueId {
        &self.flagged.issue.id
    }
}

impl GitHubIssues {
    /// Lists all open issues with a marker in the repositories of these mappings. A repository that cannot
    /// be read fails only its own mapping.
    ///
    /// # Errors
    /// Fails if no repository can be read.
    pub async fn snapshot(&self, mappings: &[&Mapping]) -> Result<PollResult, VendorError> {
        let keys = IssueKeys::new(mappings);
        let mut repos: BTreeMap<(String, String), MappedRepo> = BTreeMap::new();
        for mapping in mappings {
            let name = (mapping.owner.to_lowercase(), mapping.repo.to_lowercase());
            repos.entry(name).or_insert_with(|| MappedRepo {
                repo: mapping.target_repo(),
                team: mapping.team_key.clone(),
            });
        }
        let groups = self.group_by_owner(repos.into_values(), |mapped| &mapped.repo);
        let polls = groups.iter().map(|group| self.poll_group(group, &keys));
        let (mut result, mut first_error, mut is_any_read) = (PollResult::default(), None, false);
        for (group, poll) in groups.iter().zip(join_all(polls).await) {
            match poll {
                Ok((issues, failed)) => {
                    is_any_read = true;
                    result.issues.extend(issues);
                    result.failed_teams.extend(failed);
                }
                Err(error) => {
                    let teams: Vec<TeamKey> = group.iter().map(|one| one.team.clone()).collect();
                    tracing::warn!(?teams, %error, "Failed to read the issues of an owner's repositories.");
                    result.failed_teams.extend(teams);
                    first_error = first_error.or(Some(error));
                }
            }
        }
        match first_error {
            Some(error) if !is_any_read => Err(error),
            _ => {
                self.forget_trigger_authors(&result.issues);
                Ok(result)
            }
        }
    }

    /// Polls the repositories of one installation. Returns their issues, and the mappings whose repository
    /// cannot be read.
    async fn poll_group(
        &self,
        group: &[MappedRepo],
        keys: &IssueKeys,
    ) -> Result<(Vec<FlaggedIssue>, Vec<TeamKey>), VendorError> {
        let repo = self.accessible_repo(group).await?;
        let mut reader = PageReader::new(group);
        while let Some(pages) = reader.next_request() {
            let (data, errors) = self
                .github
                .graphql_partial(repo, ACTION, &pages.query, &pages.variables)
                .await?;
            reader.add(pages, data, &errors);
        }
        let (mut issues, failed) = reader.finish(keys);
        self.read_blockers(repo, &mut issues, keys).await?;
        self.read_trigger_authors(repo, &mut issues).await?;
        let issues = issues.into_iter().map(|polled| polled.flagged);
        Ok((issues.collect(), failed))
    }

    /// Returns a repository whose token reads all repositories of the group. With an App, it is the first
    /// one on which the App is installed.
    async fn accessible_repo<'r>(&self, group: &'r [MappedRepo]) -> Result<&'r Repo, VendorError> {
        let mut refusal = None;
        for mapped in group.iter().take(MAX_ACCESS_CHECKS) {
            match self.github.check_access(&mapped.repo, ACTION).await {
                Ok(()) => return Ok(&mapped.repo),
                Err(error) if error.is_not_found() => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or_else(|| {
            let kind = crate::http::VendorErrorKind::Transport("no repository".to_owned());
            VendorError::new("GitHub", ACTION, kind)
        }))
    }

    /// Reads the blockers of issues that wait for a run and have some.
    async fn read_blockers(
        &self,
        repo: &Repo,
        issues: &mut [PolledIssue],
        keys: &IssueKeys,
    ) -> Result<(), VendorError> {
        let blocked = issues
            .iter_mut()
            .filter(|polled| polled.has_blockers && polled.flagged.stage.requires_run());
        let mut blocked: Vec<&mut PolledIssue> = blocked.collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let ids: Vec<IssueId> = blocked.iter().map(|polled| polled.id().clone()).collect();
        // More than fit into one page are rare, and one open blocker is enough to wait.
        let selection = format!("{{ blockedBy(first: 50) {{ nodes {{ {RELATED_FIELDS} }} }} }}");
        let mut answers = self
            .read_nodes::<BlockedIssue>(repo, "reading blocking issues", &ids, &selection)
            .await?;
        for polled in &mut blocked {
            let blockers = answers.found.remove(polled.id());
            let nodes = blockers.map_or_else(|| vec![None], |blockers| blockers.blocked_by.nodes);
            let open = nodes
                .iter()
                .filter_map(|node| open_blocker(node.as_ref(), keys));
            polled.flagged.open_blockers = open.collect();
            let known = nodes.iter().flatten();
            polled.flagged.related.dependencies = known
                .map(|blocker| format!("blocked by {}", blocker.summary_line(keys)))
                .collect();
        }
        Ok(())
    }
}

/// Returns a blocker that is open. One that cannot be read counts as open.
fn open_blocker(blocker: Option<&RelatedIssue>, keys: &IssueKeys) -> Option<OpenBlocker> {
    match blocker {
        Some(blocker) if blocker.state == IssueState::Closed => None,
        Some(blocker) => Some(OpenBlocker {
            key: blocker.key(keys),
            title: blocker.title.clone(),
        }),
        None => Some(OpenBlocker {
            key: IssueKey::from(UNREADABLE_BLOCKER),
            title: String::new(),
        }),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockedIssue {
    blocked_by: Connection<RelatedIssue>,
}
