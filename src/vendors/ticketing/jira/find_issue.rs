//! Finding an issue that somebody named, and the mappings it is for.
//!
//! The issue itself is read first: its repo field leaves few mappings, mostly one. Whether their
//! query clauses hold is then asked by its id, because a query that names a key which does not
//! exist is refused like one that is wrong.

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

/// A mapping that may own the issue.
struct Candidate<'a> {
    mapping: &'a Mapping,
    clause: &'a str,
    repo_value: &'a str,
    status: FieldId,
    repo: FieldId,
}

pub(super) async fn read(
    jira: &Jira,
    mappings: &[&Mapping],
    key: &IssueKey,
) -> Result<Vec<IssueLookup>, VendorError> {
    let (mut candidates, unclear) = candidates(jira, mappings).await;
    let Some(issue) = issue(jira, &candidates, key).await? else {
        return Ok(Vec::new());
    };
    candidates.retain(|candidate| candidate.is_for(&issue));
    let site = jira.site_url().await?;
    let (owners, failed) = owners(jira, &candidates, &issue, &site).await;
    match unclear.or(failed) {
        // A mapping of which nothing could be told may be the one that owns it.
        Some(error) if owners.is_empty() => Err(error),
        _ => Ok(owners),
    }
}

/// The mappings whose fields are known, and what kept one from being among them.
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

/// The issue with the fields of all candidates, if there is one.
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

/// The issue as each candidate sees it whose clause it meets; one search for each distinct clause.
async fn owners(
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
    let asked = clauses.iter().map(|clause| meets(jira, clause, issue));
    let mut failure = None;
    let answers: HashMap<&str, bool> = clauses
        .iter()
        .copied()
        .zip(join_all(asked).await)
        .map(|(clause, answer)| {
            let is_met = answer.unwrap_or_else(|error| {
                failure = Some(error);
                false
            });
            (clause, is_met)
        })
        .collect();
    let owners = candidates
        .iter()
        .filter(|candidate| answers.get(candidate.clause) == Some(&true))
        .map(|candidate| candidate.named(issue, site))
        .collect();
    (owners, failure)
}

async fn meets(jira: &Jira, clause: &str, issue: &Issue) -> Result<bool, VendorError> {
    // Jira numbers its issues; what is no number meets no clause.
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
    fn is_for(&self, issue: &Issue) -> bool {
        let repos = issue.fields.field_values(self.repo);
        repos.iter().any(|repo| repo == self.repo_value)
    }

    fn named(&self, issue: &Issue, site: &str) -> IssueLookup {
        IssueLookup {
            issue: issue.issue_ref(site, self.status),
            team: self.mapping.team_key.clone(),
            description: issue.fields.description_markdown(),
            related: issue.fields.related(),
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
