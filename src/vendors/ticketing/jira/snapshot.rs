//! Poll of the issues of all mappings: one search per distinct query, run concurrently.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::json;

use crate::http::{Method, VendorError};
use domain::agent_choice::AgentChoice;
use domain::issue::{FlaggedIssue, PollResult, TriggerAuthor};
use domain::mapping::{Mapping, TicketingConfig};
use domain::stage::Stage;
use domain::string_arena::{ArenaStr, pack_strings};
use domain::ticket_comment::CommentWatch;

use super::fields::{FieldId, REPO_FIELD, STATUS_FIELD};
use super::issue::{Issue, Page, priority, requested_fields};
use super::{Jira, jql};

const ACTION: &str = "reading flagged issues";

/// Maximum number of issues per page. Jira returns fewer if they are large.
const PAGE_SIZE: usize = 250;

/// Maximum number of pages per search. Guards against an endless list.
const MAX_PAGES: usize = 200;

/// Maximum number of concurrent searches.
const CONCURRENT_SEARCHES: usize = 8;

/// Mappings that share one search.
struct Scope<'a> {
    clause: &'a str,
    status: FieldId,
    repo: FieldId,
    /// Mappings with their values of the repo field.
    mappings: Vec<(&'a str, &'a Mapping)>,
}

/// Returns the ids or names of a mapping's status field and repo field.
pub(super) fn mapping_field_names(ticketing: &TicketingConfig) -> Vec<&str> {
    match ticketing {
        TicketingConfig::Linear { .. } | TicketingConfig::GitHub { .. } => Vec::new(),
        TicketingConfig::Jira {
            status_field_override,
            repo_field_override,
            ..
        } => vec![
            status_field_override.as_deref().unwrap_or(STATUS_FIELD),
            repo_field_override.as_deref().unwrap_or(REPO_FIELD),
        ],
    }
}

impl Jira {
    /// Lists the open issues of these mappings that wait for a run or have one, and the comments that `watch` asks
    /// for. Takes one search per distinct query, and one request per issue whose comments are read.
    ///
    /// # Errors
    /// Fails if all mappings fail. If only some fail, they are listed in the result.
    pub async fn snapshot(
        &self,
        mappings: &[&Mapping],
        watch: &CommentWatch,
    ) -> Result<PollResult, VendorError> {
        let mut snapshot = PollResult::default();
        let mut failure = None;
        let scopes = scopes(self, mappings, &mut snapshot, &mut failure).await;
        if !scopes.is_empty() {
            let site = self.site_url().await?;
            let written = self.recently_written();
            let is_any_waiting = !watch.waiting.is_empty();
            for batch in scopes.chunks(CONCURRENT_SEARCHES) {
                let searches = batch
                    .iter()
                    .map(|scope| scope.read(self, &site, &written, is_any_waiting));
                for (scope, found) in batch.iter().zip(join_all(searches).await) {
                    match found {
                        Ok(issues) => snapshot.issues.extend(issues),
                        Err(error) => {
                            let of_scope = scope.mappings.iter().map(|(_, mapping)| *mapping);
                            note_failure(&mut snapshot, &mut failure, of_scope, error);
                        }
                    }
                }
            }
        }
        match failure {
            Some(error) if snapshot.failed_teams.len() == mappings.len() => return Err(error),
            _ => {}
        }
        // Queries may overlap, and an issue may move to a later page between two requests.
        let mut seen = HashSet::new();
        snapshot
            .issues
            .retain(|issue| seen.insert(issue.issue.id.clone()));
        self.read_watched(watch, &mut snapshot).await;
        Ok(snapshot)
    }
}

/// Records a failure of some mappings. A rejected query, for example after a project was renamed, affects
/// only its own mappings.
fn note_failure<'a>(
    snapshot: &mut PollResult,
    failure: &mut Option<VendorError>,
    mappings: impl Iterator<Item = &'a Mapping>,
    error: VendorError,
) {
    let keys: Vec<_> = mappings.map(|mapping| mapping.team_key.clone()).collect();
    let names: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
    tracing::warn!(mappings = names.join(", "), %error, "Failed to read issues of Jira mappings.");
    snapshot.failed_teams.extend(keys);
    failure.get_or_insert(error);
}

