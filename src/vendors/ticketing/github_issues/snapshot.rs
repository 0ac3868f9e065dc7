//! Poll of all flagged issues: one series of requests per installation, each about many repositories.
//!
//! GitHub charges a query for each list that it may have to read: a list of labels inside a list of 100
//! issues costs 100 times as much as the list of issues. The poll therefore has no lists inside lists.
//! It reads one list per label of the service, and an issue has the labels of the lists that contain it.
//! Details that need a list (blockers, who set the label, labels that mappings match) are read for the issues that need them.

use std::collections::{BTreeMap, HashSet};
use std::sync::PoisonError;

use futures_util::future::join_all;
use serde::Deserialize;

use crate::http::VendorError;
use domain::ids::{IssueId, IssueKey, Repo, TeamKey};
use domain::issue::{FlaggedIssue, OpenBlocker, PollResult};
use domain::mapping::{Mapping, TicketMatch};
use domain::stage::Stage;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;

use super::pages::PageReader;
use super::{Connection, GitHubIssues, IssueKeys, IssueState, RELATED_FIELDS, RelatedIssue};

/// Maximum number of repositories tried to find one on which the App is installed.
const MAX_ACCESS_CHECKS: usize = 5;

pub(super) const ACTION: &str = "reading flagged issues";

/// Key shown for a blocker that the credentials cannot read.
const UNREADABLE_BLOCKER: &str = "an issue that GitHub does not show";

/// Repository with the mappings that take its issues.
pub(super) struct MappedRepo {
    pub(super) repo: Repo,
    /// Keys of the mappings, at least one.
    pub(super) teams: Vec<TeamKey>,
    /// Whether a mapping has a match, so that the labels of an issue decide.
    pub(super) has_matches: bool,
    /// Names of the labels that mappings match, as the mappings spell them.
    pub(super) matched_labels: Vec<String>,
    /// Whether a mapping plans before it implements.
    has_plans: bool,
    /// Whether an issue waits for people.
    has_waits: bool,
}

impl MappedRepo {
    fn new(repo: Repo) -> Self {
        Self {
            repo,
            teams: Vec::new(),
            has_matches: false,
            matched_labels: Vec::new(),
            has_plans: false,
            has_waits: false,
        }
    }

    /// Returns whether a label of the service can matter. The lists of a request are limited, and each label is one:
    /// without plans, an approved issue needs the same run as one with the trigger, and only an issue that waits can
    /// have lost its trigger since.
    pub(super) fn polls(&self, label: &str) -> bool {
        let is_of = |stage: Stage| stage.label() == Some(label);
        match label {
            _ if is_of(Stage::PlanApproved) => self.has_plans,
            _ if is_of(Stage::NeedsInput) => self.has_waits,
            _ => true,
        }
    }

    fn add(&mut self, mapping: &Mapping) {
        self.teams.push(mapping.team_key.clone());
        let matching = mapping.ticket_match();
        self.has_matches |= matching.is_some();
        self.has_plans |= mapping.planning_enabled;
        if let Some(TicketMatch::Label(name)) = matching {
            self.matched_labels.push(name.clone());
        }
    }
}

/// Flagged issue with what the poll needs to complete it.
pub(super) struct PolledIssue {
    pub(super) flagged: FlaggedIssue,
    /// Position of its repository in the group.
    pub(super) repo: usize,
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
    /// be read fails only its own mappings. Adds the comments that `watch` asks for.
    ///
    /// # Errors
    /// Fails if no repository can be read.
    pub async fn snapshot(
        &self,
        mappings: &[&Mapping],
        watch: &CommentWatch,
    ) -> Result<PollResult, VendorError> {
        let keys = IssueKeys::new(mappings);
        let key = |owner: &str, name: &str| (owner.to_lowercase(), name.to_lowercase());
        let mut repos: BTreeMap<(String, String), MappedRepo> = BTreeMap::new();
        for mapping in mappings {
            let mapped = repos.entry(key(&mapping.owner, &mapping.repo));
            let mapped = mapped.or_insert_with(|| MappedRepo::new(mapping.target_repo()));
            mapped.add(mapping);
        }
        for (issue, _) in &watch.waiting {
            if let Some((repo, _)) = issue.repo_and_number()
                && let Some(mapped) = repos.get_mut(&key(&repo.owner, &repo.name))
            {
                mapped.has_waits = true;
            }
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
                    let teams = group.iter().flat_map(|one| &one.teams);
                    let teams: Vec<TeamKey> = teams.cloned().collect();
                    tracing::warn!(?teams, %error, "Failed to read the issues of an owner's repositories.");
                    result.failed_teams.extend(teams);
                    first_error = first_error.or(Some(error));
                }
            }
        }
        match first_error {
            Some(error) if !is_any_read => Err(error),
            _ => {
                self.forget_details(&result.issues);
                self.read_watched(watch, &mut result).await;
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
        let repos: Vec<&Repo> = group.iter().map(|mapped| &mapped.repo).collect();
        let repo = self.accessible_repo(&repos, ACTION).await?;
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
        self.read_matched_labels(repo, group, &mut issues).await?;
        let issues = issues.into_iter().map(|polled| polled.flagged);
        Ok((issues.collect(), failed))
    }

    /// Forgets the details of issues that are no longer flagged.
    fn forget_details(&self, flagged: &[FlaggedIssue]) {
        let flagged: HashSet<&IssueId> = flagged.iter().map(|flagged| &flagged.issue.id).collect();
        let authors = self.trigger_authors.lock();
        let mut authors = authors.unwrap_or_else(PoisonError::into_inner);
        authors.retain(|issue, _| flagged.contains(issue));
        let labels = self.matched_labels.lock();
        let mut labels = labels.unwrap_or_else(PoisonError::into_inner);
        labels.retain(|issue, _| flagged.contains(issue));
    }

    /// Returns a repository whose token reads all repositories of the group. With an App, it is the first
    /// one on which the App is installed.
    pub(super) async fn accessible_repo<'r>(
        &self,
        group: &[&'r Repo],
        action: &'static str,
    ) -> Result<&'r Repo, VendorError> {
        let mut refusal = None;
        for repo in group.iter().take(MAX_ACCESS_CHECKS) {
            match self.github.check_access(repo, action).await {
                Ok(()) => return Ok(repo),
                Err(error) if error.is_not_found() => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or_else(|| {
            let kind = crate::http::VendorErrorKind::Transport("no repository".to_owned());
            VendorError::new("GitHub", action, kind)
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
