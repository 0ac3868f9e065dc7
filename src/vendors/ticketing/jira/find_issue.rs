//! Lookup of an issue by its key, with the mappings whose scope contains it.
//!
//! The issue is read first. Its repo field reduces the mappings to few, usually one. Their query clauses
//! are then checked by the issue's id, because Jira rejects a query with an unknown key like an invalid
//! query.

use std::collections::HashMap;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;

use crate::http::{Method, VendorError, percent_encode};
use domain::ids::IssueKey;
use domain::issue::IssueLookup;
use domain::mapping::{Mapping, TicketingConfig};

use super::fields::FieldId;
use super::issue::{Issue, requested_fields};
use super::snapshot::mapping_field_ids;
use super::{Jira, jql};

const ACTION: &str = "reading the issue";

/// Mapping whose scope may contain the issue.
struct Candidate<'a> {
    mapping: &'a Mapping,
    clause: &'a str,
    repo_value: &'a str,
    status: FieldId,
    repo: FieldId,
}

impl Jira {
    /// Finds an issue by its key. Returns one entry for each mapping whose query and repo value it matches.
    ///
    /// # Errors
    /// Fails if no mapping matches and at least one of them could not be checked.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        let (mut candidates, field_error) = candidates(self, mappings).await;
        let Some(issue) = issue(self, &candidates, key).await? else {
            return Ok(Vec::new());
        };
        candidates.retain(|candidate| candidate.has_repo_value(&issue));
        let site = self.site_url().await?;
        let (matching_lookups, search_error) =
            matching_lookups(self, &candidates, &issue, &site).await;
        match field_error.or(search_error) {
            // A mapping that could not be checked may be the one whose scope contains the issue.
            Some(error) if matching_lookups.is_empty() => Err(error),
            _ => Ok(matching_lookups),
        }
    }
}

/// Returns the mappings whose fields were found, and the last error of the others.
async fn candidates<'a>(
    jira: &Jira,
    mappings: &[&'a Mapping],
) -> (Vec<Candidate<'a>>, Option<VendorError>) {
    let (mut candidates, mut failure) = (Vec::new(), None);
    for mapping in mappings.iter().copied() {
        let TicketingConfig::Jira {
            jql,
            repo_field_value,
            ..
        } = &mapping.ticketing
        else {
            continue;
        };
        match mapping_field_ids(jira, ACTION, mapping).await {
            Ok((status, repo)) => candidates.push(Candidate {
                mapping,
                clause: jql.trim(),
                repo_value: repo_field_value.trim(),
                status,
                repo,
            }),
            Err(error) => failure = Some(error),
        }
    }
    (candidates, failure)
}

/// Reads the issue with the fields of all candidates. `None` if it does not exist.
async fn issue(
    jira: &Jira,
    candidates: &[Candidate<'_>],
    key: &IssueKey,
) -> Result<Option<Issue>, VendorError> {
    let mut custom: Vec<FieldId> = candidates
        .iter()
        .flat_map(|candidate| [candidate.status, candidate.repo])
        .collect();
    custom.sort_unstable();
    custom.dedup();
    let fields = requested_fields(custom).join(",");
    let path = format!("/issue/{}?fields={fields}", percent_encode(key.as_str()));
    match jira.client.send(&jira.get(ACTION, &path)).await {
        Ok(response) => response.json().map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns one lookup for each candidate whose clause matches the issue, and the last error. Takes one
/// search per distinct clause.
async fn matching_lookups(
    jira: &Jira,
    candidates: &[Candidate<'_>],
    issue: &Issue,
    site: &str,
) -> (Vec<IssueLookup>, Option<VendorError>) {
    let mut clauses: Vec<&str> = candidates
        .iter()
        .map(|candidate| candidate.clause)
        .collect();
    clauses.sort_unstable();
    clauses.dedup();
    let searches = clauses
        .iter()
        .map(|clause| matches_clause(jira, clause, issue));
    let mut failure = None;
    let match_by_clause: HashMap<&str, bool> = clauses
        .iter()
        .copied()
        .zip(join_all(searches).await)
        .map(|(clause, result)| {
            let is_match = result.unwrap_or_else(|error| {
                failure = Some(error);
                false
            });
            (clause, is_match)
        })
        .collect();
    let matching_lookups = candidates
        .iter()
        .filter(|candidate| match_by_clause.get(candidate.clause) == Some(&true))
        .map(|candidate| candidate.lookup(issue, site))
        .collect();
    (matching_lookups, failure)
}

async fn matches_clause(jira: &Jira, clause: &str, issue: &Issue) -> Result<bool, VendorError> {
    // Ids of Jira issues are numbers. Another id cannot match.
    let Ok(id) = issue.id.parse() else {
        return Ok(false);
    };
    let body = json!({
        "jql": jql::issue_by_id(clause, id),
        "maxResults": 1,
        "fields": ["id"],
        "reconcileIssues": [id],
    });
    let request = jira.request(ACTION, Method::POST, "/search/jql");
    let hits: Hits = jira
        .client
        .send(&request.json(&body).safe())
        .await?
        .json()?;
    Ok(hits.issues.iter().any(|hit| hit.id == issue.id))
}

impl Candidate<'_> {
    fn has_repo_value(&self, issue: &Issue) -> bool {
        let repos = issue.fields.field_values(self.repo);
        repos.iter().any(|repo| repo == self.repo_value)
    }

    fn lookup(&self, issue: &Issue, site: &str) -> IssueLookup {
        IssueLookup {
            issue: issue.issue_ref(site, self.status),
            team: self.mapping.team_key.clone(),
            description: issue.fields.description_markdown(),
            related: issue.fields.related(),
            labels: issue.fields.labels.clone(),
        }
    }
}

#[derive(Deserialize)]
struct Hits {
    #[serde(default)]
    issues: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    id: String,
}