/// Groups the mappings by their query and fields.
async fn scopes<'a>(
    jira: &Jira,
    mappings: &[&'a Mapping],
    snapshot: &mut PollResult,
    failure: &mut Option<VendorError>,
) -> Vec<Scope<'a>> {
    let mut scopes: Vec<Scope<'a>> = Vec::new();
    let mut rest = mappings.iter().copied();
    while let Some(mapping) = rest.next() {
        let TicketingConfig::Jira {
            jql: clause,
            repo_field_value,
            ..
        } = &mapping.ticketing
        else {
            continue;
        };
        let (status, repo) = match mapping_field_ids(jira, ACTION, mapping).await {
            Ok(fields) => fields,
            Err(error) if error.is_permanent() => {
                note_failure(snapshot, failure, std::iter::once(mapping), error);
                continue;
            }
            // Each further call would take as long to fail.
            Err(error) => {
                note_failure(
                    snapshot,
                    failure,
                    std::iter::once(mapping).chain(rest),
                    error,
                );
                return Vec::new();
            }
        };
        let clause = clause.trim();
        let entry = (repo_field_value.trim(), mapping);
        let is_same_scope = |scope: &&mut Scope<'_>| {
            scope.clause == clause && scope.status == status && scope.repo == repo
        };
        match scopes.iter_mut().find(is_same_scope) {
            Some(scope) => scope.mappings.push(entry),
            None => scopes.push(Scope {
                clause,
                status,
                repo,
                mappings: vec![entry],
            }),
        }
    }
    scopes
}

/// Returns the ids of a mapping's status field and repo field.
pub(super) async fn mapping_field_ids(
    jira: &Jira,
    action: &'static str,
    mapping: &Mapping,
) -> Result<(FieldId, FieldId), VendorError> {
    let names = mapping_field_names(&mapping.ticketing);
    let name = |at: usize| names.get(at).copied().unwrap_or_default();
    Ok((
        jira.find_field(action, name(0)).await?,
        jira.find_field(action, name(1)).await?,
    ))
}

impl Scope<'_> {
    async fn read(
        &self,
        jira: &Jira,
        site: &str,
        written: &[u64],
        is_any_waiting: bool,
    ) -> Result<Vec<FlaggedIssue>, VendorError> {
        let mut query = jira.status_query(self.status, is_any_waiting);
        loop {
            let text = query.jql(self.clause, self.status);
            let error = match self.pages(jira, &text, site, written).await {
                Ok(found) => {
                    jira.remember_status_query(self.status, query, is_any_waiting);
                    return Ok(found);
                }
                Err(error) => error,
            };
            let next = query
                .after_rejection(&error)
                .filter(|_| error.status() == Some(400));
            query = next.ok_or(error)?;
        }
    }

    async fn pages(
        &self,
        jira: &Jira,
        query: &str,
        site: &str,
        written: &[u64],
    ) -> Result<Vec<FlaggedIssue>, VendorError> {
        let mut found = Vec::new();
        let mut body = json!({
            "jql": query,
            "maxResults": PAGE_SIZE,
            "fields": requested_fields([self.status, self.repo]),
        });
        if !written.is_empty() {
            body["reconcileIssues"] = json!(written);
        }
        for _ in 0..MAX_PAGES {
            let request = jira.request(ACTION, Method::POST, "/search/jql");
            let page: Page = jira
                .client
                .send(&request.json(&body).safe())
                .await?
                .json()?;
            found.extend(self.flagged(&page.issues, site));
            match page.next_page_token {
                Some(token) if !page.is_last => body["nextPageToken"] = token.into(),
                _ => break,
            }
        }
        Ok(found)
    }

    fn flagged(&self, page: &[Issue], site: &str) -> Vec<FlaggedIssue> {
        let with_description = |issue: &Issue| {
            Some((
                self.translate(issue, site)?,
                issue.fields.description_markdown(),
            ))
        };
        let (mut flagged, texts): (Vec<_>, Vec<_>) =
            page.iter().filter_map(with_description).unzip();
        for (issue, description) in flagged.iter_mut().zip(pack_strings(&texts)) {
            issue.description = description;
        }
        flagged
    }

    /// Converts an issue, without its description. `None` if its stage is not polled, it is done, or its repo
    /// field matches no mapping.
    fn translate(&self, issue: &Issue, site: &str) -> Option<FlaggedIssue> {
        let fields = &issue.fields;
        let status = fields.field_values(self.status);
        let stage = status
            .iter()
            .find_map(|value| Stage::from_jira_status(value))?;
        if !jql::FLAGGED_STAGES.contains(&stage) || fields.status.is_done() {
            return None;
        }
        let repos = fields.field_values(self.repo);
        let has_repo_value =
            |(value, _): &&(&str, &Mapping)| repos.iter().any(|repo| repo == value);
        let (_, mapping) = self.mappings.iter().find(has_repo_value)?;
        Some(FlaggedIssue {
            trigger_author: TriggerAuthor::Trusted,
            has_trigger: true,
            updated_at: fields.updated,
            issue: issue.issue_ref(site, self.status),
            team: mapping.team_key.clone(),
            facts: None,
            stage,
            priority: priority(fields.priority.as_ref()),
            created_at: fields.created,
            description: ArenaStr::default(),
            status_category: fields.status.status_category(),
            state_name: fields.status.name.clone(),
            open_blockers: fields.open_blockers(),
            related: fields.related(),
            labels: Some(fields.labels.clone()),
            agent_choice: AgentChoice::from_labels(fields.labels.iter().map(String::as_str)),
        })
    }
}
